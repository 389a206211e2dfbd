"""The results page: every table and figure that records have something to show in, in the order of a reader's asking.

How fast and how good, how that compares with each paper, where the time goes, whether the output is greedy's, then
every setting that was scored, and where models and data came from. What tables show is described by the files in
pages/. Knows no file of results; :mod:`longstride.bench.report` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

LONG = 24
"""Longer tables are folded: so many rows stand open."""


@dataclass(frozen=True)
class _Piece:
    """A table as Markdown, or a figure, by the name that markers use."""

    name: str
    shown: str | Picture
    folded: str = ""
    """The line behind which it stands, where it is not open."""
    before: str = ""
    on_page: bool = True

    def text(self, prefix: str = "") -> str:
        """As Markdown; figures lie in a folder below `prefix`."""
        if isinstance(self.shown, Picture):
            return f"![{self.shown.title}]({prefix}{FIGURES}/{self.shown.name}.svg)\n"
        return self.shown


@dataclass(frozen=True)
class _Chapter:
    """Pieces below a heading; the contents name chapters of one topic in one line, by their places."""

    pieces: Sequence[_Piece]
    title: str = ""
    topic: str = ""
    where: str = ""


_Parts = dict[str, list[_Chapter]]
"""Chapters by the part of the page that they stand in, each of which is a file in pages/."""


def sections(records: Sequence[Record], prefix: str = "") -> dict[str, str]:
    """Every table and figure by the name that markers use, as Markdown; figures lie in a folder below `prefix`."""
    return {piece.name: piece.text(prefix) for piece in _pieces(_parts(records))}


def drawings(records: Sequence[Record]) -> list[Picture]:
    """Every figure of the page."""
    return [piece.shown for piece in _pieces(_parts(records)) if isinstance(piece.shown, Picture)]


def results_page(records: Sequence[Record]) -> str:
    """The whole page."""
    parts = _parts(records)
    return "\n".join([_INTRODUCTION, *([_contents(parts)] if parts else []), *(_text(*part) for part in parts.items())])


def _pieces(parts: _Parts) -> list[_Piece]:
    return [piece for chapters in parts.values() for chapter in chapters for piece in chapter.pieces]


def _parts(records: Sequence[Record]) -> _Parts:
    """All that there is to show, in order; parts without anything are left out."""
    parts = {
        "comparisons": [_run_chapter(run) for run in bench_runs(records)],
        **{name: [_chapter(one) for one in some] for name, some in paper_sections(records).items()},
        "profiles": [_chapter(one) for one in profile_sections(records)],
        "exactness": _list(records, "exactness"),
        "settings": [_settings_chapter(group) for group in quality_groups(records)],
        "training": _list(records, "training"),
        "distillation": _list(records, "distillation"),
    }
    return {name: chapters for name, chapters in parts.items() if chapters}


def paper_sections(records: Sequence[Record]) -> dict[str, list[Section]]:
    """The papers' own tables and charts, and further analyses, by the part of the page that they stand in."""
    found = {name: tables_of(name, records) for name in PAPERS}
    # Acceptance by place is of heads where nothing but heads drafts.
    drafted = {section.name.partition("/")[2] for section in found["drafts"] if section.name.startswith("drafts/")}
    heads = [one for one in found["drafts"] if one.name.startswith("places/") and one.name[7:] not in drafted]
    found["drafts"] = [one for one in found["drafts"] if one not in heads]
    found["blockwise"] += heads
    return found


def _run_chapter(run: BenchRun) -> _Chapter:
    figures = [_Piece(f"figure/{plot.name}", plot) for plot in plots(run)]
    before = {"acceptance": "Chance that a drafted token stands, by its place in the block:\n"}
    tables = [
        _Piece(f"{name}/{run.name}", text, before=before.get(name, ""), on_page=name != "summary")
        for name in ("summary", "latency", "work", "acceptance")
        if (text := run_table(name, run)) is not None
    ]
    first = [one for one in figures if one.name.endswith("-quality")]
    pieces = [*first, *tables, *(one for one in figures if one not in first)]
    return _Chapter(pieces, f"{run.origin.experiment}: {run.where}", run.origin.experiment, run.where)


def _chapter(section: Section) -> _Chapter:
    rows = sum(line.startswith("|") for line in section.text.splitlines()) - 2
    charts = [_Piece(f"figure/{chart.name}", chart) for chart in section.charts]
    table = _Piece(section.name, section.text, f"{rows} rows" if rows > LONG else "")
    return _Chapter([*charts, table], section.title, section.topic, section.where)


def _settings_chapter(group: Sequence[Quality]) -> _Chapter:
    """All settings of an experiment on a test set, behind a line that opens them."""
    experiment, workload = group[0].origin.experiment, group[0].workload.name
    summary = f"{len(group)} {'setting' if len(group) == 1 else 'settings'}"
    piece = _Piece(f"quality/{slug(experiment + ' ' + workload)}", settings_table(group), summary)
    return _Chapter([piece], f"{experiment}: quality on {workload}", experiment, workload)


def _list(records: Sequence[Record], name: str) -> list[_Chapter]:
    text = list_table(name, records)
    return [] if text is None else [_Chapter([_Piece(name, text)])]


def _contents(parts: _Parts) -> str:
    lines = []
    for name, chapters in parts.items():
        lines.append(f"- [{page(name).title}](#{_anchor(page(name).title)})\n")
        places: dict[str, list[str]] = {}
        for one in chapters:
            if one.title:
                places.setdefault(one.topic, []).append(f"[{one.where}](#{_anchor(one.title)})")
        lines += [f"  - {topic}: {' · '.join(links)}\n" for topic, links in places.items()]
    return "".join(lines)


def _text(name: str, chapters: Sequence[_Chapter]) -> str:
    lines = [f"## {page(name).title}\n", *([f"{page(name).introduction}\n"] if page(name).introduction else [])]
    for chapter in chapters:
        lines += [f"### {chapter.title}\n"] if chapter.title else []
        for piece in chapter.pieces:
            if piece.on_page:
                text = piece.text()
                folded = f"<details><summary>{piece.folded}</summary>\n\n{text}\n</details>\n"
                lines += [*([piece.before] if piece.before else []), folded if piece.folded else text]
    return "\n".join(lines)


def _anchor(title: str) -> str:
    """The address that Markdown viewers give a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
