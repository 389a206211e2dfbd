"""Tables 1 to 4 of the interleaved paper from quality records, its figures beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from longstride.bench import paper_parallel as paper
from longstride.bench.cells import NOTHING, Column, difference_text
from longstride.bench.draft_settings import Setting, minus, noted, number
from longstride.bench.interleaved_settings import Factorised, factorised, full_depth, model_name
from longstride.bench.records import Quality, Record, Training

BEAMS = (4, 1)
PAPER = "Zhang et al., WMT14 English-German"


def models_table(group: Sequence[Quality], records: Sequence[Record]) -> str | None:
    """Table 1: directions, words per step and beams; original and distilled data; steps and speed of training."""
    found = [one for one in factorised(group) if one.plain and one.width in BEAMS]
    found = [one for one in found if one.layers == full_depth(found, one.size) and (one.h > 1 or one.c == 1)]
    by_key = {(one.size, one.h, one.c, one.width, one.distilled): one for one in found if one.c <= 2 or one.h == 1}
    keys = sorted({key[:4] for key in by_key}, key=lambda key: (key[0], key[1], key[2], -key[3]))
    if len({key[1:3] for key in keys}) < 2:
        return None
    original = [by_key.get((*key, False)) for key in keys]
    distilled = [by_key.get((*key, True)) for key in keys]
    either = [second or first for first, second in zip(original, distilled, strict=True)]
    speeds = [_training_speed(one, by_key, records) for one in either]
    papers = [paper.INTERLEAVED.get((h, c, width)) for _, h, c, width in keys]
    columns = [
        Column("size", [size for size, *_ in keys], numeric=False),
        Column("model", [model_name(h, c) for _, h, c, _ in keys], numeric=False),
        Column("beam", [str(width) for *_, width in keys]),
        Column("h", [str(h) for _, h, _, _ in keys]),
        Column("c", [str(c) for _, _, c, _ in keys]),
        Column("BLEU", [number(one.bleu if one else None) for one in original]),
        Column("BLEU − Transformer", [_difference(one) for one in original]),
        Column("KD: BLEU", [number(one.bleu if one else None) for one in distilled]),
        Column("KD: BLEU − Transformer", [_difference(one) for one in distilled]),
        Column("steps", [number(one.steps if one else None) for one in either]),
        Column("training speed", speeds),
        Column("paper: BLEU", [f"{one[0]:.1f}" if one else NOTHING for one in papers]),
        Column("paper, KD: BLEU", [f"{one[1]:.1f}" if one else NOTHING for one in papers]),
        Column("paper: speed-up", [f"{one[2]:.2f}×" if one else NOTHING for one in papers]),
        Column("paper: training speed", [one[3] if one else NOTHING for one in papers]),
    ]
    beside = "*: trained beside others." if any("*" in one for one in speeds) else ""
    notes = [
        "KD: trained on distilled data. Differences are from beam 4 of the autoregressive model of the same size and "
        "data. Steps per sentence, of the distilled model where there is one. Training speed: target tokens per second "
        "over those of the autoregressive model of the same size and data.",
        beside,
        f"Paper: Table 1 of {PAPER}; speed-ups over beam 4 on a GTX 1080.",
    ]
    return noted(columns, notes, _settings(one for one in found if one in by_key.values()))


def _difference(one: Factorised | None) -> str:
    against = one.record.against if one else ()
    rivals = [found.baseline for found in against if "beam" in found.baseline]
    return difference_text(against, rivals[0]) if rivals else NOTHING


def _training_speed(
    one: Factorised | None,
    by_key: dict[tuple[str, int, int, int, bool], Factorised],
    records: Sequence[Record],
) -> str:
    """Once per model; over the autoregressive model of the same size, data and kind of measurement."""
    if one is None or one.width != BEAMS[0]:
        return NOTHING
    baseline = by_key.get((one.size, 1, 1, one.width, one.distilled))
    for alone in (True, False):
        ours, theirs = (_speed(model, records, alone) for model in (one, baseline))
        if ours and theirs:
            return f"{ours / theirs:.2f}×" + ("" if alone else " *")
    return NOTHING


def _speed(one: Factorised | None, records: Sequence[Record], alone: bool) -> float | None:
    """Target tokens a second: of a short run alone on the device, or of the training itself."""
    if one is None:
        return None
    name = one.record.model.name.removeprefix("en-de-")
    found = [
        record.tokens_per_second
        for record in records
        if isinstance(record, Training)
        and (record.name == f"en-de-speed-{name}" if alone else record.model_hash == one.record.model.hash != "")
    ]
    return found[-1] if found else None


def ablations_table(group: Sequence[Quality]) -> str | None:
    """Table 2: what each idea is worth, beam 4, original data."""
    found = [one for one in factorised(group) if one.width == BEAMS[0] and one.dedup == 0 and not one.distilled]
    found = [one for one in found if one.layers == full_depth(found, one.size)]
    by_name = {_ablation_name(one): one for one in found}
    rows = [name for name in paper.ABLATIONS if name in by_name]
    if len(rows) < 3:
        return None
    first = by_name.get(rows[0])
    columns = [
        Column("model", rows, numeric=False),
        Column("h", [str(by_name[name].h) for name in rows]),
        Column("c", [str(by_name[name].c) for name in rows]),
        Column("BLEU", [number(by_name[name].bleu) for name in rows]),
        Column(f"BLEU − {rows[0]}", [_minus(by_name[name], first) for name in rows]),
        Column("steps", [number(by_name[name].steps) for name in rows]),
        Column("paper: BLEU", [f"{paper.ABLATIONS[name]:.1f}" for name in rows]),
    ]
    sizes = ", ".join(sorted({by_name[name].size for name in rows}))
    notes = [f"Size: {sizes}; beam 4, original data, steps per sentence.", f"Paper: Table 2 of {PAPER}."]
    return noted(columns, notes, _settings(by_name[name] for name in rows))


def _ablation_name(one: Factorised) -> str:
    told = one.name if not one.ablation else f"{one.name}, {one.ablation}"
    return f"{told}, c={one.c}" if one.c > 1 else told


def _minus(one: Factorised, other: Factorised | None) -> str:
    return NOTHING if other is None or one is other else minus(one.bleu, other.bleu)


def perplexity_table(group: Sequence[Quality]) -> str | None:
    """Table 3: perplexity by order and words per step, and what words predicted together tell about each other."""
    found = [one for one in factorised(group) if not one.distilled and one.score("perplexity") is not None]
    found = [one for one in found if one.layers == full_depth(found, one.size)]
    cells = {_factorisation(one): one for one in found if _factorisation(one) is not None}
    rows = [(False, "left to right"), (True, "both directions")]
    if not any(key[1] for key in cells if key is not None):
        return None
    ours = {key: one.score("perplexity") for key, one in cells.items() if key is not None}
    for key, one in cells.items():
        if key is not None and key[1] and one.record.mutual_information is not None:
            ours.setdefault((key[0], False), one.record.mutual_information.base_perplexity)
    columns = [
        Column("order", [name for _, name in rows], numeric=False),
        Column("one word per step", [number(ours.get((both, False))) for both, _ in rows]),
        Column("two words", [number(ours.get((both, True))) for both, _ in rows]),
        Column("PMI, nats", [_information(ours, both, 1.0) for both, _ in rows]),
        Column("PMI, log10", [_information(ours, both, math.log(10)) for both, _ in rows]),
        Column("paper: one word", [f"{paper.PERPLEXITY[both, False]:.2f}" for both, _ in rows]),
        Column("paper: two", [f"{paper.PERPLEXITY[both, True]:.2f}" for both, _ in rows]),
        Column("paper: PMI", [f"{paper.MUTUAL_INFORMATION[both]:.3f}".replace("-", "−") for both, _ in rows]),
    ]
    sizes = ", ".join(sorted({one.size for one in cells.values()}))
    notes = [
        f"Perplexity of the references per token; size: {sizes}, original data. PMI: estimated mutual information of "
        "words that are predicted together, the difference of the two log-perplexities, per token.",
        f"Paper: Table 3 of {PAPER}; its PMI is to base 10.",
    ]
    return noted(columns, notes, _settings(cells.values()))


def _factorisation(one: Factorised) -> tuple[bool, bool] | None:
    """Both directions or not, two words per step or one; none for anything else."""
    if one.ablation not in ("", "one word per step") or one.h > 2:
        return None
    step = 1 if one.ablation else one.h * one.c
    return (one.h == 2, step == 2) if step <= 2 else None


def _information(ours: dict[tuple[bool, bool], float | None], both: bool, unit: float) -> str:
    one, two = ours.get((both, False)), ours.get((both, True))
    return NOTHING if not one or not two else f"{math.log(two / one) / unit:.3f}".replace("-", "−")


def students_table(group: Sequence[Quality]) -> str | None:
    """Table 4: decoders of two layers, autoregressive ones beside the others, beam 4."""
    found = [one for one in factorised(group) if one.plain and one.width == BEAMS[0] and one.c <= 2 and one.h <= 2]
    found = [one for one in found if one.h == 2 or one.c == 1]
    sizes = {one.size for one in found if one.layers < full_depth(found, one.size)}
    found = [one for one in found if one.size in sizes]
    if not found:
        return None
    by_key = {(one.size, one.h, one.c, one.layers, one.distilled): one for one in found}
    keys = sorted(by_key, key=lambda key: (key[0], key[1], key[2], -key[3], key[4]))
    full = {size: full_depth(found, size) for size in sizes}
    papers = [paper.STUDENTS.get((h, c, layers < full[size], kd)) for size, h, c, layers, kd in keys]
    papers = [one if key[3] in (2, full[key[0]]) else None for one, key in zip(papers, keys, strict=True)]
    columns = [
        Column("size", [key[0] for key in keys], numeric=False),
        Column("model", [model_name(key[1], key[2]) for key in keys], numeric=False),
        Column("decoder layers", [str(key[3]) for key in keys]),
        Column("data", ["distilled" if key[4] else "original" for key in keys], numeric=False),
        Column("BLEU", [number(by_key[key].bleu) for key in keys]),
        Column("BLEU − Transformer", [_difference(by_key[key]) for key in keys]),
        Column("steps", [number(by_key[key].steps) for key in keys]),
        Column("paper: BLEU", [f"{one[0]:.1f}" if one else NOTHING for one in papers]),
        Column("paper: speed-up", [f"{one[1]:.2f}×" if one else NOTHING for one in papers]),
    ]
    notes = [
        "Beam 4; steps per sentence. Differences are from beam 4 of the autoregressive model of full depth and same "
        "data.",
        f"Paper: Table 4 of {PAPER}; speed-ups over beam 4 of the full Transformer.",
    ]
    return noted(columns, notes, _settings(found))


def _settings(found: Iterable[Factorised]) -> list[Setting]:
    return [Setting.of(one.record) for one in found]
