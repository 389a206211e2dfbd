"""The results page: every table and figure that records have something to show in, in the order of a reader's asking.

How fast and how good, how that compares with each paper, where the time goes, whether the output is greedy's, then
every setting that was scored, and where models and data came from. What tables show is described by the files in
pages/. Knows no file of results; :mod:`longstride.bench.report` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from longstride.bench.comparison import BenchRun, bench_runs, quality_groups, slug
from longstride.bench.figure import Picture
from longstride.bench.plots import plots
from longstride.bench.records import Quality, Record
from longstride.bench.sources import Section, list_table, page, profile_sections, run_table, settings_table
from longstride.bench.sources import sections as tables_of

FIGURES = "figures"

_INTRODUCTION = """# Results

Rendered from the records in `benchmarks/results/` by `longstride report`; not written by hand. Below every table stands
what it was measured on and how. What a paper reports, on its own data and machines, stands in columns of its own.
"""

PAPERS = ("throughput", "blockwise", "drafts", "interleaved", "lattice", "analyses")
"""The parts of the page that have tables of their own for each experiment."""

LISTS = ("exactness", "training", "distillation")
"""The parts that are one table."""

LONG = 24
"""Longer tables are folded: so many rows stand open."""


@dataclass(frozen=True)
class _Chapter:
    """A heading and what stands below it; the contents name chapters of one topic in one line, by their places."""

    title: str
    topic: str
    where: str
    pieces: list[str]


@dataclass(frozen=True)
class _Part:
    """A part of the page: pieces of its own, or chapters."""

    name: str
    pieces: list[str] = field(default_factory=list)
    chapters: list[_Chapter] = field(default_factory=list)

    @property
    def title(self) -> str:
        """As its description has it."""
        return page(self.name).title


def sections(records: Sequence[Record], prefix: str = "") -> dict[str, str]:
    """Every table and figure by the name that markers use, as Markdown; figures lie in a folder below `prefix`."""
    found: dict[str, str] = {}
    for run in bench_runs(records):
        for name in ("summary", "latency", "work", "acceptance"):
            text = run_table(name, run)
            if text is not None:
                found[f"{name}/{run.name}"] = text
        found.update({f"figure/{plot.name}": _image(plot, prefix) for plot in plots(run)})
    for group in quality_groups(records):
        found[_quality_name(group)] = settings_table(group)
    for section in [one for some in paper_sections(records).values() for one in some]:
        found[section.name] = section.text
        found.update({f"figure/{chart.name}": _image(chart, prefix) for chart in section.charts})
    found.update({section.name: section.text for section in profile_sections(records)})
    for name in LISTS:
        text = list_table(name, records)
        if text is not None:
            found[name] = text
    return found


def paper_sections(records: Sequence[Record]) -> dict[str, list[Section]]:
    """The papers' own tables and charts, and further analyses, by the part of the page that they stand in."""
    found = {name: tables_of(name, records) for name in PAPERS}
    # Acceptance by place is of heads where nothing but heads drafts.
    drafted = {section.name.partition("/")[2] for section in found["drafts"] if section.name.startswith("drafts/")}
    heads = [one for one in found["drafts"] if one.name.startswith("places/") and one.name[7:] not in drafted]
    found["drafts"] = [one for one in found["drafts"] if one not in heads]
    found["blockwise"] += heads
    return found


def drawings(records: Sequence[Record]) -> list[Picture]:
    """Every figure of the page."""
    found: list[Picture] = [plot for run in bench_runs(records) for plot in plots(run)]
    return found + [chart for some in paper_sections(records).values() for section in some for chart in section.charts]


def results_page(records: Sequence[Record]) -> str:
    """The whole page."""
    found = sections(records)
    lists = {name: _Part(name, [found[name]] if name in found else []) for name in LISTS}
    parts = [
        _Part("comparisons", chapters=[_run_chapter(run, found) for run in bench_runs(records)]),
        *(_Part(name, chapters=_chapters(some, found)) for name, some in paper_sections(records).items()),
        _Part("profiles", chapters=_chapters(profile_sections(records), found)),
        lists["exactness"],
        _Part("settings", chapters=[_settings_chapter(group, found) for group in quality_groups(records)]),
        lists["training"],
        lists["distillation"],
    ]
    parts = [part for part in parts if part.pieces or part.chapters]
    return "\n".join([_INTRODUCTION, *([_contents(parts)] if parts else []), *map(_text, parts)])


def _run_chapter(run: BenchRun, found: dict[str, str]) -> _Chapter:
    shown = {plot.name.removeprefix(run.name + "-"): found[f"figure/{plot.name}"] for plot in plots(run)}
    pieces = [text for key, text in shown.items() if key == "quality"]
    pieces += [found[f"latency/{run.name}"], found[f"work/{run.name}"]]
    if f"acceptance/{run.name}" in found:
        pieces.append("Chance that a drafted token stands, by its place in the block:\n")
        pieces.append(found[f"acceptance/{run.name}"])
    pieces += [text for key, text in shown.items() if key != "quality"]
    return _Chapter(f"{run.origin.experiment}: {run.where}", run.origin.experiment, run.where, pieces)


def _chapters(some: Sequence[Section], found: dict[str, str]) -> list[_Chapter]:
    return [
        _Chapter(
            section.title,
            section.topic,
            section.where,
            [*(found[f"figure/{one.name}"] for one in section.charts), _opened_if_short(section.text)],
        )
        for section in some
    ]


def _settings_chapter(group: Sequence[Quality], found: dict[str, str]) -> _Chapter:
    """All settings of an experiment on a test set, behind a line that opens them."""
    experiment, workload = group[0].origin.experiment, group[0].workload.name
    summary = f"{len(group)} {'setting' if len(group) == 1 else 'settings'}"
    folded = _folded(summary, found[_quality_name(group)])
    return _Chapter(f"{experiment}: quality on {workload}", experiment, workload, [folded])


def _opened_if_short(table: str) -> str:
    rows = sum(line.startswith("|") for line in table.splitlines()) - 2
    return table if rows <= LONG else _folded(f"{rows} rows", table)


def _folded(summary: str, text: str) -> str:
    """Behind a line that opens it."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n</details>\n"


def _quality_name(group: Sequence[Quality]) -> str:
    return f"quality/{slug(group[0].origin.experiment + ' ' + group[0].workload.name)}"


def _contents(parts: Sequence[_Part]) -> str:
    lines = []
    for part in parts:
        lines.append(f"- [{part.title}](#{_anchor(part.title)})\n")
        places: dict[str, list[str]] = {}
        for one in part.chapters:
            places.setdefault(one.topic, []).append(f"[{one.where}](#{_anchor(one.title)})")
        lines += [f"  - {topic}: {' · '.join(links)}\n" for topic, links in places.items()]
    return "".join(lines)


def _text(part: _Part) -> str:
    begun = [f"{page(part.name).introduction}\n"] if page(part.name).introduction else []
    chapters = [piece for one in part.chapters for piece in (f"### {one.title}\n", *one.pieces)]
    return "\n".join([f"## {part.title}\n", *begun, *part.pieces, *chapters])


def _anchor(title: str) -> str:
    """The address that Markdown viewers give a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _image(plot: Picture, prefix: str) -> str:
    return f"![{plot.title}]({prefix}{FIGURES}/{plot.name}.svg)\n"
