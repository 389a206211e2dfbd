from typing import Any

import pytest

from longstride.bench.candidate import Candidate, Captured
from longstride.bench.machine import MemoryProbe
from longstride.bench.measure import Protocol, measure, order_of_turn, warmup_batches
from longstride.bench.record_files import from_line, to_line
from longstride.bench.record_parts import ModelTag, Origin, Preparation
from longstride.bench.records import Latency
from longstride.bench.traced_pass import count, traced_pass
from longstride.bench.workload import Workload
from longstride.contract import Decoded, Event, Limits, OptionError, Source, Trace, decoding
from longstride.contract.decoding import Tell
from tests.fakes import CopyDecoder

from .conftest import FakeClock, Strider


class Diary(CopyDecoder):
    """Writes down what it was asked to decode."""

    def __init__(self, name: str, diary: list[tuple[str, int]], traced: bool = True) -> None:
        self.label, self.diary, self.traced = name, diary, traced

    def decode(
        self,
        source: Source,
        limits: Limits | None = None,
        capacity: int | None = None,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Decoded:
        if not trace:
            self.diary.append((self.label, source.rows))
        decoded = super().decode(source, limits, capacity, trace, tell)
        return decoded if self.traced else Decoded(decoded.hypotheses)


def run(workload: Workload, candidates: list[Candidate], origin: Origin, protocol: Protocol) -> list[Latency]:
    groups = measure(workload, candidates, protocol, origin, clock=FakeClock())
    return [record for group in groups for record in group]


def test_readings_are_whole_and_exact(workload: Workload, origin: Origin) -> None:
    copy = Candidate("copy", CopyDecoder(), role="baseline", model=ModelTag("none"))
    (record,) = run(workload, [copy], origin, Protocol(passes=2))
    assert record.latencies_us == ((5,) * 10, (5,) * 10), "two readings, five microseconds apart, per sentence"
    assert record.source_lengths == tuple(map(len, workload.sources))
    assert record.output_lengths == tuple(len(source) - 1 for source in workload.sources)
    assert record.scores[0].value == pytest.approx(100.0)
    assert record.warmup == len(workload.warmup)
    assert record.unstable == 0
    assert record.counts is not None
    assert record.counts.tokens == record.counts.iterations - 10 == record.counts.tokens_with_eos - 10
    assert from_line(to_line(record)) == record


def test_tokens_per_iteration_and_acceptance_come_from_traces(workload: Workload, origin: Origin) -> None:
    (record,) = run(workload, [Candidate("strider", Strider())], origin, Protocol(passes=1))
    counts = record.counts
    assert counts is not None
    expected = [-(-len(source) // 2) for source in workload.sources]
    assert record.iterations == tuple(expected)
    assert counts.iterations == sum(expected)
    assert counts.calls == sum(expected) + len(expected)
    assert counts.tokens_with_eos == sum(map(len, workload.sources))
    assert counts.drafted_at == (sum(expected), sum(expected))
    odd = sum(len(source) % 2 for source in workload.sources)
    assert counts.accepted_at == (sum(expected), sum(expected) - odd)
    assert counts.committed == (0, odd, sum(expected) - odd)


def test_counts_equal_counting_by_hand() -> None:
    trace = Trace((Event((0, 1, 2), (9, 9, 9), 4, 2, True), Event((), (), 4, 0, False), Event((3,), (3,), 1, 0, True)))
    found = count([trace], [[9, 9, 9]], calls=7)
    assert (found.iterations, found.calls, found.tokens, found.tokens_with_eos) == (3, 7, 3, 4)
    assert found.tokens_per_iteration == 1, "the end is not counted"
    assert found.reached_at == (3, 1, 1), "a third token counts as tried only where two were accepted"
    assert (found.drafted_at, found.accepted_at, found.committed) == ((3, 2, 2, 2), (1, 1), (1, 1, 0, 1))


def test_candidates_take_turns_and_none_is_always_first(workload: Workload, origin: Origin) -> None:
    diary: list[tuple[str, int]] = []
    names = ["a", "b", "c"]
    run(workload, [Candidate(name, Diary(name, diary)) for name in names], origin, Protocol(passes=2))
    timed = [name for name, _ in diary[3 * len(workload.warmup) :]]
    rounds = [timed[first : first + 3] for first in range(0, len(timed), 3)]
    assert len(rounds) == 20
    assert all(sorted(one) == names for one in rounds)
    firsts = [one[0] for one in rounds]
    assert max(firsts.count(name) for name in names) - min(firsts.count(name) for name in names) <= 2
    followed = {(one[place], one[place + 1]) for one in rounds for place in (0, 1)}
    assert len(followed) == 6, "everyone runs in the wake of everyone else"


def test_orders_are_permutations() -> None:
    for candidates in range(1, 6):
        for turn in range(25):
            assert sorted(order_of_turn(candidates, turn)) == list(range(candidates))
    assert order_of_turn(0, 3) == []


def test_batches_are_sorted_by_length(workload: Workload, origin: Origin) -> None:
    diary: list[tuple[str, int]] = []
    protocol = Protocol(passes=1, batch_sizes=(1, 4))
    records = run(workload, [Candidate("copy", Diary("copy", diary), role="baseline")], origin, protocol)
    assert [record.batch_size for record in records] == [1, 4]
    assert records[1].batches == (4, 4, 2)
    assert len(records[1].latencies_us[0]) == 3
    assert records[1].output_lengths == records[0].output_lengths, "given in the workload's order all the same"
    assert records[1].scores == records[0].scores
    assert all(source.rows <= 4 for source in warmup_batches(workload, 4))
    assert len(warmup_batches(workload, 4)) >= 8
    assert all(source.rows <= len(workload.sources) for source in warmup_batches(workload, 10**6))


@pytest.mark.parametrize("size", [1, 2])
def test_open_batches_are_what_one_session_decodes(
    workload: Workload, origin: Origin, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest first; others take the places of those that are done."""
    monkeypatch.setattr(decoding, "GROUP", 3)
    seen: list[tuple[list[int], int | None]] = []

    class Seen(CopyDecoder):
        def decode(
            self, source: Source, limits: Any = None, capacity: int | None = None, *rest: Any, **more: Any
        ) -> Any:
            seen.append((source.lengths.tolist(), capacity))
            return super().decode(source, limits, capacity, *rest, **more)

    captured = lambda: Captured(0, 0.0, 0, 0)  # noqa: E731
    protocol = Protocol(passes=2, batch_sizes=(size,), batch_kind="open")
    (record,) = run(workload, [Candidate("copy", Seen(), captured=captured)], origin, protocol)
    lengths = sorted(map(len, workload.sources), reverse=True)
    groups = [lengths[first : first + 3 * size] for first in range(0, len(lengths), 3 * size)]
    assert record.batches == tuple(map(len, groups))
    assert len(record.latencies_us[0]) == len(groups)
    assert record.batch_kind == "open"
    assert from_line(to_line(record)) == record
    assert all(capacity == size for _, capacity in seen)
    assert [given for given, _ in seen[-len(groups) :]] == groups, "traced"
    assert [given for given, _ in seen[-4 * len(groups) : -3 * len(groups)]] == groups, "warmed up with as many as long"


def test_slow_candidates_decode_a_fixed_sample_once(workload: Workload, origin: Origin) -> None:
    diary: list[tuple[str, int]] = []
    slow = Candidate("slow", Diary("slow", diary, traced=False), sample=4, passes=1)
    fast = Candidate("fast", CopyDecoder(), role="baseline")
    records = run(workload, [fast, slow], origin, Protocol(passes=3))
    assert [record.candidate for record in records] == ["fast", "slow"]
    record = records[1]
    assert record.sentences == workload.sample(4)
    assert [len(readings) for readings in record.latencies_us] == [4]
    assert len(diary) == len(workload.warmup) + 4, "warm-up and one timed pass"
    assert record.counts is None
    assert record.iterations == ()
    assert record.against[0].sentences == 4


def test_differences_from_the_reference_are_counted(workload: Workload, origin: Origin) -> None:
    candidates = [Candidate("greedy", CopyDecoder(), role="baseline"), Candidate("spoiled", Strider(spoil=True))]
    greedy, spoiled = run(workload, candidates, origin, Protocol(passes=1, reference="greedy"))
    assert greedy.equality is not None
    assert greedy.equality.differing == 0
    assert greedy.against == ()
    long = [place for place, source in enumerate(workload.sources) if len(source) > 4]
    assert spoiled.equality is not None
    assert (spoiled.equality.compared, spoiled.equality.differing) == (10, len(long))
    assert spoiled.equality.first == tuple(long)
    (against,) = spoiled.against
    assert against.baseline == "greedy"
    assert against.comparison.difference < 0
    assert against.comparison.candidate == spoiled.scores[0].value


def test_outputs_that_change_between_passes_are_counted(workload: Workload, origin: Origin) -> None:
    class Moody(CopyDecoder):
        decoded = 0

        def decode(
            self,
            source: Source,
            limits: Limits | None = None,
            capacity: int | None = None,
            trace: bool = False,
            tell: Tell | None = None,
        ) -> Decoded:
            self.decoded += 1
            shorter = Limits(max_length=1) if self.decoded == len(workload.warmup) + 1 else limits
            return super().decode(source, shorter, capacity, trace)

    (record,) = run(workload, [Candidate("moody", Moody())], origin, Protocol(passes=2))
    assert record.unstable == 1


def test_the_device_is_synchronised_before_every_reading(workload: Workload, origin: Origin) -> None:
    log: list[str] = []

    def clock() -> int:
        log.append("clock")
        return 1000 * len(log)

    copy = Candidate("copy", CopyDecoder(), synchronize=lambda: log.append("sync"))
    list(measure(workload, [copy], Protocol(passes=1), origin, clock=clock))
    assert log.count("clock") == 2 * workload.size + 2, "before and after every sentence, and the warm-up"
    assert all(log[place - 1] == "sync" for place, what in enumerate(log) if what == "clock")


def test_device_memory_is_probed_per_candidate(workload: Workload, origin: Origin) -> None:
    resets: list[str] = []
    probe = MemoryProbe(lambda: 100, lambda: resets.append("reset"), lambda: 300)
    (record,) = run(workload, [Candidate("copy", CopyDecoder(), memory=probe)], origin, Protocol(passes=1))
    assert (record.memory.device_held, record.memory.device_peak, resets) == (100, 300, ["reset"])
    assert record.memory.host_peak


class Capturing(CopyDecoder):
    """Captures a graph for every length of source that is new to its runtime, which others may share."""

    def __init__(self, lengths: set[int]) -> None:
        self.lengths = lengths

    def decode(
        self,
        source: Source,
        limits: Limits | None = None,
        capacity: int | None = None,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Decoded:
        self.lengths.add(source.longest)
        return super().decode(source, limits, capacity, trace)

    def captured(self) -> Captured:
        made = len(self.lengths)
        return Captured(made, 0.5 * made, 1000 * made, 5000 - 10 * made)


def test_what_was_captured_is_told_of_whoever_needed_it(workload: Workload, origin: Origin) -> None:
    decoder = Capturing(set())
    candidates = [
        Candidate("first", decoder, captured=decoder.captured),
        Candidate("second", decoder, captured=decoder.captured),
        Candidate("eager", CopyDecoder()),
    ]
    first, second, eager = run(workload, candidates, origin, Protocol(passes=1))
    made = len({len(source) for source in (*workload.warmup, *workload.sources)})
    assert made == len(decoder.lengths), "nothing was captured while the clock ran"
    assert first.preparation == Preparation(5e-6, 0.5 * made, made, 1000 * made, 0), "a clock's step, and every length"
    assert second.preparation == Preparation(5e-6, 0.0, 0, 0, 0), "all was there"
    assert eager.preparation == Preparation(5e-6)
    assert from_line(to_line(first)) == first


def test_interrupting_leaves_no_half_records(workload: Workload, origin: Origin) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if "batch size 2" in stage and done == 3:
            raise KeyboardInterrupt

    protocol = Protocol(passes=1, batch_sizes=(1, 2))
    groups = measure(workload, [Candidate("copy", CopyDecoder())], protocol, origin, progress=interrupt)
    assert [record.batch_size for record in next(groups)] == [1]
    with pytest.raises(KeyboardInterrupt):
        next(groups)


def test_a_traced_pass_finds_the_same_whatever_the_batches(workload: Workload, origin: Origin) -> None:
    candidates = [Candidate("greedy", CopyDecoder(), role="baseline"), Candidate("spoiled", Strider(spoil=True))]
    timed = run(workload, candidates, origin, Protocol(passes=1, reference="greedy"))
    for one, candidate in zip(timed, candidates, strict=True):
        other = traced_pass(candidate, workload, range(workload.size), batch_size=3)
        assert one.scores == other.scores
        assert one.counts is not None
        assert other.counts is not None
        assert one.counts.accepted_at == other.counts.accepted_at


@pytest.mark.parametrize(
    ("names", "reference", "found"),
    [([], None, "found none"), (["a", "a"], None, "'a' twice"), (["a"], "b", "one of a, found 'b'")],
)
def test_bad_line_ups_are_refused(
    workload: Workload, origin: Origin, names: list[str], reference: str | None, found: str
) -> None:
    candidates = [Candidate(name, CopyDecoder()) for name in names]
    with pytest.raises(OptionError, match=found):
        list(measure(workload, candidates, Protocol(reference=reference), origin))


def test_bad_options_are_refused() -> None:
    with pytest.raises(OptionError, match="passes expects a whole number from 1 to 1000000, found 0"):
        Protocol(passes=0)
    with pytest.raises(OptionError, match="batch_sizes expects"):
        Protocol(batch_sizes=(1, 0))
