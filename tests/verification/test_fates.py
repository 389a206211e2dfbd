"""What drafts may be expected to bring, from how many of their tokens stood; and which sizes are chosen among."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.verification.fates import Fates
from longstride.verification.thrift import sizes


@given(st.integers(1, 40))
def test_sizes_are_few_and_span_all(most):
    found = sizes(most)
    assert found[0] == 0
    assert found[-1] == most
    assert len(found) <= 8
    assert found == sorted(set(found))


@given(st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(0, 6), min_size=1, max_size=4)), max_size=12))
def test_more_drafted_is_never_less_expected(iterations):
    fates = Fates(6, 0.9)
    for block, stood in iterations:
        fates.add(block, [min(block, one) for one in stood])
    expected = [fates.tokens(block) for block in range(7)]
    assert expected[0] == 1
    assert all(0 <= after - before <= 1 for before, after in pairwise(expected))


@pytest.mark.parametrize("seen", [3, 6])
def test_what_is_expected_is_what_came(seen):
    """Tokens that stand more rarely the later they are, seen in drafts of one size: for those up to it, the mean."""
    rng, fates = random.Random(3), Fates(6, 1.0)
    brought = dict.fromkeys(range(seen + 1), 0)
    for _ in range(4000):
        stood = 0
        while stood < 6 and rng.random() < 0.9 - 0.1 * stood:
            stood += 1
        fates.add(seen, [min(stood, seen)])
        for block in brought:
            brought[block] += 1 + min(stood, block)
    for block, tokens in brought.items():
        assert fates.tokens(block) == pytest.approx(tokens / 4000, rel=0.01)


def test_old_fates_are_forgotten_however_many_there_are():
    fates = Fates(4, 0.9)
    for stood in (0, 4):
        for _ in range(2000):
            fates.add(4, [stood])
        assert fates.tokens(4) == pytest.approx(1 + stood, abs=0.6)
