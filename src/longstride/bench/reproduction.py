"""What became of every table and figure of the papers: verdicts and reasons from a file, our figures from records.

A row names the records that it speaks of. Its template shows their fields (`{gad.tokens:.2f}`), and what is made of two
of them: a speed-up (`times`), a difference (`minus`), a ratio (`over`). A record that is not there, or two where one is
meant, is an error: no figure of ours is typed by hand.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import Any, Literal, get_args

from longstride.bench import paper_fields  # noqa: F401  (it makes fields that rows name)
from longstride.bench.comparison import speed_up
from longstride.bench.fields import minus, over
from longstride.bench.records import Contrastive, Curves, Record
from longstride.bench.view import FIELDS, Scope, View
from longstride.contract import InputError
from longstride.contract.options import parse
from longstride.tasks.contrastive import accuracy

NAME = "reproduction"
"""Of the marker that the table stands behind, and of the file."""

Verdict = Literal["reproduced", "differs", "refuted", "not run", "method"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Entry:
    """One table or figure of a paper, or a part of one."""

    paper: str
    there: str
    """which of its tables and figures"""
    verdict: Verdict
    theirs: str
    """what the paper says"""
    reason: str
    """why it came out so, or was not run"""
    ours: str = ""
    """a template over `records` and what is made of them"""
    where: dict[str, Any] = field(default_factory=dict)
    """what all its records share: the file they are in, and conditions"""
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    """by the names that the template uses; what is said of each beside `where`"""
    times: dict[str, tuple[str, str]] = field(default_factory=dict)
    """how many times faster the first of two records is"""
    minus: dict[str, tuple[str, str]] = field(default_factory=dict)
    """one field less another"""
    over: dict[str, tuple[str, str]] = field(default_factory=dict)
    """one field over another"""

    def file(self, name: str) -> str:
        """Of a record: the file in benchmarks/results/ that it is in."""
        return str({**self.where, **self.records[name]}["file"])


@dataclass(frozen=True)
class Papers:
    """The whole file."""

    title: dict[str, str]
    """the papers' names in words"""
    row: tuple[Entry, ...]


@cache
def papers() -> Papers:
    """Read what was found of the papers."""
    text = files("longstride.bench").joinpath(f"{NAME}.toml").read_text(encoding="utf-8")
    return parse(Papers, tomllib.loads(text), f"{NAME}.toml")


def reproduction_table(records: Sequence[Record]) -> str:
    """All rows as Markdown."""
    lines = ["| paper | there | verdict | the paper's | ours | records | why |", "|---|---|---|---|---|---|---|"]
    everything = views_of(records)
    for row in papers().row:
        views = chosen(row, everything)
        cells = [papers().title[row.paper], row.there, row.verdict, row.theirs]
        lines.append(f"| {' | '.join([*cells, told(row, views) or '·', _found_at(row, views) or '·', row.reason])} |")
    return "\n".join(lines) + "\n"


def views_of(records: Sequence[Record]) -> list[View]:
    """Records as rows choose among them."""
    return [_view(record) for record in records]


def chosen(row: Entry, views: Sequence[View]) -> dict[str, View]:
    """The records of a row by name; of what was measured again, the latest."""
    found = {}
    for name, own in row.records.items():
        condition = {key: wanted for key, wanted in {**row.where, **own}.items() if key != "file"}
        fitting = [view for view in views if view.meets(condition)]
        apart = {_who(view) for view in fitting}
        if len(apart) != 1:
            raise InputError(
                f"{NAME}.toml, {row.paper}, {row.there}: expected one record {name} with {condition}, "
                f"found {len(apart)}."
            )
        found[name] = max(fitting, key=lambda view: str(view.record.origin.date))
    return found


def told(row: Entry, views: dict[str, View]) -> str:
    """Our figures in words."""
    everything = View(None, Scope(), **views)
    made: dict[str, Any] = dict(views)
    for name, (one, other) in row.times.items():
        made[name] = speed_up(views[one].record, views[other].record)
    for name, (one, other) in row.minus.items():
        made[name] = minus(everything[one], everything[other])
    for name, (one, other) in row.over.items():
        made[name] = over(everything[one], everything[other])
    text = View(None, Scope(), **made).told(row.ours)
    if text is None:
        raise InputError(f"{NAME}.toml, {row.paper}, {row.there}: expected values for {row.ours!r}, found one missing.")
    return text


def _view(record: Record) -> View:
    scope = Scope()
    who = {name: getattr(getattr(record, name, None), "name", None) for name in ("model", "workload")}
    extras = {"experiment": record.origin.experiment, "model": who["model"], "test_set": who["workload"]}
    view = View(record, scope, **extras)
    scope.found = [view]  # differences are from the record's own baselines
    return view


def _who(view: View) -> tuple[str, str, int | None]:
    """The model and the decoder of a record, or the name of a training or a curve, and how many went together."""
    return view["model"] or "", view["candidate"] or view["name"], view["batch_size"]


def _found_at(row: Entry, views: dict[str, View]) -> str:
    """Files, experiments and test sets, and in each of them who is meant."""
    places: dict[str, dict[str, None]] = {}
    for name, view in views.items():
        place = ", ".join(filter(None, [f"`{row.file(name)}`: {view['experiment']}", view["test_set"]]))
        model, decoder, batch = _who(view)
        who = decoder if decoder.startswith(model) else f"{model} {decoder}"
        rows = f", {batch} at a time" if batch and batch > 1 else ""
        places.setdefault(place, {})[who + rows] = None
    return "; ".join(f"{place} ({'; '.join(names)})" for place, names in places.items())


def _by_curve(view: View, values: Any) -> dict[str, dict[str, float]] | None:
    """Of every curve, by place."""
    if not isinstance(view.record, Curves):
        return None
    places = [str(int(place)) for place in view.record.places]
    return {one.name: dict(zip(places, values(one.values), strict=True)) for one in view.record.curves}


def _by_length_ends(view: View) -> dict[str, float]:
    """The leading score of the shortest and of the longest sources."""
    bins = view.record.by_length
    ends = zip(("first", "last"), (*bins[:1], *bins[-1:]), strict=False)
    return {name: one.scores[0].value for name, one in ends if one.scores}


def _right_apart(view: View) -> dict[str, float] | None:
    """Of contrastive pairs, the share that is right, by words between the two that have to agree."""
    if not isinstance(view.record, Contrastive):
        return None
    spans = {"one": (0, 1), "few": (2, 3), "some": (4, 7), "many": (8, 1 << 30)}
    cells = {
        name: [cell for cell in view.record.cells if cell.distance is not None and first <= cell.distance <= last]
        for name, (first, last) in spans.items()
    }
    return {name: accuracy(found).percent for name, found in cells.items()}


FIELDS |= {
    "right_apart": _right_apart,
    "training_rate": lambda view: view.record.tokens_per_second,
    "by_length_ends": _by_length_ends,
    "point": lambda view: _by_curve(view, list),
    "share_up_to": lambda view: _by_curve(view, lambda values: [each / sum(values) for each in accumulate(values)]),
    "middle": lambda view: {one.name: statistics.median(one.values) for one in view.record.curves},
    "stage_share": lambda view: {
        one.name: 100 * one.microseconds / view.record.watched_us for one in view.record.stages if not one.within
    },
}
