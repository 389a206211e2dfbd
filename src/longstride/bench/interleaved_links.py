"""What links between the words of a step give interleaved models: each linked one beside the one without."""

from __future__ import annotations

from collections.abc import Sequence

from longstride.bench.cells import Column
from longstride.bench.draft_settings import Setting, minus, noted, number
from longstride.bench.interleaved_settings import LINKED, Factorised, factorised
from longstride.bench.records import Quality

Key = tuple[str, int, int, int, int, bool]


def links_table(group: Sequence[Quality]) -> str | None:
    """A row for every model that differs from another by its links alone, by size, shape, depth, data and beam."""
    found = [one for one in factorised(group) if one.dedup == 0 and one.ablation in ("", LINKED)]
    with_links = {_key(one): one for one in found if one.ablation}
    without = {_key(one): one for one in found if not one.ablation}
    keys = sorted((key for key in with_links if key in without), key=lambda key: (*key[:4], key[5], -key[4]))
    if not keys:
        return None
    pairs = [(without[key], with_links[key]) for key in keys]
    columns = [
        Column("size", [linked.size for _, linked in pairs], numeric=False),
        Column("model", [linked.name for _, linked in pairs], numeric=False),
        Column("h", [str(linked.h) for _, linked in pairs]),
        Column("c", [str(linked.c) for _, linked in pairs]),
        Column("decoder layers", [str(linked.layers) for _, linked in pairs]),
        Column("data", ["distilled" if linked.distilled else "original" for _, linked in pairs], numeric=False),
        Column("beam", [str(linked.width) for _, linked in pairs]),
        Column("BLEU", [number(plain.bleu) for plain, _ in pairs]),
        Column("linked: BLEU", [number(linked.bleu) for _, linked in pairs]),
        Column("linked − unlinked", [minus(linked.bleu, plain.bleu) for plain, linked in pairs]),
        Column("steps", [number(linked.steps) for _, linked in pairs]),
    ]
    notes = [
        "Linked: within a step, a word's probabilities depend on the word before it in its direction, by a table of "
        "pairs of low rank; no model call more. In no paper. Steps per sentence, of the linked model."
    ]
    return noted(columns, notes, [Setting.of(one.record) for pair in pairs for one in pair])


def _key(one: Factorised) -> Key:
    return one.size, one.h, one.c, one.layers, one.width, one.distilled
