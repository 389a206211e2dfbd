"""Pictures and statistics of lattices small enough to know by heart."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from longstride.contract import EOS, PAD, OptionError
from longstride.systems.lattice.inspection import histogram, ranks
from longstride.systems.lattice.picture import _lines, as_dot, as_svg, draw
from longstride.systems.lattice.search import viterbi
from longstride.systems.lattice.window import Lattice

NEVER = -float("inf")


@pytest.fixture
def lattice() -> Lattice:
    """Two words a column, EOS and PAD: "5 8 </s>" wins though 6 and 7 have the best edges."""
    ids = torch.tensor([[[5, 6, EOS, PAD], [7, 8, EOS, PAD], [9, 10, EOS, PAD]]])
    first = torch.tensor([[-1.0, -0.5, NEVER, NEVER]])
    edges = torch.full((1, 2, 4, 4), NEVER)
    edges[0, 0, :2, :2] = torch.tensor([[-3.0, -1.5], [-2.9, -4.0]])
    edges[0, 0, 0, 0] = -1.0
    edges[0, 1, :2, 2] = torch.tensor([-6.0, -0.25])
    log_scores = torch.tensor([[[-0.1, -2.0], [-0.1, -2.0], [-0.1, -2.0]]])
    return Lattice(ids, first, edges, None, log_scores)


def test_ranks_before_the_search(lattice):
    states = viterbi(lattice.first, lattice.edges).states[:, 0]
    assert states.tolist() == [[0, 1, 2]]
    assert ranks(lattice, states).tolist() == [[2, 2, 0]]  # 6 comes first by -0.5, 7 by -1.0
    assert ranks(lattice, states, "candidates").tolist() == [[1, 2, 0]]
    assert histogram(torch.tensor([[2, 2, 0], [1, 0, 0]]), 3) == [1, 2, 0]


def test_a_picture_holds_what_can_be_reached(lattice):
    picture = draw(lattice, 0, torch.tensor([0, 1, 2]), str, most=4, title='a "quoted" <title>')
    assert [[node.token for node in column] for column in picture.columns] == [[5, 6], [8, 7], [EOS]]
    assert [node.chosen for column in picture.columns for node in column] == [True, False, True, False, True]
    assert picture.score == pytest.approx(-2.75)
    assert picture.columns[0][1].behind == pytest.approx(-2.75 + 4.75)
    assert sum(edge.chosen for edge in picture.edges) == 2


def test_pictures_are_well_formed(lattice):
    picture = draw(lattice, 0, torch.tensor([0, 1, 2]), lambda token: f'<{token}>"&', most=4, title="a <b> & c")
    root = ElementTree.fromstring(as_svg(picture))
    assert root.tag.endswith("svg")
    assert "a <b> & c" in [element.text for element in root.iter() if element.text]
    dot = as_dot(picture)
    assert dot.count("{") == dot.count("}")
    assert r"<5>\"&" in dot


@pytest.mark.parametrize("columns", [1, 2, 9, 10, 11, 19, 20, 28, 40])
def test_long_pictures_go_on_below_and_lose_no_edge(columns):
    lines = _lines(columns)
    pairs = [(one, one + 1) for line in lines for one in line if one + 1 in line]
    assert pairs == [(one, one + 1) for one in range(columns - 1)]
    assert {column for line in lines for column in line} == set(range(columns))


def test_no_picture_of_triples(lattice):
    triples = Lattice(lattice.ids, lattice.first, lattice.edges, torch.zeros(1, 1, 4, 4, 4), lattice.log_scores)
    with pytest.raises(OptionError, match="order 2"):
        draw(triples, 0, torch.tensor([0, 1, 2]), str, most=4)
