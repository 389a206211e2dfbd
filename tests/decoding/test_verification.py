"""The one loop: whatever is drafted, exact acceptance gives greedy's output, token for token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Decoded, Decoder, Limits, OptionError, Runner, Session, Source
from longstride.contract.decoding import HARD_LIMITS
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.verification.acceptance import Rule
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.session import DecodePlan
from longstride.verification.step import Acceptance
from tests.decoding.scripted import Scripted, always_wrong, at_random, half_right, oracle, script_of
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model

RUNNER = EagerRunner(precision="fp64")
VOCABULARY = 11


class Verified(Decoder):
    name = "verified"
    obeys = HARD_LIMITS

    def __init__(
        self,
        model: Any,
        drafter: Scripted,
        acceptance: Acceptance | None = None,
        policy: DraftPolicy | None = None,
        runner: Runner = RUNNER,
        seed: int = 0,
    ) -> None:
        self.runner, self.seed = runner, seed
        self.model, self.drafter, self.acceptance, self.policy = model, drafter, acceptance, policy

    @property
    def signature(self) -> str:
        return "verified"

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        plan = DecodePlan(self.model, self.runner, self.drafter, limits, self.acceptance, seed=self.seed)
        return plan.start(capacity, longest_source, self.policy)


def sentences(source: Source) -> list[tuple[int, ...]]:
    return [tuple(source.ids[row, : source.lengths[row]].tolist()) for row in range(source.rows)]


def greedy_of(model: Any, source: Source, limits: Limits) -> tuple[Decoded, dict[tuple[int, ...], list[int]]]:
    decoded = Greedy(model, RUNNER).decode(source, limits)
    return decoded, dict(zip(sentences(source), decoded.tokens, strict=True))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    capacity=st.integers(1, 5),
    block=st.integers(0, 6),
    limits=LIMITS,
    drafter=st.sampled_from(["random", "oracle", "wrong", "empty", "all-eos", "half", "always-same"]),
    lengths=st.sampled_from([None, "1:1", "1:3,2:0", "2:2"]),
)
def test_exact_acceptance_is_greedy_for_any_drafter(seed, rows, capacity, block, limits, drafter, lengths):
    model = tiny_model(seed, sharpness=2.0)
    source = random_source(rows, 6, seed=seed)
    greedy, outputs = greedy_of(model, source, limits)
    script = script_of(drafter, outputs, seed, VOCABULARY)
    policy = None if lengths is None else DraftPolicy.from_text(lengths)
    decoder = Verified(model, Scripted(block, script), policy=policy)
    decoded = decoder.decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.replay() == tokens
        assert all(event.accepted <= event.drafted for event in trace.events)
        assert trace.committed == len(tokens) + 1


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), block=st.integers(0, 7))
def test_an_oracle_needs_as_few_iterations_as_can_be(seed, block):
    model = tiny_model(seed, sharpness=2.0)
    source = random_source(4, 6, seed=seed)
    _, outputs = greedy_of(model, source, Limits())
    decoded = Verified(model, Scripted(block, oracle(outputs))).decode(source, trace=True)
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.iterations == math.ceil((len(tokens) + 1) / (block + 1))


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), block=st.integers(1, 5))
def test_an_always_wrong_drafter_costs_one_iteration_per_token(seed, block):
    model = tiny_model(seed, sharpness=2.0)
    source = random_source(3, 6, seed=seed)
    _, outputs = greedy_of(model, source, Limits())
    decoded = Verified(model, Scripted(block, always_wrong(outputs, VOCABULARY))).decode(source, trace=True)
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.iterations == len(tokens) + 1
        assert trace.accepted == 0


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(2, 5), rule=st.sampled_from(["top:2", "top:3,gap:1.0", "distance:1"])
)
def test_an_approximate_batch_equals_its_rows_one_by_one(seed, rows, rule):
    model = tiny_model(seed, sharpness=1.0)
    source = random_source(rows, 6, seed=seed)
    _, outputs = greedy_of(model, source, Limits())

    def script(source: tuple[int, ...], prefix: list[int], block: int) -> list[int]:
        return half_right(outputs, hash((source, len(prefix))) % 1000, VOCABULARY)(source, prefix, block)

    acceptance = Acceptance(Rule.from_text(rule))
    together = Verified(model, Scripted(4, script), acceptance).decode(source).tokens
    alone = [
        Verified(model, Scripted(4, script), acceptance).decode(Source.of([ids])).tokens[0] for ids in sentences(source)
    ]
    assert together == alone


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), gap=st.sampled_from([0.0]), beta=st.integers(1, VOCABULARY))
def test_a_gap_of_zero_is_exact(seed, gap, beta):
    model = tiny_model(seed, sharpness=1.0)
    source = random_source(4, 6, seed=seed)
    greedy, outputs = greedy_of(model, source, Limits())
    drafter = Scripted(4, half_right(outputs, seed, VOCABULARY))
    assert Verified(model, drafter, Acceptance(Rule("top", beta, gap))).decode(source).tokens == greedy.tokens


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), block=st.integers(1, 5))
def test_the_loosest_rule_accepts_everything(seed, block):
    """Every token that may stand at all does, up to and with the first EOS."""
    model = tiny_model(seed, sharpness=1.0)
    source = random_source(3, 6, seed=seed)
    drafter = Scripted(block, lambda source, prefix, block: ([5, 6, 7, 8, 9] * 2)[:block])
    limits = Limits(max_length=12)
    acceptance = Acceptance(Rule("top", VOCABULARY, math.inf))
    decoded = Verified(model, drafter, acceptance).decode(source, limits, trace=True)
    for trace in decoded.traces:
        for event in trace.events:
            assert event.accepted == event.drafted or len(event.ids) + event.positions[0] == 13


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), block=st.integers(1, 5), least=st.integers(1, 6))
def test_a_minimum_block_commits_at_least_so_much(seed, block, least):
    model = tiny_model(seed, sharpness=1.0)
    source = random_source(3, 6, seed=seed)
    drafter = Scripted(block, lambda source, prefix, block: [6, 7, 8, 9, 10][:block])
    decoded = Verified(model, drafter, Acceptance(min_block=least)).decode(source, Limits(max_length=15), trace=True)
    for trace in decoded.traces:
        for event in trace.events[:-1]:
            assert len(event.ids) >= min(least, block + 1)


@pytest.mark.parametrize("text", ["exact", "top:3", "top:5,gap:3.0", "distance:2"])
def test_a_rule_is_its_text(text):
    assert str(Rule.from_text(text)) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("top:0", "top expects a whole number from 1 to 1000000, found 0"),
        ("top:3,gap:-1", "gap expects a number of 0 or more"),
        ("gap:1", "expected exact, top"),
        ("nearly", "expected exact, top"),
        ("top:x", "expected exact, top"),
        ("distance:-1", "distance expects a whole number from 0 to 1000000, found -1"),
        ("top:2,gap:nan", "gap expects"),
    ],
)
def test_a_bad_rule_is_refused(text, words):
    with pytest.raises(OptionError, match=words):
        Rule.from_text(text)


def test_the_cache_after_rollback_equals_a_fresh_pass():
    """Hostile drafts fill the cache with other tokens' keys; what is read later must be the accepted prefix's."""
    model = tiny_model(4, sharpness=2.0)
    source = random_source(1, 6, seed=4)
    drafter = Scripted(5, at_random(4, VOCABULARY))
    session = Verified(model, drafter).start(1, Limits(), source.longest)
    session.admit(source)
    for _ in range(4):
        session.advance()
        length = int(session.table.outputs.length[0])
        tokens = session.table.outputs.tokens[0, :length].tolist()
        if EOS in tokens:
            break
        cache = model.new_cache(1, session.table.batch.cache.longest)
        memory = model.encode_source(source.ids, source.lengths)
        ids = torch.tensor([[2, *tokens[:-1]]])
        model.extend(ids, torch.tensor([0]), cache, memory)
        held = session.table.batch.cache.keys[:, :, :, :length]
        torch.testing.assert_close(held, cache.keys[:, :, :, :length], atol=1e-10, rtol=1e-10)


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), rows=st.integers(2, 4), after=st.integers(0, 3), data=st.data())
def test_a_sentence_that_is_given_up_changes_nobody_elses_output(seed, rows, after, data):
    """Its slot is free at once, and the sentence that takes it finds nothing of it."""
    model = tiny_model(seed, sharpness=2.0)
    source, limits = random_source(rows + 1, 6, seed=seed), Limits(max_length=12)
    greedy, outputs = greedy_of(model, source, limits)
    drafter = Scripted(3, half_right(outputs, seed, VOCABULARY))
    session = Verified(model, drafter).start(rows, limits, source.longest)
    tickets = session.admit(source.slice(0, rows))
    found = {}
    for _ in range(after):
        session.advance()
        found |= {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
    left = [ticket for ticket in tickets if ticket not in found]
    given_up = None
    if left:
        given_up, free = data.draw(st.sampled_from(left)), session.free
        session.cancel(given_up)
        assert session.free == free + 1
    tickets += session.admit(source.slice(rows, rows + 1))
    while len(found) < rows + 1 - (given_up is not None):
        session.advance()
        found |= {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
    assert given_up not in found
    assert all(found[ticket] == greedy.tokens[place] for place, ticket in enumerate(tickets) if ticket != given_up)
