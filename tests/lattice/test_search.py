"""Serial search against all paths there are, and the parallel search against the serial one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.systems.lattice import search
from longstride.systems.lattice.search import best_through, scan, viterbi, viterbi_triples
from tests.lattice.lattices import all_paths, path_scores, random_lattice

lattices = {
    "columns": st.integers(1, 5),
    "states": st.integers(1, 4),
    "seed": st.integers(0, 1 << 30),
    "forbidden": st.sampled_from([0.0, 0.3, 0.8]),
}


@settings(max_examples=60)
@given(n=st.integers(1, 5), **lattices)
def test_serial_search_finds_the_best_of_all_paths(n, columns, states, seed, forbidden):
    first, edges, _ = random_lattice(3, columns, states, seed, forbidden)
    paths = viterbi(first, edges, n)
    assert paths.states.shape == (3, n, columns)
    for row in range(3):
        expected = all_paths(first[row], edges[row])[:n]
        found = [
            (float(score), tuple(path.tolist()))
            for score, path in zip(paths.scores[row], paths.states[row], strict=True)
            if score > -float("inf")
        ]
        assert [path for _, path in found] == [path for _, path in expected]
        torch.testing.assert_close(torch.tensor([s for s, _ in found]), torch.tensor([s for s, _ in expected]))


@settings(max_examples=60)
@given(n=st.integers(1, 5), **lattices)
def test_search_over_triples_finds_the_best_of_all_paths(n, columns, states, seed, forbidden):
    columns = max(2, columns)
    first, edges, triples = random_lattice(2, columns, states, seed, forbidden)
    paths = viterbi_triples(first, edges[:, 0], triples, n)
    for row in range(2):
        expected = all_paths(first[row], edges[row], triples[row])[:n]
        kept = paths.scores[row] > -float("inf")
        assert [tuple(path) for path in paths.states[row][kept].tolist()] == [path for _, path in expected]
        torch.testing.assert_close(paths.scores[row][kept], torch.tensor([s for s, _ in expected], dtype=torch.float64))


@settings(max_examples=30)
@given(**lattices)
def test_scores_are_what_adding_up_gives(columns, states, seed, forbidden):
    first, edges, _ = random_lattice(3, columns, states, seed, forbidden)
    paths = viterbi(first, edges, 2)
    added = path_scores(first, edges, paths.states)
    kept = paths.scores > -float("inf")
    torch.testing.assert_close(paths.scores[kept], added[kept])


@settings(max_examples=30)
@given(**lattices)
def test_best_path_through_each_state(columns, states, seed, forbidden):
    first, edges, _ = random_lattice(1, columns, states, seed, forbidden)
    expected = torch.full((columns, states), -float("inf"), dtype=torch.float64)
    for score, path in all_paths(first[0], edges[0]):
        for column, state in enumerate(path):
            expected[column, state] = max(expected[column, state], score)
    torch.testing.assert_close(best_through(first, edges)[0], expected)


def test_ties_do_not_make_one_path_two():
    """All paths score alike: the n best are still n different ones."""
    paths = viterbi(torch.zeros(1, 3), torch.zeros(1, 3, 3, 3), 40)
    assert len({tuple(path) for path in paths.states[0].tolist()}) == 40


def test_fewer_paths_than_asked_for():
    paths = viterbi(torch.zeros(1, 1), torch.zeros(1, 2, 1, 1), 3)
    assert paths.scores.tolist() == [[0.0, -float("inf"), -float("inf")]]
    assert paths.states.tolist() == [[[0, 0, 0]] * 3]


@settings(max_examples=80)
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
    monkeypatch.setattr(search, "MAX_SUMS", 1)
    assert torch.equal(scan(first, edges).states, whole.states)


def test_ties_give_a_path_of_the_best_score():
    first, edges = torch.zeros(2, 3), torch.zeros(2, 6, 3, 3)
    found = scan(first, edges)
    assert torch.equal(path_scores(first, edges, found.states), torch.zeros(2, 1))
