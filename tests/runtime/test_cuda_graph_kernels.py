"""The CUDA runner with kernels of our own: which it takes, what it says of others, and that captured steps with them
are eager steps with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from longstride.contract import Decoder, Limits, OptionError, Precision, Program, Runner, Source
from longstride.ops.cuda import self_test
from longstride.ops.cuda.table import NAMES
from longstride.ops.kernels import WAITED, KernelTable, current, kernels_of
from longstride.runtime import cuda_graph
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.verification.exactness import SameShapeGreedy
from tests.decoding.drafters import tiny_drafter
from tests.decoding.test_blockwise import random_heads
from tests.models import random_source, tiny_model
from tests.runtime.recording import TapeRecorder

SIZES: dict[str, Any] = {"width": 64, "feed_forward": 128, "heads": 2}
LIMITS = Limits(max_length=20)


@pytest.fixture
def _all_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CUDA device where nothing speaks against any of them; nobody runs what is placed."""
    monkeypatch.setattr(self_test, "unsupported_reason", lambda *_: "")
    monkeypatch.setattr(self_test, "overlap_unsupported_reason", lambda *_: "")
    monkeypatch.setattr(cuda_graph, "_memory", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def runner_of(tell: Any = None, device: str = "cpu", precision: Precision = "fp32", **options: Any) -> CudaGraphRunner:
    return CudaGraphRunner(device, precision, tell=tell, recorder=TapeRecorder(), **options)


@pytest.mark.usefixtures("_all_are_sound")
def test_they_are_used_unless_somebody_says_otherwise():
    every = set(NAMES) - {"overlap"}
    runner = runner_of(device="cuda:0")
    assert runner.kernels is not None
    assert runner.kernels.names == every
    assert runner.kernels.overlap == WAITED
    assert runner.uses("lines", 64)
    assert not runner.uses("lines", 48)
    runner = runner_of(device="cuda:0", without=["step", "overlap"])
    assert runner.kernels is not None
    assert runner.kernels.names == every - {"step"}
    assert runner.kernels.overlap == 0
    assert not runner.uses("step")
    assert runner_of(device="cuda:0", fused=False).kernels is None
    assert runner_of(device="cuda:0", precision="fp64").kernels is None


def test_unknown_ones_cannot_be_left_out():
    with pytest.raises(OptionError, match=r"without expects names among norm, .*found gelu"):
        runner_of(without=["gelu", "norm"])


def test_nothing_is_said_where_there_is_nothing_to_try():
    heard: list[str] = []
    runner = runner_of(heard.append)
    runner.place(tiny_model(3))
    assert runner.kernels is None
    assert not runner.uses("norm")
    assert heard == []


@pytest.mark.usefixtures("_all_are_sound")
def test_what_is_left_out_is_said_once(monkeypatch):
    heard: list[str] = []
    monkeypatch.setattr(self_test, "overlap_unsupported_reason", lambda *_: "too old")
    runner = runner_of(heard.append, "cuda:0")
    assert [runner.kernels.overlap for _ in range(2)] == [0, 0]
    monkeypatch.setattr(self_test, "unsupported_reason", lambda *_: "it is broken")
    assert [runner_of(heard.append, "cuda:0").kernels] == [None]
    assert heard == [
        "The runtime cuda-graph does without starting all these while the kernel before them ends: too old.",
        "The runtime cuda-graph does without kernels of our own: it is broken.",
    ]


def test_a_table_is_in_force_in_calls_and_recordings_alone():
    """Also where a recording fails."""
    runner, seen = runner_of(), []
    table = runner.__dict__["kernels"] = KernelTable([])

    def function() -> torch.Tensor:
        seen.append(current())
        return torch.zeros(1)

    runner.call(Program("one", lambda: function()))
    runner.record("two", function, [])()
    runner._recorder = None  # type: ignore[assignment]
    with pytest.warns(RuntimeWarning, match="without capturing it"):
        again = runner.record("three", function, [])
    again()
    assert len(seen) >= 4
    assert all(one is table for one in seen)
    assert current() is None


# --- real graphs -----------------------------------------------------------------------------------------------------

KINDS = ("greedy", "blockwise", "draft-verify", "draft-verify full", "beam", "draft-verify tree", "blockwise tree")


TREE = "tree"


def decoders_of(kind: str, placing: Runner, runners: list[Runner]) -> list[Decoder]:
    """One for each runner, over the same modules."""
    model = placing.place(tiny_model(7, sharpness=0.4, **SIZES))
    if kind == "greedy":
        return [Greedy(model, runner) for runner in runners]
    if kind == "beam":
        return [Beam([model], runner, BeamOptions(3)) for runner in runners]
    if kind == "blockwise":
        heads = placing.place(random_heads(7, 4, width=64))
        return [Blockwise(model, heads, runner) for runner in runners]
    if kind == "blockwise tree":
        heads = placing.place(random_heads(7, 4, width=64, link=3))
        return [Blockwise(model, heads, runner, BlockwiseOptions(tree=20)) for runner in runners]
    drafter = placing.place(
        tiny_drafter(7, prefix="full" if kind.endswith("full") else "causal", link=3 if TREE in kind else 0, **SIZES)
    )
    return [DraftVerify(model, drafter, runner, DraftVerifyOptions(tree=20 * (TREE in kind))) for runner in runners]


def alone(line: list[int]) -> Source:
    """In a rectangle as wide as a table's rows: low precision may round differently in another shape."""
    return Source.of([line], 16)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("without", [(), ("overlap",), ("product",)])
def test_graphs_decode_as_eager_steps_with_the_same_kernels_do(
    kind: str, precision: Precision, without: tuple[str, ...]
) -> None:
    captured = CudaGraphRunner("cuda:0", precision, without=without, tell=lambda _: None)
    ours, theirs = decoders_of(kind, captured, [captured, EagerRunner("cuda:0", precision)])
    for seed in range(6):
        source = random_source(1, 14, seed=seed)
        padded = alone(source.ids[0, : source.lengths[0]].tolist())
        found = ours.decode(padded, LIMITS).tokens
        # Eager caches of beams grow, and with them the shapes of other kernels than our own. A node's ancestors do not
        # lie where a chain's tokens do: in low precision, sums over them may differ in their last bits.
        if kind == "beam" or (TREE in kind and precision != "fp32"):
            assert len(found) == 1
            continue
        with kernels_of(captured.kernels):
            assert found == theirs.decode(padded, LIMITS).tokens
        assert found == SameShapeGreedy(ours).decode(padded, LIMITS).tokens


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_hidden_states_are_as_right_as_without_them(precision: Precision) -> None:
    """A wide step and narrow ones after it; measured by what fp64 gives."""
    exact = states_of(CudaGraphRunner("cuda:0", "fp64"))
    plain = states_of(CudaGraphRunner("cuda:0", precision, fused=False))
    own = states_of(CudaGraphRunner("cuda:0", precision, without=["relu"]))
    assert float((own - exact).abs().mean()) <= 1.5 * float((plain - exact).abs().mean()) + 1e-3


def states_of(runner: CudaGraphRunner) -> torch.Tensor:
    """[rows, slots, width] of a random model that is carried out by this runner's kernels"""
    model = runner.place(tiny_model(3, sharpness=0.2, **SIZES))
    device = runner.device
    ids = torch.randint(5, 11, (3, 20), generator=torch.Generator().manual_seed(0)).to(device)
    start = torch.tensor([0, 0, 0], device=device)
    with torch.inference_mode(), kernels_of(runner.kernels):
        memory, cache = model.new_memory(3, 20), model.new_cache(3, 40)
        memory.put(torch.arange(3, device=device), model.encode_source(ids, torch.tensor([20, 3, 11], device=device)))
        states = [model.extend(ids, start, cache, memory)]
        states += [model.extend(ids[:, :1], start + 20 + one, cache, memory) for one in range(3)]
    return torch.cat(states, dim=1).double()
