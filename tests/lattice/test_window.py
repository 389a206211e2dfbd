"""The length window: one search against separate searches of one length each, and what it must never allow."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import DEFAULT_IDS, EOS, PAD, UNK, Limits
from longstride.search.lengths import Window
from longstride.systems.lattice.candidates import Candidates, usable
from longstride.systems.lattice.scoring import Scores
from longstride.systems.lattice.search import viterbi, viterbi_triples
from longstride.systems.lattice.window import assemble
from tests.lattice.lattices import all_paths

NEVER = -float("inf")


def _scored(rows: int, columns: int, k: int, seed: int) -> tuple[Candidates, Scores]:
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    ids = torch.stack([torch.randperm(20, generator=rng)[:k] + 5 for _ in range(rows * columns)])
    candidates = Candidates(ids.view(rows, columns, k), draw(rows, columns, k))
    triples = draw(rows, columns - 2, k, k, k + 1)
    return candidates, Scores(draw(rows, k + 1), draw(rows, columns - 1, k, k + 1), triples)


def _window(shortest: list[int], longest: list[int]) -> Window:
    return Window(torch.tensor(shortest), torch.tensor(longest))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1 << 30),
    k=st.integers(1, 3),
    windows=st.lists(st.tuples(st.integers(2, 5), st.integers(0, 3)), min_size=1, max_size=3),
    triples=st.booleans(),
)
def test_one_search_equals_the_best_of_separate_lengths(seed, k, windows, triples):
    shortest = [low for low, _ in windows]
    longest = [low + more for low, more in windows]
    candidates, scores = _scored(len(windows), max(3, *longest), k, seed)
    if not triples:
        scores = Scores(scores.first, scores.edges)

    def search(window: Window) -> tuple[list[float], list[list[int]]]:
        lattice = assemble(candidates, scores, window, DEFAULT_IDS)
        if lattice.triples is None:
            paths = viterbi(lattice.first, lattice.edges)
        else:
            paths = viterbi_triples(lattice.first, lattice.edges[:, 0], lattice.triples)
        return paths.scores[:, 0].tolist(), lattice.ids.gather(2, paths.states[:, 0, :, None])[..., 0].tolist()

    found, spelt = search(_window(shortest, longest))
    for row, (low, high) in enumerate(zip(shortest, longest, strict=True)):
        best = max(
            (search(_window([length] * len(windows), [length] * len(windows)))[0][row], length)
            for length in range(low, high + 1)
        )
        assert found[row] == pytest.approx(best[0])
        assert spelt[row].index(EOS) + 1 == best[1]
        assert all(word == PAD for word in spelt[row][best[1] :])


@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 30), low=st.integers(2, 3), more=st.integers(0, 2))
def test_every_path_is_words_then_one_end_then_padding(seed, low, more):
    candidates, scores = _scored(1, low + more + 1, 2, seed)
    lattice = assemble(candidates, Scores(scores.first, scores.edges), _window([low], [low + more]), DEFAULT_IDS)
    paths = all_paths(lattice.first[0], lattice.edges[0])
    assert len(paths) == sum(2 ** (length - 1) for length in range(low, low + more + 1))
    for _, path in paths:
        spelt = [int(lattice.ids[0, column, state]) for column, state in enumerate(path)]
        length = spelt.index(EOS) + 1
        assert low <= length <= low + more
        assert set(spelt[length:]) <= {PAD}
        assert PAD not in spelt[:length]


def test_forbidden_edges():
    candidates, scores = _scored(1, 5, 3, seed=0)
    lattice = assemble(candidates, Scores(scores.first, scores.edges), _window([2], [5]), DEFAULT_IDS)
    edges = lattice.edges[0]
    assert (edges[:, :3, 4] == NEVER).all()  # a word, then padding
    assert (edges[:, 3:, :4] == NEVER).all()  # the end or padding, then a word or another end
    assert (edges[:, 3:, 4] == 0).all()
    assert (edges[-1, :, :3] == NEVER).all()  # the last column ends or has ended


def test_the_end_keeps_its_score():
    candidates, scores = _scored(1, 4, 3, seed=0)
    lattice = assemble(candidates, Scores(scores.first, scores.edges), _window([3], [4]), DEFAULT_IDS)
    assert torch.equal(lattice.edges[0, 1:, :3, 3], scores.edges[0, 1:, :, 3])
    assert (lattice.edges[0, 0, :, 3] == NEVER).all()


def test_a_window_of_zero_is_exactly_the_predicted_length():
    window = Window.around(torch.tensor([4, 9]), 0, Limits(), torch.tensor([5, 10]))
    assert window.shortest.tolist() == window.longest.tolist() == [4, 9]


def test_windows_stay_inside_the_limits():
    lengths = torch.tensor([3, 3, 3])
    limits = Limits(max_length=6, min_length=3)
    window = Window.around(torch.tensor([1, 5, 40]), 2, limits, lengths)
    assert window.shortest.tolist() == [4, 4, 5]
    assert window.longest.tolist() == [6, 7, 7]
    assert Window.around(torch.tensor([40]), 2, Limits(), lengths[:1], positions=8).longest.tolist() == [8]


def test_a_column_without_candidates_gets_one():
    ids, scores = torch.tensor([[[5, 6], [7, PAD], [PAD, PAD]]]), torch.tensor([[[-1.0, -2], [-1, NEVER], [NEVER] * 2]])
    found = usable(Candidates(ids, scores), None, UNK, PAD)
    assert found.ids.tolist() == [[[5, 6], [7, PAD], [UNK, PAD]]]
    banned = usable(Candidates(ids, scores), torch.tensor([5, 7]), 8, PAD)
    assert banned.ids.tolist() == [[[PAD, 6], [8, PAD], [8, PAD]]]
