"""A call that is bound gives what a call gives, and a table that was kept what a new one gives."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Decoder, Limits, Program, Source
from longstride.nn import programs
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, Greedy
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.draft_verify import drafter as drafter_module
from longstride.systems.draft_verify.copy_decoder import CopyVerify
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.models import random_source, tiny_model

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from longstride.runtime.graph_runner import TablePool
from longstride.runtime.native.graph import Machine
from longstride.runtime.native.runner import NativeRunner
from longstride.runtime.onnx_graph import Bindings
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_exact import refuse, tiny_heads


def steps(runner: Any, precision: Any, bound: bool) -> list[torch.Tensor]:
    """Logits and states of three steps of four tokens, then the cache."""
    model = tiny_model(4, torch.float32, sharpness=1.0)
    source = random_source(2, 7, seed=4)
    memory = runner.call(programs.encode_source(model), source.ids, source.lengths)
    cache, verify = model.new_cache(2, 16), programs.verify(model)
    ids, start = torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    again = runner.bound(verify, ids, start, cache, memory)
    found = []
    for step in range(3):
        ids.copy_(torch.randint(5, 11, (2, 4), generator=torch.Generator().manual_seed(step)))
        start.fill_(4 * step)
        logits, hidden = again() if bound else runner.call(verify, ids, start, cache, memory)
        found += [logits.clone(), hidden.clone()]
    return [*found, cache.keys, cache.values]


@BOTH
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_bound_call_reads_its_tensors_anew_and_gives_the_same_bits(graphs: Graphs, precision: Any) -> None:
    runner = graphs(precision, 1, tell=refuse)
    assert all(map(torch.equal, steps(runner, precision, bound=True), steps(runner, precision, bound=False)))


def test_runners_without_graphs_bind_by_calling() -> None:
    assert all(map(torch.equal, steps(EagerRunner(), "fp32", bound=True), steps(EagerRunner(), "fp32", bound=False)))


@BOTH
def test_what_cannot_be_used_where_it_lies_is_called(graphs: Graphs) -> None:
    model = tiny_model(4, torch.float32)
    runner = graphs("fp32", 1, tell=refuse)
    wide = random_source(2, 14, seed=4).ids
    lengths = torch.tensor([7, 7])
    again = runner.bound(programs.encode_source(model), wide[:, ::2], lengths)
    before = again().keys.clone()
    wide.add_(1).remainder_(7)
    after = again().keys
    assert torch.equal(after, runner.call(programs.encode_source(model), wide[:, ::2].contiguous(), lengths).keys)
    assert not torch.equal(after, before)
    doubled = Program("double", lambda x: x * 2, weightless=True)
    assert torch.equal(runner.bound(doubled, lengths)(), lengths * 2)


@BOTH
def test_what_is_worked_out_of_arguments_is_worked_out_anew(graphs: Graphs) -> None:
    """A drafter that reads a whole canvas pads it first."""
    drafter = tiny_drafter(1, torch.float32, prefix="full")
    model = tiny_model(1, torch.float32, sharpness=2.0)
    source = random_source(2, 8, seed=1)
    limits = Limits(max_length=20)
    onnx, eager = (DraftVerify(model, drafter, runner) for runner in (graphs("fp32", 1), EagerRunner()))
    mine, theirs = (decoder.decode(source, limits, capacity=1) for decoder in (onnx, eager))
    assert mine.tokens == theirs.tokens
    assert mine.iterations == theirs.iterations


@BOTH
@settings(max_examples=8)
@given(
    seed=st.integers(0, 999),
    k=st.integers(1, 5),
    precision=st.sampled_from(["fp32", "int8"]),
    kind=KINDS,
    capacity=st.integers(1, 3),
)
def test_an_iteration_in_one_call_is_the_drafter_asked_from_outside(
    graphs: Graphs, seed: int, k: int, precision: Any, kind: dict[str, Any], capacity: int
) -> None:
    """To the bit: outputs, scores, and all that was drafted and accepted, whether the drafter is traced or asked."""
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    drafter = tiny_drafter(seed, torch.float32, **kind)
    source, limits = random_source(3, 8, seed=seed), Limits(max_length=20)
    found = []
    for traced in (True, False):
        runner = graphs(precision, 1, tell=refuse if traced else lambda message: None)
        decoder = DraftVerify(model, drafter, runner, DraftVerifyOptions(k=min(k, drafter.options.block)))
        with pytest.MonkeyPatch.context() as patch:
            if not traced:
                patch.setattr(drafter_module, "drafter_graph", lambda *_: None)
            found.append(decoder.decode(source, limits, capacity=capacity, trace=True))
        assert ("step" in {key[0] for key in runner.graphs}) == traced  # type: ignore[index]
    mine, theirs = found
    assert mine.tokens == theirs.tokens
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-4)
    if precision == "fp32":
        assert mine.traces == theirs.traces


@BOTH
def test_a_graph_that_fails_later_is_left_for_the_eager_way(graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    model = tiny_model(4, torch.float32)
    runner = graphs("fp32", 1, tell=told.append)
    source = random_source(2, 7, seed=4)
    again = runner.bound(programs.encode_source(model), source.ids, source.lengths)
    first = again().keys.clone()

    def fail(_: object) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(Machine if graphs is NativeRunner else Bindings, "run", fail)
    other = runner.bound(programs.encode_source(model), source.ids, source.lengths)
    assert torch.allclose(other().keys, first, atol=1e-5)
    assert torch.allclose(other().keys, first, atol=1e-5)
    assert len(told) == 1
    assert "no more" in told[0]


def decoders(runner: Any, seed: int) -> list[Decoder]:
    model = tiny_model(seed, torch.float32, sharpness=2.0)
    return [
        Greedy(model, runner),
        Beam([model], runner),
        Blockwise(model, tiny_heads(seed), runner),
        DraftVerify(model, tiny_drafter(seed, torch.float32, prefix="causal"), runner),
        DraftVerify(model, tiny_drafter(seed, torch.float32, prefix="full"), runner),
        CopyVerify(model, runner),
    ]


@BOTH
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_sentences_one_after_the_other_give_what_each_gives_first(graphs: Graphs, precision: Any) -> None:
    """All of one length, so that each finds the table of the one before."""
    generator = torch.Generator().manual_seed(1)
    sources = [Source.of([[*torch.randint(5, 11, (4,), generator=generator).tolist(), EOS]]) for _ in range(2)]
    limits = Limits(max_length=12)
    kept = decoders(graphs(precision, 1, tell=refuse), 2)
    for one in range(len(kept)):
        for source in sources:
            fresh = decoders(graphs(precision, 1, tell=refuse), 2)[one].decode(source, limits, trace=True)
            found = kept[one].decode(source, limits, trace=True)
            assert found.tokens == fresh.tokens
            assert found.scores == fresh.scores
            assert found.traces == fresh.traces


@dataclass
class Small:
    """A table for the keeping."""

    nbytes: int
    steady: bool = True
    recordings: int = 0


def test_tables_are_counted_whoever_takes_and_brings_them() -> None:
    tables, before = TablePool(most=5, most_bytes=200), sys.getswitchinterval()

    def lend(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(300):
            size = draw.randrange(1, 60)
            tables.release("kind", size % 7, tables.acquire("kind", size % 7, lambda size=size: Small(size)))

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(lend, range(6)))
    finally:
        sys.setswitchinterval(before)
    waiting = [tables.acquire("kind", number, lambda: Small(0)) for number in range(7)]
    assert tables.nbytes == 0
    assert 0 < sum(table.nbytes for table in waiting) <= 200


def test_the_longest_unused_tables_go_first_and_large_ones_at_once() -> None:
    tables = TablePool(most=3, most_bytes=100)
    first, second, third, fourth = (Small(20) for _ in range(4))
    for number, table in enumerate((first, second, third)):
        tables.release("kind", number, table)
    assert tables.acquire("kind", 0, lambda: Small(0)) is first
    tables.release("kind", 0, first)
    tables.release("kind", 3, fourth)
    assert (len(tables), tables.nbytes) == (3, 60)
    new = Small(0)
    assert tables.acquire("kind", 1, lambda: new) is new
    assert tables.acquire("other", 0, lambda: new) is new
    tables.release("kind", 5, Small(70))
    assert (len(tables), tables.nbytes) == (2, 90)
    assert tables.acquire("kind", 3, lambda: new) is fourth
    tables.release("kind", 6, Small(101))
    tables.release("kind", 7, Small(1, steady=False))
    assert (len(tables), tables.nbytes) == (1, 70)
    tables.release("kind", 5, Small(10))
    assert (len(tables), tables.nbytes) == (1, 10)
