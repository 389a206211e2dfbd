"""Tables 2, 3 and 9 and Figure 3 of the lattice paper, its figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from longstride.bench import paper_parallel as paper
from longstride.bench.cells import NOTHING, Column
from longstride.bench.charts import Chart, Line, Panel
from longstride.bench.draft_settings import Setting, minus, noted, number, read_signature, times
from longstride.bench.lattice_settings import ONE_PASS, Beams, Latticed, latticed
from longstride.bench.races import races, speed_up
from longstride.bench.records import Quality, Record
from longstride.bench.sections import Place, Section

PAPER = "Deng and Rush, IWSLT14 German-English, tokenized BLEU"
K = 64


def windows_table(group: Sequence[Quality]) -> str | None:
    """Table 2: K with the predicted length alone and with a window around it; K = 1 shows what the counts know."""
    found = [one for one in _shallow(latticed(group)) if one.data == "distilled"]
    windows = sorted({one.window for one in found})
    rows = sorted({(one.size, one.candidates) for one in found}, key=lambda row: (row[0], -row[1]))
    if len({k for _, k in rows}) < 2 or not windows:
        return None
    by_key = {(one.size, one.candidates, one.window): one for one in found}
    columns = [
        Column("size", [size for size, _ in rows], numeric=False),
        Column("K", [str(k) for _, k in rows]),
    ]
    for window in windows:
        cells = [_bleu(by_key.get((size, k, window))) for size, k in rows]
        columns.append(Column(f"BLEU, window {window}", cells))
    papers = [paper.LATTICE_WINDOW_0.get(k) for _, k in rows]
    columns.append(Column("paper: BLEU, window 0", [number(one[0] if one else None) for one in papers]))
    notes = ["One layer, distilled data.", f"Paper: Table 2 of {PAPER}, validation set."]
    return noted(columns, notes, [Setting.of(one.record) for one in found])


def candidates_table(group: Sequence[Quality]) -> str | None:
    """Table 9: K with and without distillation, beside beam search of the autoregressive model."""
    found = [one for one in _shallow(latticed(group)) if one.window > 0 and one.candidates > 1]
    window = max((one.window for one in found), default=0)
    found = [one for one in found if one.window == window]
    rows = sorted({(one.size, one.data, one.candidates) for one in found})
    if len(rows) < 2:
        return None
    by_key = {(one.size, one.data, one.candidates): one for one in found}
    beam = Beams(group)
    papers = [paper.LATTICE.get((data, k)) for _, data, k in rows]
    columns = [
        Column("size", [size for size, *_ in rows], numeric=False),
        Column("data", [data for _, data, _ in rows], numeric=False),
        Column("K", [str(k) for *_, k in rows]),
        Column("BLEU", [_bleu(by_key[row]) for row in rows]),
        Column("BLEU − beam", [minus(by_key[row].bleu, beam.of(*row[:2])) for row in rows]),
        Column("paper: BLEU", [number(one[0] if one else None) for one in papers]),
        Column("paper: BLEU − beam", [minus(one[0] if one else None, paper.LATTICE_BEAM) for one in papers]),
        Column("paper: speed-up", [f"{one[1]:.2f}×" if one else NOTHING for one in papers]),
    ]
    told = str(beam)
    notes = [
        f"One layer, window {window}. Beam: autoregressive beam search by the model of the same size, and of the same "
        f"data where there is one{f' ({told})' if told else ''}.",
        f"Paper: Table 9 of {PAPER}; beam 5 has {paper.LATTICE_BEAM}.",
    ]
    return noted(columns, notes, [Setting.of(one.record) for one in found])


def depths_section(group: Sequence[Quality], records: Sequence[Record]) -> Section | None:
    """Table 3 and Figure 3: one to six layers of scorer and of plain one-pass model."""
    found = [one for one in latticed(group) if one.data == "distilled" and one.window > 0]
    found = [one for one in found if one.decoder == ONE_PASS or one.candidates == K]
    counts = {size: len({one.layers for one in found if one.size == size}) for size in {one.size for one in found}}
    if not counts or max(counts.values()) < 2:
        return None
    size = max(sorted(counts), key=lambda name: counts[name])
    found = [one for one in found if one.size == size]
    lattice = {one.layers: one for one in found if one.decoder == "lattice"}
    plain = {one.layers: one for one in found if one.decoder == ONE_PASS}
    depths = sorted({*lattice, *plain})
    speeds = _speeds(records)
    columns = [
        Column("layers", [str(depth) for depth in depths]),
        Column(f"lattice, K={K}: BLEU", [_bleu(lattice.get(depth)) for depth in depths]),
        Column("one pass: BLEU", [_bleu(plain.get(depth)) for depth in depths]),
        Column("lattice: × beam", [_speed(lattice.get(depth), speeds) for depth in depths]),
        Column("paper: × beam 5", [times(paper.LATTICE_DEPTHS.get(depth)) for depth in depths]),
    ]
    notes = [
        f"{size.capitalize()} size, distilled data; windows as the decoders have them. "
        "Speed-up over the first beam search of the same run, one sentence at a time.",
        f"Paper: Table 3 of {PAPER}, whose BLEU column repeats Table 9 and is left out; Figure 3 there has no figures.",
    ]
    text = noted(columns, notes, [Setting.of(one.record) for one in found])
    lines = [
        Line(name, tuple((float(depth), one.bleu) for depth, one in sorted(some.items()) if one.bleu is not None))
        for name, some in ((f"lattice, K={K}", lattice), ("one pass", plain))
        if some
    ]
    beam = Beams(group).of(size, "distilled")
    if beam is not None and depths:
        lines.append(Line("beam", tuple((float(depth), beam) for depth in depths), baseline=True))
    told = f"{found[0].record.workload.name}  ·  {size} size, distilled data"
    place = Place.of(group)
    chart = Chart(f"{place.name}-depths", "Quality by depth", told, (Panel("layers", "BLEU", tuple(lines), "whole"),))
    return place.section("lattice-depths", "depth of scorer and one-pass model", text, chart)


def _shallow(found: Sequence[Latticed]) -> list[Latticed]:
    return [one for one in found if one.decoder == "lattice" and one.layers == 1]


def _speeds(records: Sequence[Record]) -> dict[str, float]:
    """Model -> speed-up over beam search, from the latest race at batch size 1 that has both."""
    found = {}
    for race in races(records):
        rival = next((one for one in race.baselines if one.decoder.startswith("beam|")), None)
        if race.batch_size != 1 or rival is None:
            continue
        for one in race.records:
            decoder, options = read_signature(one.decoder)
            if decoder == "lattice" and options.get("candidates") == str(K):
                ratio = speed_up(one, rival)
                if ratio is not None:
                    found[one.model.hash] = ratio.value
    return found


def _speed(one: Latticed | None, speeds: dict[str, float]) -> str:
    return times(speeds.get(one.record.model.hash)) if one and one.record.model.hash else NOTHING


def _bleu(one: Latticed | None) -> str:
    return number(one.bleu if one else None)
