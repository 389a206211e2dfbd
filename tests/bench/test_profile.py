"""Profiles: a watched decoder decodes as before, every stage counts once, and what stages read is what they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from longstride.bench.candidate import Candidate
from longstride.bench.machine import MemoryProbe, cuda_probe
from longstride.bench.profile import Device, copy_bandwidth, device_facts, profile
from longstride.bench.profile_watch import CudaMarks, Delegate, Stopwatch, Watched, synchronizer
from longstride.bench.profile_weights import ReadingRunner, merged_length
from longstride.bench.record_parts import MemoryUse, ModelTag
from longstride.bench.records import Profile
from longstride.contract import Decoder, Limits, Program, Runner, Source
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from tests.bench.conftest import FakeClock, make_origin, make_workload
from tests.decoding import test_interleaved_recorded as interleaved
from tests.lattice import test_recorded as lattice
from tests.models import random_source, tiny_model
from tests.runtime.test_cuda_graph import decoder_of, taped

KINDS = ("greedy", "beam", "blockwise", "draft-verify", "interleaved", "lattice")
LIMITS = Limits(max_length=9)


def make(kind: str, runner: Runner) -> Decoder:
    if kind == "interleaved":
        return interleaved.decoder(runner, 1, {"h": 2, "c": 1}, width=1)
    if kind == "lattice":
        return lattice._decoder(runner)
    return decoder_of(kind, runner, 1)


def runner_of(how: str) -> Runner:
    return taped()[0] if how == "recorded" else EagerRunner(precision="fp64")


def watched(how: str, clock: Any = None) -> Watched:
    watch = Stopwatch(lambda: None, clock or FakeClock())
    return Watched(runner_of(how), watch)


@pytest.mark.parametrize("how", ["eager", "recorded"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3])
def test_a_watched_decoder_decodes_as_before(kind: str, how: str, rows: int) -> None:
    source, runner = random_source(rows, 6, seed=2), watched(how)
    ours, theirs = make(kind, runner), make(kind, runner_of(how))
    expected = theirs.decode(source, LIMITS)
    for on in (False, True):
        runner.watch.on = on
        found = ours.decode(source, LIMITS)
        assert found.tokens == expected.tokens
        assert bool(runner.watch.spent) == on
    assert ours.signature == theirs.signature


@pytest.mark.parametrize(
    ("kind", "how", "expected"),
    [
        ("greedy", "eager", {"remember", "step"}),
        ("draft-verify", "eager", {"remember", "remember-draft", "step"}),
        ("beam", "eager", {"remember", "extend candidates"}),
        ("lattice", "eager", {"encode", "candidates", "score", "search"}),
        ("lattice", "recorded", {"lattice"}),
    ],
)
def test_stages_are_programs_or_recordings(kind: str, how: str, expected: set[str]) -> None:
    runner = watched(how)
    decoder, source = make(kind, runner), random_source(1, 6, seed=2)
    decoder.decode(source, LIMITS)
    runner.watch.on = True
    decoder.decode(source, LIMITS)
    assert set(runner.watch.spent) == expected
    read = reading(kind, how, source).read
    assert {name for name in read if " / " not in name} == expected
    assert {name for name in expected if read[name] == 0} == expected & {"candidates", "search"}
    for whole in expected:
        parts = [number for name, number in read.items() if name.startswith(f"{whole} / ")]
        assert read[whole] <= sum(parts) or not parts


def test_a_recorded_draft_and_its_verification_are_one_stage() -> None:
    runner = watched("recorded")
    decoder, source = make("draft-verify", runner), random_source(1, 6, seed=2)
    decoder.decode(source, LIMITS)
    runner.watch.on = True
    found = decoder.decode(source, LIMITS, trace=True)
    entered, *iterated = runner.watch.spent
    assert entered == "enter"
    assert all(name.startswith("iterate ") for name in iterated)
    assert runner.watch.spent["enter"].calls == 1
    assert found.traces is not None
    assert sum(runner.watch.spent[name].calls for name in iterated) == found.traces[0].iterations
    read = reading("draft-verify", "recorded", source).read
    assert {name for name in read if " / " not in name} == {"enter", *iterated}


class FakeMarks:
    """Every program took three microseconds."""

    def __init__(self) -> None:
        self.made = 0

    def capturing(self) -> bool:
        return torch.utils._python_dispatch._get_current_dispatch_mode() is not None

    def mark(self) -> int:
        self.made += 1
        return self.made

    def nanoseconds(self, first: int, last: int) -> int:
        assert last == first + 1
        return 3_000


def test_a_recording_can_be_taken_apart() -> None:
    """By marks in recordings of its own: those that nobody watches have none."""
    runner, _ = taped()
    marks = FakeMarks()
    outside = Watched(runner, Stopwatch(lambda: None, FakeClock()), marks)
    decoder, source = make("draft-verify", outside), random_source(1, 6, seed=2)
    expected = decoder.decode(source, LIMITS).tokens
    graphs = runner.statistics.graphs
    assert marks.made == 0
    outside.watch.on = True
    assert decoder.decode(source, LIMITS).tokens == expected
    assert runner.statistics.graphs == 2 * graphs
    assert marks.made == 2 * 4  # two encoders, a draft and a verification
    spent = outside.watch.spent
    wholes = {name: one for name, one in spent.items() if not one.within}
    parts = {name: one for name, one in spent.items() if one.within}
    assert set(parts) == {name for name in reading("draft-verify", "recorded", source).read if " / " in name}
    for one in parts.values():
        assert one.calls == wholes[one.within].calls
        assert one.nanoseconds == 3_000 * one.calls
    made = marks.made
    outside.watch.on = False
    assert decoder.decode(source, LIMITS).tokens == expected
    assert (marks.made, runner.statistics.graphs) == (made, 2 * graphs)


def reading(kind: str, how: str, source: Source) -> ReadingRunner:
    runner = ReadingRunner(EagerRunner(precision="fp64"), runner_of(how))
    modules: list[torch.nn.Module] = []
    placing = runner.runner.place
    runner.place = lambda module: modules.append(placing(module)) or module  # type: ignore[assignment]
    decoder = make(kind, runner)
    if kind == "lattice":
        modules.append(decoder._model)  # type: ignore[attr-defined]
    runner.know(modules)
    decoder.decode(source, LIMITS)
    return runner


def test_every_stage_counts_once_and_only_while_watched() -> None:
    clock = FakeClock(1)
    runner = Watched(EagerRunner(precision="fp64"), Stopwatch(lambda: None, clock))
    inner = Program("inner", lambda: 1)
    outer = Program("outer", lambda: runner.call(inner) + runner.call(inner))
    bound = runner.bound(inner)
    assert (runner.call(outer), bound()) == (2, 1)
    assert clock.now == 0
    runner.watch.on = True
    assert (runner.call(outer), bound(), bound()) == (2, 1, 1)
    assert {name: (one.calls, one.nanoseconds) for name, one in runner.watch.spent.items()} == {
        "outer": (1, 1),
        "inner": (2, 2),
    }


def test_a_stage_that_fails_leaves_the_watch_as_it_was() -> None:
    watch = Stopwatch(lambda: None, FakeClock())
    watch.on = True
    with pytest.raises(ZeroDivisionError):
        watch.timed("broken", lambda: 1 // 0)
    assert watch.timed("whole", lambda: 3) == 3
    assert list(watch.spent) == ["whole"]


def test_nothing_waits_for_the_device_while_it_is_recorded() -> None:
    """A graph cannot be captured with a synchronisation inside."""
    runner, _ = taped()
    waited: list[int] = []
    outside = Watched(runner, Stopwatch(lambda: waited.append(1), FakeClock()))
    outside.watch.on = True
    state = torch.zeros(2, dtype=torch.float64)
    program = Program("add", lambda: state.add_(1))
    again = outside.record("twice", lambda: outside.call(program) + outside.call(program), [state])
    assert not waited
    again()
    assert len(waited) == 2
    assert {name: one.calls for name, one in outside.watch.spent.items()} == {"twice": 1}


def test_what_is_not_recorded_is_left_as_it_is() -> None:
    runner = watched("eager")

    def function() -> int:
        return 1

    assert runner.record("name", function, []) is function
    assert ReadingRunner(runner.runner, runner.runner).record("name", function, []) is function


def test_every_answer_of_a_delegate_is_the_runners_own() -> None:
    runner, _ = taped()
    mine = Delegate(runner)
    asked = {name for name in vars(Runner) if not name.startswith("_") and callable(getattr(Runner, name))}
    assert asked - set(vars(Delegate)) == {"bound", "record"}  # wrapped by both kinds of delegates
    told = {name for name, value in vars(Runner).items() if isinstance(value, property)}
    assert told - set(vars(Delegate)) == {"dtype"}  # by the precision, which is the runner's
    assert mine.moves_rows
    assert (mine.records, mine.binds, mine.name) == (True, False, "cuda-graph")
    assert (mine.describe(), mine.report(), mine.round_up(5)) == (runner.describe(), "", 8)
    assert mine.dtype == torch.float64


# --- weights ---------------------------------------------------------------------------------------------------------


def test_stages_read_the_weights_that_they_compute_with() -> None:
    """Encoder: its layers and the projections of memory; a step: all else, and the output projection, but no row."""
    model = tiny_model(0)
    runner = ReadingRunner(EagerRunner(precision="fp64"), EagerRunner(precision="fp64"))
    runner.know([model])
    Greedy(model, runner).decode(random_source(1, 5, seed=1), LIMITS)
    projections = [layer.cross for layer in model.decoder_layers()]
    total = sum(parameter.nbytes for parameter in model.parameters())
    encoder = sum(parameter.nbytes for parameter in model.encoder.parameters())
    assert set(runner.read) == {"remember", "step"}
    assert runner.read["remember"] > encoder
    # Input rows are looked up in the very table that is the output projection: nothing is read by neither.
    assert sum(runner.read.values()) == total
    assert projections


def test_weights_in_integers_are_as_wide_as_they_are_kept() -> None:
    whole, narrow = (
        ReadingRunner(EagerRunner(precision="fp32"), EagerRunner(precision=precision))  # type: ignore[arg-type]
        for precision in ("fp32", "int8")
    )
    product = torch.nn.Linear(8, 4)
    program = Program("product", product)
    for runner in (whole, narrow):
        runner.know([product])
        runner.call(program, torch.zeros(1, 8))
    assert whole.read == {"product": 4 * (32 + 4)}
    assert narrow.read == {"product": 32 + 4 * 4}


def test_bytes_count_once() -> None:
    assert merged_length([]) == 0
    assert merged_length([(4, 8), (0, 2), (6, 10), (0, 1)]) == 8


# --- the protocol ----------------------------------------------------------------------------------------------------


def profiled(kind: str = "greedy", batch_size: int = 1, sample: int | None = None, **more: Any) -> Profile:
    clock = FakeClock(1_000)
    runner = watched("eager", clock)
    workload = make_workload([3, 1, 5, 2])
    workload = replace(workload, sources=tuple(tuple(min(one, 10) for one in row) for row in workload.sources))
    candidate = Candidate(kind, make(kind, runner), LIMITS, sample=sample, model=ModelTag("tiny"), **more)
    facts = Device(1e9, host=MemoryProbe(lambda: 1, lambda: None, lambda: 2))
    return profile(candidate, runner.watch, workload, batch_size, make_origin(), facts, clock=clock)


def test_shares_add_up_to_the_whole() -> None:
    found = profiled()
    taken = {stage.name: stage.microseconds for stage in found.stages}
    assert set(taken) == {"remember", "step"}
    assert found.stages[0].calls == found.sentences == 4
    # Every reading of the clock is a microsecond after the last: one for each stage, two more around them.
    calls = sum(stage.calls for stage in found.stages)
    assert sum(taken.values()) == calls
    assert found.watched_us == 2 * calls + 4
    assert found.rest_us == calls + 4
    assert found.plain_us == (1, 1, 1, 1)
    assert found.notes["differing"] == 0
    assert found.memory == MemoryUse(host_held=1, host_peak=2)


def test_batches_and_samples() -> None:
    assert len(profiled(batch_size=3).plain_us) == 2
    found = profiled(sample=2)
    assert (found.sentences, found.workload.size, len(found.plain_us)) == (2, 4, 2)


def test_device_memory_is_that_of_the_plain_pass() -> None:
    asked: list[str] = []

    def said(name: str, number: int) -> int:
        asked.append(name)
        return number

    probe = MemoryProbe(lambda: said("held", 3), lambda: asked.append("reset"), lambda: said("peak", 5))
    found = profiled(memory=probe)
    assert (found.memory.device_held, found.memory.device_peak) == (3, 5)
    assert asked == ["reset", "held", "peak"]


def test_bandwidth_is_bytes_read_and_written_over_the_best_time() -> None:
    assert copy_bandwidth(torch.device("cpu"), 1000, FakeClock(500)) == pytest.approx(2 * 1000 / 500e-9)
    synchronizer(torch.device("cpu"))()


def test_facts_of_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longstride.bench.profile.COPIED", {"cpu": 4096})
    facts = device_facts(torch.device("cpu"))
    assert facts.bandwidth is not None
    assert facts.bandwidth > 0
    assert facts.reserved is None


# --- on a device -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("how", ["eager", "captured", "taken apart"])
def test_on_a_gpu(how: str) -> None:
    device = torch.device("cuda:0")
    inner: Runner = EagerRunner(device, "fp32") if how == "eager" else CudaGraphRunner(device, "fp32")
    watch = Stopwatch(synchronizer(device))
    runner = Watched(inner, watch, CudaMarks() if how == "taken apart" else None)
    workload = make_workload([3, 1, 5, 2])
    workload = replace(workload, sources=tuple(tuple(min(one, 10) for one in row) for row in workload.sources))
    candidate = Candidate(
        *("draft-verify", make("draft-verify", runner), LIMITS),
        synchronize=synchronizer(device),
        memory=cuda_probe(device),
    )
    facts = device_facts(device)
    found = profile(candidate, watch, workload, 1, make_origin(), facts, again=how == "taken apart")
    assert found.notes["differing"] == 0
    assert found.rest_us >= 0
    assert found.memory.device_peak
    assert found.reserved
    assert found.bandwidth
    parts = {stage.name for stage in found.stages if stage.within}
    assert bool(parts) == (how == "taken apart")
    for stage in found.stages:
        assert stage.calls
        assert sum(one.microseconds for one in found.stages if one.within == stage.name) <= stage.microseconds
