"""The pages whose Python a reader will try first: the blocks of each, one after another, are a program that runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from longstride.cli import test_sets

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("add-a-*.md"))
RUNNING = [*PAGES, ROOT / "README.md", DOCS / "tutorials" / "translate.md", DOCS / "terminology.md"]
NAMING = [
    *PAGES,
    DOCS / "glossary.md",
    DOCS / "draft-and-verify.md",
    DOCS / "evaluation.md",
    DOCS / "interop.md",
    DOCS / "reproduction.md",
    *sorted(ROOT.glob("src/longstride/systems/*/README.md")),
]
"""Pages that name files as they are now."""
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def program(page: Path) -> str:
    """The page's blocks on the lines where they stand, so that a traceback points into the page."""
    text, found = page.read_text(), ""
    for block in BLOCK.finditer(text):
        found += "\n" * (text.count("\n", 0, block.start(1)) - found.count("\n")) + block.group(1)
    return found


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.stem)
def test_the_example_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(test_sets, "TASKS", dict(test_sets.TASKS))  # one page adds to it
    module = ModuleType(page.stem.replace("-", "_"))
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look their annotations up
    exec(compile(program(page), str(page), "exec", dont_inherit=True), vars(module))


def test_there_is_a_page_for_each_part() -> None:
    assert [page.stem.removeprefix("add-a-") for page in PAGES] == ["backend", "drafter", "model", "task"]


@pytest.mark.parametrize("page", NAMING, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    homes = (ROOT, ROOT / "src/longstride", page.parent)
    named = re.findall(r"`([\w./-]+\.(?:py|md|c|yaml))`", page.read_text())
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []
