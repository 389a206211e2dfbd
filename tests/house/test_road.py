"""The files that a sentence passes through in `translate --decoder draft-verify`, by chains (docs/architecture.md)."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import longstride
from longstride.cli.main import main
from longstride.translator import Translator
from longstride.verification.session import VerificationSession

PACKAGE = Path(longstride.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
PARTS = ("One iteration", "Around the iterations", "Before and after")
"""Headings of the page's lists: files whose functions run in an iteration, elsewhere in translating, or at all."""
LONGEST = 30
"""Files from text to text, once the model is loaded: the first two lists."""
MARKS = {VerificationSession.advance.__code__: PARTS[0], Translator.translate.__code__: PARTS[1]}


def told() -> dict[str, list[str]]:
    """The lists of the page."""
    text = PAGE.read_text()
    return {part: re.findall(r"^\| `([\w/]+\.py)` \|", _section(text, part), re.MULTILINE) for part in PARTS}


def _section(text: str, heading: str) -> str:
    found = re.search(rf"^### {heading}\b.*?$(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"docs/architecture.md has no section {heading!r}"
    return found.group(1)


def walked(arguments: list[str]) -> dict[str, list[str]]:
    """The same, of a command line that has run before: what imports run is not counted."""
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    inside = [PARTS[2]]

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call":
            if code in MARKS:
                inside.append(MARKS[code])
            file = Path(code.co_filename)
            if code.co_flags & inspect.CO_OPTIMIZED and file.is_relative_to(PACKAGE):  # the bodies of classes are not
                name = str(file.relative_to(PACKAGE))
                if name not in found[inside[-1]]:
                    found[inside[-1]].append(name)
        elif event == "return" and code in MARKS:
            inside.pop()

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        assert main(arguments) == 0
    finally:
        sys.setprofile(before)
    first, second, _ = (set(found[part]) for part in PARTS)
    later = {PARTS[0]: set(), PARTS[1]: first, PARTS[2]: first | second}
    return {part: [name for name in files if name not in later[part]] for part, files in found.items()}


def test_the_page_tells_the_files_that_a_sentence_passes_through(tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("A man is reading a book.\n")
    chains = ["--decoder", "draft-verify", "--set", "tree=0"]
    arguments = ["translate", *chains, "--runtime", "eager", "--device", "cpu", "-i", str(source)]
    arguments += ["-o", str(tmp_path / "output.txt")]
    assert main(arguments) == 0
    found, listed = walked(arguments), told()
    for part in PARTS:
        missing = [name for name in found[part] if name not in listed[part]]
        gone = [name for name in listed[part] if name not in found[part]]
        assert not missing + gone, f"{part}: docs/architecture.md should also list {missing}, and no longer {gone}"
        assert len(listed[part]) == len(set(listed[part]))


def test_the_page_says_how_many_they_are() -> None:
    counts = [len(files) for files in told().values()]
    told_counts = r"(\d+) files in an\s+iteration, (\d+) more around it, (\d+) more before and after"
    said = re.search(told_counts, PAGE.read_text())
    assert said is not None
    assert [int(number) for number in said.groups()] == counts
    assert sum(counts[:2]) <= LONGEST
