"""Pairs that teach to copy: what was put in stands on both sides, and all else is as it was."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.house.test_pipeline import ROOT, module

copies = module("copies", ROOT / "recipes" / "bundled" / "en-de")

PAIRS = [
    ("The meeting in Paris on 12 May was attended by Tom.", "An der Sitzung in Paris am 12. Mai nahm Tom teil."),
    ("Good morning.", "Guten Morgen."),
]
SEEDS = st.integers(0, 10_000)


@given(SEEDS)
def test_what_is_substituted_is_the_same_on_both_sides(seed: int) -> None:
    pair = copies.substituted(PAIRS[0], random.Random(seed))
    assert pair is not None
    for old in ("Paris", "12", "Tom"):
        if old not in pair[0].split():  # this one gave way
            before, _, after = PAIRS[0][0].partition(old)
            new = pair[0][len(before) : len(pair[0]) - len(after)]
            assert pair == (PAIRS[0][0].replace(old, new), PAIRS[0][1].replace(old, new))
            break


def test_where_nothing_is_alike_nothing_is_substituted() -> None:
    assert copies.substituted(PAIRS[1], random.Random(0)) is None


@given(SEEDS)
def test_what_is_attached_leaves_the_sentences_as_they_are(seed: int) -> None:
    source, target = copies.attached(PAIRS[1], random.Random(seed))
    assert PAIRS[1][0] in source
    assert source != PAIRS[1][0]
    assert source.replace(PAIRS[1][0], "") == target.replace(PAIRS[1][1], "")


@given(SEEDS)
def test_what_stands_alone_is_copied(seed: int) -> None:
    source, target = copies.alone(random.Random(seed))
    assert source == target
    assert source.strip()
    assert "\n" not in source


def test_there_are_as_many_as_asked_for_and_the_same_each_time() -> None:
    made = list(copies.copies(PAIRS, 200))
    assert len(made) == 200
    assert made == list(copies.copies(PAIRS, 200))
    assert made != list(copies.copies(PAIRS, 200, seed=2))
