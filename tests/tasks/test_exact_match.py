"""Exact match by hand."""

from __future__ import annotations

import pytest

from longstride.contract import InputError
from longstride.tasks.score import ExactMatch


def test_the_share_of_outputs_that_are_their_reference() -> None:
    score = ExactMatch().score(["a b", "a  b", " c ", "", "D"], ["a b", "a b", "c", "", "d"])
    assert (score.name, score.value, score.signature) == ("exact match", 60.0, "exact-match|lines|percent")


def test_any_of_several_references_will_do() -> None:
    assert ExactMatch().score(["b", "c"], ["a\nb", "a\nb"]).value == 50.0


def test_nothing_has_no_score() -> None:
    with pytest.raises(InputError, match="at least one sentence"):
        ExactMatch().score([], [])
