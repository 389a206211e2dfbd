"""What the host does beside captured steps: nothing of PyTorch's where it can be helped, and nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longstride.contract import EOS, PAD, Decoder, Limits, Runner, Source
from longstride.engine import pool
from longstride.engine.outputs import Outputs
from longstride.engine.pool import InputStaging
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.cuda_graph_recorder import Recorded
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.systems.draft_verify.model import Drafter
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.verification.batch_state import BatchState
from longstride.verification.drafting import NoDraft
from longstride.verification.session import DecodePlan, PlanCache
from tests.decoding.test_greedy import LIMITS
from tests.models import tiny_model
from tests.runtime.test_cuda_graph import decoder_of, taped

EAGER = EagerRunner(precision="fp64")
WORDS = 20
SHORT, LONG = 2, 42
"""iterations of a sentence"""
VIEWS = ("slice", "select", "view", "expand", "unsqueeze", "squeeze", "detach", "alias", "as_strided", "t")


class CountingRecorder:
    """Records nothing: entering opens the first row of a table, iterating closes it after so many times."""

    def __init__(self) -> None:
        self.iterations = SHORT
        self._left = 0

    def warm_up(self, function: Callable[[], Any]) -> None:
        """There is nothing to set up."""

    def record(self, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded:
        """Run it once for its result, put back what it wrote, and count from then on."""
        before = [tensor.clone() for tensor in state]
        result = function()
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        owner: BatchState = function.func.__self__  # type: ignore[attr-defined]  # a partial of one of its methods
        rows = owner.outputs.rows
        done, length = rows.done.numpy(), rows.length.numpy()

        def enter() -> None:
            self._left = self.iterations
            done[:], length[:] = False, 1

        def iterate() -> None:
            self._left -= 1
            done[:] = self._left <= 0

        return Recorded(enter if result is None else iterate, result, 0)


class Calls(TorchDispatchMode):
    """Counts what PyTorch is asked for, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count it and do it."""
        self.names[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def untrained(name: str, runner: Runner) -> Decoder:
    """One of the decoders, over a model of no size."""
    shape: dict[str, Any] = {"width": 8, "feed_forward": 8, "heads": 1, "vocabulary": 32}
    model = runner.place(Transformer(TransformerOptions(**shape, encoder_layers=1, decoder_layers=1)))
    if name == "blockwise":
        return Blockwise(model, runner.place(Heads(HeadsOptions(8, 8))), runner)
    if name == "draft-verify":
        drafter = Drafter(DrafterOptions(**shape, encoder="shared", decoder_layers=1, block=10))
        return DraftVerify(model, runner.place(drafter), runner)
    return CopyVerify(model, runner) if name == "copy-verify" else Greedy(model, runner)


class Bench:
    """A decoder over a runner that counts, ready to decode a sentence of so many iterations."""

    def __init__(self, name: str, others: int = 0, rows: int = 1) -> None:
        self._recorder = CountingRecorder()
        runner = CudaGraphRunner("cpu", "fp32", recorder=self._recorder)
        self._decoder = untrained(name, runner)
        self._source, self._limits = Source.of([[*range(5, 5 + WORDS), EOS]] * rows, 32), Limits()
        for extra in range(others):
            untrained("greedy", runner).decode(self._source, Limits(max_length=100 + extra))
        for _ in range(20):
            self.decode()

    def decode(self, iterations: int = SHORT) -> None:
        """A sentence."""
        self._recorder.iterations = iterations
        self._decoder.decode(self._source, self._limits)

    def calls(self) -> tuple[dict[str, float], dict[str, float]]:
        """By name: of a sentence beside its iterations, and of an iteration."""
        counted = {}
        for iterations in (SHORT, LONG):
            with Calls() as calls:
                self.decode(iterations)
            counted[iterations] = calls.names
        steps = LONG - SHORT
        each = {call: (counted[LONG][call] - counted[SHORT][call]) / steps for call in counted[LONG]}
        beside = {call: counted[SHORT][call] - SHORT * each.get(call, 0) for call in counted[SHORT]}
        return {call: some for call, some in beside.items() if some}, {
            call: some for call, some in each.items() if some
        }


@pytest.mark.parametrize("name", ["greedy", "blockwise", "draft-verify", "copy-verify"])
def test_between_two_launches_pytorch_is_asked_for_nothing(name):
    of_sentence, of_iteration = Bench(name, others=1).calls()
    assert of_iteration == {}
    assert {call for call in of_sentence if call not in VIEWS} <= {"copy_"}


@pytest.mark.parametrize("name", ["greedy", "blockwise", "draft-verify", "copy-verify"])
def test_what_sessions_have_in_common_is_made_once(name, monkeypatch):
    runner, _ = taped()
    decoder = decoder_of(name, runner, 1)
    made: list[Limits] = []
    make = decoder.plan
    monkeypatch.setattr(decoder, "plan", lambda limits: made.append(limits) or make(limits))
    for max_length in (9, 9, 12, 9, 12):
        decoder.decode(Source.of([[5, 6, EOS]]), Limits(max_length=max_length))
    assert made == [Limits(max_length=9), Limits(max_length=12)]


def test_plans_are_few_however_many_limits_there_are():
    model, plans = tiny_model(1), PlanCache()
    for round_ in range(3):
        for max_length in range(1, 2 * plans.most):
            plan = plans.of(Limits(max_length=max_length), lambda limits: DecodePlan(model, EAGER, NoDraft(), limits))
            assert plan.limits.max_length == max_length, round_
            assert len(plans._made) <= plans.most


@pytest.mark.parametrize("unused", [None, 9])
@pytest.mark.parametrize("few", [0, 8])
def test_arrivals_forget_who_came_before(unused, few, monkeypatch):
    """Written one by one or as arrays; what is not needed repeats the first, in its row or in one that is nobody's."""
    monkeypatch.setattr(pool, "FEW", few)
    staging = InputStaging(3, 5, EAGER, unused_row=unused)
    staging.send(Source.of([[5, 6, 7, 8, EOS], [9, EOS], [5, 5, EOS]]), [2, 0, 1], [4, 5, 6])
    assert staging.ids.tolist()[1:] == [[9, EOS, PAD, PAD, PAD], [5, 5, EOS, PAD, PAD]]
    staging.send(Source.of([[7, EOS], [EOS]]), [1, 2], [7, 8], [40, 50])
    assert staging.ids.tolist() == [[7, EOS, PAD, PAD, PAD], [EOS, PAD, PAD, PAD, PAD], [7, EOS, PAD, PAD, PAD]]
    assert staging.lengths.tolist() == [2, 1, 2]
    assert staging.rows.tolist() == [1, 2, 1 if unused is None else unused]
    assert staging.tickets.tolist() == [7, 8, 7]
    assert staging.streams.tolist() == [40, 50, 40]


def test_all_of_a_source_is_itself():
    source = Source.of([[5, EOS], [6, 7, EOS]])
    assert source.slice(0, 2) is source
    assert source.slice(0, 9) is source
    part = source.slice(1, 2)
    assert torch.equal(part.ids, source.ids[1:])
    assert torch.equal(part.lengths, source.lengths[1:])
    assert source.slice(2, 2).rows == 0


@pytest.mark.parametrize("columns", [7, 5000], ids=["seen with every look", "fetched at the end"])
def test_a_table_of_one_row_begins_anew_as_others_do(columns):
    """All at once instead of number by number; what it said of its last iteration is forgotten as well."""
    one, two = (Outputs(rows, columns, torch.device("cpu"), torch.zeros(rows).long()) for rows in (1, 2))
    for outputs in (one, two):
        rows = outputs.rows
        for tensor in (rows.tokens, rows.length, rows.newest, rows.log_probability, rows.start):
            tensor.fill_(9)
        rows.done.fill_(True)
        outputs.open(torch.tensor([0]))
    for name in ("tokens", "length", "newest", "done", "log_probability", "start"):
        assert torch.equal(getattr(one.rows, name)[0], getattr(two.rows, name)[0]), name
    assert two.length[1] == 9


@settings(max_examples=20)
@given(limits=LIMITS, ratio=st.floats(0, 3), lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_how_long_outputs_may_be_is_looked_up(limits, ratio, lengths):
    limits = replace(limits, max_ratio=ratio)
    session = DecodePlan(tiny_model(1), EAGER, NoDraft(), limits).start(len(lengths), 30)
    session.admit(Source.of([[*[5] * (length - 1), EOS] for length in lengths]))
    assert session.table.batch.longest.tolist() == limits.longest_outputs(torch.tensor(lengths)).tolist()
