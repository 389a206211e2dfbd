"""Recorded passes decode as eager ones do, whatever the lengths, and few shapes are recorded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Decoded, Limits, Runner, Source
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.lattice import session as lattice_session
from longstride.systems.lattice.decoder import LatticeDecoder, with_tables
from longstride.systems.lattice.pipeline import LatticeOptions
from longstride.systems.lattice.session import MAX_ROWS, WIDTHS, padded_width, portions
from longstride.systems.lattice.tables import CountOptions
from tests.lattice.models import tiny_scorer
from tests.lattice.test_candidates import made
from tests.lattice.test_counts import EXAMPLE, VOCABULARY
from tests.models import random_source
from tests.runtime.recording import TapeRecorder


def _taped() -> tuple[CudaGraphRunner, TapeRecorder]:
    def fail(message: str) -> None:
        raise AssertionError(message)

    recorder = TapeRecorder()
    return CudaGraphRunner("cpu", "fp64", tell=fail, recorder=recorder), recorder


def _decoder(runner: Runner, seed: int = 0, longest: int = 64, **options: Any) -> LatticeDecoder:
    model = tiny_scorer(seed, vocabulary=VOCABULARY, longest=longest)
    tables = made(EXAMPLE, CountOptions(reach=2))
    return with_tables(model, tables, runner, LatticeOptions(**{"candidates": 3, **options}))


def _same(found: Decoded, expected: Decoded) -> None:
    assert found.tokens == expected.tokens
    assert found.scores == pytest.approx(expected.scores, abs=1e-9)
    assert [[one.tokens for one in row] for row in found.hypotheses] == [
        [one.tokens for one in row] for row in expected.hypotheses
    ]
    assert found.traces == expected.traces
    assert found.iterations == expected.iterations
    if len(found.tokens) <= MAX_ROWS:  # more may go in portions
        assert found.calls == expected.calls


@settings(max_examples=8)
@given(
    seed=st.integers(0, 1000),
    batches=st.lists(st.tuples(st.integers(1, MAX_ROWS + 2), st.integers(1, 12)), min_size=1, max_size=3),
    capacity=st.integers(1, 5),
    options=st.sampled_from(
        [
            {},
            {"n_best": 3},
            {"order": 3, "n_best": 2},
            {"search": "scan"},
            {"construction": "model", "length_prior": 0.5},
            {"construction": "shared", "normalise": "candidates"},
        ]
    ),
    limits=st.sampled_from([Limits(), Limits(max_length=4), Limits(min_length=3, banned=(1, 7, 8, 9))]),
)
def test_recordings_decode_as_eager_passes_do(seed, batches, capacity, options, limits):
    runner, recorder = _taped()
    ours, theirs = _decoder(runner, seed, **options), _decoder(EagerRunner(precision="fp64"), seed, **options)
    for number, (rows, longest) in enumerate(batches):
        source = random_source(rows, longest, seed=seed + number)
        for most in (capacity, rows):
            _same(ours.decode(source, limits, most, trace=True), theirs.decode(source, limits, most, trace=True))
    assert recorder.replayed


def test_sentences_of_one_width_share_a_recording():
    runner, recorder = _taped()
    ours = _decoder(runner)
    for length in (17, 20, 24, 24, 18):
        ours.decode(Source.of([[*([5, 6, 7] * 8)[: length - 1], EOS]]))
    assert (recorder.recorded, recorder.replayed) == (1, 5)
    ours.decode(Source.of([[5, 6, EOS]]))
    assert recorder.recorded == 2


def test_what_is_too_large_for_one_pass_takes_several(monkeypatch):
    monkeypatch.setattr(lattice_session, "MAX_NUMBERS", 1)
    runner, recorder = _taped()
    source = random_source(4, 6, seed=2)
    found = _decoder(runner).decode(source)
    assert found.tokens == _decoder(EagerRunner(precision="fp64")).decode(source).tokens
    assert (recorder.recorded, recorder.replayed) == (1, 4)


@pytest.mark.parametrize("rows", [2 * MAX_ROWS, 2 * MAX_ROWS + 3, 8 * MAX_ROWS])
def test_large_batches_are_recorded_in_few_shapes(rows):
    runner, recorder = _taped()
    source = random_source(rows, 20, seed=rows)
    ours = _decoder(runner)
    expected = _decoder(EagerRunner(precision="fp64")).decode(source, trace=True)
    _same(ours.decode(source, trace=True), expected)
    recorded, replayed = recorder.recorded, recorder.replayed
    assert replayed == -(-rows // MAX_ROWS)
    assert recorded <= len([one for one in WIDTHS if one <= 24]) + bool(rows % MAX_ROWS)
    _same(ours.decode(source, trace=True), expected)
    assert (recorder.recorded, recorder.replayed) == (recorded, 2 * replayed)  # nothing is recorded twice


def test_nothing_is_recorded_once_all_lengths_were_seen():
    """Batches of one size, whatever is in them."""
    runner, recorder = _taped()
    ours = _decoder(runner)
    for seed in range(6):
        ours.decode(random_source(4 * MAX_ROWS, 20, seed=seed))
    recorded = recorder.recorded
    assert recorded <= len([one for one in WIDTHS if one <= 24])
    for seed in range(6):
        ours.decode(random_source(4 * MAX_ROWS, 20, seed=seed))
    assert recorder.recorded == recorded


def test_portions_hold_every_sentence_once():
    runner, _ = _taped()
    source = random_source(50, 30, seed=3)
    found = portions(_decoder(runner).pipeline(Limits()), source)
    assert sorted(row for rows, _ in found for row in rows) == list(range(50))
    for rows, one in found:
        assert one.source.ids.tolist() == source.ids[rows].tolist()
        assert one.source.rows <= one.shape.rows <= MAX_ROWS
        assert int(one.source.lengths.max()) <= one.shape.width
    longest = [int(one.source.lengths.max()) for _, one in found]
    assert longest == sorted(longest, reverse=True)


def test_long_sources_go_a_few_at_a_time(monkeypatch):
    """A portion is a power of two, so that no runner rounds it up beyond what fits."""
    runner, _ = _taped()
    pipeline = _decoder(runner).pipeline(Limits())
    source = random_source(11, 30, seed=5)
    width = padded_width(int(source.lengths.max()), pipeline.longest)
    numbers = lattice_session.MAX_NUMBERS // pipeline.rows_at_once(
        width, pipeline.columns(width), lattice_session.MAX_NUMBERS
    )
    monkeypatch.setattr(lattice_session, "MAX_NUMBERS", 7 * numbers)
    found = portions(pipeline, source)
    assert len(found[0][0]) == found[0][1].shape.rows == 4
    assert sum(len(rows) for rows, _ in found) == 11
    for _, one in found:
        assert one.shape.rows <= pipeline.rows_at_once(one.shape.width, one.shape.columns, 8 * numbers)


def test_widths():
    assert [padded_width(length, 256) for length in (1, 8, 9, 49, 193, 256)] == [8, 8, 16, 64, 256, 256]
    assert padded_width(30, 31) == 31  # no more than there are positions
    assert padded_width(40, 31) == 40  # a longer one is the encoder's to refuse
    assert list(WIDTHS) == sorted(WIDTHS)


def test_a_source_as_long_as_there_are_positions():
    """The width above would be past the last position of encoder and head."""
    source = Source.of([[5, 6] * 15 + [7, EOS], [6, EOS]])
    found = _decoder(_taped()[0], longest=32).decode(source)
    _same(found, _decoder(EagerRunner(precision="fp64"), longest=32).decode(source))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{}, {"search": "scan"}, {"order": 3}, {"construction": "model"}])
def test_graphs_on_a_gpu(options):
    source = random_source(5, 9, seed=1)
    runner = CudaGraphRunner("cuda:0", "fp32")
    model = runner.place(tiny_scorer(0, torch.float32, vocabulary=VOCABULARY))
    tables = runner.place(made(EXAMPLE, CountOptions(reach=2)))
    ours = with_tables(model, tables, runner, LatticeOptions(candidates=3, **options))
    there = [ours.decode(source.slice(row, row + 1)).scores[0] for row in (0, 1, 2, 3, 4)]
    assert there == pytest.approx(_decoder(EagerRunner(precision="fp64"), **options).decode(source).scores, rel=1e-3)
    assert runner.statistics.recorded


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_graphs_of_large_batches_on_a_gpu():
    """Also of portions by one graph, whose inputs and outputs must not be written over while they are under way."""
    source = random_source(5 * MAX_ROWS + 3, 9, seed=1)
    runner = CudaGraphRunner("cuda:0", "fp32")
    model = runner.place(tiny_scorer(0, torch.float32, vocabulary=VOCABULARY))
    tables = runner.place(made(EXAMPLE, CountOptions(reach=2)))
    ours = with_tables(model, tables, runner, LatticeOptions(candidates=3))
    expected = _decoder(EagerRunner(precision="fp64")).decode(source).scores
    for _ in range(3):
        assert ours.decode(source).scores == pytest.approx(expected, rel=1e-3)
    held = runner.statistics
    assert 0 < held.recorded == held.graphs <= 4
    assert held.graph_bytes < 1 << 28


def test_groups_that_share_a_recording_keep_their_own_outputs():
    runner, recorder = _taped()
    lines = [[5, 6, EOS], [7, 5, 6, EOS], [6, EOS]]
    session = _decoder(runner).start(3, Limits(), 4)
    tickets = [session.admit(Source.of([line]))[0] for line in lines]
    step = session.advance()
    assert step.active.tolist() == [True, True, True]
    found = {finished.ticket: finished.hypotheses[0] for finished in session.take_finished()}
    expected = [_decoder(EagerRunner(precision="fp64")).decode(Source.of([line])) for line in lines]
    assert [found[ticket].tokens for ticket in tickets] == [one.tokens[0] for one in expected]
    assert [found[ticket].score for ticket in tickets] == pytest.approx([one.scores[0] for one in expected])
    assert (recorder.recorded, recorder.replayed) == (1, 3)
    assert session.free == 3
