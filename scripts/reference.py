"""Write the reference pages from the code itself: every command with its options, every decoder and recipe with theirs.

`python scripts/reference.py` writes docs/reference/; with --check it writes nothing and exits 1 where a page is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from longstride.adaptation.options import AdaptOptions
from longstride.cli.main import TASKS, load
from longstride.contract import Limits
from longstride.contract.options import fields
from longstride.objectives import OBJECTIVES
from longstride.recipe import Recipe
from longstride.registry import DECODERS

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
WRITTEN = "Written from the code by `make reference`; not by hand.\n"


def commands() -> str:
    """Every command, by task."""
    lines = ["# Commands\n", WRITTEN]
    also = (
        "`--debug`, which shows a traceback, `--quiet`, which prints results, warnings and errors alone, and `--help`"
    )
    lines.append(f"Each also takes {also}.\n")
    for task, names in TASKS.items():
        lines.append(f"## {task}\n")
        for name in names:
            lines += _command(f"longstride {name}", load(name))
    return "\n".join(lines)


def _command(path: str, command: Any) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner:
        for name, one in inner.items():
            yield from _command(f"{path} {name}", one)
        return
    yield f"### {path}\n"
    yield f"{_paragraphs(command.help)}\n"
    records = [one.get_help_record(typer.Context(command, info_name=path)) for one in command.params]
    rows = [f"| `{told[0].replace('|', chr(92) + '|')}` | {_cell(told[1])} |" for told in records if told is not None]
    yield "| option | |\n|---|---|\n" + "\n".join(rows) + "\n"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


def options() -> str:
    """Options of decoders, recipes and adaptation."""
    lines = [
        "# Options\n",
        WRITTEN,
        "All are given as `--set name=value`, in Python as keywords, in recipes as YAML.\n",
    ]
    lines.append("## Decoders\n")
    for name, kind in DECODERS.items():
        lines += [f"### {name}\n", f"{kind.summary[0].upper()}{kind.summary[1:]}.\n", _options(kind.options)]
    lines += ["### all decoders\n", "How long outputs may be, and what may never stand in them.\n", _options(Limits)]
    lines += ["## Adaptation\n", "Of `longstride adapt`.\n", _options(AdaptOptions)]
    lines += ["## Recipes\n", "Of `longstride train`, by their path.\n", _options(Recipe)]
    lines.append("## Objectives\n\nOf a recipe's `objective`, by its `kind`.\n")
    for name, objective in OBJECTIVES.items():
        lines += [f"### objective {name}\n", _options(objective.options)]
    return "\n".join(lines)


def _options(kind: type) -> str:
    rows = [
        f"| `{name}` | {_cell(form)} | {f'`{_cell(default)}`' if default else ''} | {_cell(sentence)} |"
        for name, form, default, sentence in fields(kind)
    ]
    return "| option | value | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n" if rows else "It has none.\n"


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Write, or check."""
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, made in (("commands", commands()), ("options", options())):
        path = FOLDER / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != made:
            stale.append(str(path.relative_to(FOLDER.parent.parent)))
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(made, encoding="utf-8")
    if check and stale:
        sys.exit(f"Stale: {', '.join(stale)}; write them with make reference.")


if __name__ == "__main__":
    main()
