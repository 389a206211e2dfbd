"""Figures 2 to 4 of the interleaved paper: speed-up by batch and beam, quality by length, the effect of c.

The paper prints these as pictures without figures, so nothing of it stands beside ours but what they say in words.
"""

from __future__ import annotations

from collections.abc import Sequence

from longstride.bench.cells import NOTHING, Column, origin_note, signatures_note, with_notes
from longstride.bench.charts import Chart, Line, Panel
from longstride.bench.draft_settings import number, times
from longstride.bench.interleaved_settings import Factorised, factorised, full_depth, latency_model
from longstride.bench.races import Race, races, slug, speed_up
from longstride.bench.records import Latency, Quality, Record
from longstride.bench.sections import Place, Section

BEAM = 4
SIZES = ("base", "small")
"""The first of them is drawn where one size must do."""


def batches_sections(records: Sequence[Record]) -> list[Section]:
    """Figure 2: speed-ups over the autoregressive model at the same batch and beam size, per experiment."""
    groups: dict[tuple[str, str, str], list[Race]] = {}
    for race in races(records):
        if any(one.decoder.startswith("interleaved|") for one in race.records):
            key = (race.origin.experiment, race.workload.name, race.origin.machine.device)
            groups.setdefault(key, []).append(race)
    found = [_batches(*key, some) for key, some in sorted(groups.items())]
    return [section for section in found if section is not None]


def _batches(experiment: str, workload: str, device: str, some: Sequence[Race]) -> Section | None:
    ratios: dict[tuple[str, int, int, int], dict[int, float]] = {}
    for race in some:
        rivals = {latency_model(one)[3]: one for one in race.records if one.decoder.startswith(("greedy|", "beam|"))}
        for one in race.records:
            key = latency_model(one)
            ratio = speed_up(one, rivals[key[3]]) if _interleaved(one) and key[3] in rivals else None
            if ratio is not None:
                ratios.setdefault(key, {})[race.batch_size] = ratio.value
    sizes = sorted({size for found in ratios.values() for size in found})
    if len(sizes) < 2:
        return None
    keys = sorted(ratios, key=lambda key: (key[1], key[2], key[3]))
    columns = [
        Column("model", [name for name, *_ in keys], numeric=False),
        Column("beam", [str(width) for *_, width in keys]),
        *(Column(f"batch {size}", [times(ratios[key].get(size)) for key in keys]) for size in sizes),
    ]
    first = some[0]
    notes = [
        f"Speed-up over the autoregressive model of the same run at the same batch and beam size, {workload}.",
        f"Runtime: {', '.join(sorted({one.runtime for one in first.records}))}.",
        "Paper: Figure 2 of Zhang et al.; always faster than the Transformer, most so at small batches.",
        origin_note([first.origin]),
    ]
    lines = tuple(
        Line(
            f"{name}, beam {width}",
            tuple(sorted((float(size), ratio) for size, ratio in ratios[name, h, c, width].items())),
            family=name,
        )
        for name, h, c, width in keys
    )
    place = slug(f"{experiment} {workload} {device}")
    precisions = ", ".join(dict.fromkeys(one.precision for one in first.records))
    chart = Chart(
        f"{place}-batches",
        "Speed-up by batch and beam size",
        f"{workload}  ·  {device}, {precisions}",
        (Panel("batch size", "speed-up at the same batch and beam", lines, "doubling"),),
    )
    topic = f"{experiment}: speed-up by batch and beam size"
    return Section(f"batches/{place}", topic, f"{workload}, {device}", with_notes(columns, notes), (chart,))


def _interleaved(one: Latency) -> bool:
    return one.decoder.startswith("interleaved|")


def lengths_section(group: Sequence[Quality]) -> Section | None:
    """Figure 3: BLEU by source length, of the largest models on distilled data."""
    found = [one for one in factorised(group) if one.plain and one.width == BEAM and one.record.by_length]
    found = [one for one in found if one.layers == full_depth(found, one.size)]
    sizes = sorted({one.size for one in found}, key=lambda size: ((*SIZES, size).index(size), size))
    kept = next((some for some in (_by_length(found, size) for size in sizes) if some), [])
    if not kept:
        return None
    bins = kept[0].record.by_length
    columns = [
        Column("source tokens", [f"{one.shortest} to {one.longest}" for one in bins]),
        Column("sentences", [f"{one.sentences:,}" for one in bins]),
        *(Column(one.name, [number(length.scores[0].value) for length in one.record.by_length]) for one in kept),
    ]
    records = [one.record for one in kept]
    learnt = "distilled" if kept[0].distilled else "original"
    notes = [
        f"{kept[0].record.scores[0].name} by source length; {kept[0].size}, {learnt} data, beam {BEAM}.",
        "Paper: Figure 3 of Zhang et al.; the same pattern for all models.",
        signatures_note(records),
        origin_note([one.origin for one in records]),
    ]
    lines = tuple(
        Line(
            one.name,
            tuple(
                (_middle(length.shortest, length.longest), length.scores[0].value) for length in one.record.by_length
            ),
            baseline=not one.interleaving,
        )
        for one in kept
    )
    place = Place.of(group)
    chart = Chart(
        f"{place.name}-source-lengths",
        "Quality by source length",
        f"{records[0].workload.name}  ·  {kept[0].size}, {learnt} data, beam {BEAM}",
        (Panel("source length (tokens, middle of a bin)", records[0].scores[0].name, lines),),
    )
    return place.section("lengths", "quality by source length", with_notes(columns, notes), chart)


def _by_length(found: Sequence[Factorised], size: str) -> list[Factorised]:
    """The models of a size to draw, distilled ones if there are any; none unless a baseline has the same bins."""
    ours = [one for one in found if one.size == size]
    ours = [one for one in ours if one.distilled] or ours
    ours = [one for one in ours if one.h <= 2 and one.c <= 2 and (one.h == 2 or one.c == 1)]
    alike = len({len(one.record.by_length) for one in ours}) == 1
    drawn = alike and any(one.interleaving for one in ours) and any(not one.interleaving for one in ours)
    return sorted(ours, key=lambda one: (one.h, one.c)) if drawn else []


def _middle(low: int, high: int) -> float:
    return (low + high) / 2


def words_section(group: Sequence[Quality]) -> Section | None:
    """Figure 4: two directions and c words of each: quality, over-translation, steps; with and without repetitions."""
    found = [one for one in factorised(group) if one.h == 2 and not one.ablation and one.width == BEAM]
    found = [one for one in found if one.layers == full_depth(found, one.size)]
    counts = {size: len({one.c for one in found if one.size == size}) for size in {one.size for one in found}}
    if not counts or max(counts.values()) < 3:
        return None
    size = max(sorted(counts), key=lambda name: counts[name])
    by_key = {(one.c, one.distilled, one.dedup > 0): one for one in found if one.size == size}
    values = sorted({c for c, _, _ in by_key})
    columns = [Column("c", [str(c) for c in values]), Column("steps", [_steps(by_key, c) for c in values])]
    panels: dict[str, list[Line]] = {}
    for score, heading in (("BLEU", "BLEU"), ("OTEM-2", "OTEM-2 (less is better)")):
        for distilled in (False, True):
            for dedup in (False, True):
                ours = {c: by_key[c, distilled, dedup] for c in values if (c, distilled, dedup) in by_key}
                points = [(float(c), one.score(score)) for c, one in ours.items()]
                known = tuple((c, value) for c, value in points if value is not None)
                name = ("KD" if distilled else "original") + (", de-duplicated" if dedup else "")
                cells = [number(ours[c].score(score) if c in ours else None) for c in values]
                columns.append(Column(f"{score}: {name}", cells))
                if known:
                    family = "KD" if distilled else "original"
                    panels.setdefault(heading, []).append(Line(name, known, family=family))
    records = [one.record for one in by_key.values()]
    notes = [
        f"Two directions, c words of each per step; {size} size, beam {BEAM}; steps per sentence, on distilled data "
        "where there are any.",
        "Paper: Figure 4 of Zhang et al.; larger c loses quality and says more than it should, distillation and "
        "de-duplication help.",
        signatures_note(records),
        origin_note([one.origin for one in records]),
    ]
    made = tuple(
        Panel("words per direction and step (c)", heading, tuple(lines), "whole") for heading, lines in panels.items()
    )
    told = f"{records[0].workload.name}  ·  {size} size, beam {BEAM}"
    place = Place.of(group)
    chart = Chart(f"{place.name}-words-per-step", "The effect of c", told, made)
    return place.section("words-per-step", "words per direction and step", with_notes(columns, notes), chart)


def _steps(by_key: dict[tuple[int, bool, bool], Factorised], c: int) -> str:
    for distilled in (True, False):
        if (c, distilled, False) in by_key:
            return number(by_key[c, distilled, False].steps)
    return NOTHING
