"""Kernels of our own between the steps of a beam, and around interleaved steps, against the tensor code they stand for.

On a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1, which runs programs one after another: no test
there could see a race.
"""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import DEFAULT_IDS, EOS, Limits, Runner
from longstride.nn.cache import Cache
from longstride.ops import BlockCausal, Causal
from longstride.ops.cuda.self_test import CASES, TOLERANCE, compare
from longstride.ops.kernels import TYPES
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.search import beam_table, kernels
from longstride.search.beam import BeamState, Search
from longstride.search.continuations import DEAD
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.autoregressive import decoder as autoregressive
from longstride.systems.autoregressive.decoder import Beam, BeamOptions
from longstride.systems.interleaved import model as interleaved_model
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.verification.acceptance import forbidden_ids
from tests.conformance.kernel_steps import beam_steps, interleaved_steps
from tests.decoding.interleaved import tiny_interleaved
from tests.decoding.test_beam import PENALTIES
from tests.models import random_source, tiny_model
from tests.nn import test_overlap as overlap
from tests.nn.running_kernels import KernelRunner, few, table_for, where
from tests.runtime.test_cuda_graph import taped

NONE = LengthPenalty("none", 0.0)


# --- by themselves ---------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    sentences=st.integers(1, 2),
    width=st.integers(1, 6),
    step=st.integers(1, 4),
    vocabulary=st.sampled_from([7, 17, 40]),
    longest=st.integers(1, 6),
    penalty=PENALTIES,
    min_length=st.integers(0, 2),
    banned=st.sets(st.integers(5, 6), max_size=1),
    eos=st.sampled_from([EOS, 0, 2]),
    lined=st.booleans(),
    data=st.data(),
)
def test_steps_are_what_tensor_code_makes_of_them(
    seed, sentences, width, step, vocabulary, longest, penalty, min_length, banned, eos, lined, data
):
    """Idle slots, new sentences beside old ones, ends in any slot, limits within reach, fewer ids than candidates."""
    n_best = data.draw(st.integers(1, width))
    least, longest = min(min_length, longest), max(longest, min_length)
    limits = Limits(min_length=least, banned=tuple(banned), max_length=longest)
    search = Search(width, n_best, LengthPenalty(*penalty), step, least, eos=eos)
    sizes = {"sentences": sentences, "vocabulary": vocabulary, "longest": longest, "lined": lined}
    assert beam_steps(search, limits, where(), torch.float32, seed, **sizes) == ""


@pytest.mark.gpu
@pytest.mark.parametrize(("width", "step"), few([(2, 6), (3, 1), (8, 2)]))
def test_outputs_longer_than_a_tile_of_columns(width, step):
    search, limits = Search(width, 1, NONE, step, 60), Limits(min_length=60)
    sizes = {"vocabulary": 30, "longest": 70, "steps": 72 // step}
    assert beam_steps(search, limits, where(), torch.float32, 1, **sizes) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("start", ["symbol", "zeros", "learned"])
@pytest.mark.parametrize(("h", "c"), [(1, 1), (2, 1), (2, 3), (6, 1)])
@pytest.mark.parametrize("seed", few([0, 1]))
def test_what_surrounds_the_layers_is_what_tensor_code_makes_of_it(start, h, c, seed):
    """Idle rows, ends in any slot, ends after ends."""
    options = InterleavingOptions(24, h, c, start=start)
    for dropped in (False, True):
        assert interleaved_steps(options, where(), torch.float32, dropped, seed) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("head", [16, 64])
@pytest.mark.parametrize("case", ["step of a block", "lines of a block"])
def test_slots_of_a_step_see_each_other_and_all_before_them(head, case):
    device = where()
    found = compare(CASES[case], table_for(device), device, torch.float32, head)
    assert found <= TOLERANCE[torch.float32]


def fused_beam(sentences: int, width: int, vocabulary: int, device: torch.device, limits: Limits) -> kernels.FusedBeam:
    state = BeamState.empty(sentences, width, 9, device)
    return kernels.FusedBeam(
        state, Search(width, 1, NONE), forbidden_ids(limits, device), vocabulary, state.finished.clone()
    )


@pytest.mark.gpu
@pytest.mark.parametrize("vocabulary", [16, 100, 16384, 20000])
def test_a_row_does_not_depend_on_the_others(vocabulary):
    """Also where a vocabulary takes more than one tile."""
    device, limits = where(), Limits(banned=(9, 11))
    logits = torch.randn(4, 1, vocabulary, generator=torch.Generator().manual_seed(0)).to(device)
    found = fused_beam(1, 4, vocabulary, device, limits).best_words(logits)
    no_words = torch.tensor([*DEFAULT_IDS.never_generated, EOS, 9, 11], device=device)
    best = logits[:, 0].index_fill(1, no_words, DEAD).topk(4, dim=1)
    torch.testing.assert_close(found.ids.view(4, 4), best.indices)
    expected = best.values - logits[:, 0].logsumexp(dim=1, keepdim=True)
    torch.testing.assert_close(found.words.view(4, 4).float(), expected, atol=1e-5, rtol=1e-5)
    for row in range(4):
        alone = fused_beam(1, 1, vocabulary, device, limits).best_words(logits[row : row + 1])
        assert torch.equal(alone.words[0, 0, 0], found.words[0, row, 0, :1])
        assert torch.equal(alone.end[0, 0], found.end[0, row])


@pytest.mark.gpu
def test_among_equals_the_lower_id_comes_first_and_numbers_of_both_signs_are_in_order():
    device = where()
    logits = torch.full((7, 1, 30), -7.0)
    logits[:, 0, [8, 20, 6, 25, 12]] = torch.tensor([-1.5, 2.5, 2.5, 0.25, -0.25])
    found = fused_beam(1, 7, 30, device, Limits()).best_words(logits.to(device))
    assert found.ids[0, 0, 0].tolist()[:5] == [6, 20, 25, 12, 8]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_in_every_type_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    device = torch.device("cuda", 0)
    for step in (1, 2):
        assert beam_steps(Search(4, 1, LengthPenalty("gnmt", 0.6), step), Limits(), device, dtype) == ""
    assert interleaved_steps(InterleavingOptions(48, 2, 2, start="learned"), device, dtype) == ""


def test_elsewhere_they_are_not_used(monkeypatch):
    runner = runner_of(torch.device("cpu"))
    assert not kernels.usable(runner, Search(5, 1, NONE), True)
    assert not taped()[0].fuses
    runner = KernelRunner(torch.device("cpu"), "fp32", ())
    monkeypatch.setattr(KernelRunner, "fuses", True)
    assert kernels.usable(runner, Search(5, 1, NONE), True)
    assert not kernels.usable(runner, Search(kernels.WIDEST + 1, 1, NONE), True)
    assert not kernels.usable(runner, Search(kernels.WIDEST_OF_BUNDLES + 1, 1, NONE, 2), False)


FILES = ("ops/cuda/interleaved_step.py",)


def kernels_of_ours() -> list[ast.FunctionDef]:
    every = [node for file in FILES for node in ast.parse((overlap.PACKAGE / file).read_text()).body]
    found = [node for node in every if isinstance(node, ast.FunctionDef)]
    return [node for node in found if "OVERLAP" in [argument.arg for argument in node.args.args]]


def test_all_of_them_can_overlap():
    assert [kernel.name for kernel in kernels_of_ours()] == ["_lay_out", "_commit"]


@pytest.mark.parametrize("kernel", kernels_of_ours(), ids=lambda kernel: kernel.name)
def test_before_it_waits_a_kernel_reads_weights_alone(kernel):
    overlap.test_before_it_waits_a_kernel_reads_weights_alone(kernel)


# --- in a decoder ----------------------------------------------------------------------------------------------------


class NotRecording:
    """Whatever is given to it runs as it is: recordings of Triton's work are for a CUDA device."""

    def warm_up(self, function: Any) -> None:
        pass

    def record(self, function: Any, state: Any) -> Any:
        raise RuntimeError("not here")


def runner_of(device: torch.device, names: tuple[str, ...] = ()) -> Runner:
    """One that would record, with these kernels."""
    runner = CudaGraphRunner(device, "fp32", fused=False, tell=lambda _: None, recorder=NotRecording())
    runner.kernels = table_for(device, names) if names else None
    return runner


def same(ours: Any, theirs: Any) -> None:
    assert [[one.tokens for one in row] for row in ours.hypotheses] == [
        [one.tokens for one in row] for row in theirs.hypotheses
    ]
    assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
    assert ours.iterations == theirs.iterations
    assert [trace.replay() for trace in ours.traces] == [trace.replay() for trace in theirs.traces]


@pytest.mark.gpu
@pytest.mark.parametrize("indirect", few([True, False]))
@pytest.mark.parametrize(("models", "options"), [(1, BeamOptions(3)), (2, BeamOptions(2, "average", 1.0, n_best=2))])
def test_beams_with_them_are_beams_without(models, options, indirect, monkeypatch):
    """Step by step the same, in tables that are kept and filled again; in fp32 by one machine's own products."""
    device = where()

    def outputs() -> list[Any]:
        runner = runner_of(device)
        every = [runner.place(tiny_model(number, torch.float32, sharpness=1.5)) for number in range(models)]
        decoder, found = Beam(every, runner, options), []
        for seed in range(2):
            source, limits = random_source(3, 5, seed=seed), Limits(max_length=6, min_length=seed)
            found.append(decoder.decode(source, limits, capacity=2, trace=True))
        return found

    expected = outputs()
    monkeypatch.setattr(autoregressive, "reads_indirection", lambda *_: indirect)
    monkeypatch.setattr(beam_table, "usable", lambda *_: True)
    for ours, theirs in zip(outputs(), expected, strict=True):
        same(ours, theirs)


VARIANTS: list[dict[str, Any]] = [
    {"h": 2, "c": 1},
    {"h": 2, "c": 1, "start": "learned"},
    {"h": 1, "c": 3, "start": "zeros"},
    {"h": 2, "c": 1, "mask": "vanilla"},
    {"h": 2, "c": 1, "independent": True},
    {"h": 2, "c": 2, "link": 3},
    {"h": 4, "c": 1},
]
SHAPE: dict[str, Any] = {"width": 32, "heads": 2, "feed_forward": 32}


@pytest.mark.gpu
@pytest.mark.parametrize("variant", few(VARIANTS), ids=str)
@pytest.mark.parametrize(
    ("end", "dedup", "width"), few([("any-direction", 0, 3), ("paper", 2, 1), ("any-direction", 0, 1)])
)
def test_interleaved_search_with_them_is_that_without(variant, end, dedup, width, monkeypatch):
    """Step by step the same, in tables that are filled again; in fp32 by one machine's own products."""
    device = where()
    limits = Limits(max_length=6, min_length=2 if dedup else 0)
    how: dict[str, Any] = {"width": width, "end": end, "dedup": dedup}

    def outputs(names: tuple[str, ...]) -> Any:
        runner = runner_of(device, names) if width > 1 else KernelRunner(device, "fp32", names)
        model = runner.place(tiny_interleaved(5, variant, sharpness=1.5, **SHAPE).float())
        decoder = Interleaved(model.model, model.interleaving, runner, InterleavedOptions(**how))
        return decoder.decode(random_source(3, 5, seed=2), limits, capacity=2, trace=True)

    expected = outputs(())
    for kind in (CudaGraphRunner, KernelRunner):
        monkeypatch.setattr(kind, "fuses", True)
    monkeypatch.setattr(beam_table, "usable", lambda *_: width > 1)
    same(outputs(("step", "mask")), expected)
    if width > 1:  # caches that stay as they were written
        moved: list[Any] = []
        monkeypatch.setattr(Cache, "shuffle", lambda *given: moved.append(given))
        monkeypatch.setattr(beam_table, "usable", lambda *_: "link" not in variant)
        same(outputs(("step", "lines", "mask")), expected)
        assert bool(moved) == ("independent" in variant)


@pytest.mark.parametrize(
    ("variant", "rule"), [(VARIANTS[0], "together"), (VARIANTS[3], "causal"), (VARIANTS[4], "other")]
)
def test_steps_say_by_which_rule_they_see(variant, rule, monkeypatch):
    """By it a kernel is chosen."""
    model, seen = tiny_interleaved(1, variant), []
    layout = model.layout(16)
    assert layout.rule == rule
    monkeypatch.setattr(
        interleaved_model, "extend_all", lambda layers, x, cache, slots, bias, *_: seen.append(bias) or x
    )
    ids, start = torch.full((1, model.options.step), 5), torch.zeros(1, dtype=torch.int64)
    model.extend(ids, start, model.model.new_cache(1, 16), None, layout)
    assert type(seen[0]) is {"together": BlockCausal, "causal": Causal, "other": torch.Tensor}[rule]


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
        assert autoregressive.reads_indirection(runner, [model]) == (not without)
        source = random_source(12, 9, seed=3)
        limits = Limits(max_length=90, min_length=20, max_extra=90)
        return Beam([model], runner, BeamOptions(width)).decode(source, limits, capacity=capacity)

    ours, theirs = decoded(()), decoded(("lines",))
    assert ours.tokens == theirs.tokens
    assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
