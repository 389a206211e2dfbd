"""LogitSummary logits: limits hold, and counting those above a draft is looking for it among the best."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import EOS, Limits
from longstride.verification.acceptance import Rule, forbidden_ids, judge, scored, summarise
from longstride.verification.drafting import Proposal
from tests.decoding.oracles import allowed

VOCABULARY = 13
CPU = torch.device("cpu")


def random_step(seed: int, rows: int, block: int, coarse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits (many of them equal, where coarse), a draft, where rows start and how long they may be."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, block + 1, VOCABULARY, generator=generator) * 2
    draft = torch.randint(0, VOCABULARY, (rows, block), generator=generator)
    start = torch.randint(0, 6, (rows,), generator=generator)
    return logits.round() if coarse else logits, draft, start, torch.randint(1, 9, (rows,), generator=generator)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 3),
    block=st.integers(1, 5),
    coarse=st.booleans(),
    least=st.sampled_from([0, 0, 1]),
    beta=st.integers(1, VOCABULARY + 2),
    gap=st.sampled_from([float("inf"), 0.0, 1.0]),
)
def test_a_rank_below_beta_is_being_among_the_beta_best(seed, rows, block, coarse, least, beta, gap):
    """Ties included: with coarse logits there are many, at the β-th place and at the gap."""
    logits, draft, start, longest = random_step(seed, rows, block, coarse)
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


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 3), block=st.integers(0, 4), least=st.integers(0, 1))
def test_choices_are_the_best_that_may_stand(seed, rows, block, least):
    logits, _, start, longest = random_step(seed, rows, block, coarse=True)
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
