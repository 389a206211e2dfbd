"""Blockwise parallel decoding's own tables, laid out as the paper's: by block size, and with other acceptance."""

from __future__ import annotations

from collections.abc import Sequence

from longstride.bench import paper_figures
from longstride.bench.cells import NOTHING, Column
from longstride.bench.draft_settings import EXACT, Setting, cells_of, models, noted, pair, settings
from longstride.bench.records import Quality

COLUMNS_OF_TABLE_1 = {
    (True, "original"): "Regular",
    (True, "distilled"): "Distillation",
    (False, "original"): "Fine Tuning",
    (False, "distilled"): "Both",
}


def blockwise_table(group: Sequence[Quality]) -> str | None:
    """Table 1: a row per k, a column per model, named by the data of base and heads; BLEU and mean accepted block."""
    exact = [one for one in settings(group, "blockwise") if one.exact]
    sizes = sorted({one.k for one in exact})
    if len(sizes) < 2:
        return None
    columns = [Column("k", [str(k) for k in sizes])]
    for model in sorted(models(exact), key=lambda model: _place(model, exact)):
        mine = {one.k: one for one in exact if one.model == model}
        columns.append(Column(_training(model, exact), cells_of(mine, sizes, _cell)))
        place = _paper_column(next(iter(mine.values())))
        paper = paper_figures.BLOCKWISE.get(place, {})
        heading = f"paper, {COLUMNS_OF_TABLE_1.get(place, '')}"
        columns.append(Column(heading, [pair(*paper[k]) if k in paper else NOTHING for k in sizes]))
    notes = [
        "BLEU / mean accepted block (an iteration that only proposes is left out), exact acceptance.",
        *_identical(exact),
        "Paper: Table 1 of Stern et al., newstest2013.",
    ]
    return noted(columns, notes, exact)


def blockwise_variants(group: Sequence[Quality]) -> str | None:
    """Top-B acceptance and minimum blocks beside exact acceptance, a row per model and k."""
    found = [one for one in settings(group, "blockwise") if one.k > 1]
    other = {one.model for one in found if not one.exact}
    found = [one for one in found if one.model in other]
    if not found:
        return None
    kinds = sorted({(one.accept != EXACT, one.accept, one.min_block) for one in found})
    rows = list(dict.fromkeys((one.model, one.k) for one in sorted(found, key=lambda one: one.k)))
    rows.sort(key=lambda row: _place(row[0], found))
    columns = [
        Column("model", [_training(model, found) for model, _ in rows], numeric=False),
        Column("k", [str(k) for _, k in rows]),
    ]
    for _, accept, least in kinds:
        mine = {(one.model, one.k): one for one in found if (one.accept, one.min_block) == (accept, least)}
        heading = accept if least == 1 else f"{accept}, at least {least}"
        columns.append(Column(heading, cells_of(mine, rows, _cell)))
        beta = accept.removeprefix("top:")
        paper = paper_figures.BLOCKWISE_TOP.get(int(beta), {}) if least == 1 and beta.isdecimal() else {}
        columns.append(
            Column(
                f"paper, {accept}",
                [
                    pair(*paper[row[1]])
                    if row in mine and row[1] in paper and _paper_column(mine[row]) == (False, "distilled")
                    else NOTHING
                    for row in rows
                ],
            )
        )
    notes = [
        "BLEU / mean accepted block. `at least 2`: a minimum block, whatever the rule says.",
        "Paper: section 7.1 of Stern et al., newstest2013; minimum blocks lost much more there than they gained.",
    ]
    return noted(columns, notes, found)


def _cell(one: Setting) -> str:
    return pair(one.bleu, one.mean_block)


def _paper_column(one: Setting) -> tuple[bool, str]:
    """Which column of Table 1 this is; ("", ...) where base and heads learnt from different data."""
    notes = one.record.notes
    same = notes.get("data") == notes.get("base_data")
    return bool(notes.get("frozen")), str(notes.get("data", "")) if same else ""


def _place(model: str, found: Sequence[Setting]) -> tuple[bool, bool, bool, int]:
    """The paper's order of columns: frozen before fine-tuned, original data before distilled."""
    notes = next(one.record.notes for one in found if one.model == model)
    data = [notes.get(name) != "original" for name in ("data", "base_data")]
    return not notes.get("frozen"), data[0], data[1], models(found).index(model)


def _training(model: str, found: Sequence[Setting]) -> str:
    """``frozen; base: distilled, heads: distilled``, or the name where that is not known or would name two."""

    def told(name: str) -> str:
        notes = next(one.record.notes for one in found if one.model == name)
        if "frozen" not in notes or "base_data" not in notes:
            return name
        how = "frozen" if notes["frozen"] else "fine-tuned"
        return f"{how}; base: {notes['base_data']}, heads: {notes.get('data', '')}"

    texts = [told(name) for name in models(found)]
    return told(model) if texts.count(told(model)) == 1 else model


def _identical(found: Sequence[Setting]) -> list[str]:
    """How many outputs of exact acceptance differ from greedy's, the worst block size of each model."""
    notes = []
    for model in models(found):
        seen = [one.record.equality for one in found if one.model == model and one.record.equality is not None]
        if seen:
            worst = max(seen, key=lambda one: one.differing)
            notes.append(
                f"{_training(model, found)}: {worst.differing:,} of {worst.compared:,} outputs, at most, differ from "
                f"those of {worst.reference}."
            )
    return notes
