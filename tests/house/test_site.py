"""The documentation: commands that it shows can be given so, and its pictures of decoders at work show what happened.

That pages lead somewhere, and that all of them are in the navigation, is what the strict build of `make check` sees to.
"""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.cli.main import COMMANDS, load

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "log.md"]
SHOWN = re.compile(r"^(?: {4}|\$ |)(?:(?:echo|cat) [^|]*\| *)?longstride ([a-z].*)$", re.MULTILINE)
AT_WORK = runpy.run_path(str(ROOT / "scripts" / "at_work.py"))


def shown_commands(page: Path) -> list[list[str]]:
    """What stands behind `longstride` in code, up to a comment, a pipe or a redirection."""
    found = []
    for line in SHOWN.findall(page.read_text(encoding="utf-8")):
        words = list(shlex.shlex(line.rstrip("\\"), posix=True, punctuation_chars="|<>&;"))
        end = next((place for place, word in enumerate(words) if word[0] in "|<>&;("), len(words))
        found.append([] if words[0] not in COMMANDS else words[:end])
    return [words for words in found if words]


@pytest.mark.parametrize("page", [page for page in PAGES if shown_commands(page)], ids=lambda page: page.stem)
def test_commands_that_a_page_shows_can_be_given(page: Path) -> None:
    for name, *arguments in shown_commands(page):
        command = load(name)
        while getattr(command, "commands", None) and arguments:
            command, arguments = command.commands[arguments[0]], arguments[1:]
        command.make_context(name, arguments, resilient_parsing=True)  # which fails where an option does not exist


def test_tutorials_show_commands() -> None:
    shown = {page.stem: shown_commands(page) for page in PAGES if page.parent.name == "tutorials"}
    assert sorted(shown) == ["adapt", "serve", "train", "translate"]
    assert all(shown.values())


@st.composite
def traces(draw: st.DrawFn) -> dict[str, Any]:
    """A sentence written from left to right, with drafts of which some stood."""
    steps, place = [], 0
    for _ in range(draw(st.integers(1, 5))):
        draft = draw(st.lists(st.sampled_from(["▁ein", "haus", "<&", "▁"]), max_size=4))
        accepted = draw(st.integers(0, len(draft)))
        pieces = [*draft[:accepted], "▁own"]
        places = list(range(place, place + len(pieces)))
        steps.append({"positions": places, "pieces": pieces, "draft_pieces": draft, "accepted": accepted})
        place += len(pieces)
    return {"steps": steps}


@given(traces())
def test_pictures_show_every_token_where_it_stands(trace: dict[str, Any]) -> None:
    rows = AT_WORK["rows"](trace)
    output = [piece for step in trace["steps"] for piece in step["pieces"]]
    assert [piece for _, piece, kind in sorted(rows[-1]) if kind in ("before", "own", "stood")] == output
    for step, cells in zip(trace["steps"], rows, strict=True):
        kinds = [kind for _, _, kind in cells]
        assert kinds.count("stood") == step["accepted"]
        assert kinds.count("rejected") == max(0, len(step["draft_pieces"]) - step["accepted"] - 1)
        assert len({place for place, _, _ in cells}) == len(cells)
    ElementTree.fromstring(AT_WORK["drawing"](trace))


def test_iterations_that_write_nothing_are_empty_rows() -> None:
    """As those of beam search are, up to its last."""
    nothing = {"positions": [], "ids": [], "accepted": 0, "draft": [], "pieces": [], "draft_pieces": []}
    last = {**nothing, "positions": [0, 1], "ids": [7, 3], "pieces": ["▁a", "</s>"]}
    assert AT_WORK["rows"]({"steps": [nothing, last]}) == [[], [(0, "▁a", "own"), (1, "</s>", "own")]]
    ElementTree.fromstring(AT_WORK["drawing"]({"steps": [nothing, last]}))
