"""Blockwise decoding: exact acceptance is head 1's greedy output, whatever the other heads predict."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import longstride
from longstride import model_folder
from longstride.contract import DEFAULT_IDS, EOS, START, Limits, OptionError, Session, Source
from longstride.model_folder import DecoderConfig
from longstride.objectives import OBJECTIVES
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.blockwise.model import BlockwiseModel, Heads, HeadsOptions
from longstride.verification.acceptance import Rule
from longstride.verification.session import DecodePlan
from tests.decoding.drafters import picked
from tests.decoding.oracles import allowed, longest_output
from tests.decoding.scripted import Scripted
from tests.decoding.test_greedy import LIMITS
from tests.folders import LONGEST, words
from tests.models import random_source, seeded, tiny_model
from tests.nn.test_link import slow_draft

RUNNER = EagerRunner(precision="fp64")


def random_heads(seed: int, k: int, first: str = "identity", width: int = 16, link: int = 0) -> Heads:
    """Heads that agree with the model now and then, and with each other never."""
    with seeded(seed):
        options = HeadsOptions(k, width, feed_forward=8, first=first, link=link, vocabulary=11 if link else None)  # type: ignore[arg-type]
        heads = Heads(options)
        with torch.no_grad():
            for weight in heads.parameters():
                weight.normal_(0, 0.3)
    return heads.double().eval().requires_grad_(False)


def sentences(source: Source) -> list[list[int]]:
    return [source.ids[row, : source.lengths[row]].tolist() for row in range(source.rows)]


def all_logits(model: Any, heads: Heads, source: list[int], prefix: list[int]) -> torch.Tensor:
    """[slots, k, vocabulary] every head at every slot of a prefix, by a whole forward pass."""
    memory = model.encode(torch.tensor([source]), None)
    hidden = model.decode(torch.tensor([[START, *prefix]]), memory, None)
    return model.logits(heads.every(hidden))[0]


def follow_head_1(model: Any, heads: Heads, source: list[int], limits: Limits) -> list[int]:
    """Greedy by the definition: no cache, no batch, no block."""
    tokens: list[int] = []
    while True:
        logits = all_logits(model, heads, source, tokens)[-1, 0]
        choices = allowed(len(tokens), longest_output(source, limits), limits, len(logits))
        best = max(choices, key=lambda token: float(logits[token]))
        if best == EOS:
            return tokens
        tokens.append(best)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    capacity=st.integers(1, 5),
    trained=st.integers(2, 6),
    drop=st.integers(0, 5),
    limits=LIMITS,
    norm=st.sampled_from(["post", "pre"]),
    adaptive=st.booleans(),
)
def test_exact_acceptance_with_an_identity_is_the_base_model_greedy(
    seed, rows, capacity, trained, drop, limits, norm, adaptive
):
    k = max(1, trained - drop)
    model, heads = tiny_model(seed, sharpness=1.0, norm=norm), random_heads(seed, trained)
    source = random_source(rows, 6, seed=seed)
    greedy = Greedy(model, RUNNER).decode(source, limits)
    decoder = Blockwise(model, heads, RUNNER, BlockwiseOptions(k=k, adaptive=adaptive))
    with picked(seed):
        decoded = decoder.decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.replay() == tokens
        assert max(trace.committed_per_step) <= k
        assert trace.events[0].drafted == 0
        assert adaptive or all(event.drafted == k - 1 for event in trace.events[1:])


@pytest.mark.parametrize("first", ["identity", "learned"])
@pytest.mark.parametrize("told", [{}, {"k": 4}, {"tree": 4}, {"accept": Rule.from_text("top:2")}])
def test_on_a_processor_several_rows_are_not_drafted_unless_options_say_how(told: dict[str, Any], first: str) -> None:
    model, heads = tiny_model(3, sharpness=1.0), random_heads(3, 4, first)
    source, limits = random_source(3, 6, seed=3), Limits(max_length=8)
    decoder = Blockwise(model, heads, RUNNER, BlockwiseOptions(**told))
    usual = decoder.without_slow_drafts()
    assert (usual is decoder) == bool(told)
    assert usual.decode(source, limits).tokens == decoder.decode(source, limits).tokens
    for rows in (1, 3):
        drafted = usual.decode(source.slice(0, rows), limits, trace=True).traces
        assert any(event.drafted for trace in drafted for event in trace.events) == (rows == 1 or bool(told))


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 4), trained=st.integers(1, 5), limits=LIMITS)
def test_a_learned_first_head_is_followed(seed, rows, trained, limits):
    model, heads = tiny_model(seed, sharpness=1.0), random_heads(seed, trained, "learned")
    source = random_source(rows, 6, seed=seed)
    decoded = Blockwise(model, heads, RUNNER).decode(source, limits)
    assert decoded.tokens == [follow_head_1(model, heads, ids, limits) for ids in sentences(source)]


def test_a_learned_first_head_is_not_the_base_model():
    different = 0
    for seed in range(4):
        model, heads = tiny_model(seed, sharpness=1.0), random_heads(seed, 3, "learned")
        source = random_source(4, 6, seed=seed)
        different += (
            Blockwise(model, heads, RUNNER).decode(source).tokens != Greedy(model, RUNNER).decode(source).tokens
        )
    assert different


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("k", [2, 6])
def test_a_draft_may_reach_past_the_last_position_of_the_model(positions, k):
    """An output as long as the model has positions for, with blocks that go on behind it."""
    model, heads = tiny_model(0, positions=positions, longest=8), random_heads(0, k)
    limits = Limits(max_length=7, min_length=7)
    source = random_source(4, 6, seed=0)
    decoded = Blockwise(model, heads, RUNNER).decode(source, limits)
    assert decoded.tokens == Greedy(model, RUNNER).decode(source, limits).tokens
    assert [len(tokens) for tokens in decoded.tokens] == [7] * 4


@pytest.mark.parametrize("first", ["identity", "learned"])
def test_a_block_of_one_is_greedy_with_a_mean_block_of_one(first):
    model, heads = tiny_model(2, sharpness=1.0), random_heads(2, 4, first)
    source, limits = random_source(4, 6, seed=2), Limits(max_length=12)
    decoded = Blockwise(model, heads, RUNNER, BlockwiseOptions(k=1)).decode(source, limits, trace=True)
    assert decoded.tokens == [follow_head_1(model, heads, ids, limits) for ids in sentences(source)]
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.mean_block == 1.0
        assert trace.iterations == len(tokens) + 1


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), trained=st.integers(2, 6), drop=st.integers(0, 4), least=st.integers(1, 6))
def test_a_minimum_of_k_gives_blocks_of_k(seed, trained, drop, least):
    """All but the first call, which has nothing to verify yet, and the last, which the end cuts short."""
    k = max(2, trained - drop)
    least = min(least, k)
    model, heads = tiny_model(seed, sharpness=1.0), random_heads(seed, trained)
    source = random_source(4, 6, seed=seed)
    for minimum in {least, k}:
        options = BlockwiseOptions(k=k, min_block=minimum)
        decoded = Blockwise(model, heads, RUNNER, options).decode(source, Limits(max_length=17), trace=True)
        for trace in decoded.traces:
            assert trace.committed_per_step[0] == 1
            middle = trace.committed_per_step[1:-1]
            assert all(minimum <= count <= k for count in middle)
            if trace.iterations > 1:
                assert trace.committed_per_step[-1] <= k


class Oracle(Scripted):
    """Heads that are always right, but like all heads have nothing to say before the first call."""

    def __init__(self, k: int, outputs: dict[tuple[int, ...], list[int]]) -> None:
        def script(source: tuple[int, ...], prefix: list[int], block: int) -> list[int]:
            return [*outputs[source], EOS][len(prefix) : len(prefix) + block] if prefix else []

        super().__init__(k - 1, script)


class WithOracle(Blockwise):
    """The same decoder with its heads replaced."""

    oracle: Oracle

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        return DecodePlan(self._model, self._runner, self.oracle, limits).start(capacity, longest_source)


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 7))
def test_an_oracle_needs_one_call_and_then_one_per_block(seed, k):
    model = tiny_model(seed, sharpness=1.0)
    source = random_source(4, 6, seed=seed)
    limits = Limits(max_length=15)
    greedy = Greedy(model, RUNNER).decode(source, limits)
    decoder = WithOracle(model, random_heads(seed, 8), RUNNER)
    decoder.oracle = Oracle(k, dict(zip(map(tuple, sentences(source)), greedy.tokens, strict=True)))
    decoded = decoder.decode(source, limits, trace=True)
    assert decoded.tokens == greedy.tokens
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        m = len(tokens) + 1
        assert trace.iterations == 1 + math.ceil((m - 1) / k)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    trained=st.integers(2, 5),
    first=st.sampled_from(["identity", "learned"]),
    rule=st.sampled_from(["exact", "top:2", "top:3,gap:1.0"]),
    banned=st.sampled_from([(), (7,), (5, 9)]),
)
def test_merged_prediction_equals_all_heads_at_all_slots_of_a_fresh_pass(seed, trained, first, rule, banned):
    model, heads = tiny_model(seed, sharpness=1.0), random_heads(seed, trained, first)
    source = random_source(3, 6, seed=seed)
    options = BlockwiseOptions(accept=Rule.from_text(rule))
    limits = Limits(max_length=14, banned=banned)
    decoded = Blockwise(model, heads, RUNNER, options).decode(source, limits, trace=True)
    for ids, tokens, trace in zip(sentences(source), decoded.tokens, decoded.traces, strict=True):
        logits = all_logits(model, heads, ids, tokens)
        logits[..., [*DEFAULT_IDS.never_generated, *banned]] = -math.inf
        predicted = logits.argmax(dim=-1)
        for event in trace.events[1:]:
            newest = event.positions[0] - 1
            assert list(event.draft) == predicted[newest, 1:].tolist()


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(2, 5),
    capacity=st.integers(1, 5),
    k=st.integers(2, 5),
    rule=st.sampled_from(["top:2", "top:3,gap:1.0", "distance:1"]),
    min_block=st.integers(1, 2),
)
def test_an_approximate_batch_equals_its_rows_one_by_one(seed, rows, capacity, k, rule, min_block):
    options = BlockwiseOptions(accept=Rule.from_text(rule), min_block=min_block)
    decoder = Blockwise(tiny_model(seed, sharpness=1.0), random_heads(seed, k), RUNNER, options)
    source = random_source(rows, 6, seed=seed)
    limits = Limits(max_length=12)
    together = decoder.decode(source, limits, capacity=capacity).tokens
    assert together == [decoder.decode(Source.of([ids]), limits).tokens[0] for ids in sentences(source)]


def test_heads_cost_no_model_call_of_their_own():
    model, heads = tiny_model(3, sharpness=1.0), random_heads(3, 4)
    decoded = Blockwise(model, heads, RUNNER).decode(random_source(3, 6, seed=3))
    assert decoded.calls == decoded.iterations + 3  # three sentences are encoded one by one in a table of three


@pytest.mark.parametrize("first", ["identity", "learned"])
def test_every_way_to_a_head_is_the_same_head(first):
    heads, hidden = random_heads(5, 5, first), torch.randn(2, 3, 16, dtype=torch.float64)
    every = heads.every(hidden)
    assert every.shape == (2, 3, 5, 16)
    torch.testing.assert_close(heads.first(hidden), every[..., 0, :])
    for k in (2, 5):
        torch.testing.assert_close(heads.ahead(hidden, k), every[..., 1:k, :])
    for head in range(1, 6):
        torch.testing.assert_close(heads(hidden, torch.tensor(head)), every[..., head - 1, :])
    assert torch.equal(every[..., 0, :], hidden) == (first == "identity")


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    k=st.integers(2, 5),
    first=st.sampled_from(["identity", "learned"]),
)
def test_linked_heads_draft_what_slow_ones_do_and_change_no_output(seed, rows, k, first):
    model, heads = tiny_model(seed, sharpness=1.0), random_heads(seed, 5, first, link=3)
    source, limits = random_source(rows, 6, seed=seed), Limits(max_length=12)
    decoded = Blockwise(model, heads, RUNNER, BlockwiseOptions(k=k)).decode(source, limits, capacity=2, trace=True)
    assert heads.link is not None
    for ids, tokens, trace in zip(sentences(source), decoded.tokens, decoded.traces, strict=True):
        assert tokens == follow_head_1(model, heads, ids, limits)
        prefix: list[int] = []
        for event in trace.events:
            if event.drafted:
                hidden = model.decode(
                    torch.tensor([[START, *prefix[:-1]]]), model.encode(torch.tensor([ids]), None), None
                )
                states = heads.every(hidden[0, -1])
                logits = model.logits(states)
                assert list(event.draft) == slow_draft(heads.link, logits[1:k], states[1:k], prefix[-1])
            prefix += event.ids


@pytest.mark.parametrize(("first", "units"), [("identity", 4 * 8), ("learned", 5 * 8)])
def test_every_head_reads_one_hidden_layer(first, units):
    heads = random_heads(0, 5, first)
    assert heads.up.out_features == heads.down.in_features == units
    assert heads.down.out_features == units // 8 * 16


def decode_with(**options: Any) -> Blockwise:
    return Blockwise(tiny_model(0), random_heads(0, 4), RUNNER, BlockwiseOptions(**options))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 5}, "k expects 1 to 4, the heads that this model has, found 5."),
        ({"k": 0}, "k expects a whole number from 1 to 1024 or none, found 0."),
        ({"min_block": 0}, "min_block expects a whole number from 1 to 1024, found 0."),
        ({"min_block": 5}, r"min_block expects 1 to k \(4\), found 5."),
        ({"k": 2, "min_block": 3}, r"min_block expects 1 to k \(2\), found 3."),
    ],
)
def test_options_that_cannot_be_are_refused(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        decode_with(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 1}, "first: learned"),
        ({"k": 0}, "k expects a whole number from 1 to 1024"),
        ({"feed_forward": 0}, "feed_forward expects"),
        ({"dropout": 1.0}, "dropout expects"),
    ],
)
def test_heads_that_cannot_be_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        HeadsOptions(**{"k": 4, "width": 16, **options})


def test_heads_of_another_width_are_refused():
    for build in (lambda model, heads: Blockwise(model, heads, RUNNER), BlockwiseModel):
        with pytest.raises(OptionError, match="width 16, found heads of width 8"):
            build(tiny_model(0), random_heads(0, 3, width=8))


def test_the_signature_says_which_block_it_is():
    assert decode_with().signature.startswith(
        "blockwise|k:4|accept:exact|min_block:1|tree:0|adaptive:false|lengths:none|eager|fp64|"
    )
    assert "|k:2|accept:top:2|" in decode_with(k=2, accept=Rule.from_text("top:2")).signature


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("blockwise") / "model"
    tokenizer = words()
    model = tiny_model(0, torch.float32, vocabulary=tokenizer.size, longest=LONGEST)
    kind = OBJECTIVES["blockwise"]
    parts = kind.parts(BlockwiseModel(model, random_heads(0, 3).float()))
    roles = {"model": "model", "heads": "heads"}
    decoders = {"greedy": DecoderConfig({"model": "model"}), "blockwise": DecoderConfig(roles)}
    model_folder.write(path, parts, decoders, kind.decoders[0], tokenizer, provenance={"recipe": {"name": "tiny"}})
    return path


def test_a_folder_of_two_parts_is_decoded(folder: Path) -> None:
    translator = longstride.load(folder, device="cpu")
    assert translator.decoders == ["blockwise", "greedy"]
    lines = ["a b c d", "c", "", "e f g"]
    greedy = [one.text for one in translator.translate(lines, decoder="greedy")]
    for options in ({}, {"k": 2}, {"k": 1}, {"k": "2", "accept": "exact", "adaptive": "true"}):
        outputs = translator.translate(lines, decoder="blockwise", trace=True, **options)
        assert [one.text for one in outputs] == greedy
        assert max(max(one.trace.committed_per_step) for one in outputs if one.trace) <= int(options.get("k", 3))


def test_more_heads_than_the_folder_has_are_refused(folder: Path) -> None:
    with pytest.raises(OptionError, match="k expects 1 to 3, the heads that this model has, found 9"):
        longstride.load(folder, device="cpu").translate("a b", decoder="blockwise", k=9)
