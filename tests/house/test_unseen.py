"""Sentences that a teacher never saw: a clause by itself, and what is left without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from longstride.text.corpus import read_lines
from tests.house.test_pipeline import ROOT, module

unseen = module("unseen", ROOT / "recipes" / "en-de")

LINES = [
    "I thank the rapporteur, who has done excellent work, and I support her proposal.",
    "Who has done excellent work.",
    "That is all.",
    "No, thank you.",
]


def test_a_clause_and_what_is_left_without_it() -> None:
    possible = {
        "I thank the rapporteur.",
        "Who has done excellent work, and I support her proposal.",
        "I thank the rapporteur, and I support her proposal.",
        "And I support her proposal.",
        "I thank the rapporteur, who has done excellent work.",
    }
    drawn = [list(unseen.sentences(LINES, seed)) for seed in range(20)]
    assert {one for sentences in drawn for one in sentences} == possible
    assert all(len(set(sentences)) == len(sentences) <= 2 for sentences in drawn)


def test_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, out = tmp_path / "seen", tmp_path / "unseen"
    seen.write_text("\n".join(LINES) + "\n")
    monkeypatch.setattr(sys, "argv", ["unseen.py", str(seen), str(out), "--seed", "3"])
    unseen.main()
    assert list(read_lines(out)) == list(unseen.sentences(LINES, 3))


def test_lines_that_no_teacher_was_asked_for_come_first() -> None:
    made = list(unseen.further([*LINES, LINES[0]], LINES[1:], 3))
    assert made == [LINES[0], *unseen.sentences(LINES, 3)]
