"""The parallel search against the serial one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.systems.lattice import scan as scanning
from longstride.systems.lattice.scan import scan
from longstride.systems.lattice.viterbi import path_scores, viterbi
from tests.lattice.lattices import random_lattice


@settings(deadline=None, max_examples=80)
@given(
    rows=st.integers(1, 3),
    columns=st.integers(1, 20),
    states=st.integers(1, 6),
    seed=st.integers(0, 1 << 30),
    forbidden=st.sampled_from([0.0, 0.3, 0.6]),
)
def test_scan_equals_serial(rows, columns, states, seed, forbidden):
    first, edges, _ = random_lattice(rows, columns, states, seed, forbidden)
    serial, parallel = viterbi(first, edges), scan(first, edges)
    torch.testing.assert_close(parallel.scores, serial.scores)
    there = serial.scores[:, 0] > -float("inf")
    assert torch.equal(parallel.states[there], serial.states[there])
    torch.testing.assert_close(path_scores(first, edges, parallel.states)[there], serial.scores[there])


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 8, 9, 16, 17])
def test_scan_at_and_around_powers_of_two(columns):
    first, edges, _ = random_lattice(2, columns, 3, seed=columns, forbidden=0.0)
    assert torch.equal(scan(first, edges).states, viterbi(first, edges).states)


def test_products_in_portions(monkeypatch):
    first, edges, _ = random_lattice(3, 12, 4, seed=0)
    whole = scan(first, edges)
    monkeypatch.setattr(scanning, "AT_ONCE", 1)
    assert torch.equal(scan(first, edges).states, whole.states)


def test_ties_give_a_path_of_the_best_score():
    first, edges = torch.zeros(2, 3), torch.zeros(2, 6, 3, 3)
    found = scan(first, edges)
    assert torch.equal(path_scores(first, edges, found.states), torch.zeros(2, 1))
