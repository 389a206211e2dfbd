"""A forced first token and no n-gram twice: greedy search obeys them by the definition, and whatever is drafted the
output is greedy's under them, by every backend; who cannot obey them refuses them by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import DEFAULT_IDS, EOS, START, Limits, OptionError, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy, Sample, SampleOptions
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.systems.draft_verify.decoder import Draft, DraftVerify
from longstride.systems.interleaved.decoder import Interleaved
from longstride.verification.acceptance import Rule
from longstride.verification.exactness import SameShapeGreedy, margins
from longstride.verification.step import Acceptance
from tests.decoding.drafters import tiny_drafter
from tests.decoding.oracles import beam, log_probabilities, longest_output, may_follow
from tests.decoding.oracles import greedy as greedy_search
from tests.decoding.scripted import Scripted, half_right, oracle, script_of
from tests.decoding.test_blockwise import random_heads
from tests.decoding.test_trees import Bushy
from tests.decoding.test_verification import RUNNER, VOCABULARY, Verified, greedy_of, sentences
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH
from tests.runtime.test_cuda_graph import taped
from tests.runtime.test_graph_exact import refuse, tiny_heads

BUT_ONE = (1, *range(5, VOCABULARY - 1))
"""All words but the last: with few left, limits soon leave none to go on with."""
HARD = st.builds(
    Limits,
    max_length=st.integers(3, 14),
    max_ratio=st.just(2.0),
    max_extra=st.integers(0, 12),
    min_length=st.integers(0, 3),
    banned=st.sampled_from([(), (7,), (5, 9), BUT_ONE, BUT_ONE[1:]]),
    forced_first=st.sampled_from([None, 0, START, EOS, 7, 10]),
    forced_last=st.sampled_from([None, 0, EOS, 8]),
    no_repeat_ngram=st.integers(0, 4),
    max_repeats=st.integers(0, 3),
)
DRAFTS = st.sampled_from(["random", "oracle", "wrong", "empty", "all-eos", "half", "always-same"])


def repeating_model(seed: int, dtype: torch.dtype = torch.float64) -> Any:
    """One that says the same again and again, so that n-grams matter."""
    return tiny_model(seed, dtype, sharpness=6.0)


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), limits=HARD)
def test_greedy_obeys_by_the_definition(seed: int, limits: Limits) -> None:
    model, source = repeating_model(seed), random_source(3, 6, seed=seed)
    found = Greedy(model, RUNNER).decode(source, limits)
    for row, sentence in enumerate(sentences(source)):
        tokens, score = greedy_search(model, list(sentence), limits)
        assert found.tokens[row] == tokens
        assert found.scores[row] == pytest.approx(score, abs=1e-9)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    limits=HARD,
    width=st.integers(1, 4),
    kind=st.sampled_from(["gnmt", "average", "none"]),
    capacity=st.integers(1, 3),
)
def test_beams_obey_by_the_definition(seed: int, limits: Limits, width: int, kind: Any, capacity: int) -> None:
    model, source = repeating_model(seed), random_source(3, 4, seed=seed)
    limits = replace(limits, max_length=min(limits.max_length, 6))
    found = Beam([model], RUNNER, BeamOptions(width, kind, 0.6, width)).decode(source, limits, capacity=capacity)
    for row, sentence in enumerate(sentences(source)):
        expected = beam([model], list(sentence), limits, width, LengthPenalty(kind, 0.6), width)
        assert [one.tokens for one in found.hypotheses[row]] == [tokens for tokens, _ in expected]
        assert [one.score for one in found.hypotheses[row]] == pytest.approx([score for _, score in expected], abs=1e-9)


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 3), max_length=st.integers(1, 5))
def test_an_end_that_is_due_may_repeat_the_start(seed: int, width: int, max_length: int) -> None:
    """Where outputs start with the id that ends them and no token may stand twice, only their length ends them."""
    model = tiny_model(seed, sharpness=2.0, special=replace(DEFAULT_IDS, start=EOS))
    source, limits = random_source(3, 4, seed=seed), Limits(max_length=max_length, no_repeat_ngram=1)
    found = Beam([model], RUNNER, BeamOptions(width, n_best=width)).decode(source, limits)
    for row, most in zip(found.hypotheses, limits.longest_outputs(source.lengths).tolist(), strict=True):
        assert len(row) == width
        for one in row:
            assert len(one.tokens) == len({*one.tokens}) == most
    if width == 1:
        assert found.tokens == Greedy(model, RUNNER).decode(source, limits).tokens


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10_000),
    max_length=st.integers(4, 6),
    words=st.integers(1, 2),
    repeats=st.sampled_from(["no_repeat_ngram", "max_repeats"]),
    start=st.sampled_from([START, EOS]),
)
def test_an_output_that_no_word_is_left_for_ends_with_what_it_has(
    seed: int, max_length: int, words: int, repeats: str, start: int
) -> None:
    """Also before it is as long as it must be, and if its end would be a repetition, by every way of decoding."""
    model, source = tiny_model(seed, special=replace(DEFAULT_IDS, start=start)), random_source(3, 4, seed=seed)
    banned = (START, *BUT_ONE[words - 1 :])  # where outputs start with EOS, that id is a word like any other
    limits = Limits(max_length, min_length=max_length, banned=banned, **{repeats: 1})
    expected = Greedy(model, RUNNER).decode(source, limits)
    every: list[Any] = [
        Blockwise(model, random_heads(seed, 4), RUNNER),
        CopyVerify(model, RUNNER, CopyVerifyOptions(3, suffix=2)),
        Sample(model, RUNNER, SampleOptions(temperature=1e-9)),
        Sample(model, RUNNER, SampleOptions(temperature=1e-9, top_k=3)),
        Beam([model], RUNNER, BeamOptions(1)),
    ]
    for tokens in expected.tokens:
        left = {*range(VOCABULARY)} - {*DEFAULT_IDS.never_generated, *limits.banned, EOS}
        assert {*tokens} <= left
        if words == 1 or repeats == "no_repeat_ngram":
            assert len(tokens) == words
    for decoder in every:
        found = decoder.decode(source, limits)
        assert found.tokens == expected.tokens
        assert [row[0].log_probability for row in found.hypotheses] == pytest.approx(expected.scores, abs=1e-9)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    capacity=st.integers(1, 4),
    block=st.integers(0, 6),
    limits=HARD,
    drafts=DRAFTS,
    tree=st.booleans(),
)
def test_exact_acceptance_is_greedy_whatever_is_drafted(
    seed: int, rows: int, capacity: int, block: int, limits: Limits, drafts: str, tree: bool
) -> None:
    model, source = repeating_model(seed), random_source(rows, 6, seed=seed)
    greedy, outputs = greedy_of(model, source, limits)
    script = script_of(drafts, outputs, seed, VOCABULARY)
    drafter = Bushy(max(1, block), script, seed) if tree else Scripted(block, script)
    decoded = Verified(model, drafter).decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    for trace, tokens in zip(decoded.traces or [], decoded.tokens, strict=True):
        assert trace.replay() == tokens


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    limits=HARD,
    rule=st.sampled_from(["top:3", "top:2,gap:1.0", "distance:2"]),
    min_block=st.integers(1, 3),
    drafts=DRAFTS,
)
def test_near_tokens_obey_too(seed: int, limits: Limits, rule: str, min_block: int, drafts: str) -> None:
    """What a rule lets pass is still no n-gram's second time, and the first token is the one that is forced."""
    model, source = repeating_model(seed), random_source(3, 6, seed=seed)
    _, outputs = greedy_of(model, source, limits)
    drafter = Scripted(4, script_of(drafts, outputs, seed, VOCABULARY))
    found = Verified(model, drafter, Acceptance(Rule.from_text(rule), min_block)).decode(source, limits)
    for tokens, sentence in zip(found.tokens, sentences(source), strict=True):
        for at, token in enumerate([*tokens, EOS]):
            choices = may_follow(tokens[:at], longest_output(list(sentence), limits), limits, VOCABULARY)
            assert token in (choices or [EOS])


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000), limits=HARD, capacity=st.integers(1, 3))
def test_every_decoder_that_verifies_obeys(seed: int, limits: Limits, capacity: int) -> None:
    model, source = repeating_model(seed), random_source(3, 6, seed=seed)
    greedy, _ = greedy_of(model, source, limits)
    drafter = tiny_drafter(seed, link=3 if seed % 2 else 0)
    every: list[Any] = [
        Blockwise(model, random_heads(seed, 4), RUNNER),
        DraftVerify(model, drafter, RUNNER),
        CopyVerify(model, RUNNER, CopyVerifyOptions(3, suffix=2)),
    ]
    for decoder in (*every, SameShapeGreedy(every[0])):
        assert decoder.decode(source, limits, capacity=capacity).tokens == greedy.tokens


@BOTH
@settings(max_examples=3)
@given(seed=st.integers(0, 10_000), limits=HARD, capacity=st.integers(1, 3))
def test_graphs_obey_too(graphs: Any, seed: int, limits: Limits, capacity: int) -> None:
    """Model calls stay graphs: nothing is left to PyTorch but the judging."""
    model, source = repeating_model(seed, torch.float32), random_source(3, 6, seed=seed)
    runner, eager = graphs("fp32", 1, tell=refuse), EagerRunner()
    expected = Greedy(model, eager).decode(source, limits)
    outputs = dict(zip(sentences(source), expected.tokens, strict=True))
    drafter = tiny_drafter(seed, torch.float32, link=3 if seed % 2 else 0)
    bushy = Bushy(5, half_right(outputs, seed, VOCABULARY), seed)
    for decoder in (
        Greedy(model, runner),
        Blockwise(model, tiny_heads(seed), runner),
        DraftVerify(model, drafter, runner),
        Verified(model, bushy, runner=runner),
        Verified(model, Scripted(3, oracle(outputs)), runner=runner),
    ):
        found = decoder.decode(source, limits, capacity=capacity)
        assert found.tokens == expected.tokens
        assert found.scores == pytest.approx(expected.scores, abs=1e-3)


@settings(max_examples=4)
@given(seed=st.integers(0, 10_000), limits=HARD, capacity=st.sampled_from([1, 2, 4]))
def test_recordings_obey_too(seed: int, limits: Limits, capacity: int) -> None:
    runner, _ = taped()
    model, source = runner.place(repeating_model(seed)), random_source(4, 6, seed=seed)
    greedy, _ = greedy_of(model, source, limits)
    for decoder in (
        Greedy(model, runner),
        Blockwise(model, random_heads(seed, 4), runner),
        DraftVerify(model, runner.place(tiny_drafter(seed)), runner),
    ):
        assert decoder.decode(source, limits, capacity=capacity).tokens == greedy.tokens


def test_without_the_limits_a_step_is_the_same_graph() -> None:
    """Nothing of them is traced where they are not asked for; a forced first token is a part of the one graph."""
    pytest.importorskip("onnxruntime")
    from longstride.runtime.onnx_runner import OnnxRunner

    model, source = tiny_model(1, torch.float32), random_source(2, 6, seed=1)
    names = {}
    for limits in (Limits(), Limits(forced_first=6, forced_last=7), Limits(no_repeat_ngram=2), Limits(max_repeats=2)):
        runner = OnnxRunner("fp32", 1, tell=refuse)
        Blockwise(model, tiny_heads(1), runner).decode(source, limits)
        names[limits] = {key[0] for key in runner.graphs if key[0] != "remember"}
    assert list(names.values()) == [{"step"}, {"step"}, {"read-step"}, {"read-step"}]


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), limits=HARD)
def test_margins_are_between_tokens_that_may_stand(seed: int, limits: Limits) -> None:
    model, source = repeating_model(seed), random_source(3, 6, seed=seed)
    greedy, _ = greedy_of(model, source, limits)
    prefixes = [tokens[: seed % 5] for tokens in greedy.tokens]
    found = margins(Blockwise(model, random_heads(seed, 3), RUNNER), source, prefixes, limits)
    for margin, prefix, sentence in zip(found, prefixes, sentences(source), strict=True):
        scores = log_probabilities([model], list(sentence), prefix)
        choices = may_follow(prefix, longest_output(list(sentence), limits), limits, VOCABULARY)
        best = sorted((float(scores[token]) for token in choices), reverse=True)
        assert margin == pytest.approx(best[0] - best[1] if len(best) > 1 else float("inf"), abs=1e-9)


@pytest.mark.parametrize("name", ["forced_first", "forced_last", "no_repeat_ngram", "max_repeats"])
def test_who_cannot_obey_refuses_by_name(name: str) -> None:
    from longstride.systems.interleaved.model import Interleaving
    from longstride.systems.interleaved.options import InterleavingOptions

    model, source = tiny_model(1), Source.of([[5, 6, EOS]])
    decoders = [
        Draft(model, tiny_drafter(1), RUNNER),
        Interleaved(model, Interleaving(InterleavingOptions(16, h=2, c=1)), RUNNER),
    ]
    limits = Limits(**{name: 2})
    for decoder in decoders:
        with pytest.raises(OptionError, match=f"^The decoder {decoder.name} cannot obey {name}, found .*beam can.$"):
            decoder.decode(source, limits)
