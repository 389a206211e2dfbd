"""What the files in pages/ describe tables of: records in groups, each of one experiment and test set, as views.

Of what was measured again, the latest stands for it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

import numpy as np

from longstride.bench import fields, notes, paper_fields  # noqa: F401  (they make the fields that pages name)
from longstride.bench.comparison import (
    DEVICE,
    EXPERIMENT,
    TEST_SET,
    BenchRun,
    bench_runs,
    grouped,
    groups_of_one_precision,
    slug,
)
from longstride.bench.figure import Picture
from longstride.bench.notes import score_names
from longstride.bench.records import Contrastive, Curves, Distillation, Exactness, Profile, Quality, Record, Training
from longstride.bench.table import TableSpec, chart, render
from longstride.bench.view import Paper, Scope, View
from longstride.contract.options import parse
from longstride.tasks.contrastive import FAR, by_type
from longstride.tasks.score import LengthBin

PLACES = 10
"""How many places of a block tables show the acceptance of."""
RANKS = (1, 2, 3, 4, 5, 10, 20)
"""Up to which ranks tables add up."""
BINS = 10
"""Into how many bins of equally many sentences times are put."""


@dataclass(frozen=True)
class Page:
    """A part of the results page: tables, and the figures of the paper that they stand beside."""

    title: str
    table: tuple[TableSpec, ...]
    introduction: str
    paper: dict[str, Any] = field(default_factory=dict)
    stage_names: dict[str, str] = field(default_factory=dict)

    @property
    def papers(self) -> dict[str, Paper]:
        """The paper's tables by name."""
        return {name: parse(Paper, values, f"pages/{self.title}") for name, values in self.paper.items()}


@cache
def page(name: str) -> Page:
    """Read a description from its file."""
    text = files("longstride.bench").joinpath("pages", f"{name}.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    for table in values["table"]:
        table["notes"] = [{"text": note} if isinstance(note, str) else note for note in table.get("notes", [])]
    return parse(Page, values, f"pages/{name}.toml")


Member = tuple[Any, dict[str, Any]]
"""A record, and fields that it has in its group."""


@dataclass(frozen=True)
class Group:
    """Records of one experiment on one test set."""

    experiment: str
    where: str
    """The test set, and the machine where that matters."""
    members: Sequence[Member]
    baselines: Sequence[Record] = ()

    @property
    def place(self) -> str:
        """For markers and files."""
        return slug(f"{self.experiment} {self.where}")


@dataclass(frozen=True)
class Section:
    """A table with the name that markers use and the heading that people read."""

    name: str
    topic: str
    """Experiment and what is shown of it."""
    where: str
    """The test set, and the machine where that matters."""
    text: str
    charts: tuple[Picture, ...] = ()

    @property
    def title(self) -> str:
        """The heading."""
        return f"{self.topic}, {self.where}"


def sections(name: str, records: Sequence[Record]) -> list[Section]:
    """All tables of a file in pages/ that these records have something to show in, group by group."""
    found = []
    for of, tables in groupby(page(name).table, key=lambda table: table.of):
        some = list(tables)
        found += [section(name, table, group, records) for group in GROUPS[of](records) for table in some]
    return [one for one in found if one is not None]


def section(name: str, table: TableSpec, group: Group, records: Sequence[Record] = ()) -> Section | None:
    """One table of a file, and its chart; none where there is nothing to show."""
    members = EXPANSIONS[table.expand](group.members) if table.expand else group.members
    names = score_names(record for record, _ in members if hasattr(record, "scores"))
    scope = Scope(records=records, papers=page(name).papers)
    scope.group = [View(record, scope, **extras) for record, extras in members]
    scope.lists = {
        "baselines": [{"baseline": one} for one in group.baselines],
        "scores": [{"score_name": one} for one in names],
        "other_scores": [{"score_name": one} for one in names[1:]],
        "places": [{"place": one + 1} for one in range(PLACES)],
        "ranks": [{"rank": one} for one in RANKS],
        "distances": [{"distance": one} for one in (*map(str, range(FAR + 1)), f">{FAR}")],
    }
    text = render(table, scope)
    if text is None:
        return None
    charts = (chart(table.chart, scope, group.place),) if table.chart else ()
    return Section(f"{table.name}/{group.place}", f"{group.experiment}: {table.title}", group.where, text, charts)


def run_table(name: str, run: BenchRun) -> str | None:
    """The table `latency`, `work`, `summary` or `acceptance` of one run; none where there is nothing to show."""
    short = run.shortened()
    return _table("comparisons", name, [(record, {"run": short}) for record in short.records], short.baselines)


def settings_table(records: Sequence[Quality]) -> str:
    """All settings of an experiment on a test set, scored."""
    return _table("settings", "quality", _plain(records)) or ""


def list_table(name: str, records: Sequence[Record]) -> str | None:
    """The table `training`, `distillation` or `exactness`; none where there are no such records."""
    kind, apart, order = LISTS[name]
    found = grouped(records, kind, (), apart, order).get((), [])
    return _table(name, name, _plain(found)) if found else None


def profile_tables(records: Sequence[Profile]) -> list[str]:
    """What decoders take and hold, then their stages."""
    return [_table("profiles", name, _plain(records)) or "" for name in ("profile", "profile-stages") if records]


def profile_sections(records: Sequence[Record]) -> list[Section]:
    """By experiment, test set and device, stages by batch size too; of each decoder, model and runtime the latest."""
    totals, stages = page("profiles").table
    apart = ("batch_size", "candidate", "model.name", "precision", "runtime")
    order = ("batch_size", "runtime", "precision", "order")
    groups = grouped(records, Profile, (EXPERIMENT, TEST_SET, DEVICE), apart, order)
    found = []
    for (experiment, test_set, device), some in groups.items():
        found.append(section("profiles", totals, Group(experiment, f"{test_set}, {device}", _plain(some))))
        for size in sorted({record.batch_size for record in some}):
            mine = _plain([record for record in some if record.batch_size == size])
            where = f"{test_set}, batch size {size}, {device}"
            found.append(section("profiles", stages, Group(experiment, where, mine)))
    return [one for one in found if one is not None]


def _table(name: str, table: str, members: Sequence[Member], baselines: Sequence[Record] = ()) -> str | None:
    spec = next(one for one in page(name).table if one.name == table)
    made = section(name, spec, Group("", "", members, baselines))
    return made.text if made else None


def _plain(records: Sequence[Record]) -> list[Member]:
    return [(record, {}) for record in records]


def _qualities(records: Sequence[Record]) -> list[Group]:
    groups = groups_of_one_precision(records)
    return [Group(some[0].origin.experiment, some[0].workload.name, _plain(some)) for some in groups]


def _texts(records: Sequence[Record]) -> list[Group]:
    """What an experiment scored in one precision, all test sets together, in the order in which they were taken."""
    apart = (TEST_SET, "candidate", "model.name")
    found = grouped(records, Quality, (EXPERIMENT, "precision"), apart)
    return [Group(experiment, precision, _plain(some)) for (experiment, precision), some in found.items()]


def _runs(records: Sequence[Record]) -> list[Group]:
    """The runs of an experiment on one test set and device, at all batch sizes, closed batches and open ones apart."""
    groups: dict[tuple[str, str, str], list[Member]] = {}
    for whole in bench_runs(records):
        run = whole.shortened()
        extras = {"run": run, "baseline": run.baselines[0] if run.baselines else None}
        kind = ", open batches" if run.batch_kind == "open" else ""
        key = (run.origin.experiment, run.workload.name + kind, run.origin.machine.device)
        groups.setdefault(key, []).extend((record, extras) for record in run.records)
    return [Group(key[0], f"{key[1]}, {key[2]}", members) for key, members in sorted(groups.items())]


def _by_place(kind: type[Record], apart: Sequence[str], order: Sequence[str] = ()) -> Callable[..., list[Group]]:
    """Groups by experiment and test set."""

    def groups(records: Sequence[Record]) -> list[Group]:
        found = grouped(records, kind, (EXPERIMENT, TEST_SET), apart, order)
        return [Group(experiment, where, _plain(some)) for (experiment, where), some in found.items()]

    return groups


LISTS: dict[str, tuple[type[Record], Sequence[str], Sequence[str]]] = {
    "training": (Training, (EXPERIMENT, "name"), (EXPERIMENT, "origin.date", "name")),
    "distillation": (Distillation, (EXPERIMENT, "name"), (EXPERIMENT, "origin.date", "name")),
    "exactness": (
        Exactness,
        (EXPERIMENT, TEST_SET, "model.name", "candidate", "precision", "runtime", DEVICE),
        (),
    ),
}
"""Tables that there is one of, by name: the kind of their records, what tells these apart, and their order."""

GROUPS: dict[str, Callable[[Sequence[Record]], list[Group]]] = {
    "quality": _qualities,
    "texts": _texts,
    "runs": _runs,
    "curves": _by_place(Curves, ("name", "model.name"), ("name", "model.name")),
    "contrastive": _by_place(Contrastive, ("candidate", "model.name", "precision")),
}
"""What tables can be of, by name."""


def _by_length(members: Sequence[Member]) -> list[Member]:
    return [
        (record, {"bin": one, "bin_number": place, "record_number": number})
        for number, (record, _) in enumerate(members)
        for place, one in enumerate(record.by_length)
    ]


def _curve_points(members: Sequence[Member]) -> list[Member]:
    return [
        (record, {"curve": one, "place": place, "value": value})
        for record, _ in members
        for one in record.curves
        for place, value in zip(record.places, one.values, strict=True)
    ]


def _curve_bins(members: Sequence[Member]) -> list[Member]:
    """Means over sentences of similar lengths, of the last record of stages."""
    found: list[Member] = []
    for record in [record for record, _ in members if record.name == "stages"][-1:]:
        lengths = np.array(record.places)
        bins = np.array_split(np.argsort(lengths, kind="stable"), min(BINS, len(lengths)))
        for number, part in enumerate(bins):
            one = LengthBin(lengths[part].min(), lengths[part].max(), len(part), ())
            about = {"bin": one, "bin_number": number, "bin_centre": float(lengths[part].mean())}
            for curve in record.curves:
                found.append(
                    (record, {**about, "curve": curve, "ms": float(np.array(curve.values)[part].mean()) / 1000})
                )
    return found


def _error_types(members: Sequence[Member]) -> list[Member]:
    """All pairs of a record together, then each type of error's, if there are several."""
    found: list[Member] = []
    for record, _ in members:
        types = [one.name for one in by_type(record.cells)]
        each = [(name, [cell for cell in record.cells if cell.type == name]) for name in types]
        whole = [("all", list(record.cells))] if len(types) > 1 else []
        found += [(record, {"error": name, "cells": cells}) for name, cells in (*whole, *each)]
    return found


def _stages(members: Sequence[Member]) -> list[Member]:
    """Every stage with its parts behind it, then what belongs to none."""
    found: list[Member] = []
    for record, _ in members:
        for whole in [stage for stage in record.stages if not stage.within]:
            parts = [stage for stage in record.stages if stage.within == whole.name]
            found += [(record, {"stage": one, "stage_in_words": in_words(one.name)}) for one in (whole, *parts)]
        found.append((record, {"stage": None, "stage_in_words": "all else"}))
    return found


def in_words(name: str) -> str:
    """``iterate 25`` -> ``iteration, recorded (25)``; of a part, ``- verifier``"""
    whole, _, part = name.partition(" / ")
    if part:
        return f"- {in_words(part)}"
    first, _, size = whole.partition(" ")
    told = page("profiles").stage_names.get(first)
    if told is None:
        return whole
    return f"{told} ({size})" if size else told


EXPANSIONS: dict[str, Callable[[Sequence[Member]], list[Member]]] = {
    "by_length": _by_length,
    "curve_points": _curve_points,
    "curve_bins": _curve_bins,
    "error_types": _error_types,
    "stages": _stages,
}
"""How a record becomes several views, by name."""
