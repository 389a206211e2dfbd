"""Links between neighbouring tokens: training and drafting mean the same, and a chain is walked right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from longstride.nn.link import Link
from longstride.ops import best_of_classes

WIDTH, RANK = 6, 3


def tiny(seed: int, vocabulary: int, candidates: int | None) -> tuple[Link, Tensor]:
    torch.manual_seed(seed)
    link = Link(vocabulary, WIDTH, RANK, candidates).double()
    for weight in link.parameters():
        torch.nn.init.normal_(weight)
    return link.requires_grad_(False), torch.randn(vocabulary, WIDTH, dtype=torch.float64)


def slow_chain(link: Link, logits: Tensor, hidden: Tensor, newest: int) -> Tensor:
    """[block, vocabulary]: slot after slot, candidate after candidate, for one row"""
    return torch.stack([told for told, _ in slow_steps(link, logits, hidden, newest)])


def slow_draft(link: Link, logits: Tensor, hidden: Tensor, newest: int) -> list[int]:
    """What it chooses."""
    return [chosen for _, chosen in slow_steps(link, logits, hidden, newest)]


def slow_steps(link: Link, logits: Tensor, hidden: Tensor, newest: int) -> Iterator[tuple[Tensor, int]]:
    """Of each slot, the logits [vocabulary] given what was chosen before it, and its choice."""
    vocabulary, classes = logits.shape[1], link.candidates
    previous = newest
    for slot, state in zip(logits, hidden, strict=True):
        asked = link.before.weight[previous] * (1 + link.gate.weight @ state)
        told = slot + link.after.weight @ asked
        candidates = [max(range(c, vocabulary, classes), key=lambda token: float(slot[token])) for c in range(classes)]
        previous = max(candidates, key=lambda token: float(told[token]))
        yield told, previous


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 23), st.integers(1, 30), st.integers(1, 5), st.integers(1, 3))
def test_a_chain_is_what_walking_it_slowly_gives(
    seed: int, vocabulary: int, candidates: int, block: int, rows: int
) -> None:
    link, weight = tiny(seed, vocabulary, candidates)
    hidden = torch.randn(rows, block, WIDTH, dtype=torch.float64)
    newest = torch.randint(vocabulary, (rows,))
    logits = hidden @ weight.T
    found = link.chained(logits, hidden, newest)
    drafted = link.drafted(logits, hidden, newest)
    for row in range(rows):
        torch.testing.assert_close(found[row], slow_chain(link, logits[row], hidden[row], int(newest[row])))
        assert drafted[row].tolist() == slow_draft(link, logits[row], hidden[row], int(newest[row]))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 23), st.integers(1, 5))
def test_what_is_trained_is_what_drafts(seed: int, vocabulary: int, block: int) -> None:
    """Where every id is a candidate, the chain's own tokens given as known ones give the chain's logits."""
    link, weight = tiny(seed, vocabulary, vocabulary)
    hidden = torch.randn(2, block, WIDTH, dtype=torch.float64)
    newest = torch.randint(vocabulary, (2,))
    chained = link.chained(hidden @ weight.T, hidden, newest)
    previous = torch.cat([newest[:, None], chained.argmax(dim=-1)[:, :-1]], dim=1)
    torch.testing.assert_close(F.linear(link.widened(hidden, previous), link.widened_weight(weight)), chained)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 23), st.integers(1, 5))
def test_drafts_are_the_best_of_what_known_tokens_give(seed: int, vocabulary: int, block: int) -> None:
    """Where every id is a candidate: each token of a draft, the last one too, is the best after the one before it."""
    link, weight = tiny(seed, vocabulary, vocabulary)
    hidden = torch.randn(2, block, WIDTH, dtype=torch.float64)
    newest = torch.randint(vocabulary, (2,))
    room = torch.zeros(2, block + 1, dtype=torch.int64)
    count = torch.zeros(2, dtype=torch.int64)
    drafted = link.drafted(hidden @ weight.T, hidden, newest, room[:, 1:], count)
    assert torch.equal(room[:, 1:], drafted)
    assert count.tolist() == [block, block]
    previous = torch.cat([newest[:, None], drafted[:, :-1]], dim=1)
    known = F.linear(link.widened(hidden, previous), link.widened_weight(weight))
    assert torch.equal(known.argmax(dim=-1), drafted)


def test_a_new_link_changes_nothing() -> None:
    link = Link(9, WIDTH, RANK)
    link.begin_as(torch.randn(9, WIDTH))
    logits, hidden = torch.randn(2, 4, 9), torch.randn(2, 4, WIDTH)
    assert torch.equal(link.chained(logits, hidden, torch.tensor([2, 3])), logits)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 100))
def test_the_best_of_all_is_among_the_candidates(vocabulary: int, classes: int, seed: int) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(3, vocabulary)
    values, ids = best_of_classes(logits, min(classes, vocabulary))
    assert torch.equal(logits.gather(1, ids), values)
    assert (ids == logits.argmax(dim=1, keepdim=True)).any(dim=1).all()


@given(st.integers(0, 100), st.integers(2, 9), st.integers(1, 4))
def test_tokens_that_were_chosen_mean_what_known_ones_do(seed: int, vocabulary: int, each: int) -> None:
    """One slot's logits and factors for several tokens before it, as a wider product gives them one by one."""
    link, weight = tiny(seed, vocabulary, 0)
    hidden = torch.randn(3, 1, WIDTH, dtype=torch.float64)
    previous = torch.randint(vocabulary, (3, each))
    found = link.tied(hidden @ weight.T, link.factors(hidden), previous)
    expected = F.linear(link.widened(hidden.expand(-1, each, -1), previous), link.widened_weight(weight))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("vocabulary", "candidates", "twice"), [(300, None, True), (60, None, False), (300, 64, False)]
)
def test_after_a_chain_of_few_candidates_the_whole_vocabulary_is_looked_at(
    vocabulary: int, candidates: int | None, twice: bool
) -> None:
    """Where all ids are candidates nothing is lost by the chain alone; where somebody wanted so many, it is wanted."""
    link, weight = tiny(7, vocabulary, candidates)
    hidden, newest = torch.randn(2, 4, WIDTH, dtype=torch.float64), torch.tensor([3, 9])
    logits = hidden @ weight.T
    drafted = link.drafted(logits, hidden, newest)
    assert link.looks_twice == twice
    if twice:
        assert torch.equal(drafted, link.chained(logits, hidden, newest).argmax(dim=-1))
    else:
        slow = [slow_draft(link, logits[row], hidden[row], int(newest[row])) for row in range(2)]
        assert drafted.tolist() == slow
