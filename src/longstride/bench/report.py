"""A page of results from records, and pieces of it between markers in other pages.

`render` writes results.md and its figures; `insert_all` replaces what stands between ``<!-- report:NAME -->`` and
``<!-- /report -->`` in a page. Both can check instead of write: they then say what is stale and touch nothing.

To a check, a figure is stale when the data it was drawn from have changed, which needs no matplotlib and is the same on
every machine. Writing draws every figure and replaces those that look otherwise by more than the last digits: the code
that draws, or matplotlib, has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from longstride.bench.figure import MARKER, Picture, alike, marker
from longstride.bench.page import FIGURES, drawings, results_page, sections
from longstride.bench.record_files import write_whole
from longstride.bench.records import Record
from longstride.contract import InputError, UsageError
from longstride.text.files import read_regular

PAGE = "results.md"

_MARKED = re.compile(r"<!-- report:(?P<name>\S+) -->\n(?P<text>.*?)<!-- /report -->", re.DOTALL)
_OPENING = "<!-- report:"


def render(records: Sequence[Record], out_dir: str | Path, check: bool = False) -> list[Path]:
    """Write results.md and its figures where they are not up to date; gives the files that were (or are) stale.

    Figures of results.md that no record stands behind any more are stale too, and removed.
    """
    folder = Path(out_dir)
    stale: dict[Path, str | None] = {}
    drawn = drawings(records)
    for plot in drawn:
        path = folder / FIGURES / f"{plot.name}.svg"
        before = _read(path)
        current = before is not None and marker(plot.digest) in before
        after = None if check else _drawn(plot, current)
        if not current or (after is not None and not alike(before or "", after)):
            stale[path] = after
    wanted = {f"{plot.name}.svg" for plot in drawn}
    for path in sorted((folder / FIGURES).glob("*.svg")):
        # Only what was drawn here: a figure that someone put there by hand has no marker.
        if path.name not in wanted and MARKER in (_read(path) or ""):
            stale[path] = None
    page = folder / PAGE
    text = results_page(records)
    if _read(page) != text:
        stale[page] = text
    for path, new in stale.items() if not check else ():  # once nothing more can be refused
        if new is None:
            path.unlink()
        else:
            write_whole(path, new.encode())
    return list(stale)


def insert_all(
    markdown_file: str | Path, records: Sequence[Record], results_dir: str | Path, check: bool = False
) -> bool:
    """Fill every marker of a page from records; says whether it was (or is) stale. An unknown name is an error.

    `results_dir` is where results.md and its figures lie: paths of figures are made relative to the page.
    """
    path = Path(markdown_file)
    before = _page(path)
    names = [match["name"] for match in _MARKED.finditer(before)]
    if before.count(_OPENING) != len(names):
        raise InputError(f"{path}: expected an end <!-- /report --> to each marker, found fewer ends than markers.")
    found = sections(records, _way(path.parent, Path(results_dir))) if names else {}
    for name in names:
        if name not in found:
            raise InputError(
                f"{path}: expected a marker named {', '.join(sorted(found)) or '(nothing)'}, found {name!r}."
            )
    return _replace(path, before, found, check)


def _replace(path: Path, before: str, found: Mapping[str, str], check: bool) -> bool:
    def filled(match: re.Match[str]) -> str:
        if match["name"] not in found:
            return match[0]
        # GitHub takes a table for text unless an empty line stands around it.
        return f"<!-- report:{match['name']} -->\n\n{found[match['name']].strip()}\n\n<!-- /report -->"

    after = _MARKED.sub(filled, before)
    if after == before:
        return False
    if not check:
        write_whole(path, after.encode())
    return True


def _way(start: Path, goal: Path) -> str:
    """How a link gets from one folder to another: empty, or ending in a slash."""
    way = Path(os.path.relpath(os.path.realpath(goal), os.path.realpath(start))).as_posix()
    return "" if way == "." else way + "/"


def _drawn(plot: Picture, current: bool) -> str | None:
    """The figure; none where it cannot be drawn here and need not be."""
    try:
        return plot.svg().decode()
    except UsageError:  # there is no matplotlib
        if current:
            return None
        raise


def _read(path: Path) -> str | None:
    """What stands in a page or figure; none: no such file."""
    try:
        return read_regular(path).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        told = getattr(error, "strerror", "no UTF-8")
        raise InputError(f"{path}: expected a page or figure of an earlier report, found: {told}.") from None


def _page(path: Path) -> str:
    try:
        return read_regular(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        told = getattr(error, "strerror", "no UTF-8")
        raise InputError(f"{path}: expected a page with markers, found: {told}.") from None
