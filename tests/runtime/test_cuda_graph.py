"""The CUDA runner, held to the eager one: with a recorder that works everywhere, and with real graphs on a GPU."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Decoder, Limits, OptionError, Runner, Source
from longstride.runtime.choosing import make_runner
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.cuda_graph_tables import Tables, most_bytes
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.verification.acceptance import Rule
from longstride.verification.exactness import SameShapeGreedy
from tests.decoding.drafters import tiny_drafter
from tests.decoding.test_blockwise import random_heads
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model
from tests.runtime.recording import RefusedError, TapeRecorder

EAGER = EagerRunner(precision="fp64")
LINKED = ("blockwise linked", "draft-verify linked")
KINDS = ("greedy", "blockwise", "draft-verify", "draft-verify full", "copy-verify", *LINKED)
"""Those that verify"""
TREES = ("draft-verify tree", "blockwise tree")
OTHERS = ("beam", "beam of two models")


def taped(tell: Any = None) -> tuple[CudaGraphRunner, TapeRecorder]:
    recorder = TapeRecorder()

    def fail(message: str) -> None:
        raise AssertionError(message)

    return CudaGraphRunner("cpu", "fp64", tell=tell or fail, recorder=recorder), recorder


def decoder_of(
    kind: str, runner: Runner, seed: int, rule: str = "exact", least: int = 1, adaptive: bool = False
) -> Decoder:
    model = runner.place(tiny_model(seed, sharpness=1.5))
    accept = Rule.from_text(rule)
    if kind == "greedy":
        return Greedy(model, runner)
    if kind in OTHERS:
        models = [model, runner.place(tiny_model(seed + 1, sharpness=1.5))]
        return Beam(models[: 1 + (kind != "beam")], runner, BeamOptions(3, n_best=2))
    link, tree = 3 if kind in (*LINKED, *TREES) else 0, 9 if kind in TREES else 0
    if kind.startswith("blockwise"):
        heads = runner.place(random_heads(seed, 4, link=link))
        chosen = BlockwiseOptions(accept=accept, min_block=least, adaptive=adaptive, tree=tree)
        return Blockwise(model, heads, runner, chosen)
    if kind == "copy-verify":
        return CopyVerify(model, runner, CopyVerifyOptions(4, accept, least, adaptive, suffix=3))
    drafter = tiny_drafter(seed, prefix="full" if kind.endswith("full") else "causal", link=link)
    options = DraftVerifyOptions(accept=accept, min_block=least, adaptive=adaptive, tree=tree)
    return DraftVerify(model, runner.place(drafter), runner, options)


def same(found: Any, expected: Any, traces: bool = True) -> None:
    assert found.tokens == expected.tokens
    assert found.scores == pytest.approx(expected.scores, abs=1e-9)
    every = [[one.tokens for one in row] for row in found.hypotheses]
    assert every == [[one.tokens for one in row] for row in expected.hypotheses]
    if traces:
        assert found.traces == expected.traces


@settings(max_examples=14)
@given(
    kind=st.sampled_from((*KINDS, *TREES, *OTHERS)),
    seed=st.integers(0, 10_000),
    batches=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    capacity=st.integers(1, 5),
    limits=LIMITS,
    rule=st.sampled_from(["exact", "exact", "top:2", "top:3,gap:1.0", "distance:1"]),
    least=st.integers(1, 3),
)
def test_repeated_recordings_decode_as_eager_steps_do(kind, seed, batches, capacity, limits, rule, least):
    """Ragged batches one after another through kept tables; whatever the host does while recording counts once."""
    runner, recorder = taped()
    ours = decoder_of(kind, runner, seed, rule, least)
    theirs = decoder_of(kind, EAGER, seed, rule, least)
    for number, rows in enumerate(batches):
        source = random_source(rows, 6, seed=seed + number)
        same(
            ours.decode(source, limits, capacity=capacity, trace=True),
            theirs.decode(source, limits, capacity=capacity, trace=True),
        )
    assert recorder.replayed


@settings(max_examples=5)
@given(kind=st.sampled_from(KINDS[1:]), seed=st.integers(0, 10_000), rows=st.integers(1, 5))
def test_blocks_of_changing_size_give_the_same_output(kind, seed, rows):
    runner, _ = taped()
    source = random_source(rows, 6, seed=seed)
    with patch("longstride.verification.session.TIMES", -1):  # measured, however few sentences there are
        found = decoder_of(kind, runner, seed, adaptive=True).decode(source, Limits(max_length=20))
    same(found, decoder_of(kind, EAGER, seed).decode(source, Limits(max_length=20)), traces=False)


@settings(max_examples=5)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10_000))
def test_greedy_by_the_same_steps_is_recorded_too(kind, seed):
    runner, _ = taped()
    decoder = decoder_of(kind, runner, seed)
    source = random_source(3, 6, seed=seed)
    expected = Greedy(tiny_model(seed, sharpness=1.5), EAGER).decode(source, Limits())
    for _ in range(2):
        assert SameShapeGreedy(decoder).decode(source).tokens == decoder.decode(source).tokens == expected.tokens


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_a_sentence_at_a_time_is_recorded_once(kind):
    runner, recorder = taped()
    decoder = decoder_of(kind, runner, 1)
    for seed in range(6):
        decoder.decode(random_source(1, 14, seed=seed))
    assert recorder.recorded == 2
    assert runner.statistics.graphs == 2
    assert runner.statistics.table_bytes > 0
    assert "2 graphs" in runner.statistics.describe()


def test_decoders_of_other_models_do_not_share_tables():
    runner, recorder = taped()
    source = random_source(2, 6)
    for seed in (1, 2):
        expected = decoder_of("greedy", EAGER, seed).decode(source).tokens
        assert decoder_of("greedy", runner, seed).decode(source).tokens == expected
    assert recorder.recorded == 4


def test_two_sessions_at_once_have_a_table_each():
    runner, _ = taped()
    decoder = decoder_of("blockwise", runner, 3)
    source = random_source(2, 6, seed=3)
    decoder.decode(source)
    one, other = (decoder.start(2, Limits(), source.longest) for _ in range(2))
    assert one.table is not other.table


class Unrecordable(TapeRecorder):
    def record(self, function: Any, state: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nand a long story")


def test_what_cannot_be_recorded_runs_as_it_is_and_is_said_once():
    heard: list[str] = []
    runner = CudaGraphRunner("cpu", "fp64", tell=heard.append, recorder=Unrecordable())
    source = random_source(3, 6, seed=5)
    ours, theirs = decoder_of("blockwise", runner, 5), decoder_of("blockwise", EAGER, 5)
    for _ in range(2):
        same(ours.decode(source, trace=True), theirs.decode(source, trace=True))
    assert len(heard) == 2  # entering and iterating
    assert all("without capturing it: operation not permitted when stream is capturing." in one for one in heard)


def test_a_recording_changes_nothing_before_it_is_repeated():
    runner, _ = taped()
    state = torch.zeros(3)

    def step() -> torch.Tensor:
        state.add_(1)
        return state * 2

    again = runner.record("count", step, [state])
    assert state.tolist() == [0, 0, 0]
    first = again()
    assert first.tolist() == [2, 2, 2]
    assert again() is first
    assert first.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x + torch.tensor([1.0, 2.0]),
        lambda x: int(x.max()),
    ],
)
def test_the_tests_recorder_refuses_what_a_graph_cannot_do(step):
    x = torch.ones(2)
    with pytest.raises(RefusedError):
        TapeRecorder().record(lambda: step(x), [])


def test_the_tests_recorder_refuses_writes_outside_the_state():
    x = torch.ones(2)
    with pytest.raises(RefusedError, match="not in the state"):
        TapeRecorder().record(lambda: x.add_(1), [])


@dataclass
class Fake:
    recordings: int
    nbytes: int


def test_tables_that_are_too_many_or_too_large_go_by_age():
    tables = Tables(most_recordings=4, most_bytes=100)
    for shape in range(3):
        tables.release("a", shape, Fake(2, 10))
    assert len(list(tables)) == 2
    assert tables.acquire("a", 0, lambda: Fake(0, 0)) == Fake(0, 0)
    tables.release("b", 0, Fake(9, 85))
    assert [table.nbytes for table in tables] == [10, 85]
    kept = tables.acquire("b", 0, lambda: Fake(0, 0))
    assert kept == Fake(9, 85)
    assert len(list(tables)) == 1


def test_a_large_device_keeps_more():
    assert most_bytes(8 << 30) == most_bytes(0) == 2 << 30
    assert most_bytes(80 << 30) == 16 << 30


class Ring(Fake):
    """One that holds itself, as a table does whose recordings know it."""

    def __init__(self, recordings: int, nbytes: int) -> None:
        super().__init__(recordings, nbytes)
        self.itself = self


def test_tables_that_go_are_gone():
    tables, gone = Tables(most_recordings=4), []
    for shape in range(3):
        table = Ring(2, 10)
        weakref.finalize(table, gone.append, shape)
        tables.release("a", shape, table)
        del table
    assert gone == [0]
    assert len(list(tables)) == 2


def test_shapes_are_few():
    runner, _ = taped()
    assert [runner.round_up(size) for size in (1, 2, 3, 5, 8, 33)] == [1, 2, 4, 8, 8, 64]
    assert runner.round_up(3, 16) == 16


def test_without_a_gpu_it_is_refused_and_int8_always():
    with pytest.raises(OptionError, match="expects a CUDA device"):
        CudaGraphRunner("cpu")
    with pytest.raises(OptionError, match="runtime native or onnx"):
        CudaGraphRunner("cpu", "int8", recorder=TapeRecorder())


# --- real graphs -----------------------------------------------------------------------------------------------------

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_graphs_decode_as_eager_steps_do(kind, precision):
    heard: list[str] = []
    # Kernels of our own round differently: test_cuda_graph_kernels has them on both sides.
    captured = CudaGraphRunner("cuda:0", precision, fused=False, tell=heard.append)
    ours, theirs = decoder_of(kind, captured, 7), decoder_of(kind, EagerRunner("cuda:0", precision), 7)
    for number in range(6):
        source = random_source(1 + number % 3, 14, seed=number)
        # In low precision another shape may round differently: the eager twin gets the same one where it can.
        padded = Source.of([source.ids[row, : source.lengths[row]].tolist() for row in range(source.rows)], 16)
        found, expected = (one.decode(padded, Limits(max_length=20), trace=True) for one in (ours, theirs))
        if precision == "fp64" or (kind in KINDS and source.rows != 3):
            assert found.tokens == expected.tokens
        if kind in KINDS:
            assert found.tokens == SameShapeGreedy(ours).decode(padded, Limits(max_length=20)).tokens
        assert all(map(math.isfinite, found.scores))
    assert heard == []
    assert captured.statistics.graphs <= 12


@pytest.mark.gpu
@needs_gpu
def test_what_looks_at_a_value_is_not_captured_and_still_done():
    heard: list[str] = []
    runner = CudaGraphRunner("cuda:0", "fp32", tell=heard.append)
    state = torch.zeros(2, device="cuda:0")

    def step() -> torch.Tensor:
        state.add_(1)
        return state * float(state.sum())

    again = runner.record("a look", step, [state])
    assert state.tolist() == [0, 0]
    assert again().tolist() == [2, 2]
    assert len(heard) == 1
    sound = runner.record("a sum", lambda: state.add_(1).sum(), [state])
    assert float(sound()) == 4.0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_gpu_there_is_a_message_and_the_eager_runner():
    runtime = "cuda-graph"
    heard: list[str] = []
    runner = make_runner("auto", "fp32", runtime, tell=heard.append)
    assert runner.name == "eager"
    assert heard == [f"The runtime {runtime} expects a CUDA device, found cpu: the model runs eagerly in fp32."]
    with pytest.raises(OptionError, match=f"int8 expects the runtime native or onnx, found {runtime}"):
        make_runner("auto", "int8", runtime)
