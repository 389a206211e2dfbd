"""Pages of results from records, and pieces of them between markers in other pages.

`render` writes results.md, the folder results/ and figures; `insert_all` replaces what stands between
``<!-- report:NAME -->`` and ``<!-- /report -->`` in a page, by those rows of the table alone after
``<!-- report:NAME rows: A; B -->``. Both can check instead of write: they then say what is stale and touch nothing.

To a check, a figure is stale when the data it was drawn from have changed, which needs no matplotlib and is the same on
every machine. Writing draws every figure and replaces those that look otherwise by more than the last digits: the code
that draws, or matplotlib, has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from longstride.bench.figure import MARKER, Picture, alike, marker
from longstride.bench.page import FIGURES, FOLDER, TABLES, TOPICS, drawings, results_pages, sections
from longstride.bench.record_files import write_whole
from longstride.bench.records import Record
from longstride.bench.reproduction import NAME as REPRODUCTION
from longstride.bench.reproduction import reproduction_table
from longstride.contract import InputError, UsageError
from longstride.text.files import read_regular

_MARKED = re.compile(
    r"(?P<opening><!-- report:(?P<name>\S+)(?: rows: (?P<rows>[^\n]+?))? -->)\n(?P<text>.*?)<!-- /report -->", re.DOTALL
)
_OPENING = "<!-- report:"


def render(records: Sequence[Record], out_dir: str | Path, check: bool = False) -> list[Path]:
    """Write pages, tables and figures where they are not up to date; gives the files that were (or are) stale.

    Those that no record stands behind any more are stale too, and removed.
    """
    folder = Path(out_dir)
    stale: dict[Path, str | None] = {}
    drawn = drawings(records)
    for plot in drawn:
        path = folder / FIGURES / f"{plot.name}.svg"
        before = _read(path)
        current = marker(plot.digest) in before
        after = None if check else _drawn(plot, current)
        if not current or (after is not None and not alike(before, after)):
            stale[path] = after
    wanted = {f"{plot.name}.svg" for plot in drawn}
    for path in sorted((folder / FIGURES).glob("*.svg")):
        # Only what was drawn here: a figure that someone put there by hand has no marker.
        if path.name not in wanted and MARKER in _read(path):
            stale[path] = None
    pages = {folder / name: text for name, text in results_pages(records).items()}
    stale |= {path: text for path, text in pages.items() if _read(path) != text}
    # Only what has a name of ours: people keep files of their own in a folder called results, too.
    made = [*(folder / FOLDER / f"{name}.md" for name in TOPICS), *sorted((folder / FOLDER / TABLES).glob("*.csv"))]
    stale |= {path: None for path in made if path not in pages and path.is_file()}
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
    before = _read(path, needed=True)
    names = [match["name"] for match in _MARKED.finditer(before)]
    if before.count(_OPENING) != len(names):
        raise InputError(f"{path}: expected an end <!-- /report --> to each marker, found fewer ends than markers.")
    found = sections(records, _way(path.parent, Path(results_dir))) if {*names} - {REPRODUCTION} else {}
    if REPRODUCTION in names:
        found[REPRODUCTION] = reproduction_table(records)
    for name in names:
        if name not in found:
            raise InputError(
                f"{path}: expected a marker named {', '.join(sorted(found)) or '(nothing)'}, found {name!r}."
            )

    def filled(match: re.Match[str]) -> str:  # GitHub takes a table for text unless an empty line stands around it
        text = found[match["name"]].strip()
        shown = text if match["rows"] is None else _some_rows(text, match["rows"].split("; "), path)
        return f"{match['opening']}\n\n{shown}\n\n<!-- /report -->"

    after = _MARKED.sub(filled, before)
    if after != before and not check:
        write_whole(path, after.encode())
    return after != before


def _some_rows(text: str, wanted: Sequence[str], path: Path) -> str:
    """A table's head and the rows whose first cells are these, in this order; what stands below it, and the marks that
    send a reader there, are left out."""
    table = [line for line in text.split("\n\n")[0].splitlines() if line.startswith("|")]
    rows = {line.split("|")[1].strip(): line for line in (line.replace(" †", "  ") for line in table[2:])}
    for name in wanted:
        if name not in rows:
            raise InputError(f"{path}: expected rows among {'; '.join(rows) or '(none)'}, found {name!r}.")
    return "\n".join([*table[:2], *(rows[name] for name in wanted)])


def _way(start: Path, goal: Path) -> str:
    """How a link gets from one folder to another: empty, or ending in a slash."""
    way = Path(os.path.relpath(os.path.realpath(goal), os.path.realpath(start))).as_posix()
    return "" if way == "." else way + "/"


def _drawn(plot: Picture, current: bool) -> str | None:
    """The figure; none where it cannot be drawn here and need not be."""
    try:
        return plot.svg()
    except UsageError:  # there is no matplotlib
        if current:
            return None
        raise


def _read(path: Path, needed: bool = False) -> str:
    """What stands in a page or figure; nothing where there is no such file and none is needed."""
    try:
        return read_regular(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError) and not needed:
            return ""
        what = "a page with markers" if needed else "a page or figure of an earlier report"
        raise InputError(f"{path}: expected {what}, found: {getattr(error, 'strerror', 'no UTF-8')}.") from None
