"""LogitSummary logits: limits hold, and counting those above a draft is looking for it among the best."""

from __future__ import annotations

from itertools import product

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import EOS, Limits, SpecialIds
from longstride.verification.acceptance import FORBIDDEN, Rule, forbidden_ids, force_ends, judge, scored, summarise
from longstride.verification.drafting import Proposal
from tests.decoding.oracles import allowed

VOCABULARY = 13
CPU = torch.device("cpu")


def random_step(seed: int, rows: int, block: int, coarse: bool, least: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits (where coarse, many are equal), a draft, where rows start and how long they may be: `least`, or more."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, block + 1, VOCABULARY, generator=generator) * 2
    draft = torch.randint(0, VOCABULARY, (rows, block), generator=generator)
    draft[torch.rand(draft.shape, generator=generator) < 0.3] = EOS
    start = torch.randint(0, 6, (rows,), generator=generator)
    longest = torch.randint(max(1, least), 9, (rows,), generator=generator)
    return logits.round() if coarse else logits, draft, start, longest


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 3),
    block=st.integers(1, 5),
    coarse=st.booleans(),
    least=st.integers(0, 7),
    beta=st.integers(1, VOCABULARY + 2),
    gap=st.sampled_from([float("inf"), 0.0, 1.0]),
)
def test_a_rank_below_beta_is_being_among_the_beta_best(seed, rows, block, coarse, least, beta, gap):
    """Ties included: with coarse logits there are many, at the β-th place and at the gap."""
    logits, draft, start, longest = random_step(seed, rows, block, coarse, least)
    limits = Limits(min_length=least, banned=(7,))
    positions = start[:, None] + torch.arange(block + 1)
    reading = summarise(logits, positions, longest, forbidden_ids(limits, CPU), least, draft, ranked=True)
    count = torch.full((rows,), block)
    found = judge(Rule("top", beta, gap), 1, Proposal(draft, count), reading).accepted
    for row in range(rows):
        stood = 0
        for place in range(block):
            choices = allowed(int(positions[row, place]), int(longest[row]), limits, VOCABULARY)
            best = sorted((float(logits[row, place, token]) for token in choices), reverse=True)
            token = int(draft[row, place])
            score = float(logits[row, place, token])
            if token not in choices or score < best[min(beta, len(best)) - 1] or best[0] - score > gap:
                break
            stood += 1
            if token == EOS:
                break
        assert found[row] == stood


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000), block=st.integers(1, 5), coarse=st.booleans(), least=st.integers(0, 7),
    eos=st.sampled_from([EOS, 0, 9]), forced=st.sampled_from([None, 6, 7]),
    last=st.sampled_from([None, 8]),
)  # fmt: skip
def test_a_drafted_token_is_ranked_among_those_that_may_stand(seed, block, coarse, least, eos, forced, last):
    """An end that comes too early is none of them, nor is any other where the first or the last token is forced."""
    rows = 3
    logits, draft, start, longest = random_step(seed, rows, block, coarse, least)
    draft[draft == EOS] = eos
    if forced is not None:
        start[:2], draft[0, 0] = 0, forced
    forbidden = forbidden_ids(Limits(banned=(7,)), CPU, SpecialIds(eos=eos))
    positions = start[:, None] + torch.arange(block + 1)
    reading = summarise(logits, positions, longest, forbidden, least, draft, ranked=True, eos=eos)
    limits = Limits(forced_first=forced, forced_last=last)
    reading = force_ends(reading, limits, positions, longest, logits, draft)
    assert reading.top_logit is not None
    assert reading.draft_logit is not None
    assert reading.draft_rank is not None
    for row, place in product(range(rows), range(block)):
        at, token = int(positions[row, place]), int(draft[row, place])
        choices = {*range(VOCABULARY)} - {*forbidden.tolist()} - ({eos} if at < least else set())
        choices = {eos} if at >= longest[row] else choices
        choices = {forced} if at == 0 and forced is not None else choices
        choices = {last} if at == longest[row] - 1 and last is not None else choices
        assert reading.top_logit[row, place] == max(logits[row, place, one] for one in choices)
        if token not in choices:
            assert reading.draft_logit[row, place] == FORBIDDEN
            continue
        assert reading.draft_logit[row, place] == logits[row, place, token]
        above = [one for one in choices if logits[row, place, one] > logits[row, place, token]]
        assert reading.draft_rank[row, place] == len(above)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 3), block=st.integers(0, 4), least=st.integers(0, 7))
def test_choices_are_the_best_that_may_stand(seed, rows, block, least):
    logits, _, start, longest = random_step(seed, rows, block, True, least)
    limits = Limits(min_length=least)
    positions = start[:, None] + torch.arange(block + 1)
    given_ids = forbidden_ids(limits, CPU)
    reading = scored(summarise(logits, positions, longest, given_ids, least), logits)
    scores = logits.log_softmax(dim=-1)
    for row in range(rows):
        for slot in range(block + 1):
            choices = allowed(int(positions[row, slot]), int(longest[row]), limits, VOCABULARY)
            best = max(choices, key=lambda token: float(logits[row, slot, token]))  # the first of equals
            assert reading.top[row, slot] == best
            torch.testing.assert_close(reading.top_log_probability[row, slot], scores[row, slot, best])


def test_where_only_the_end_may_stand_a_drafted_end_is_the_best_there_is():
    logits = torch.zeros(1, 2, VOCABULARY)
    logits[0, :, 6] = 9.0
    positions, longest = torch.tensor([[3, 4]]), torch.tensor([3])
    for token, stands in ((EOS, 1), (6, 0)):
        draft = torch.tensor([[token]])
        reading = summarise(logits.clone(), positions, longest, forbidden_ids(Limits(), CPU), 0, draft, ranked=True)
        assert reading.top.tolist() == [[EOS, EOS]]
        proposal = Proposal(draft, torch.tensor([1]))
        assert judge(Rule("top", 1, 0.0), 1, proposal, reading).accepted.tolist() == [stands]


def test_where_an_end_is_too_early_and_due_at_once_it_has_its_own_likelihood():
    """Orders that fill several ends count positions so that both can hold."""
    logits = torch.randn(1, 1, VOCABULARY)
    positions, longest = torch.tensor([[2]]), torch.tensor([2])
    reading = scored(summarise(logits, positions, longest, forbidden_ids(Limits(), CPU), 3), logits)
    assert reading.top.tolist() == [[EOS]]
    torch.testing.assert_close(reading.top_log_probability[0, 0], logits.log_softmax(dim=-1)[0, 0, EOS])
