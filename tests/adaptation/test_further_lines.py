"""New source lines are made of the user's clauses: the same for a seed, never one that is there or held out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.adaptation.decoding import FURTHER, Lines, corpus, decode
from longstride.adaptation.further_lines import further_lines
from longstride.adaptation.options import AdaptOptions
from longstride.tasks.toys import SYMBOLS
from longstride.translator import load
from tests.folders import write_folder

WORDS = st.lists(st.sampled_from(["one", "two", "three", "four", "five"]), min_size=1, max_size=5).map(" ".join)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(lambda clauses: ", ".join(clauses).capitalize() + "."))


@settings(max_examples=60)
@given(LINES, LINES, st.integers(0, 50), st.integers(0, 3))
def test_lines_are_new_and_follow_from_the_seed(lines: list[str], held_out: list[str], count: int, seed: int) -> None:
    made = further_lines(lines, count, seed, frozenset(held_out))
    assert made == further_lines(lines, count, seed, frozenset(held_out))
    assert len(made) <= count
    assert len(set(made)) == len(made)
    assert not set(made) & (set(lines) | set(held_out))
    words = {word.strip(".,").lower() for line in lines for word in line.split()}
    assert {word.strip(".,").lower() for line in made for word in line.split()} <= words
    assert all(line[0].isupper() and line.endswith(".") for line in made)


def test_clauses_come_before_mixtures_of_two_lines() -> None:
    lines = ["We shall vote tomorrow, since nobody objects to it.", "Mr President, this is a very old question."]
    made = further_lines(lines, 100, seed=1)
    assert set(made[:3]) <= {
        "We shall vote tomorrow.",
        "Since nobody objects to it.",
        "This is a very old question.",
    }
    assert any("very old question" in line and "shall vote" in line for line in made)


def test_lines_without_clauses_give_none() -> None:
    assert further_lines(["good morning", "yes", ""], 10, seed=1) == []


def test_a_long_training_decodes_further_lines_and_learns_from_them(tmp_path: Path) -> None:
    translator = load(write_folder(tmp_path / "model"), runtime="eager", device="cpu")
    clauses = [" ".join(SYMBOLS[place : place + 3]) for place in range(8)]
    lines = Lines(tuple(f"{one}, {other}" for one, other in pairwise(clauses)), (f"{clauses[0]}, {clauses[3]}",))
    options = AdaptOptions(minutes=20.0, shard_lines=5).on("cpu")
    found = decode(translator, lines, tmp_path / "decoded", options)
    assert found["further"] > len(lines.training)
    assert found["kept"] == len(lines.training) + found["further"]
    assert found["left_out"] == 0
    again = decode(translator, lines, tmp_path / "decoded", options)
    assert again == found, "nothing is decoded twice"
    pairs = corpus([(translator, tmp_path / "decoded")], options.longest_target)
    assert len(pairs) == found["kept"]
    further = (tmp_path / "decoded" / FURTHER / "train.src").read_text().splitlines()
    assert lines.held_out[0] not in further
    by_updates = decode(translator, lines, tmp_path / "other", AdaptOptions(updates=8).on("cpu"))
    assert by_updates["further"] == 0
