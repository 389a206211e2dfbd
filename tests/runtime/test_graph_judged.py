"""Judging in the graph gives what judging outside of it gives, and a table of one row what a table of many gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Feeds, GraphSpec, Limits, Program
from longstride.nn import programs
from longstride.runtime.eager import EagerRunner
from longstride.runtime.processor import Processor
from longstride.systems.blockwise import programs as heads_programs
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.verification.judged import judged
from longstride.verification.reading import forbidden_ids
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.models import random_source, tiny_model

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from longstride.runtime import onnx_runner
from longstride.runtime.onnx_means import OF_ARM, OF_X86, Means, means_of
from longstride.runtime.onnx_runner import OnnxRunner
from longstride.runtime.onnx_trial import rows_are_independent
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_exact import refuse, tiny_heads

CPU = torch.device("cpu")


def step(model: Any, runner: Any, rows: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, Any, Any]:
    source = random_source(rows, 7, seed=seed)
    memory = runner.call(programs.encode_source(model), source.ids, source.lengths)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, model.options.vocabulary, (rows, width), generator=generator)
    return ids, torch.zeros(rows, dtype=torch.int64), memory, model.new_cache(rows, 32)


@BOTH
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    rows=st.integers(1, 3),
    width=st.integers(1, 6),
    vocabulary=st.sampled_from([11, 97, 128, 320]),
    ahead=st.sampled_from([None, {}, {"link": 3}]),
)
def test_the_graph_judges_as_the_function_does(
    graphs: Graphs, seed: int, rows: int, width: int, vocabulary: int, ahead: dict[str, int] | None
) -> None:
    """For drafts that are right for a while, with EOS among them, and rows that must end."""
    model = tiny_model(seed, torch.float32, sharpness=2.0, vocabulary=vocabulary)
    heads = tiny_heads(seed, vocabulary=vocabulary, **(ahead or {}))
    onnx, eager = graphs("fp32", 1, tell=refuse), EagerRunner()
    program = judged(programs.verify(model), heads_programs.predict(model, heads, 4) if ahead is not None else None)
    ids, start, memory, cache = step(model, eager, rows, width, seed)
    generator = torch.Generator().manual_seed(seed)
    longest = torch.randint(0, 8, (rows,), generator=generator)
    count = torch.randint(0, width, (rows,), generator=generator)
    forbidden = forbidden_ids(Limits(banned=(5, 9)), CPU)
    arguments = (ids, count, start, longest, forbidden)
    for _ in range(width):  # each time the verifier's own choices become a longer part of the draft
        theirs = eager.call(program, *arguments, cache, memory)
        mine = onnx.call(program, *arguments, model.new_cache(rows, 32), memory)
        expected, verdict, told, found = theirs.verdict, mine.verdict, theirs.told, mine.told
        for name in ("accepted", "ids", "committed", "ended", "newest"):
            assert torch.equal(getattr(verdict, name), getattr(expected, name)), name
        for row, committed in enumerate(expected.committed.tolist()):
            scores = verdict.log_probability[row, :committed]
            assert torch.allclose(scores, expected.log_probability[row, :committed], atol=1e-4)
        assert torch.equal(found, told) if ahead is not None else torch.allclose(found, told, atol=1e-4)
        ids[:, 1:] = expected.ids[:, :-1]


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


@settings(max_examples=12, deadline=None)
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
        lone = decoder.decode(source, limits, capacity=1, trace=True)
        assert lone.tokens == many.tokens
        assert lone.scores == pytest.approx(many.scores, abs=1e-4)
        assert many.traces is not None
        assert lone.traces is not None
        if not adaptive:
            assert [trace.events for trace in lone.traces] == [trace.events for trace in many.traces]


@BOTH
def test_a_least_length_is_kept_though_the_graph_does_not_know_it(graphs: Graphs) -> None:
    model = tiny_model(3, torch.float32, sharpness=2.0)
    source = random_source(2, 8, seed=3)
    limits = Limits(max_length=12, min_length=9)
    decoder = Blockwise(model, tiny_heads(3), graphs("fp32", 1, tell=refuse))
    eager = Blockwise(model, tiny_heads(3), EagerRunner())
    for capacity in (1, 2):
        found = decoder.decode(source, limits, capacity=capacity).tokens
        assert found == eager.decode(source, limits, capacity=capacity).tokens
        assert all(len(tokens) >= 9 and EOS not in tokens for tokens in found)


@pytest.mark.parametrize("means", [OF_ARM, OF_X86])
@pytest.mark.parametrize("narrow", [False, True])
def test_means_are_tried_before_they_are_used(means: Means, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the trial says, a step gives the same bits at any width; both ways are close to each other."""
    model = tiny_model(1, torch.float32, vocabulary=97, width=64, feed_forward=256, heads=4, longest=128)
    machine = "aarch64" if means == OF_ARM else "x86_64"
    flags = frozenset({"avx2"}) if narrow else frozenset({"asimddp", "avx512_vnni"})
    processor = Processor(machine, flags)
    assert means_of(processor) == means
    found = []
    for tried in (rows_are_independent(means, processor.saturates), False):
        monkeypatch.setattr(onnx_runner, "rows_are_independent", lambda *_, tried=tried: tried)
        runner = OnnxRunner("int8", 1, tell=refuse, processor=processor)
        ids, start, memory, cache = step(model, runner, 1, 12, seed=4)
        whole, _ = runner.call(programs.verify(model), ids, start, cache, memory)
        for width in (1, 2, 5):
            part, _ = runner.call(programs.verify(model), ids[:, :width], start, model.new_cache(1, 32), memory)
            assert torch.equal(part, whole[:, :width])
        found.append(whole)
    assert (found[0] - found[1]).std() < 0.1 * found[1].std()
