"""The tables of drafter and verifier, laid out as the paper on generalized aggressive decoding has them."""

from __future__ import annotations

from collections.abc import Sequence

from longstride.bench import paper_figures
from longstride.bench.cells import NOTHING, Column, difference_text, equality_column, over, score_text
from longstride.bench.draft_settings import EXACT, Setting, cells_of, models, noted, number, pair, settings
from longstride.bench.records import Quality

LOOSE = "top:3,gap:1.0"
"""the setting of GAD++ that block sizes and drafters are compared by"""


def methods_table(group: Sequence[Quality]) -> str | None:
    """GAD's Tables 1 and 9: the verifier alone, the drafter alone, both together; quality, iterations, repetition."""
    rows = [one for one in map(Setting.of, group) if one.plain and _method(one) is not None]
    drafted = {one.model for one in rows if one.decoder == "draft-verify"}
    rows = [one for one in rows if one.model in drafted]
    if not rows:
        return None
    places = {name: place for place, name in enumerate([*models(rows), *paper_figures.GAD])}
    rows.sort(key=lambda one: (places[one.model], places[str(_method(one))]))
    baseline = next((one.record.candidate for one in rows if one.record.role == "baseline"), "greedy")
    counts = [one.record.counts for one in rows]
    paper = [paper_figures.GAD[str(_method(one))] for one in rows]
    leading = rows[0].record.scores[0].name
    columns = [Column("method", [_method_text(one) for one in rows], numeric=False)]
    if len(drafted) > 1:
        columns.append(Column("model", [one.model for one in rows], numeric=False))
    columns += [
        Column(leading, [number(one.bleu) for one in rows]),
        Column(f"{leading} − {baseline}", [difference_text(one.record.against, baseline) for one in rows]),
        Column("iterations", [_iterations(one) for one in rows]),
        Column("tokens/iteration", [(one and over(one.tokens, one.iterations)) or NOTHING for one in counts]),
        Column("with EOS", [_tokens(one) for one in rows]),
        Column("repetition, %", [score_text(one.record.scores, "repetition") for one in rows]),
        equality_column([one.record.equality for one in rows]),
        Column("paper: BLEU", [f"{bleu:.2f}" for bleu, _, _ in paper]),
        Column("paper: iterations", [iterations for _, iterations, _ in paper]),
        Column("paper: repetition, %", [repetition for _, _, repetition in paper]),
    ]
    notes = [
        "Iterations per sentence. Paper: Tables 1 and 9 of Xia et al., WMT14 English-German, tokenized BLEU; N is one "
        "iteration per token."
    ]
    return noted(columns, notes, rows)


def _method(one: Setting) -> str | None:
    """The row of the paper's table that this is."""
    if one.decoder in ("greedy", "beam"):
        return one.decoder
    if one.decoder not in ("draft", "draft-verify") or one.k != one.trained_block or one.min_block != 1:
        return None
    if one.decoder == "draft":
        return "draft"
    return one.accept if one.accept in paper_figures.GAD else None


def _method_text(one: Setting) -> str:
    if one.decoder == "greedy":
        return "verifier, greedy"
    if one.decoder == "beam":
        return f"verifier, beam {one.options.get('width', '')}".rstrip()
    if one.decoder == "draft":
        return f"drafter alone (k={one.k})"
    return f"GAD (k={one.k})" if one.accept == EXACT else f"GAD++ (k={one.k}, {one.accept})"


def sweep_table(group: Sequence[Quality]) -> str | None:
    """GAD's Table 3: tokens per iteration and BLEU by top-β and gap τ."""
    found = [one for one in settings(group, "draft-verify") if one.top is not None and one.min_block == 1]
    found = [one for one in found if one.k == one.trained_block]
    rows = list(dict.fromkeys((one.model, one.top[1]) for one in found if one.top))
    if len({gap for _, gap in rows}) < 2:
        return None
    rows.sort(key=lambda row: (models(found).index(row[0]), row[1]))
    columns = [Column("gap τ", [f"{gap:g}" for _, gap in rows])]
    if len(models(found)) > 1:
        columns.insert(0, Column("model", [model for model, _ in rows], numeric=False))
    for beta in sorted({one.top[0] for one in found if one.top}):
        mine = {(one.model, one.top[1]): one for one in found if one.top and one.top[0] == beta}
        columns.append(Column(f"top-{beta}", cells_of(mine, rows, lambda one: pair(one.tokens, one.bleu))))
        paper = [paper_figures.GAD_SWEEP.get((beta, gap)) for _, gap in rows]
        columns.append(Column(f"paper, top-{beta}", [pair(*one) if one else NOTHING for one in paper]))
    notes = ["Tokens per iteration, EOS counted / BLEU."]
    for model in models(found):
        notes.append(_chosen(model, [one for one in found if one.model == model], group))
    notes.append("Paper: Table 3 of Xia et al.; greedy has 26.62 BLEU there.")
    return noted(columns, notes, found)


def _chosen(model: str, found: Sequence[Setting], group: Sequence[Quality]) -> str:
    """What the development set says: the best setting, and the fastest that loses nothing against greedy."""
    greedy = next((one for one in settings(group, "greedy") if one.model == model), None)
    best = max(found, key=lambda one: (one.bleu or 0.0, one.tokens or 0.0))
    text = f"{model}: the best BLEU is that of {best.accept}"
    if greedy is None or greedy.bleu is None:
        return text + "."
    lossless = [one for one in found if (one.bleu or 0.0) >= greedy.bleu]
    fastest = max(lossless, key=lambda one: one.tokens or 0.0).accept if lossless else "none"
    return f"{text}; greedy has {greedy.bleu:.2f}, and the fastest that has no less is {fastest}."


def block_sizes_table(group: Sequence[Quality]) -> str | None:
    """GAD's Table 2: drafters trained for different block sizes, all else alike."""
    found = [one for one in settings(group, "draft-verify") if one.k == one.trained_block and one.min_block == 1]
    alike: dict[tuple[object, ...], list[Setting]] = {}
    for one in found:
        drafter = one.part("drafter")
        shape = tuple(drafter.get(name) for name in ("encoder", "encoder_layers", "decoder_layers", "width"))
        alike.setdefault(shape, []).append(one)
    rows = max(alike.values(), key=lambda some: len({one.k for one in some}), default=[])
    sizes = sorted({one.k for one in rows})
    if len(sizes) < 2:
        return None
    columns = [Column("k", [str(k) for k in sizes])]
    for accept, heading in ((EXACT, "GAD"), (LOOSE, f"GAD++ ({LOOSE})")):
        mine = {one.k: one for one in rows if one.accept == accept}
        columns.append(Column(f"{heading}: tokens", cells_of(mine, sizes, _tokens)))
        columns.append(Column("BLEU", cells_of(mine, sizes, _bleu)))
    paper = paper_figures.GAD_BLOCKS
    columns.append(Column("paper, GAD++: tokens", [number(paper[k][0]) if k in paper else NOTHING for k in sizes]))
    columns.append(Column("paper: BLEU", [number(paper[k][1]) if k in paper else NOTHING for k in sizes]))
    drafter = rows[0].part("drafter")
    notes = [
        "Tokens per iteration, EOS counted. One drafter trained for each k: "
        f"{drafter.get('decoder_layers')} layers of width {drafter.get('width')}, encoder {drafter.get('encoder')}.",
        "Paper: Table 2 of Xia et al.",
    ]
    return noted(columns, notes, rows)


def drafters_table(group: Sequence[Quality]) -> str | None:
    """Drafters of different make for one task: depth, and an encoder of their own or the verifier's."""
    found = [one for one in settings(group, "draft-verify") if one.k == one.trained_block and one.part("drafter")]
    rows = [one for one in found if one.exact]
    if len({(one.part("drafter").get("encoder"), one.part("drafter").get("decoder_layers")) for one in rows}) < 2:
        return None
    loose = {one.model: one for one in found if one.accept == LOOSE and one.min_block == 1}
    alone = {one.model: one for one in settings(group, "draft") if one.k == one.trained_block}
    parts, names = [one.part("drafter") for one in rows], [one.model for one in rows]
    columns = [
        Column("drafter", names, numeric=False),
        Column("encoder", [str(part.get("encoder", NOTHING)) for part in parts], numeric=False),
        Column("decoder layers", [str(part.get("decoder_layers", NOTHING)) for part in parts]),
        Column("width", [str(part.get("width", NOTHING)) for part in parts]),
        Column("k", [str(one.k) for one in rows]),
        Column("iterations", [_iterations(one) for one in rows]),
        Column("tokens/iteration", [_tokens(one) for one in rows]),
        Column(f"{LOOSE}: tokens", cells_of(loose, names, _tokens)),
        Column("BLEU", cells_of(loose, names, _bleu)),
        Column("drafter alone: BLEU", cells_of(alone, names, _bleu)),
        equality_column([one.record.equality for one in rows]),
    ]
    notes = ["Exact acceptance unless said; iterations per sentence; tokens per iteration with EOS counted."]
    return noted(columns, notes, rows)


def _tokens(one: Setting) -> str:
    return number(one.tokens)


def _bleu(one: Setting) -> str:
    return number(one.bleu)


def _iterations(one: Setting) -> str:
    """Per sentence."""
    counts = one.record.counts
    return (counts and over(counts.iterations, one.record.workload.size)) or NOTHING
