"""A block gives bit for bit the numbers of its tokens one by one, and verified decoders greedy's very output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Decoder, Limits, Source
from longstride.nn import programs
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify
from longstride.systems.draft_verify.decoder import Draft, DraftVerify, DraftVerifyOptions
from longstride.verification.session import VerificationSession
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.models import random_source, seeded, tiny_model
from tests.runtime.graphs import BOTH, Graphs


def refuse(message: str) -> None:
    raise AssertionError(message)


def tiny_heads(seed: int, first: str = "identity", link: int = 0, vocabulary: int | None = None) -> Heads:
    with seeded(seed):
        heads = Heads(HeadsOptions(5, 16, feed_forward=8, first=first, link=link, vocabulary=vocabulary))  # type: ignore[arg-type]
        with torch.no_grad():
            for weight in heads.parameters():
                weight.normal_(0, 0.3)
    return heads.eval().requires_grad_(False)


@BOTH
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_of_any_width_gives_the_same_bits(graphs: Graphs, precision: Any, threads: int) -> None:
    """Also where the cache is longer, as a drafter's verifier has it: greedy's is not."""
    options = {"vocabulary": 97, "width": 64, "feed_forward": 256, "heads": 4, "longest": 128}
    model = tiny_model(1, torch.float32, sharpness=1.0, **options)
    runner = graphs(precision, threads, tell=refuse)
    source = random_source(1, 30, 97, seed=2)
    memory = runner.call(programs.encode_source(model), source.ids, source.lengths)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 97, (1, 60), generator=generator)
    verify = programs.verify(model)
    whole = model.new_cache(1, 112)
    expected, states = runner.call(verify, ids, torch.tensor([0]), whole, memory)
    for width in (1, 2, 3, 8, 25):
        cache = model.new_cache(1, 60)
        for start in range(0, 60, width):
            block = ids[:, start : start + width]
            logits, hidden = runner.call(verify, block, torch.tensor([start]), cache, memory)
            assert torch.equal(logits, expected[:, start : start + width]), (width, start)
            assert torch.equal(hidden, states[:, start : start + width])
        assert torch.equal(cache.keys[:, :, :, :60], whole.keys[:, :, :, :60])
        assert torch.equal(cache.values[:, :, :, :60], whole.values[:, :, :, :60])


@BOTH
@settings(max_examples=15)
@given(seed=st.integers(0, 999), precision=st.sampled_from(["fp32", "int8"]), rows=st.integers(1, 3), kind=KINDS)
def test_verified_decoders_give_greedys_output(
    graphs: Graphs, seed: int, precision: Any, rows: int, kind: dict[str, Any]
) -> None:
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    runner = graphs(precision, 1, tell=refuse)
    source = random_source(3, 8, seed=seed)
    limits = Limits(max_length=20)
    greedy = Greedy(model, runner).decode(source, limits, capacity=rows)
    for k in (2, 5):
        blockwise = Blockwise(model, tiny_heads(seed), runner, BlockwiseOptions(k=k))
        decoded = blockwise.decode(source, limits, capacity=rows)
        assert decoded.tokens == greedy.tokens
        assert decoded.scores == pytest.approx(greedy.scores, abs=1e-4)  # summed in another order
    drafter = tiny_drafter(seed, torch.float32, **kind)
    for decoder in (DraftVerify(model, drafter, runner), CopyVerify(model, runner)):
        decoded = decoder.decode(source, limits, capacity=rows)
        assert decoded.tokens == greedy.tokens
        assert decoded.scores == pytest.approx(greedy.scores, abs=1e-4)  # summed in another order


def committed(decoder: Decoder, source: Source, limits: Limits) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """The ids of one sentence, and what the verifier's cache keeps of them."""
    session = decoder.start(1, limits, source.longest)
    assert isinstance(session, VerificationSession)
    session.admit(source)
    while not (finished := session.take_finished()):
        session.advance()
    tokens, cache = finished[0].hypotheses[0].tokens, session.table.batch.cache
    return list(tokens), cache.keys[:, 0, :, : len(tokens)], cache.values[:, 0, :, : len(tokens)]


@BOTH
@settings(max_examples=15)
@given(seed=st.integers(0, 999), precision=st.sampled_from(["fp32", "int8"]), k=st.integers(1, 4), kind=KINDS)
def test_a_whole_iteration_keeps_greedys_bits(
    graphs: Graphs, seed: int, precision: Any, k: int, kind: dict[str, Any]
) -> None:
    """Drafting, verifying and committing as one graph: what a library makes of its nodes may not hang on the width."""
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    runner = graphs(precision, 1, tell=refuse)
    source, limits = random_source(1, 12, seed=seed), Limits(max_length=20)
    tokens, keys, values = committed(Greedy(model, runner), source, limits)
    drafter = tiny_drafter(seed, torch.float32, **kind)
    heads = Blockwise(model, tiny_heads(seed), runner, BlockwiseOptions(k=k))
    for decoder in (heads, DraftVerify(model, drafter, runner, DraftVerifyOptions(k=k))):
        found = committed(decoder, source, limits)
        assert found[0] == tokens
        assert torch.equal(found[1], keys)
        assert torch.equal(found[2], values)


@BOTH
@settings(max_examples=8)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), kind=KINDS)
def test_in_fp32_every_decoder_gives_the_eager_output(
    graphs: Graphs, seed: int, rows: int, kind: dict[str, Any]
) -> None:
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    drafter = tiny_drafter(seed, torch.float32, **kind)
    source = random_source(3, 8, seed=seed)
    limits = Limits(max_length=20)
    onnx, eager = graphs("fp32", 1, tell=refuse), EagerRunner()
    makers: list[Any] = [
        lambda runner: Greedy(model, runner),
        lambda runner: Beam([model], runner),
        lambda runner: Blockwise(model, tiny_heads(seed, "learned"), runner),
        lambda runner: DraftVerify(model, drafter, runner),
        lambda runner: Draft(model, drafter, runner),
    ]
    for make in makers:
        mine, theirs = (make(runner).decode(source, limits, capacity=rows) for runner in (onnx, eager))
        assert mine.tokens == theirs.tokens
        assert mine.scores == pytest.approx(theirs.scores, abs=1e-3)
        assert mine.iterations == theirs.iterations


@BOTH
def test_int8_stays_close_to_fp32(graphs: Graphs) -> None:
    options = {"vocabulary": 500, "width": 64, "feed_forward": 256, "heads": 4, "longest": 128}
    model = tiny_model(1, torch.float32, **options)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.xavier_uniform_(weight)
    source = random_source(4, 20, 500, seed=2)
    ids = torch.randint(5, 500, (4, 20), generator=torch.Generator().manual_seed(3))
    found = []
    for precision in ("fp32", "int8"):
        runner = graphs(precision, 1, tell=refuse)  # type: ignore[arg-type]
        memory = runner.call(programs.encode_source(model), source.ids, source.lengths)
        start = torch.zeros(4, dtype=torch.int64)
        found.append(runner.call(programs.verify(model), ids, start, model.new_cache(4, 20), memory)[0])
    error = (found[1] - found[0]).pow(2).mean().sqrt() / found[0].std()
    assert error < 0.05
