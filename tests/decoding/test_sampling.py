"""Sampling: by enumeration the distribution that was asked for, and the same tokens whatever is drafted."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Decoder, Limits, OptionError, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy, Sample, SampleOptions
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions, TextVerify, TextVerifyOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.verification.acceptance import Rule, Sampling
from longstride.verification.drafting import Proposal, View
from longstride.verification.exactness import SameShapeGreedy
from longstride.verification.sampling import Draws, _ranked, streams_of
from longstride.verification.step import Acceptance
from tests.decoding.drafters import tiny_drafter
from tests.decoding.oracles import log_probabilities, longest_output, may_follow
from tests.decoding.scripted import Scripted, script_of
from tests.decoding.test_blockwise import random_heads
from tests.decoding.test_limits import DRAFTS, HARD
from tests.decoding.test_trees import Bushy
from tests.decoding.test_verification import RUNNER, VOCABULARY, Verified, sentences
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_cuda_graph import taped
from tests.runtime.test_graph_exact import refuse, tiny_heads

DRAWN = st.builds(
    SampleOptions,
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, VOCABULARY, 100]),
    top_p=st.sampled_from([0.2, 0.7, 1.0]),
    seed=st.sampled_from([0, 1, 7, 2**63 - 1]),
)


# --- by the definition -----------------------------------------------------------------------------------------------


def shares(scores: Any, choices: list[int], options: SampleOptions) -> dict[int, float]:
    """The distribution that a token is drawn from: token -> probability."""
    ranked = sorted(choices, key=lambda token: (-float(scores[token]), token))
    if options.top_k:
        ranked = ranked[: options.top_k]
    best = float(scores[ranked[0]])
    weights = [math.exp((float(scores[token]) - best) / options.temperature) for token in ranked]
    total, kept, mass = sum(weights), 0, 0.0
    while kept < len(ranked) and mass < options.top_p * total:
        mass += weights[kept]
        kept += 1
    return {token: weight / mass for token, weight in zip(ranked[:kept], weights, strict=False)}


def every_output(model: Any, source: list[int], limits: Limits, options: SampleOptions) -> dict[tuple[int, ...], float]:
    """Every output there is and its probability."""
    found: dict[tuple[int, ...], float] = {}
    waiting: list[tuple[list[int], float]] = [([], 1.0)]
    while waiting:
        prefix, probability = waiting.pop()
        choices = may_follow(prefix, longest_output(source, limits), limits, model.options.vocabulary) or [EOS]
        scores = log_probabilities([model], source, prefix)
        for token, share in shares(scores, choices, options).items():
            if token == EOS:
                found[tuple(prefix)] = probability * share
            else:
                waiting.append(([*prefix, token], probability * share))
    return found


def improbability(expected: dict[Any, float], found: Counter[Any]) -> float:
    """How far above its mean the chi-square statistic is, in standard deviations; rare outcomes are put together."""
    draws = sum(found.values())
    assert set(found) <= set(expected), "an output that cannot be"
    common = [outcome for outcome, share in expected.items() if share * draws >= 5]
    cells = [(found[outcome], expected[outcome] * draws) for outcome in common]
    rest = sum(expected.values()) - sum(expected[outcome] for outcome in common)
    if rest * draws >= 5:
        cells.append((draws - sum(count for count, _ in cells), rest * draws))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    freedom = len(cells) - 1
    assert freedom > 0, "nothing is drawn here"
    return (statistic - freedom) / math.sqrt(2 * freedom)


SETTINGS = [
    SampleOptions(),
    SampleOptions(temperature=0.5, seed=1),
    SampleOptions(temperature=1.5, top_k=3, seed=2),
    SampleOptions(top_p=0.6, seed=3),
    SampleOptions(temperature=1.3, top_k=4, top_p=0.8, seed=4),
]
CASES = [(options, "none") for options in SETTINGS] + [
    (options, drafts) for options in (SETTINGS[0], SETTINGS[-1]) for drafts in ("chain", "tree")
]
"""Drafted with nothing and with everything that shapes a distribution; for all else, drafts change no token (below)."""
DRAWS = 4000


@cache
def enumerated(options: SampleOptions) -> tuple[Any, list[int], Limits, dict[tuple[int, ...], float]]:
    """A model, a sentence, limits, and every output with its probability: the same however it is drafted."""
    model, sentence = tiny_model(5, sharpness=0.7, vocabulary=8), [5, 6, EOS]
    limits = Limits(max_length=3, min_length=1)
    return model, sentence, limits, every_output(model, sentence, limits, options)


@pytest.mark.parametrize(("options", "drafts"), CASES, ids=str)
def test_outputs_come_as_often_as_enumeration_says(options: SampleOptions, drafts: str) -> None:
    model, sentence, limits, expected = enumerated(options)
    assert sum(expected.values()) == pytest.approx(1)
    likeliest = sorted(expected, key=lambda output: -expected[output])
    decoder: Decoder = Sample(model, RUNNER, options)
    if drafts != "none":
        drafter = Likeliest(6, likeliest) if drafts == "tree" else Scripted(3, chain_of(likeliest))
        decoder = Verified(model, drafter, Acceptance(sampling=options.sampling), seed=options.seed)
    source = Source.of([sentence] * DRAWS)
    decoded = decoder.decode(source, limits)
    assert improbability(expected, Counter(map(tuple, decoded.tokens))) < 4
    if drafts != "none":
        traced = decoder.decode(source.slice(0, DRAWS // 10), limits, trace=True)
        assert traced.tokens == decoded.tokens[: DRAWS // 10]
        assert sum(trace.accepted for trace in traced.traces or []) > DRAWS / 20


def chain_of(likeliest: list[tuple[int, ...]]) -> Any:
    """A script: the rest of the likeliest output that begins like this."""

    def script(source: tuple[int, ...], prefix: list[int], block: int) -> list[int]:
        return next([*output, EOS] for output in likeliest if list(output[: len(prefix)]) == prefix)[len(prefix) :]

    return script


class Likeliest(Scripted):
    """A tree of the likeliest outputs that begin like this."""

    def __init__(self, nodes: int, likeliest: list[tuple[int, ...]]) -> None:
        super().__init__(nodes, None)
        self._likeliest = likeliest
        self._trees: dict[tuple[tuple[int, ...], int], tuple[list[int], list[int]]] = {}

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        found = []
        for tokens, length in zip(view.tokens.tolist(), view.length.tolist(), strict=True):
            asked = tuple(tokens[:length]), block
            if asked not in self._trees:  # thousands of rows begin in one of a few ways
                self._trees[asked] = self._tree(*asked)
            found.append(self._trees[asked])
        count = torch.tensor([len(nodes) for nodes, _ in found])
        padded = [[[*row, *[0] * (block - len(row))] for row in tree] for tree in found]
        ids, parents = torch.tensor(padded, dtype=torch.int64).reshape(-1, 2, block).unbind(1)
        return Proposal(ids, count, parents)

    def _tree(self, prefix: tuple[int, ...], block: int) -> tuple[list[int], list[int]]:
        """Ids, and the slots of their parents."""
        nodes, above = list[int](), list[int]()
        slots: dict[tuple[int, ...], int] = {(): 0}
        for output in self._likeliest:
            path = (*output, EOS)[len(prefix) :]
            for end in range(1, len(path) + 1) if output[: len(prefix)] == prefix else ():
                if path[:end] not in slots and len(nodes) < block:
                    nodes.append(path[end - 1])
                    above.append(slots[path[: end - 1]])
                    slots[path[:end]] = len(nodes)
        return nodes, above


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), limits=HARD, options=DRAWN)
def test_what_may_not_stand_is_never_drawn(seed: int, limits: Limits, options: SampleOptions) -> None:
    """Nor what top-k and top-p leave out; scores are the model's own log-probabilities, at temperature 1."""
    model, source = tiny_model(seed, sharpness=1.0), random_source(3, 6, seed=seed)
    found = Sample(model, RUNNER, options).decode(source, limits)
    for row, sentence in enumerate(sentences(source)):
        total, longest = 0.0, longest_output(list(sentence), limits)
        for at, token in enumerate([*found.tokens[row], EOS]):
            prefix = found.tokens[row][:at]
            scores = log_probabilities([model], list(sentence), prefix)
            assert token in shares(scores, may_follow(prefix, longest, limits, VOCABULARY) or [EOS], options)
            total += float(scores[token])
        assert found.scores[row] == pytest.approx(total, abs=1e-9)


# --- the same tokens, sooner -----------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    capacity=st.integers(1, 4),
    block=st.integers(0, 6),
    limits=HARD,
    options=DRAWN,
    drafts=DRAFTS,
    tree=st.booleans(),
)
def test_the_same_tokens_whatever_is_drafted(
    seed: int, rows: int, capacity: int, block: int, limits: Limits, options: SampleOptions, drafts: str, tree: bool
) -> None:
    model, source = tiny_model(seed, sharpness=1.0), random_source(rows, 6, seed=seed)
    plain = Sample(model, RUNNER, options).decode(source, limits)
    outputs = dict(zip(sentences(source), plain.tokens, strict=True))
    script = script_of(drafts, outputs, seed, VOCABULARY)
    drafter = Bushy(max(1, block), script, seed) if tree else Scripted(block, script)
    decoder = Verified(model, drafter, Acceptance(sampling=options.sampling), seed=options.seed)
    decoded = decoder.decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == plain.tokens
    assert decoded.scores == pytest.approx(plain.scores, abs=1e-9)
    for trace, tokens in zip(decoded.traces or [], decoded.tokens, strict=True):
        assert trace.replay() == tokens


def test_a_draft_of_what_will_be_drawn_needs_as_few_iterations_as_can_be() -> None:
    model, source, options = tiny_model(3, sharpness=1.0), random_source(1, 6, seed=3), SampleOptions(seed=5)
    plain = Sample(model, RUNNER, options).decode(source, Limits(max_length=12))
    outputs = dict(zip(sentences(source), plain.tokens, strict=True))
    drafter = Scripted(3, script_of("oracle", outputs, 0, VOCABULARY))
    decoder = Verified(model, drafter, Acceptance(sampling=options.sampling), seed=5)
    for trace in decoder.decode(source, Limits(max_length=12), trace=True).traces or []:
        assert trace.iterations == math.ceil(trace.committed / 4)


def every_drafter(model: Any, drafter: Any, heads: Any, runner: Any, options: SampleOptions) -> list[Decoder]:
    """The decoders that verify, drawing."""
    drawn = vars(options)
    return [
        DraftVerify(model, drafter, runner, DraftVerifyOptions(**drawn)),
        DraftVerify(model, drafter, runner, DraftVerifyOptions(tree=7, **drawn)),
        Blockwise(model, heads, runner, BlockwiseOptions(**drawn)),
        Blockwise(model, heads, runner, BlockwiseOptions(tree=5, **drawn)),
        CopyVerify(model, runner, CopyVerifyOptions(3, suffix=2, **drawn)),
        TextVerify(model, runner, TextVerifyOptions(3, suffix=2, **drawn)),
    ]


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), limits=HARD, options=DRAWN, capacity=st.integers(1, 3))
def test_every_decoder_that_verifies_draws_the_same(
    seed: int, limits: Limits, options: SampleOptions, capacity: int
) -> None:
    model, source = tiny_model(seed, sharpness=1.0), random_source(3, 6, seed=seed)
    plain = Sample(model, RUNNER, options).decode(source, limits)
    drafter = tiny_drafter(seed, link=3 if seed % 2 else 0)
    source = replace(source, drafts=Source.of([[*tokens[:2], 7, *tokens[2:], EOS] for tokens in plain.tokens]))
    for decoder in every_drafter(model, drafter, random_heads(seed, 4), RUNNER, options):
        assert decoder.decode(source, limits, capacity=capacity).tokens == plain.tokens


@BOTH
@settings(max_examples=4)
@given(seed=st.integers(0, 10_000), limits=HARD, options=DRAWN, capacity=st.integers(1, 3))
def test_graphs_draw_the_same(graphs: Graphs, seed: int, limits: Limits, options: SampleOptions, capacity: int) -> None:
    """Model calls stay graphs: nothing is left to PyTorch but drawing and judging."""
    model, source = tiny_model(seed, torch.float32, sharpness=1.0), random_source(3, 6, seed=seed)
    runner = graphs("fp32", 1, tell=refuse)
    plain = Sample(model, EagerRunner(), options).decode(source, limits)
    drafter = tiny_drafter(seed, torch.float32)
    every = every_drafter(model, drafter, tiny_heads(seed), runner, options)
    for decoder in (Sample(model, runner, options), *every):
        assert decoder.decode(source, limits, capacity=capacity).tokens == plain.tokens


@settings(max_examples=4)
@given(seed=st.integers(0, 10_000), limits=HARD, options=DRAWN, capacity=st.sampled_from([1, 2, 4]))
def test_recordings_draw_the_same(seed: int, limits: Limits, options: SampleOptions, capacity: int) -> None:
    """A recording serves every seed: it comes with the sentences."""
    runner, _ = taped()
    model, source = runner.place(tiny_model(seed, sharpness=1.0)), random_source(4, 6, seed=seed)
    drafter = runner.place(tiny_drafter(seed))
    for chosen in (options, SampleOptions(**{**vars(options), "seed": 3})):
        plain = Sample(model, RUNNER, chosen).decode(source, limits)
        every = every_drafter(model, drafter, random_heads(seed, 4), runner, chosen)
        for decoder in (Sample(model, runner, chosen), *every):
            assert decoder.decode(source, limits, capacity=capacity).tokens == plain.tokens


# --- random numbers and their places ---------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), rows=st.integers(2, 5), options=DRAWN, data=st.data())
def test_a_batch_equals_its_rows_one_by_one_in_any_order(
    seed: int, rows: int, options: SampleOptions, data: st.DataObject
) -> None:
    model, source = tiny_model(seed, sharpness=1.0), random_source(rows, 6, seed=seed)
    decoder, limits, ids = Sample(model, RUNNER, options), Limits(max_length=12), sentences(source)
    together = decoder.decode(source, limits).tokens
    order = data.draw(st.permutations(range(rows)))
    shuffled = Source.of([ids[row] for row in order], numbers=order)
    assert decoder.decode(shuffled, limits, capacity=2).tokens == [together[row] for row in order]
    for row in range(rows):
        assert decoder.decode(Source.of([ids[row]], numbers=[row]), limits).tokens == [together[row]]


def test_seeds_and_places_differ() -> None:
    """The same sentence is drawn anew at every place of the input, and by every seed; the same seed repeats it."""
    model, limits = tiny_model(1, sharpness=0.5), Limits(max_length=30, min_length=20, max_extra=30)
    source = Source.of([[5, 6, EOS]] * 6)
    found = [Sample(model, RUNNER, SampleOptions(seed=seed)).decode(source, limits).tokens for seed in (0, 1, 0)]
    assert found[0] == found[2]
    assert len({tuple(tokens) for one in found[:2] for tokens in one}) == 12


def test_streams_are_apart() -> None:
    """No two of many seeds and sentences have one stream, and any of their bits is as often 0 as 1."""
    found = [stream for seed in range(50) for stream in streams_of(seed, range(200))]
    assert len(set(found)) == len(found)
    for bit in range(64):
        share = sum(stream >> bit & 1 for stream in found) / len(found)
        assert share == pytest.approx(0.5, abs=0.025)  # five standard deviations
    assert streams_of(0, [0]) == [0xE220A8397B1DCDAF - 2**64]  # SplitMix64's first number with seed 0


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), limits=HARD, which=st.sampled_from(["zero", "cold", "one", "little"]))
def test_at_the_ends_of_the_ranges_it_is_greedy_search(seed: int, limits: Limits, which: str) -> None:
    model, source = tiny_model(seed), random_source(3, 6, seed=seed)
    options = {
        "zero": SampleOptions(temperature=0),
        "cold": SampleOptions(temperature=1e-300),
        "one": SampleOptions(top_k=1, temperature=1000),
        "little": SampleOptions(top_p=1e-300),
    }[which]
    greedy = Greedy(model, RUNNER).decode(source, limits)
    assert Sample(model, RUNNER, options).decode(source, limits).tokens == greedy.tokens


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_equals_are_kept_by_their_ids(dtype: torch.dtype) -> None:
    """Of equally likely tokens those with the lower ids are the likeliest, for top-k and for top-p."""
    logits = torch.zeros(200, 3, 10, dtype=dtype)
    logits[..., 8] = 1
    bounds = (torch.arange(200), torch.full((200,), 99), torch.tensor([0]))
    mass = (math.e + 2.5) / (math.e + 8)  # of 8, 1, 2 and half of 4
    for sampling in (Sampling(1.0, 4, 1.0), Sampling(1.0, 0, mass)):
        drawn = Draws(sampling, *bounds).all(logits, torch.arange(3).expand(200, -1))
        assert set(drawn.flatten().tolist()) == {8, 1, 2, 3}


@settings(max_examples=60)
@given(data=st.data(), count=st.integers(0, 9))
def test_the_largest_are_those_of_a_stable_sort(data: st.DataObject, count: int) -> None:
    numbers = st.sampled_from([-math.inf, -1.0, 0.0, 2.0])
    logits = torch.tensor(data.draw(st.lists(st.lists(numbers, min_size=7, max_size=7), min_size=1, max_size=4)))
    found, ids = _ranked(logits, count)
    for row, values in enumerate(logits.tolist()):
        expected = sorted(range(7), key=lambda token: (-values[token], token))[: count or 7]
        assert found[row].tolist() == [values[token] for token in expected]
        possible = [token for token in expected if values[token] > -math.inf]
        assert ids[row].tolist()[: len(possible)] == possible


# --- refused, and named ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"top_k": 5}, {"top_p": 0.9}, {"seed": 1}])
def test_options_of_drawing_need_a_temperature(given: dict[str, Any]) -> None:
    name = next(iter(given))
    for kind in (DraftVerifyOptions, BlockwiseOptions, CopyVerifyOptions):
        with pytest.raises(OptionError, match=f"{name} expects a temperature above 0 beside it"):
            kind(**given)


def test_what_is_drawn_is_judged_exactly() -> None:
    model, rule = tiny_model(1), Rule.from_text("top:2")
    words = "temperature expects accept=exact and min_block=1"
    with pytest.raises(OptionError, match=words):
        DraftVerify(model, tiny_drafter(1), RUNNER, DraftVerifyOptions(accept=rule, temperature=1.0))
    with pytest.raises(OptionError, match=words):
        CopyVerify(model, RUNNER, CopyVerifyOptions(min_block=2, temperature=1.0))
    with pytest.raises(OptionError, match=r"Exactness expects .*temperature=0"):
        SameShapeGreedy(CopyVerify(model, RUNNER, CopyVerifyOptions(temperature=1.0))).start(1, Limits(), 3)


def test_a_signature_tells_what_is_drawn_where_something_is() -> None:
    model = tiny_model(1)
    drawn = CopyVerify(model, RUNNER, CopyVerifyOptions(temperature=0.5, seed=9)).signature
    assert "copy-verify|k:16|" in drawn
    assert "|suffix:8|whole:false|temperature:0.5|top_k:0|top_p:1.0|seed:9|" in drawn
    assert "seed" not in CopyVerify(model, RUNNER).signature
