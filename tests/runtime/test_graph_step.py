"""An iteration carried out as a graph is the function run eagerly, and one row gives what many give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Feeds, GraphSpec, Limits, Program
from longstride.engine.outputs import Outputs
from longstride.nn import programs
from longstride.runtime.eager import EagerRunner
from longstride.runtime.processor import Processor, this_processor
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.blockwise.drafter import HeadsDrafter
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.verification.acceptance import Rule, forbidden_ids
from longstride.verification.drafting import NoDraft
from longstride.verification.step import Acceptance, Batch, VerifyStep
from longstride.verification.step_programs import whole
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.models import random_source, tiny_model

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from longstride.runtime import onnx_runner
from longstride.runtime.onnx_runner import OnnxRunner, self_test
from longstride.runtime.processor import ON_ARM, ON_X86, Operators, operators_for
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_exact import refuse, tiny_heads

CPU = torch.device("cpu")


def step(model: Any, runner: Any, rows: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, Any, Any]:
    source = random_source(rows, 7, seed=seed)
    memory = runner.call(programs.encode_source(model), source.ids, source.lengths)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, model.options.vocabulary, (rows, width), generator=generator)
    return ids, torch.zeros(rows, dtype=torch.int64), memory, model.new_cache(rows, 32)


def batch_of(model: Any, drafter: Any, rows: int, width: int, seed: int, memory: Any) -> Batch:
    """In the middle of some outputs, of which one may be done."""
    generator = torch.Generator().manual_seed(seed)
    outputs = Outputs(rows, 32, CPU)
    kept = outputs.rows
    kept.tokens.random_(3, model.options.vocabulary, generator=generator)
    kept.newest.random_(3, model.options.vocabulary, generator=generator)
    kept.length.random_(0, 3, generator=generator)
    kept.done.copy_(torch.rand(rows, generator=generator) < 0.2)
    longest = torch.randint(0, 8, (rows,), generator=generator)
    forbidden = forbidden_ids(Limits(banned=(5, 9)), CPU)
    state = drafter.begin(rows, 7, 32, CPU)
    return Batch(kept, longest, forbidden, torch.tensor([width]), model.new_cache(rows, 48), memory, state)


@BOTH
@settings(max_examples=25)
@given(
    seed=st.integers(0, 999),
    rows=st.integers(1, 3),
    width=st.integers(1, 6),
    vocabulary=st.sampled_from([11, 97, 128, 320]),
    heads=st.sampled_from([None, {}, {"link": 3}]),
    rule=st.sampled_from(["exact", "exact", "top:3", "top:2,gap:1.0", "distance:2"]),
    min_block=st.sampled_from([1, 1, 2]),
    min_length=st.sampled_from([0, 0, 2]),
)
def test_a_graph_does_what_the_function_does(
    graphs: Graphs,
    seed: int,
    rows: int,
    width: int,
    vocabulary: int,
    heads: dict[str, int] | None,
    rule: str,
    min_block: int,
    min_length: int,
) -> None:
    """For drafts that are right for a while, with EOS among them, and rows that must end."""
    model = tiny_model(seed, torch.float32, sharpness=2.0, vocabulary=vocabulary)
    runner, eager = graphs("fp32", 1, tell=refuse), EagerRunner()
    own = tiny_heads(seed, vocabulary=vocabulary, **(heads or {}))
    k = min(width, own.options.k)
    forbidden = forbidden_ids(Limits(banned=(5, 9)), CPU)
    drafter = NoDraft() if heads is None else HeadsDrafter(model, own, eager, k, forbidden)
    block = 0 if heads is None else k - 1
    step = VerifyStep(
        programs.verify(model), drafter, Acceptance(Rule.from_text(rule), min_block), Limits(min_length=min_length)
    )
    program = whole(step, block)
    source = random_source(rows, 7, seed=seed)
    memory = eager.call(programs.encode_source(model), source.ids, source.lengths)
    mine, theirs = (batch_of(model, drafter, rows, width, seed, memory) for _ in range(2))
    for _ in range(3):
        found, expected = runner.call(program, mine), eager.call(program, theirs)
        for name in ("active", "positions", "written", "draft"):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name
        assert torch.equal(found.ids[found.written], expected.ids[expected.written])
        for name in ("length", "newest", "done", "drafted", "accepted"):
            assert torch.equal(getattr(mine.rows, name), getattr(theirs.rows, name)), name
        committed = torch.arange(32) < mine.rows.length[:, None]
        assert torch.equal(mine.rows.tokens * committed, theirs.rows.tokens * committed)
        assert torch.allclose(mine.rows.log_probability, theirs.rows.log_probability, atol=1e-4)
        if block:
            assert torch.equal(mine.drafter.ids, theirs.drafter.ids)
            assert torch.equal(mine.drafter.count, theirs.drafter.count)


@BOTH
def test_forbidden_ids_are_never_best_and_of_equals_the_first_is(graphs: Graphs) -> None:
    for vocabulary in (64, 97, 320):
        logits = torch.zeros(2, 3, vocabulary)
        logits[0, 1, [7, 40]] = 2.0
        logits[1, 2, [1, 33]] = 5.0
        found = _best(graphs, logits, forbidden=[0, 1, 2, 4])
        assert found.tolist() == [[3, 7, 3], [3, 3, 33]]


def _best(graphs: Graphs, logits: torch.Tensor, forbidden: list[int]) -> torch.Tensor:
    vocabulary = logits.shape[-1]
    spec = GraphSpec(
        modules=(),
        feeds=lambda x: Feeds({"logits": x, "forbidden": torch.tensor(forbidden)}),
        inputs={
            "logits": (torch.float32, ("rows", "step", vocabulary)),
            "forbidden": (torch.int64, ("banned",)),
        },
        state={},
        outputs={"ids": (torch.int64, ("rows", "step"))},
        record=lambda builder, given: {"ids": builder.best(given["logits"], given["forbidden"], vocabulary)},
        result=lambda found, feeds: found["ids"],
        settings=(vocabulary,),
    )
    found: torch.Tensor = graphs("fp32", 1, tell=refuse).call(Program("best", refuse, spec), logits)
    return found


@settings(max_examples=12)
@given(seed=st.integers(0, 999), k=st.integers(1, 5), adaptive=st.booleans(), kind=KINDS)
def test_a_lone_row_gives_what_many_rows_give(seed: int, k: int, adaptive: bool, kind: dict[str, Any]) -> None:
    """Outputs, scores and, where they do not depend on the clock, all that was drafted and accepted."""
    model = tiny_model(seed, torch.float32, sharpness=2.0)
    source = random_source(3, 8, seed=seed)
    limits = Limits(max_length=20)
    runner = EagerRunner()
    options = BlockwiseOptions(k=k, adaptive=adaptive)
    drafter = tiny_drafter(seed, torch.float32, **kind)
    for decoder in (Blockwise(model, tiny_heads(seed), runner, options), DraftVerify(model, drafter, runner)):
        many = decoder.decode(source, limits, trace=True)
        one_token = decoder.decode(source, limits, capacity=1, trace=True)
        assert one_token.tokens == many.tokens
        assert one_token.scores == pytest.approx(many.scores, abs=1e-4)
        assert many.traces is not None
        assert one_token.traces is not None
        if not adaptive:
            assert [trace.events for trace in one_token.traces] == [trace.events for trace in many.traces]


@BOTH
def test_a_least_length_is_kept(graphs: Graphs) -> None:
    model = tiny_model(3, torch.float32, sharpness=2.0)
    source = random_source(2, 8, seed=3)
    limits = Limits(max_length=12, min_length=9)
    decoder = Blockwise(model, tiny_heads(3), graphs("fp32", 1, tell=refuse))
    eager = Blockwise(model, tiny_heads(3), EagerRunner())
    for capacity in (1, 2):
        found = decoder.decode(source, limits, capacity=capacity).tokens
        assert found == eager.decode(source, limits, capacity=capacity).tokens
        assert all(len(tokens) >= 9 and EOS not in tokens for tokens in found)


@pytest.mark.parametrize("operators", [ON_ARM, ON_X86])
@pytest.mark.parametrize("narrow", [False, True])
def test_operators_are_tried_before_they_are_used(
    operators: Operators, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the trial says, a step gives the same bits at any width; both ways are close to each other."""
    if operators == ON_ARM and this_processor().saturates:
        pytest.skip("weights have 8 bits on ARM, and sums of their products overflow on this processor")
    model = tiny_model(1, torch.float32, vocabulary=97, width=64, feed_forward=256, heads=4, longest=128)
    machine = "aarch64" if operators == ON_ARM else "x86_64"
    flags = frozenset({"avx2"}) if narrow else frozenset({"asimddp", "avx512_vnni"})
    processor = Processor(machine, flags)
    assert operators_for(processor) == operators
    found = []
    for tried in (self_test(operators, processor.saturates), False):
        monkeypatch.setattr(onnx_runner, "self_test", lambda *_, tried=tried: tried)
        runner = OnnxRunner("int8", 1, tell=refuse, processor=processor)
        ids, start, memory, cache = step(model, runner, 1, 12, seed=4)
        full, _ = runner.call(programs.verify(model), ids, start, cache, memory)
        for width in (1, 2, 5):
            part, _ = runner.call(programs.verify(model), ids[:, :width], start, model.new_cache(1, 32), memory)
            assert torch.equal(part, full[:, :width])
        found.append(full)
    assert (found[0] - found[1]).std() < 0.1 * found[1].std()
