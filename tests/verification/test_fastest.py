"""Decoders with the same outputs, of which the fastest is found while they work."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride import load
from longstride.contract import Decoded, Decoder, Hypothesis, Limits, Source, TraceBuilder
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.verification import fastest
from longstride.verification.fastest import LONGER, TELLING, TRIALS, Fastest, OneByOne
from tests.decoding.drafters import tiny_drafter
from tests.family import write_family
from tests.folders import edit_config
from tests.models import random_source, tiny_model
from tests.runtime.graphs import WHY_NOT_NATIVE

RUNNER = EagerRunner(precision="fp64")
LONG = Limits(max_length=TELLING, min_length=TELLING)
SHORT = Limits(max_length=TELLING - 1)


class Clock:
    """Every decoder takes as long as it is told to; who was asked, in order."""

    def __init__(self, each: dict[str, float]) -> None:
        self._each, self.asked = each, list[str]()

    def __call__(self) -> float:
        return sum(self._each[name] for name in self.asked)

    def watched(self, name: str, decoder: Decoder) -> Decoder:
        """Tells the clock of every sentence."""
        start = decoder.start

        def told(*given, **more):
            self.asked.append(name)
            return start(*given, **more)

        decoder.start = told  # type: ignore[method-assign]
        return decoder


def several(seed: int, clock: Clock) -> tuple[Greedy, dict[str, Decoder], Fastest]:
    model, drafter = tiny_model(seed), tiny_drafter(seed)
    greedy, drafted = Greedy(model, RUNNER), DraftVerify(model, drafter, RUNNER)
    each = {"usual": Greedy(model, RUNNER), "short": drafted.with_shorter_drafts(), "long": drafted}
    each = {name: clock.watched(name, decoder) for name, decoder in each.items()}
    return greedy, each, Fastest(each["usual"], lambda: each["long"], lambda: each["short"])


@settings(max_examples=6)
@given(
    seed=st.integers(0, 10_000),
    limits=st.lists(st.sampled_from([LONG, LONG, SHORT]), max_size=20),
    order=st.permutations(["usual", "long", "short"]),
)
def test_outputs_are_the_usual_ones_and_the_fastest_is_found(seed, limits, order):
    clock = Clock({name: 1.0 + place for place, name in enumerate(order)})
    greedy, each, found = several(seed, clock)
    limits += [LONG] * 3 * (TRIALS + 1)
    with patch.object(fastest, "perf_counter", clock):
        for number, limit in enumerate(limits):
            source = random_source(1, 6, seed=seed + number)
            assert found.decode(source, limit).tokens == greedy.decode(source, limit).tokens
    assert clock.asked[:2] == ["usual"] * 2, "who has one sentence alone waits for nothing else"
    assert found.chosen is each[order[0]]
    assert found.signature == greedy.signature


def test_those_that_are_close_are_tried_for_longer():
    clock = Clock({"usual": 1.1, "long": 1.0, "short": 1.3})
    _, each, found = several(3, clock)
    with patch.object(fastest, "perf_counter", clock):
        for number in range(3 * (LONGER * TRIALS + 1)):
            found.decode(random_source(1, 6, seed=number), LONG)
    tried = [clock.asked.count(name) for name in ("usual", "short")]
    assert tried == [LONGER * TRIALS + 1, TRIALS + 1]
    assert found.chosen is each["long"]


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 4), trace=st.booleans())
def test_one_by_one_they_are_decoded_as_if_each_had_come_by_itself(seed, rows, trace):
    decoder, source = DraftVerify(tiny_model(seed), tiny_drafter(seed), RUNNER), random_source(rows, 7, seed=seed)
    told, alone = list[tuple[int, list[Hypothesis]]](), list[Decoded]()
    found = OneByOne(decoder).decode(source, LONG, rows, trace, told.extend)
    for ids, length in zip(source.ids.tolist(), source.lengths.tolist(), strict=True):
        alone.append(decoder.decode(Source.of([ids[:length]]), LONG, trace=trace))
    assert told == list(enumerate(found.hypotheses))
    assert found.hypotheses == [one.hypotheses[0] for one in alone]
    assert found.traces == ([one.traces[0] for one in alone if one.traces] if trace else None)
    assert (found.calls, found.iterations) == (sum(one.calls for one in alone), sum(one.iterations for one in alone))


@settings(max_examples=3)
@given(seed=st.integers(0, 10_000), traces=st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_traced_call_takes_its_turn_and_is_timed_like_any_other(seed, traces):
    def asked(traces):
        clock = Clock({"usual": 1.0, "long": 2.0, "short": 3.0})
        _, _, found = several(seed, clock)
        with patch.object(fastest, "perf_counter", clock):
            decoded = [
                found.decode(random_source(1, 6, seed=seed + number), LONG, trace=trace)
                for number, trace in enumerate(traces)
            ]
        for one, name, trace in zip(decoded, clock.asked, traces, strict=True):
            assert one.decoder == ("greedy" if name == "usual" else "draft-verify")
            drafted = sum(each.drafted for each in one.traces or ())
            assert (drafted > 0) == (trace and name != "usual")
        return clock.asked, found._spent, [one.tokens for one in decoded]

    assert asked(traces) == asked([False] * len(traces))


def test_what_is_made_of_a_trace_is_not_timed():
    now = [0.0]
    _, _, found = several(3, Clock({"usual": 0.0, "long": 0.0, "short": 0.0}))

    def add(self, step):
        now[0] += 1000.0

    with patch.object(fastest, "perf_counter", lambda: now[0]), patch.object(TraceBuilder, "add", add):
        for number in range(4):
            found.decode(random_source(1, 6, seed=number), LONG, trace=True)
    assert now[0] >= 4000
    assert [seconds for seconds, _ in found._spent] == [0.0, 0.0, 0.0]


def test_what_was_given_up_tells_nothing():
    _, _, found = several(3, Clock({"usual": 1.0, "long": 2.0, "short": 3.0}))
    for number in range(5):
        source = random_source(1, 6, seed=number)
        session = found.begin(source, LONG, 1)
        [ticket] = session.admit(source)
        session.advance()
        session.cancel(ticket)
        session.close()
    assert found._counted == [0, 0, 0]


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), gone=st.sets(st.integers(0, 3)), steps=st.integers(0, 9))
def test_those_who_wait_for_one_that_is_given_up_go_on(seed, gone, steps):
    greedy, source = Greedy(tiny_model(seed), RUNNER), random_source(4, 7, seed=seed)
    session = OneByOne(greedy).start(4, LONG, 7)
    done, tickets = dict[int, list[int]](), session.admit(source)
    assert session.free == 0
    for number in range(500):
        if number == steps:
            for ticket in gone - done.keys():
                session.cancel(ticket)
        if session.free == 4:
            break
        session.advance()
        done |= {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
    expected = greedy.decode(source, LONG).tokens
    assert set(tickets) - gone <= done.keys()
    assert all(tokens == expected[ticket] for ticket, tokens in done.items())


def test_short_outputs_tell_nothing():
    clock = Clock({"usual": 3.0, "long": 2.0, "short": 1.0})
    _, _, found = several(3, clock)
    with patch.object(fastest, "perf_counter", clock):
        for number in range(3 * TRIALS):
            found.decode(random_source(1, 6, seed=number), SHORT)
    assert set(clock.asked) == {"usual"}
    assert found.chosen is None


@pytest.mark.skipif(bool(WHY_NOT_NATIVE), reason=WHY_NOT_NATIVE or "none")
def test_a_sentence_by_itself_is_decoded_by_the_fastest(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "family", default="greedy")
    translator = load(folder, device="cpu", runtime="native", precision="fp32")
    greedy = [translator.translate(line, "greedy", max_length=9, min_length=8) for line in ("a b c", "d e")]
    for _ in range(2 * LONGER * TRIALS):
        assert [translator.translate(line, max_length=9, min_length=8) for line in ("a b c", "d e")] == greedy
    kept, limits = translator.lone_decoder(max_length=9, min_length=8)
    assert isinstance(kept, Fastest)
    assert kept.chosen is not None
    assert translator.lone_decoder(max_length=9, min_length=8) == (kept, limits)
    for plain in (translator.lone_decoder("greedy"), load(folder, device="cpu", runtime="eager").lone_decoder()):
        assert isinstance(plain[0], Greedy), "named, or where sums hang on the shape of a step"
    lines = ["a b c", "d e", "b", "c d", "e"]
    for count in range(1, len(lines) + 1):  # a few lines side by side, or one by one
        for _ in range(4 * (LONGER * TRIALS + 1)):
            found = translator.translate(lines[:count], max_length=9, min_length=8)
            assert [one.text for one in found[:2]] == greedy[:count]
    for count in (2, 3):
        few, _ = translator.decoder_for(count, max_length=9, min_length=8)
        assert isinstance(few, Fastest)
        assert few.chosen is not None
        assert isinstance(translator.decoder_for(count, "greedy")[0], Greedy), "named"
    (folder / "drafter.safetensors").write_bytes(b"damaged")
    damaged = load(folder, device="cpu", runtime="native", precision="fp32")
    for _ in range(2):
        assert [damaged.translate(line, max_length=9, min_length=8) for line in ("a b c", "d e")] == greedy
    edit_config(folder, "decoders", "draft-verify", "defaults", value={"accept": "top:2"})
    changed = load(folder, device="cpu", runtime="native", precision="fp32").lone_decoder()[0]
    assert isinstance(changed, Greedy), "its drafts would change what is written"
