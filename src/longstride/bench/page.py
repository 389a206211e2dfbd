"""The pages of results: a short one of findings, then one per topic, in the order of a reader's asking.

How fast and how good, how that compares with each paper, where the time goes, whether the output is greedy's, then
every setting that was scored, and where models and data came from. What tables show is described by the files in
pages/; wide and long ones are files of comma-separated values that pages lead to. Knows no file of results;
:mod:`longstride.bench.report` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from longstride.bench.comparison import BenchRun, bench_runs, quality_groups, slug
from longstride.bench.figure import Picture
from longstride.bench.findings import findings
from longstride.bench.plots import plots
from longstride.bench.records import Quality, Record
from longstride.bench.sources import Section, list_table, page, profile_sections, run_table, settings_table
from longstride.bench.sources import sections as tables_of
from longstride.bench.table import comma_separated

PAGE = "results.md"
FOLDER = "results"
"""Where pages per topic lie, beside the page of findings."""
TABLES = "tables"
"""Where tables of comma-separated values lie, in that folder."""
FIGURES = "figures"

_INTRODUCTION = """# Results

Rendered from the records in `benchmarks/results/` by `longstride report`; not written by hand. Below every table stands
what it was measured on and how. What a paper reports, on its own data and machines, stands in columns of its own.
"""

PAPERS = ("throughput", "blockwise", "drafts", "interleaved", "lattice", "analyses")
"""The topics that have tables of their own for each experiment."""

TOPICS = ("comparisons", *PAPERS, "profiles", "exactness", "settings", "training", "distillation")
"""All that there are, each a page of its own."""

LONG = 24
"""Longer tables are files of their own."""


@dataclass(frozen=True)
class _Piece:
    """A table as Markdown, or a figure, by the name that markers use."""

    name: str
    shown: str | Picture
    link: str = ""
    """What leads to it, where it is a file of its own instead of standing on the page."""
    on_page: bool = True
    """Otherwise it is there for markers alone."""

    def text(self, prefix: str = "") -> str:
        """As Markdown; figures lie in a folder below `prefix`."""
        if isinstance(self.shown, Picture):
            return f"![{self.shown.title}]({prefix}{FIGURES}/{self.shown.name}.svg)\n"
        return self.shown

    @property
    def file(self) -> str:
        """Where it lies, seen from a page of a topic, if it is a file of its own."""
        if isinstance(self.shown, Picture):
            return f"../{FIGURES}/{self.shown.name}.svg"
        return f"{TABLES}/{self.name.replace('/', '-')}.csv"


@dataclass(frozen=True)
class _Chapter:
    """Pieces below a heading."""

    pieces: Sequence[_Piece]
    title: str = ""


_Parts = dict[str, list[_Chapter]]
"""Chapters by their topic, each of which is a page and a file in pages/."""


def sections(records: Sequence[Record], prefix: str = "") -> dict[str, str]:
    """Every table and figure by the name that markers use, as Markdown; figures lie in a folder below `prefix`."""
    return {piece.name: piece.text(prefix) for piece in _pieces(_parts(records))}


def drawings(records: Sequence[Record]) -> list[Picture]:
    """Every figure of the page."""
    return [piece.shown for piece in _pieces(_parts(records)) if isinstance(piece.shown, Picture)]


def results_pages(records: Sequence[Record]) -> dict[str, str]:
    """Every page, and every table that is a file of its own, by its place."""
    parts = _parts(records)
    pages = {
        PAGE: "\n".join(
            [_INTRODUCTION, *findings(bench_runs(records), _address), *([_contents(parts)] if parts else [])]
        )
    }
    pages |= {f"{FOLDER}/{name}.md": _text(name, chapters) for name, chapters in parts.items()}
    own = [one for one in _pieces(parts) if one.on_page and one.link and not isinstance(one.shown, Picture)]
    return pages | {f"{FOLDER}/{piece.file}": comma_separated(piece.text()) for piece in own}


def _pieces(parts: _Parts) -> list[_Piece]:
    return [piece for chapters in parts.values() for chapter in chapters for piece in chapter.pieces]


class _Same:
    """Records by who they are: comparing what is in them would take longer than rendering."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = tuple(records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and list(map(id, self.records)) == list(map(id, other.records))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.records)))


def _parts(records: Sequence[Record]) -> _Parts:
    """All that there is to show, in order; parts without anything are left out. Rendered once for all pages."""
    return _rendered(_Same(records))


@lru_cache(maxsize=1)
def _rendered(same: _Same) -> _Parts:
    records = same.records
    parts = {
        "comparisons": _run_chapters(bench_runs(records)),
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


def _run_chapters(runs: Sequence[BenchRun]) -> list[_Chapter]:
    """Of the same decoders on the same test set a chapter: the smallest batches' summary and figure, and what leads to
    the rest."""
    return [_run_chapter(title, list(some)) for title, some in groupby(runs, _title)]


def _run_chapter(title: str, runs: Sequence[BenchRun]) -> _Chapter:
    pieces = []
    for number, run in enumerate(runs):
        at = f", batch size {run.batch_size}" if len(runs) > 1 else ""
        links = {name: f"{told}{at}" for name, told in _LINKS.items()}
        figures = [(plot.name.rpartition("-")[2], plot) for plot in plots(run)]
        pieces += [_Piece(f"figure/{plot.name}", plot, links.get(kind, "")) for kind, plot in figures]
        found = [(kind, run_table(kind, run)) for kind in ("summary", "latency", "work", "acceptance")]
        pieces += [
            _Piece(f"{kind}/{run.name}", text, links.get(kind, ""), on_page=kind == "latency" or number == 0)
            for kind, text in found
            if text is not None
        ]
    return _Chapter(pieces, title)


_LINKS = {
    "lengths": "by source length",
    "sentences": "sentence by sentence",
    "latency": "times",
    "work": "work",
    "acceptance": "accepted by place",
}


def _title(run: BenchRun) -> str:
    kind = ", open batches" if run.batch_kind == "open" else ""
    return f"{run.origin.experiment}: {run.workload.name}, {run.origin.machine.device}{kind}"


def _address(run: BenchRun) -> str:
    """Where a run stands, seen from the page of findings."""
    return f"{FOLDER}/comparisons.md#{_anchor(_title(run))}"


def _chapter(section: Section) -> _Chapter:
    rows = sum(line.startswith("|") for line in section.text.splitlines()) - 2
    charts = [_Piece(f"figure/{chart.name}", chart) for chart in section.charts]
    table = _Piece(section.name, section.text, f"{rows} rows" if rows > LONG else "")
    return _Chapter([*charts, table], section.title)


def _settings_chapter(group: Sequence[Quality]) -> _Chapter:
    """All settings of an experiment on a test set."""
    experiment, workload = group[0].origin.experiment, group[0].workload.name
    link = f"{len(group)} {'setting' if len(group) == 1 else 'settings'}"
    piece = _Piece(f"quality/{slug(experiment + ' ' + workload)}", settings_table(group), link)
    return _Chapter([piece], f"{experiment}: quality on {workload}")


def _list(records: Sequence[Record], name: str) -> list[_Chapter]:
    text = list_table(name, records)
    return [] if text is None else [_Chapter([_Piece(name, text)])]


def _contents(parts: _Parts) -> str:
    lines = ["## By topic\n\n"]
    for name in parts:
        lines.append(f"- [{page(name).title}]({FOLDER}/{name}.md). {page(name).introduction}\n")
    return "".join(lines)


def _text(name: str, chapters: Sequence[_Chapter]) -> str:
    lines = [f"# {page(name).title}\n", f"{page(name).introduction}\n"]
    for chapter in chapters:
        lines += [f"## {chapter.title}\n"] if chapter.title else []
        lines += [piece.text("../") for piece in chapter.pieces if piece.on_page and not piece.link]
        links = [f"[{piece.link}]({piece.file})" for piece in chapter.pieces if piece.on_page and piece.link]
        lines += [f"More: {' · '.join(links)}\n"] if links else []
    return "\n".join(lines)


def _anchor(title: str) -> str:
    """The address that Markdown viewers give a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
