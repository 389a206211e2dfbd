"""Tables of profiles: what each decoder takes and holds, and where its time goes, stage by stage.

Records have the programs' own names; tables tell them in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longstride.bench.cells import NOTHING, Column, origin_note, with_notes
from longstride.bench.races import slug
from longstride.bench.records import Profile, Record, Stage
from longstride.bench.sections import Section

REST = "all else"

IN_WORDS = {
    "remember": "encoder",
    "remember-draft": "drafter's encoder",
    "encode": "encoder",
    "verify": "verifier",
    "judge": "verifier and acceptance",
    "draft": "drafter",
    "choose": "drafter",
    "draft-and-judge": "drafter, verifier and acceptance",
    "extend": "decoder",
    "interleaved": "decoder",
    "heads": "heads",
    "link": "link",
    "fill": "all words",
    "unigrams": "unigrams",
    "candidates": "candidates",
    "score": "lattice scores",
    "search": "search",
    "enter": "encoders and entrance, recorded",
    "iterate": "iteration, recorded",
    "greedy": "iteration, recorded",
    "beam": "iteration, recorded",
    "lattice": "whole pass, recorded",
}
"""Stages as a person would say it; what follows a name's first word is a size."""

SETTINGS: dict[str, Callable[[Profile], str]] = {
    "model": lambda one: one.model.name,
    "runtime": lambda one: one.runtime,
    "precision": lambda one: one.precision,
    "batch size": lambda one: str(one.batch_size),
}
"""What a profile is of beside a decoder: a column where profiles differ in it."""

GAD_TIME = (
    "Xia et al., Table 7, GAD++ base (k 25, top-5, τ 3.0), WMT14 English-German: AT encoder 5.65 ms (7.70 %), "
    "NAT encoder 5.73 ms (7.80 %), NAT decoder 31.44 ms (42.81 %), AT decoder 27.33 ms (37.21 %), others 3.31 ms "
    "(4.48 %), 73.46 ms in all."
)
GAD_MEMORY = (
    "Xia et al., Table 8, fp32 on a P100: greedy 1211 MiB, beam of 5 1237 MiB, GAD 1621 MiB, GAD++ 1613 MiB of the "
    "device in use."
)


def in_words(name: str) -> str:
    """``iterate 25`` -> ``iteration, recorded (25)``; of a part, ``- verifier``"""
    whole, _, part = name.partition(" / ")
    if part:
        return f"- {in_words(part)}"
    name = whole
    first, _, size = name.partition(" ")
    told = IN_WORDS.get(first)
    if told is None:
        return name
    return f"{told} ({size})" if size else told


def profile_tables(records: Sequence[Profile]) -> list[str]:
    """What decoders take and hold, then their stages."""
    return [totals_table(records), stages_table(records)] if records else []


def totals_table(records: Sequence[Profile]) -> str:
    """A row per profile: time per sentence, what of it no stage explains, the floor, and memory."""
    floors = [_floor_ms(one) for one in records]
    plain = [_plain_ms(one) for one in records]
    columns = [
        *_head(records, list(range(len(records)))),
        Column("sentences", [f"{one.sentences:,}" for one in records]),
        Column("ms per sentence", [f"{value:.3f}" for value in plain]),
        Column("watched", [f"{one.watched_us / one.sentences / 1000:.3f}" for one in records]),
        Column(f"{REST}, %", [f"{100 * one.rest_us / max(1, one.watched_us):.1f}" for one in records]),
        Column("floor, ms", [NOTHING if floor is None else f"{floor:.3f}" for floor in floors]),
        Column(
            "times the floor",
            [NOTHING if floor is None else f"{value / floor:.1f}" for floor, value in zip(floors, plain, strict=True)],
        ),
        Column("peak, MiB", [_mebibytes(one.memory.device_peak) for one in records]),
        Column("taken, MiB", [_mebibytes(one.reserved) for one in records]),
    ]
    speeds = sorted({round(one.bandwidth / 1e9) for one in records if one.bandwidth})
    notes = [
        _shared_note(records),
        "ms per sentence: in one go, nobody watching; watched: with the device synchronised around every stage.",
        _floor_note(speeds) if any(floor is not None for floor in floors) else "",
        "Peak: device memory of tensors at the highest while decoding, this decoder alone loaded; taken: all that "
        "PyTorch held of the device, captured graphs and its own reserve included, CUDA's own context not."
        if any(one.memory.device_peak for one in records)
        else "",
        GAD_MEMORY if any(one.memory.device_peak and _drafted(one) for one in records) else "",
        origin_note([one.origin for one in records]),
    ]
    return with_notes(columns, notes)


def stages_table(records: Sequence[Profile]) -> str:
    """A row per stage of each profile, and one for what belongs to none; shares add up to the whole, parts left out."""
    rows = [(place, stage) for place, one in enumerate(records) for stage in (*_in_order(one), None)]
    told = [(records[place], stage) for place, stage in rows]
    floors = [None if stage is None else one.floor_us(stage) for one, stage in told]
    each = [None if stage is None else stage.microseconds / max(1, stage.calls) for _, stage in told]
    columns = [
        *_head(records, [place for place, _ in rows]),
        Column("stage", [REST if stage is None else in_words(stage.name) for _, stage in told], numeric=False),
        Column(
            "calls per sentence",
            [NOTHING if stage is None else f"{stage.calls / one.sentences:.2f}" for one, stage in told],
        ),
        Column("ms per sentence", [f"{_taken_us(one, stage) / one.sentences / 1000:.3f}" for one, stage in told]),
        Column("share, %", [f"{100 * _taken_us(one, stage) / max(1, one.watched_us):.1f}" for one, stage in told]),
        Column("ms per call", [NOTHING if value is None else f"{value / 1000:.3f}" for value in each]),
        Column("weights, MB", [_megabytes(stage) for _, stage in told]),
        Column("floor, ms per call", [NOTHING if floor is None else f"{floor / 1000:.3f}" for floor in floors]),
        Column(
            "times the floor",
            [
                NOTHING if floor is None or value is None else f"{value / floor:.1f}"
                for floor, value in zip(floors, each, strict=True)
            ],
        ),
    ]
    recorded = any(stage is not None and "recorded" in in_words(stage.name) for _, stage in told)
    parts = any(stage is not None and stage.within for _, stage in told)
    notes = [
        _shared_note(records),
        f"Of the watched pass; {REST}: the host's work, and the device's between stages.",
        "Recorded: captured and repeated as one, all model calls in it and what lies between them." if recorded else "",
        "With a dash: part of the stage above it, by the device's own clock." if parts else "",
        GAD_TIME if any(_drafted(one) for one in records) else "",
        origin_note([one.origin for one in records]),
    ]
    return with_notes(columns, notes)


def profile_sections(records: Sequence[Record]) -> list[Section]:
    """By experiment, test set and device, stages by batch size too; of each decoder, model and runtime the latest."""
    kept: dict[tuple[object, ...], Profile] = {}
    for one in sorted((one for one in records if isinstance(one, Profile)), key=lambda one: one.origin.date):
        kept[*_place(one), one.batch_size, one.candidate, one.model.name, one.precision, one.runtime] = one
    groups: dict[tuple[str, str, str], list[Profile]] = {}
    for one in sorted(kept.values(), key=lambda one: (one.batch_size, one.runtime, one.precision, one.order)):
        groups.setdefault(_place(one), []).append(one)
    found = []
    for (experiment, workload, device), group in sorted(groups.items()):
        where = f"{workload}, {device}"
        found.append(_section("profile", experiment, "time and memory", where, totals_table(group)))
        for size in sorted({one.batch_size for one in group}):
            rows = [one for one in group if one.batch_size == size]
            where = f"{workload}, batch size {size}, {device}"
            found.append(_section("profile-stages", experiment, "where the time goes", where, stages_table(rows)))
    return found


def _place(one: Profile) -> tuple[str, str, str]:
    return one.origin.experiment, one.workload.name, one.origin.machine.device


def _section(kind: str, experiment: str, title: str, where: str, text: str) -> Section:
    return Section(f"{kind}/{slug(f'{experiment} {where}')}", f"{experiment}: {title}", where, text)


def _head(records: Sequence[Profile], places: Sequence[int]) -> list[Column]:
    """Which profile a row is of, as far as they differ."""
    rows = [records[place] for place in places]
    columns = [Column("decoder", [one.candidate for one in rows], numeric=False)]
    columns += [
        Column(name, [say(one) for one in rows], numeric=False)
        for name, say in SETTINGS.items()
        if len({say(one) for one in records}) > 1
    ]
    return columns


def _shared_note(records: Sequence[Profile]) -> str:
    """What all profiles of a table share."""
    told = [(name, {say(one) for one in records}) for name, say in SETTINGS.items()]
    shared = [f"{name} {values.pop()}" for name, values in told if len(values) == 1]
    return f"All: {', '.join(shared)}." if shared else ""


def _in_order(one: Profile) -> list[Stage]:
    """Every stage with its parts behind it."""
    whole = [stage for stage in one.stages if not stage.within]
    return [told for stage in whole for told in (stage, *(part for part in one.stages if part.within == stage.name))]


def _plain_ms(one: Profile) -> float:
    return sum(one.plain_us) / one.sentences / 1000


def _taken_us(one: Profile, stage: Stage | None) -> int:
    return one.rest_us if stage is None else stage.microseconds


def _floor_ms(one: Profile) -> float | None:
    """Of a sentence: every stage's floor, as often as it is called; none where that of a stage is unknown."""
    whole = [stage for stage in one.stages if not stage.within]
    if not one.bandwidth or any(stage.weights is None for stage in whole):
        return None
    total = sum(stage.calls * (stage.weights or 0) for stage in whole)
    return 1e3 * total / one.bandwidth / one.sentences if total else None


def _floor_note(speeds: Sequence[int]) -> str:
    told = " or ".join(f"{speed:,} GB/s" for speed in speeds)
    return (
        f"Floor: bytes of weights that every call has to read, over {told}, which a large copy reads and writes "
        "on this device; weights that stay in a cache may go below it, and launching kernels is not counted."
    )


def _drafted(one: Profile) -> bool:
    return one.decoder.startswith("draft-verify")


def _mebibytes(number: int | None) -> str:
    return NOTHING if number is None else f"{number / 2**20:,.0f}"


def _megabytes(stage: Stage | None) -> str:
    return NOTHING if stage is None or not stage.weights else f"{stage.weights / 1e6:,.1f}"
