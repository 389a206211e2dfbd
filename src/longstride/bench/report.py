"""A page of results from records, and pieces of it between markers in other pages.

`render` writes results.md and its figures; `insert` replaces what stands between ``<!-- report:NAME -->`` and
``<!-- /report -->`` in a page. Both can check instead of write: they then say what is stale and touch nothing. A figure
is stale when the data it was drawn from have changed, not when another version of matplotlib would draw it otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from longstride.bench import tables
from longstride.bench.analysis_tables import analysis_sections
from longstride.bench.charts import Chart
from longstride.bench.draft_tables import draft_sections
from longstride.bench.exactness_tables import exactness_table
from longstride.bench.parallel_tables import parallel_sections
from longstride.bench.plots import MARKER, Plot, marker, plots
from longstride.bench.races import quality_groups, races, slug
from longstride.bench.records import Distillation, Record, Training, write_whole
from longstride.bench.sections import Section
from longstride.contract import InputError

PAGE = "results.md"
FIGURES = "figures"

_MARKED = re.compile(r"<!-- report:(?P<name>\S+) -->\n(?P<text>.*?)<!-- /report -->", re.DOTALL)
LONG = 12
"""Rows beyond which a table of settings is folded."""
_OPENING = "<!-- report:"

_INTRODUCTION = """# Results

Rendered from the records in `benchmarks/results/` by `longstride report`; not written by hand.
"""


def sections(records: Sequence[Record]) -> dict[str, str]:
    """Every table and figure by the name that markers use, as Markdown; a figure's path is relative to results.md."""
    found: dict[str, str] = {}
    for race in races(records):
        found[f"summary/{race.name}"] = tables.summary_table(race)
        found[f"latency/{race.name}"] = tables.latency_table(race)
        found[f"work/{race.name}"] = tables.work_table(race)
        acceptance = tables.acceptance_table(race)
        if acceptance:
            found[f"acceptance/{race.name}"] = acceptance
        for plot in plots(race):
            found[f"figure/{plot.name}"] = _image(plot, "")
    for group in quality_groups(records):
        found[f"quality/{slug(group[0].origin.experiment + ' ' + group[0].workload.name)}"] = tables.quality_table(
            group
        )
    for section in _further(records):
        found[section.name] = section.text
        found.update({f"figure/{chart.name}": _image(chart, "") for chart in section.charts})
    exactness = exactness_table(records)
    if exactness:
        found["exactness"] = exactness
    training = [record for record in records if isinstance(record, Training)]
    if training:
        found["training"] = tables.training_table(training)
    distillation = [record for record in records if isinstance(record, Distillation)]
    if distillation:
        found["distillation"] = tables.distillation_table(distillation)
    return found


def render(records: Sequence[Record], out_dir: str | Path, check: bool = False) -> list[Path]:
    """Write results.md and its figures where they are not up to date; gives the files that were (or are) stale.

    Figures of results.md that no record stands behind any more are stale too, and removed.
    """
    folder = Path(out_dir)
    stale = []
    drawn: list[Plot | Chart] = [plot for race in races(records) for plot in plots(race)]
    drawn += [chart for section in _further(records) for chart in section.charts]
    for plot in drawn:
        path = folder / FIGURES / f"{plot.name}.svg"
        if not _up_to_date(path, plot):
            stale.append(path)
            if not check:
                write_whole(path, plot.svg())
    wanted = {f"{plot.name}.svg" for plot in drawn}
    for path in sorted((folder / FIGURES).glob("*.svg")):
        # Only what was drawn here: a figure that someone put there by hand has no marker.
        if path.name not in wanted and MARKER in (_read(path) or ""):
            stale.append(path)
            if not check:
                path.unlink()
    page = folder / PAGE
    text = results_page(records)
    if _read(page) != text:
        stale.append(page)
        if not check:
            write_whole(page, text.encode())
    return stale


def results_page(records: Sequence[Record]) -> str:
    """The whole of results.md: what was timed, the papers' tables, then every setting that was scored."""
    found = sections(records)
    chapters: list[tuple[str, list[str]]] = []
    for race in races(records):
        shown = {plot.name.removeprefix(race.name + "-"): found[f"figure/{plot.name}"] for plot in plots(race)}
        parts = [text for key, text in shown.items() if key == "quality"]
        parts += [found[f"latency/{race.name}"], found[f"work/{race.name}"]]
        if f"acceptance/{race.name}" in found:
            parts.append("Chance that a drafted token stands, by its place in the block:\n")
            parts.append(found[f"acceptance/{race.name}"])
        chapters.append((race.title, [*parts, *(text for key, text in shown.items() if key != "quality")]))
    for section in _further(records):
        chapters.append((section.title, [*(found[f"figure/{one.name}"] for one in section.charts), section.text]))
    if "exactness" in found:
        chapters.append(("Exactness", [found["exactness"]]))
    for group in quality_groups(records):
        title = f"{group[0].origin.experiment}: quality on {group[0].workload.name}"
        chapters.append((title, [_folded(tables.quality_table(group), len(group))]))
    for name in ("training", "distillation"):
        if name in found:
            chapters.append((name.capitalize(), [found[name]]))
    contents = "".join(f"- [{title}](#{_anchor(title)})\n" for title, _ in chapters)
    whole = [part for title, parts in chapters for part in (f"## {title}\n", *parts)]
    return "\n".join([_INTRODUCTION, contents, *whole] if chapters else [_INTRODUCTION])


def _folded(table: str, rows: int) -> str:
    """A long table behind a line that opens it."""
    if rows <= LONG:
        return table
    return f"<details><summary>All {rows} settings</summary>\n\n{table}\n</details>\n"


def _anchor(title: str) -> str:
    """The address that Markdown viewers give a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _further(records: Sequence[Record]) -> list[Section]:
    """The papers' own tables and charts, and further analyses."""
    return [*draft_sections(records), *parallel_sections(records), *analysis_sections(records)]


def insert(markdown_file: str | Path, name: str, text: str, check: bool = False) -> bool:
    """Put `text` between the markers of `name`; says whether the file was (or is) stale. No such marker is an error."""
    path = Path(markdown_file)
    before = _page(path)
    if name not in [match["name"] for match in _MARKED.finditer(before)]:
        raise InputError(f"{path}: expected a marker <!-- report:{name} --> with an end, found none.")
    return _replace(path, before, {name: text}, check)


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
    found = sections(records)
    prefix = _way(path.parent, Path(results_dir))
    for race in races(records):
        found.update({f"figure/{plot.name}": _image(plot, prefix) for plot in plots(race)})
    for section in _further(records):
        found.update({f"figure/{chart.name}": _image(chart, prefix) for chart in section.charts})
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


def _image(plot: Plot | Chart, prefix: str) -> str:
    return f"![{plot.title}]({prefix}{FIGURES}/{plot.name}.svg)\n"


def _way(start: Path, goal: Path) -> str:
    """How a link gets from one folder to another: empty, or ending in a slash."""
    way = Path(goal).resolve()
    start = start.resolve()
    ups = 0
    while not way.is_relative_to(start):
        start = start.parent
        ups += 1
    inside = way.relative_to(start).as_posix()
    return "../" * ups + ("" if inside == "." else inside + "/")


def _up_to_date(path: Path, plot: Plot | Chart) -> bool:
    text = _read(path)
    return text is not None and marker(plot.digest) in text


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _page(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: expected a page with markers, found: {error.strerror}.") from None
