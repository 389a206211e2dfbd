"""The results page: every table and figure that records have something to show in, in the order of a reader's asking.

How fast and how good (races), how that compares with each paper, where the time goes, whether the output is greedy's,
then every setting that was scored, and where models and data came from. Knows no file;
:mod:`longstride.bench.report` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from longstride.bench import tables
from longstride.bench.analysis_tables import analysis_sections
from longstride.bench.charts import Chart
from longstride.bench.draft_tables import draft_sections
from longstride.bench.exactness_tables import exactness_table
from longstride.bench.parallel_tables import parallel_sections
from longstride.bench.plots import Plot, plots
from longstride.bench.profile_tables import profile_sections
from longstride.bench.races import Race, quality_groups, races, slug
from longstride.bench.records import Distillation, Quality, Record, Training
from longstride.bench.sections import Section
from longstride.bench.throughput import throughput_sections

FIGURES = "figures"

_INTRODUCTION = """# Results

Rendered from the records in `benchmarks/results/` by `longstride report`; not written by hand. Below every table stands
what it was measured on and how. What a paper reports, on its own data and machines, stands in columns of its own.
"""

RACES = "Races"
THROUGHPUT = "Throughput"
PROFILES = "Profiles"
EXACTNESS = "Exactness"
SETTINGS = "Every setting that was scored"
TRAINING = "Training"
DISTILLATION = "Distillation"
FURTHER = "Further analyses"

LONG = 24
"""rows of a table that stand open"""

PAPERS = {
    THROUGHPUT: "throughput",
    "Blockwise parallel decoding": "blockwise blockwise-variants",
    "Draft and verify": "drafts sweep block-sizes drafters places",
    "Interleaved decoding": (
        "interleaved ablations factorisations students interleaved-links batches lengths words-per-step"
    ),
    "Lattice decoding": "lattice-windows lattice-candidates lattice-depths recall ranks stages",
}
"""Parts of the page, most of them a paper's, and the kinds of sections in each; the rest are further analyses."""

_BEGINNINGS = {
    RACES: "Decoders side by side in one process, taking turns sentence by sentence; ratios are within a race alone.",
    THROUGHPUT: "The same races by batch size: the more sentences at a time, the more a step costs by its words.",
    "Blockwise parallel decoding": "Stern et al.: several heads predict a block, the first of them verifies it.",
    "Draft and verify": "Xia et al.: a one-pass drafter proposes a block, an autoregressive model verifies it.",
    "Interleaved decoding": "Zhang et al.: words from both ends, or several of each direction, in one step.",
    "Lattice decoding": "Deng and Rush: candidates of every place in one pass, then a search among them.",
    PROFILES: "Where the time of a decoder goes, and what it takes of memory, each decoder alone on the device.",
    SETTINGS: "No clock ran here; each list opens when it is clicked.",
}
"""A sentence for a part's beginning."""


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

    title: str
    pieces: list[str] = field(default_factory=list)
    chapters: list[_Chapter] = field(default_factory=list)


def sections(records: Sequence[Record], prefix: str = "") -> dict[str, str]:
    """Every table and figure by the name that markers use, as Markdown; figures lie in a folder below `prefix`."""
    found: dict[str, str] = {}
    for race in races(records):
        found[f"summary/{race.name}"] = tables.summary_table(race)
        found[f"latency/{race.name}"] = tables.latency_table(race)
        found[f"work/{race.name}"] = tables.work_table(race)
        acceptance = tables.acceptance_table(race)
        if acceptance:
            found[f"acceptance/{race.name}"] = acceptance
        for plot in plots(race):
            found[f"figure/{plot.name}"] = _image(plot, prefix)
    for group in quality_groups(records):
        found[_quality_name(group)] = tables.quality_table(group)
    for section in further_sections(records):
        found[section.name] = section.text
        found.update({f"figure/{chart.name}": _image(chart, prefix) for chart in section.charts})
    found.update({section.name: section.text for section in profile_sections(records)})
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


def further_sections(records: Sequence[Record]) -> list[Section]:
    """The papers' own tables and charts, and further analyses."""
    found = [*draft_sections(records), *parallel_sections(records), *analysis_sections(records)]
    return [*throughput_sections(records), *found]


def drawings(records: Sequence[Record]) -> list[Plot | Chart]:
    """Every figure of the page."""
    found: list[Plot | Chart] = [plot for race in races(records) for plot in plots(race)]
    return found + [chart for section in further_sections(records) for chart in section.charts]


def results_page(records: Sequence[Record]) -> str:
    """The whole page."""
    found = sections(records)
    parts = [
        _Part(RACES, chapters=[_race_chapter(race, found) for race in races(records)]),
        *_paper_parts(further_sections(records), found),
        _Part(PROFILES, chapters=[_table_chapter(section) for section in profile_sections(records)]),
        _Part(EXACTNESS, [found["exactness"]] if "exactness" in found else []),
        _Part(SETTINGS, chapters=[_settings_chapter(group, found) for group in quality_groups(records)]),
        _Part(TRAINING, [found["training"]] if "training" in found else []),
        _Part(DISTILLATION, [found["distillation"]] if "distillation" in found else []),
    ]
    parts = [part for part in parts if part.pieces or part.chapters]
    return "\n".join([_INTRODUCTION, *([_contents(parts)] if parts else []), *map(_text, parts)])


def _race_chapter(race: Race, found: dict[str, str]) -> _Chapter:
    shown = {plot.name.removeprefix(race.name + "-"): found[f"figure/{plot.name}"] for plot in plots(race)}
    pieces = [text for key, text in shown.items() if key == "quality"]
    pieces += [found[f"latency/{race.name}"], found[f"work/{race.name}"]]
    if f"acceptance/{race.name}" in found:
        pieces.append("Chance that a drafted token stands, by its place in the block:\n")
        pieces.append(found[f"acceptance/{race.name}"])
    pieces += [text for key, text in shown.items() if key != "quality"]
    return _Chapter(race.title, race.origin.experiment, race.where, pieces)


def _paper_parts(some: Sequence[Section], found: dict[str, str]) -> list[_Part]:
    parts = {title: _Part(title) for title in (*PAPERS, FURTHER)}
    names = {section.name for section in some}
    for section in some:
        kind, _, place = section.name.partition("/")
        # Acceptance by place is of heads where nothing but heads drafts.
        kind = "blockwise" if kind == "places" and f"drafts/{place}" not in names else kind
        title = next((title for title, kinds in PAPERS.items() if kind in kinds.split()), FURTHER)
        pieces = [*(found[f"figure/{one.name}"] for one in section.charts), _opened_if_short(section.text)]
        parts[title].chapters.append(_Chapter(section.title, section.topic, section.where, pieces))
    return list(parts.values())


def _table_chapter(section: Section) -> _Chapter:
    return _Chapter(section.title, section.topic, section.where, [_opened_if_short(section.text)])


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
    begun = [f"{_BEGINNINGS[part.title]}\n"] if part.title in _BEGINNINGS else []
    chapters = [piece for one in part.chapters for piece in (f"### {one.title}\n", *one.pieces)]
    return "\n".join([f"## {part.title}\n", *begun, *part.pieces, *chapters])


def _anchor(title: str) -> str:
    """The address that Markdown viewers give a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _image(plot: Plot | Chart, prefix: str) -> str:
    return f"![{plot.title}]({prefix}{FIGURES}/{plot.name}.svg)\n"
