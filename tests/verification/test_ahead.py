"""Iterations that are launched before the last one was looked at: the same outputs, step by step."""

from __future__ import annotations

import random
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.verification import outlook
from longstride.verification.mirror import Mirror
from longstride.verification.outlook import Outlook
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source
from tests.runtime.recording import TapeRecorder
from tests.runtime.test_cuda_graph import EAGER, KINDS, decoder_of, same


def running_ahead() -> tuple[CudaGraphRunner, TapeRecorder]:
    recorder = TapeRecorder()
    return CudaGraphRunner("cpu", "fp64", ahead=True, recorder=recorder), recorder


@settings(max_examples=14, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    batches=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    capacity=st.integers(1, 4),
    limits=LIMITS,
    rule=st.sampled_from(["exact", "exact", "top:3,gap:1.0"]),
    part=st.sampled_from([0.5, 2.0, 100.0]),
)
def test_running_ahead_changes_nothing(kind, seed, batches, capacity, limits, rule, part):
    """Sentences come and go while an iteration is under way; tables are left with one that nobody asked for, more often
    the longer outputs are expected to be."""
    runner, _ = running_ahead()
    ours, theirs = decoder_of(kind, runner, seed, rule), decoder_of(kind, EAGER, seed, rule)
    with mock.patch.object(outlook, "FIRST_PART", part):
        for number, rows in enumerate(batches):
            source = random_source(rows, 6, seed=seed + number)
            found = ours.decode(source, limits, capacity=capacity, trace=True)
            expected = theirs.decode(source, limits, capacity=capacity, trace=True)
            same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_follow_each_other_through_one_table(kind, monkeypatch):
    """Each leaves an iteration under way that nobody asked for: it is not counted, and the next sentence knows nothing
    of it."""
    monkeypatch.setattr(Outlook, "goes_on", lambda _: True)
    runner, recorder = running_ahead()
    ours, theirs = decoder_of(kind, runner, 4), decoder_of(kind, EAGER, 4)
    tables = set()
    for seed in range(6):
        source, limits = random_source(1, 14, seed=seed), Limits(max_length=9 + seed % 2)
        before = recorder.replayed
        found, expected = (one.decode(source, limits, trace=True) for one in (ours, theirs))
        same(found, expected)
        assert found.traces is not None
        assert (found.iterations, found.calls) == (expected.iterations, expected.calls)
        assert found.iterations == found.traces[0].iterations
        assert recorder.replayed - before == 1 + found.iterations + 1  # the encoder's, and one in vain
        tables.update(id(table) for table in runner.tables)
    assert recorder.recorded == 2 * len(tables) == 4  # one table for each of the limits


@pytest.mark.parametrize("kind", ["greedy", "blockwise"])
def test_nothing_is_in_vain_where_outputs_are_as_long_as_expected(kind, monkeypatch):
    """The same text over and over: it is looked at first where it ends, and before that it is not."""
    source, limits = random_source(1, 14, seed=7), Limits(max_length=16)
    runner, recorder = running_ahead()
    decoder = decoder_of(kind, runner, 2)
    waited: list[bool] = []
    goes_on = Outlook.goes_on
    monkeypatch.setattr(Outlook, "goes_on", lambda self: waited.append(not goes_on(self)) or not waited[-1])
    in_vain, ahead = [], []
    for _ in range(8):
        before = recorder.replayed
        waited.clear()
        decoded = decoder.decode(source, limits)
        in_vain.append(recorder.replayed - before - 1 - decoded.iterations)  # one was the encoder's
        ahead.append(waited.count(False) / decoded.iterations)
    assert set(in_vain) <= {0, 1}
    assert sum(in_vain) <= 2
    assert max(ahead) > 0


def test_what_is_expected_follows_what_comes():
    """Of outputs between half of their sources and twice, about an eighth are shorter than was expected of them."""
    found, generator = Outlook(1), random.Random(5)
    shorter = []
    for number in range(1000):
        source = generator.randint(5, 60)
        output = round(source * generator.uniform(0.5, 2.0))
        found.open([0], [source + 1])
        assert found.goes_on()
        shorter.append(output < found.part * source)
        found.look([output + 1])
        found.close(0)
        found.close(0)  # no second time
        assert not found.goes_on(), number
    assert 0.1 < sum(shorter[100:]) / 900 < 0.2
    assert 0.5 < found.part < 1.1


def test_rows_are_expected_to_gain_what_they_gained():
    found = Outlook(3)
    assert not found.goes_on()
    found.open([0, 2], [21, 5])
    expected = []
    for lengths in ([4, 0, 2], [7, 0, 4], [9, 0, 5]):
        found.look(lengths)
        expected.append(found.goes_on())
    assert expected == [True, True, False]  # up to 10 of 20 tokens: 4 + 4, 7 + 3, 9 + 2
    found.open([1], [31])
    assert found.goes_on()


@pytest.mark.parametrize("kind", ["blockwise", "draft-verify"])
def test_batches_that_follow_the_clock_are_launched_ahead_as_others_are(kind):
    runner, _ = running_ahead()
    ours, theirs = decoder_of(kind, runner, 1, adaptive=True), decoder_of(kind, EAGER, 1)
    for seed in range(4):  # either way
        source = random_source(2, 6, seed=seed)
        same(ours.decode(source, Limits(max_length=9)), theirs.decode(source, Limits(max_length=9)), traces=False)


def test_tables_that_were_made_before_stay_as_they_are():
    """What the host sees of them is not apart from what goes on: nothing may be launched before it has looked."""
    runner, _ = running_ahead()
    runner.ahead = False
    source, limits = random_source(1, 6, seed=3), Limits(max_length=9)
    decoder, twin = (decoder_of("blockwise", one, 3) for one in (runner, EAGER))
    same(decoder.decode(source, limits, trace=True), twin.decode(source, limits, trace=True))
    runner.ahead = True
    same(decoder.decode(source, limits, trace=True), twin.decode(source, limits, trace=True))


@pytest.mark.parametrize("apart", [False, True])
def test_a_mirror_shows_what_was_sent(apart):
    shapes = {"flags": (torch.bool, (3,)), "numbers": (torch.int64, (2, 2)), "real": (torch.float64, (1,))}
    mirror = Mirror(shapes, torch.device("cpu"), apart)
    mirror.here["numbers"].copy_(torch.tensor([[1, 2], [3, 4]]))
    mirror.here["flags"][1] = True
    mirror.send()
    mirror.here["numbers"].fill_(9)
    mirror.wait()
    assert mirror.seen["flags"].tolist() == [False, True, False]
    assert mirror.seen["numbers"].tolist() == ([[1, 2], [3, 4]] if apart else [[9, 9], [9, 9]])
    assert mirror.seen["real"].tolist() == [0.0]
