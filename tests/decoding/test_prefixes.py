"""Outputs that begin with what is prescribed, each with its own: greedy and beam search obey by the definition, and
whatever is drafted, chain or tree, the output is greedy's under it, by every backend; who cannot obey refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, START, Limits, OptionError, Prefixes, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy, Sample, SampleOptions
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.systems.draft_verify.decoder import Draft, DraftVerify
from longstride.verification.acceptance import Rule
from longstride.verification.exactness import SameShapeGreedy
from longstride.verification.step import Acceptance
from tests.decoding.drafters import tiny_drafter
from tests.decoding.oracles import Begun, beam
from tests.decoding.oracles import greedy as greedy_search
from tests.decoding.scripted import Scripted, half_right, oracle, script_of
from tests.decoding.test_blockwise import random_heads
from tests.decoding.test_limits import DRAFTS, repeating_model
from tests.decoding.test_trees import Bushy
from tests.decoding.test_verification import RUNNER, VOCABULARY, Verified, sentences
from tests.models import random_source
from tests.runtime.graphs import BOTH
from tests.runtime.test_cuda_graph import taped
from tests.runtime.test_graph_exact import refuse, tiny_heads

LIMITS = st.builds(
    Limits,
    max_length=st.integers(2, 12),
    max_extra=st.integers(0, 12),
    min_length=st.integers(0, 2),
    max_repeats=st.sampled_from([0, 0, 2]),
    no_repeat_ngram=st.sampled_from([0, 0, 3]),
)


def prescribed(source: Source, seed: int, longest: int = 6) -> tuple[Source, list[Begun]]:
    """The same sentences, and what each output begins with: some with nothing."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, longest + 1, (source.rows,), generator=random).tolist()
    rows = [torch.randint(5, VOCABULARY, (length,), generator=random).tolist() for length in lengths]
    never = torch.rand(VOCABULARY, generator=random) < 0.4
    never[EOS] = False
    ids = frozenset(never.nonzero()[:, 0].tolist())
    return replace(source, prefixes=Prefixes.of(rows, never)), [Begun(tuple(row), ids) for row in rows]


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), limits=LIMITS, capacity=st.integers(1, 3), width=st.integers(1, 3))
def test_greedy_and_beams_obey_by_the_definition(seed: int, limits: Limits, capacity: int, width: int) -> None:
    limits = replace(limits, max_length=min(limits.max_length, 6))
    model = repeating_model(seed)
    source, begun = prescribed(random_source(3, 5, seed=seed), seed)
    greedy = Greedy(model, RUNNER).decode(source, limits, capacity=capacity)
    found = Beam([model], RUNNER, BeamOptions(width, "average", 0.6, width)).decode(source, limits, capacity=capacity)
    for row, (sentence, one) in enumerate(zip(sentences(source), begun, strict=True)):
        tokens, score = greedy_search(model, list(sentence), limits, one)
        assert greedy.tokens[row] == tokens
        assert greedy.scores[row] == pytest.approx(score, abs=1e-9)
        expected = beam([model], list(sentence), limits, width, LengthPenalty("average", 0.6), width, one)
        assert [each.tokens for each in found.hypotheses[row]] == [words for words, _ in expected]


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    capacity=st.integers(1, 4),
    block=st.integers(0, 6),
    limits=LIMITS,
    drafts=DRAFTS,
    tree=st.booleans(),
    rule=st.sampled_from(["exact", "exact", "top:2", "distance:2"]),
)
def test_whatever_is_drafted_the_prefix_stands_and_the_rest_is_greedys(
    seed: int, rows: int, capacity: int, block: int, limits: Limits, drafts: str, tree: bool, rule: str
) -> None:
    model = repeating_model(seed)
    source, begun = prescribed(random_source(rows, 6, seed=seed), seed)
    greedy = Greedy(model, RUNNER).decode(source, limits)
    script = script_of(drafts, dict(zip(sentences(source), greedy.tokens, strict=True)), seed, VOCABULARY)
    drafter = Bushy(max(1, block), script, seed) if tree else Scripted(block, script)
    acceptance = Acceptance(Rule.from_text(rule))
    decoded = Verified(model, drafter, acceptance).decode(source, limits, capacity=capacity, trace=True)
    if rule == "exact":
        assert decoded.tokens == greedy.tokens
        assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    for trace, tokens, one in zip(decoded.traces or [], decoded.tokens, begun, strict=True):
        assert trace.replay() == tokens
        assert tokens[: len(one.prefix)] == list(one.prefix[: len(tokens)])
        left = {*range(VOCABULARY)} - one.never_next - {START, EOS}  # EOS may be too early
        if left and one.prefix and len(tokens) > len(one.prefix):
            assert tokens[len(one.prefix)] not in one.never_next


@settings(max_examples=2)
@given(seed=st.integers(0, 10_000), limits=LIMITS, capacity=st.integers(1, 3))
def test_every_decoder_that_verifies_obeys(seed: int, limits: Limits, capacity: int) -> None:
    model = repeating_model(seed)
    source, _ = prescribed(random_source(3, 6, seed=seed), seed)
    expected = Greedy(model, RUNNER).decode(source, limits).tokens
    every: list[Any] = [
        Blockwise(model, random_heads(seed, 4), RUNNER),
        DraftVerify(model, tiny_drafter(seed), RUNNER),
        CopyVerify(model, RUNNER, CopyVerifyOptions(3, suffix=2)),
        Sample(model, RUNNER, SampleOptions(temperature=0.0)),
        Sample(model, RUNNER, SampleOptions(temperature=1e-9)),
    ]
    for decoder in (*every, SameShapeGreedy(every[0])):
        assert decoder.decode(source, limits, capacity=capacity).tokens == expected


@BOTH
@settings(max_examples=2)
@given(seed=st.integers(0, 10_000), limits=LIMITS, capacity=st.integers(1, 3))
def test_graphs_obey_too(graphs: Any, seed: int, limits: Limits, capacity: int) -> None:
    """Model calls stay graphs: nothing is left to PyTorch but the judging."""
    model = repeating_model(seed, torch.float32)
    source, _ = prescribed(random_source(3, 6, seed=seed), seed)
    runner, eager = graphs("fp32", 1, tell=refuse), EagerRunner()
    expected = Greedy(model, eager).decode(source, limits)
    outputs = dict(zip(sentences(source), expected.tokens, strict=True))
    for decoder in (
        Greedy(model, runner),
        Blockwise(model, tiny_heads(seed), runner),
        DraftVerify(model, tiny_drafter(seed, torch.float32), runner),
        Verified(model, Bushy(5, half_right(outputs, seed, VOCABULARY), seed), runner=runner),
        Verified(model, Scripted(3, oracle(outputs)), runner=runner),
    ):
        assert decoder.decode(source, limits, capacity=capacity).tokens == expected.tokens
    beams = [
        Beam([model], one, BeamOptions(2)).decode(source, limits, capacity=capacity).tokens for one in (runner, eager)
    ]
    assert beams[0] == beams[1]


@settings(max_examples=2)
@given(seed=st.integers(0, 10_000), limits=LIMITS, capacity=st.sampled_from([1, 2, 4]))
def test_recordings_obey_too(seed: int, limits: Limits, capacity: int) -> None:
    runner, _ = taped()
    model = runner.place(repeating_model(seed))
    source, _ = prescribed(random_source(4, 6, seed=seed), seed)
    expected = Greedy(model, RUNNER).decode(source, limits).tokens
    drafter = runner.place(tiny_drafter(seed))
    for decoder in (Greedy(model, runner), DraftVerify(model, drafter, runner)):
        assert decoder.decode(source, limits, capacity=capacity).tokens == expected
    beams = [
        Beam([model], one, BeamOptions(2)).decode(source, limits, capacity=capacity).tokens for one in (runner, RUNNER)
    ]
    assert beams[0] == beams[1]


def test_a_table_forgets_the_prefix_of_an_earlier_sentence() -> None:
    model, limits = repeating_model(3), Limits(8)
    free = random_source(4, 6, seed=3)
    some, begun = prescribed(free, 5)
    decoder = Greedy(model, RUNNER)
    nothing = replace(free, prefixes=Prefixes.of([[]] * 4))
    expected, alone = decoder.decode(some, limits).tokens, decoder.decode(free, limits).tokens
    assert any(one.prefix for one in begun)
    assert expected != alone
    both = Source.of([*sentences(some), *sentences(free)])
    assert some.prefixes is not None
    rows = [*(one.prefix for one in begun), *[()] * 4]
    together = replace(both, prefixes=Prefixes.of(rows, some.prefixes.never_next))
    assert decoder.decode(together, limits, capacity=2).tokens == [*expected, *alone]
    assert decoder.decode(nothing, limits).tokens == alone


def test_a_table_forgets_what_could_not_stand_behind_an_earlier_prefix() -> None:
    runner, _ = taped()
    decoder, limits = Greedy(runner.place(repeating_model(3)), runner), Limits(8)
    source, rows = random_source(4, 6, seed=3), [[5], [6], [7], [8]]
    free = replace(source, prefixes=Prefixes.of(rows))
    expected = decoder.decode(free, limits).tokens
    never = torch.zeros(VOCABULARY, dtype=torch.bool).index_fill_(0, torch.tensor([out[1] for out in expected]), True)
    bound = decoder.decode(replace(source, prefixes=Prefixes.of(rows, never)), limits).tokens
    assert all(mine[:2] != theirs[:2] for mine, theirs in zip(bound, expected, strict=True))
    assert decoder.decode(free, limits).tokens == expected


def test_who_cannot_obey_refuses() -> None:
    source, _ = prescribed(random_source(2, 6, seed=1), 1)
    with pytest.raises(OptionError, match=r"^The decoder draft cannot obey prefixes"):
        Draft(repeating_model(1), tiny_drafter(1), RUNNER).decode(source, Limits())
