"""Beam search's own kernels against tensor code: on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is
1, which runs programs one after another: no test there could see a race.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits, Runner
from longstride.ops.kernels import TYPES
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.search.beam import DEAD, BeamTable
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.autoregressive import beam_rows
from longstride.systems.autoregressive.beam_check import Sizes, differing, differs
from longstride.systems.autoregressive.beam_fused import WIDEST, OwnSearch, usable, why_not
from longstride.systems.autoregressive.decoder import Beam, BeamOptions
from tests.decoding.test_beam import PENALTIES
from tests.models import random_source, tiny_model
from tests.nn.running_kernels import where

# Triton's interpreter makes a number of an array at the head of every loop.
loops = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")


@loops
@pytest.mark.gpu
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    slots=st.integers(1, 2),
    width=st.integers(1, 6),
    vocabulary=st.sampled_from([7, 17, 40]),
    longest=st.integers(1, 6),
    penalty=PENALTIES,
    min_length=st.integers(0, 2),
    banned=st.sets(st.integers(5, 6), max_size=1),
    data=st.data(),
)
def test_steps_are_what_tensor_code_makes_of_them(
    seed, slots, width, vocabulary, longest, penalty, min_length, banned, data
):
    """Idle slots, new sentences beside old ones, limits within reach, fewer ids than candidates."""
    n_best = data.draw(st.integers(1, width))
    least, longest = min(min_length, longest), max(longest, min_length)
    sizes = Sizes(slots, width, vocabulary, longest, n_best, least, tuple(banned), 4, LengthPenalty(*penalty))
    with torch.inference_mode():
        assert differs(sizes, where(loops=True), torch.float32, seed) == ""


@loops
@pytest.mark.gpu
def test_outputs_longer_than_a_tile_of_columns():
    with torch.inference_mode():
        sizes = Sizes(2, 3, vocabulary=30, longest=70, min_length=60, steps=72)
        assert differs(sizes, where(loops=True), torch.float32, 1) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_speaks_against_them_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    assert differing(torch.device("cuda", 0), dtype) == ""
    assert why_not(torch.device("cuda", 0), dtype) == ""


def search_of(slots: int, width: int, vocabulary: int, device: torch.device, limits: Limits) -> OwnSearch:
    table = BeamTable.empty(slots, width, 9, device)
    return OwnSearch(table, table.finished.clone(), LengthPenalty("none", 0.0), 1, limits, vocabulary)


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("vocabulary", [16, 100, 16384, 20000])
def test_a_hypothesis_does_not_depend_on_the_others(vocabulary):
    """Also where a vocabulary takes more than one tile."""
    device = where(loops=True)
    limits = Limits(banned=(9, 11))
    logits = torch.randn(4, vocabulary, generator=torch.Generator().manual_seed(0)).to(device)
    found = search_of(2, 2, vocabulary, device, limits).candidates(logits)
    permitted = logits.clone()
    permitted[:, [0, 2, 4, 9, 11]] = DEAD  # what may never stand, and what is banned
    best = permitted.topk(4, dim=1)
    assert torch.equal(found.ids.view(4, 4), best.indices)
    expected = best.values - logits.logsumexp(dim=1, keepdim=True)
    torch.testing.assert_close(found.log_probabilities.view(4, 4).float(), expected, atol=1e-5, rtol=1e-5)
    for row in range(4):
        alone = search_of(1, 1, vocabulary, device, limits).candidates(logits[row : row + 1])
        assert torch.equal(alone.log_probabilities[0, 0], found.log_probabilities[row // 2, row % 2, :2])
        assert torch.equal(alone.end[0, 0], found.end[row // 2, row % 2])


@loops
@pytest.mark.gpu
def test_among_equals_the_lower_id_comes_first_and_numbers_of_both_signs_are_in_order():
    device = where(loops=True)
    logits = torch.full((1, 30), -7.0)
    logits[0, [8, 20, 6, 25, 12]] = torch.tensor([-1.5, 2.5, 2.5, 0.25, -0.25])
    found = search_of(1, 1, 30, device, Limits()).candidates(logits.to(device).expand(1, -1))
    assert found.ids.flatten().tolist() == [6, 20]
    wide = search_of(1, 1, 30, device, Limits(min_length=1))
    wide._shape = (1, 1, 7)
    assert wide.candidates(logits.to(device)).ids.flatten().tolist() == [6, 20, 25, 12, 8, 1, 5]


class NotRecording:
    """Whatever is given to it runs as it is: recordings of Triton's work are for a CUDA device."""

    def warm_up(self, function: Any) -> None:
        pass

    def record(self, function: Any, state: Any) -> Any:
        raise RuntimeError("not here")


def runner_of(device: torch.device) -> Runner:
    return CudaGraphRunner(device, "fp32", fused=False, tell=lambda _: None, recorder=NotRecording())


@loops
@pytest.mark.gpu
@pytest.mark.parametrize(("models", "options"), [(1, BeamOptions(3)), (2, BeamOptions(2, "average", 1.0, n_best=2))])
def test_decoding_with_them_is_decoding_without(models, options, monkeypatch):
    """Step by step the same, in tables that are kept and filled again; in fp32 by one machine's own products."""
    device = where(loops=True)

    def outputs() -> list[Any]:
        runner = runner_of(device)
        every = [runner.place(tiny_model(number, torch.float32, sharpness=1.5)) for number in range(models)]
        decoder, found = Beam(every, runner, options), []
        for seed in range(2):
            source, limits = random_source(3, 5, seed=seed), Limits(max_length=6, min_length=seed)
            found.append(decoder.decode(source, limits, capacity=2, trace=True))
        return found

    expected = outputs()
    monkeypatch.setattr(beam_rows, "shares_pasts", lambda runner, models: True)
    monkeypatch.setattr(beam_rows, "usable", lambda runner, width: True)
    for ours, theirs in zip(outputs(), expected, strict=True):
        assert [[one.tokens for one in row] for row in ours.hypotheses] == [
            [one.tokens for one in row] for row in theirs.hypotheses
        ]
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
        assert ours.iterations == theirs.iterations
        assert [trace.replay() for trace in ours.traces] == [trace.replay() for trace in theirs.traces]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("width", [1, 3, 5, 12])
@pytest.mark.parametrize("capacity", [1, 4])
def test_captured_searches_are_those_that_move_caches(width, capacity):
    """Many sentences through few tables, outputs longer than a tile of columns among them."""
    shape: dict[str, Any] = {"width": 64, "feed_forward": 128, "heads": 2, "longest": 128}

    def decoded(without: tuple[str, ...]) -> Any:
        runner = CudaGraphRunner("cuda:0", "fp32", without=without)
        model = runner.place(tiny_model(7, sharpness=0.4, **shape))
        assert beam_rows.shares_pasts(runner, [model]) == (not without)
        source = random_source(12, 9, seed=3)
        limits = Limits(max_length=90, min_length=20, max_extra=90)
        return Beam([model], runner, BeamOptions(width)).decode(source, limits, capacity=capacity)

    ours, theirs = decoded(()), decoded(("lines",))
    assert ours.tokens == theirs.tokens
    assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)


def test_elsewhere_they_are_not_used():
    runner = runner_of(torch.device("cpu"))
    assert not usable(runner, 5)
    runner.device = torch.device("cuda", 0)
    assert not usable(runner, WIDEST + 1)
    assert "expects a CUDA device" in why_not(torch.device("cpu"), torch.float16)
    assert "expects fp32" in why_not(torch.device("cuda", 0), torch.float64)
