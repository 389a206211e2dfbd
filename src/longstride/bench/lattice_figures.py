"""Figures 1, 2 and 4 of the lattice paper from records of curves: recall, ranks before search, where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from longstride.bench.cells import NOTHING, Column, origin_note, with_notes
from longstride.bench.charts import Chart, Line, Panel
from longstride.bench.records import Curves, Record
from longstride.bench.sections import Place, Section

RANKS = (1, 2, 3, 4, 5, 10, 20)
"""up to which ranks are added up"""
BINS = 10


def curve_sections(records: Sequence[Record]) -> list[Section]:
    """All figures that there are curves for, by experiment and test set."""
    latest: dict[tuple[str, str, str, str], Curves] = {}
    for record in sorted((one for one in records if isinstance(one, Curves)), key=lambda one: one.origin.date):
        latest[record.origin.experiment, record.workload.name, record.name, record.model.name] = record
    groups: dict[tuple[Place, str], list[Curves]] = {}
    for (experiment, workload, name, _), record in sorted(latest.items()):
        groups.setdefault((Place(experiment, workload), name), []).append(record)
    found = []
    for (place, name), some in groups.items():
        if name in FIGURES:
            title, make = FIGURES[name]
            text, chart = make(some, place.name)
            found.append(place.section(name, title, text, chart))
    return found


def _recall(some: Sequence[Curves], place: str) -> tuple[str, Chart]:
    """Figure 1: the share of the references' words that are among K candidates of their place, by construction."""
    named = {_construction(one, curve.name): (one, curve) for one in some for curve in one.curves}
    sizes = sorted({size for one in some for size in one.places})
    columns = [Column("K", [f"{size:g}" for size in sizes])]
    lines = []
    for name, (one, curve) in named.items():
        values = dict(zip(one.places, curve.values, strict=True))
        columns.append(Column(name, [f"{100 * values[size]:.1f}" if size in values else NOTHING for size in sizes]))
        lines.append(Line(name, tuple((size, 100 * value) for size, value in sorted(values.items()))))
    notes = [
        f"Share in percent of the words of {some[0].workload.size:,} sentences that are among the K candidates of "
        "their very place.",
        "Paper: Figure 1 of Deng and Rush; its counts hold far more than a shared vocabulary does, and less than a "
        "non-autoregressive model's best words.",
        origin_note([one.origin for one in some]),
    ]
    panel = Panel("candidates per place (K)", "recall, %", tuple(lines), "doubling")
    chart = Chart(f"{place}-recall", "Words of the reference in the lattice", some[0].workload.name, (panel,))
    return with_notes(columns, notes), chart


def _construction(one: Curves, name: str) -> str:
    """Tables and shared vocabularies are the same whatever model they lie beside; other words are a model's."""
    return name if name in ("tables", "shared") else f"{name} ({one.model.name})"


def _ranks(some: Sequence[Curves], place: str) -> tuple[str, Chart]:
    """Figure 2: where the words that the search chose had stood before it."""
    rows = [(one, curve) for one in some for curve in one.curves]
    sums = [list(accumulate(curve.values)) for _, curve in rows]
    columns = [
        Column("model", [one.model.name for one, _ in rows], numeric=False),
        Column("ranked by", [curve.name for _, curve in rows], numeric=False),
    ]
    for rank in RANKS:
        cells = [f"{100 * found[rank - 1] / found[-1]:.1f}" if rank <= len(found) else NOTHING for found in sums]
        columns.append(Column(f"first {rank}" if rank > 1 else "first", cells))
    notes = [
        "Share in percent of the chosen words that stood first, among the first two, and so on, of their column before "
        "the search: by the best edge that leads to them, or by what the candidates were chosen by.",
        "Paper: Figure 2 of Deng and Rush; almost 15 % stood first.",
        f"Decoder: {', '.join(f'`{text}`' for text in dict.fromkeys(one.decoder for one in some if one.decoder))}.",
        origin_note([one.origin for one in some]),
    ]
    several = len({one.model.name for one in some}) > 1
    lines = tuple(
        Line(
            f"{one.model.name}, {curve.name}" if several else curve.name,
            tuple(
                (rank, 100 * value / max(1.0, sum(curve.values)))
                for rank, value in zip(one.places, curve.values, strict=True)
            ),
        )
        for one, curve in rows
    )
    panel = Panel("rank before the search", "chosen words, %", lines, "doubling")
    chart = Chart(f"{place}-ranks", "What the search changed", some[0].workload.name, (panel,))
    return with_notes(columns, notes), chart


def _stages(some: Sequence[Curves], place: str) -> tuple[str, Chart]:
    """Figure 4: milliseconds per stage by length of the output, in bins of equally many sentences."""
    one = some[-1]
    lengths = np.array(one.places)
    bins = np.array_split(np.argsort(lengths, kind="stable"), min(BINS, len(lengths)))
    means = {curve.name: [float(np.array(curve.values)[part].mean()) / 1000 for part in bins] for curve in one.curves}
    columns = [
        Column("output tokens", [f"{lengths[part].min():g} to {lengths[part].max():g}" for part in bins]),
        Column("sentences", [str(len(part)) for part in bins]),
        *(Column(f"{name}, ms", [f"{value:.3f}" for value in values]) for name, values in means.items()),
        Column("together, ms", [f"{sum(values):.3f}" for values in zip(*means.values(), strict=True)]),
    ]
    notes = [
        f"{one.model.name}: milliseconds per sentence, one at a time, the device synchronised between stages: for "
        "shares, not for latency.",
        "Paper: Figure 4 of Deng and Rush; most time goes to the encoder, the rest grows with length.",
        f"Decoder: `{one.decoder}`." if one.decoder else "",
        origin_note([one.origin]),
    ]
    centres = [float(lengths[part].mean()) for part in bins]
    lines = tuple(Line(name, tuple(zip(centres, values, strict=True))) for name, values in means.items())
    panel = Panel("output length (tokens, mean of a bin)", "ms", lines)
    told = f"{one.workload.name}  ·  {one.origin.machine.device}"
    chart = Chart(f"{place}-stages", "Where the time goes", told, (panel,))
    return with_notes(columns, notes), chart


FIGURES: dict[str, tuple[str, Callable[[Sequence[Curves], str], tuple[str, Chart]]]] = {
    "recall": ("recall of candidate lattices", _recall),
    "ranks": ("ranks of the chosen words before the search", _ranks),
    "stages": ("time by stage and output length", _stages),
}
"""Name of the curves -> title and maker."""
