"""Tables and charts of the interleaved and the lattice paper from hand-made records: each figure in its cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longstride.bench.page import paper_sections, sections
from longstride.bench.record_files import from_line, to_line
from longstride.bench.record_parts import Against, Counts, Curve, ModelTag, WorkloadTag
from longstride.bench.records import Curves, Latency, Quality, Record, Training
from longstride.bench.report import insert_all, render
from longstride.bench.sources import Section
from longstride.contract import OptionError
from longstride.tasks.bootstrap import Comparison
from longstride.tasks.score import LengthBin, Score

from .conftest import make_latency, make_origin, make_quality, table_rows

TEST = WorkloadTag("en-de test", "cd", 1000)
END = "eager|fp16|v0.1.0"


def quality(
    model: str, decoder: str, parts: dict[str, Any], bleu: float, steps: float, data: str, **more: Any
) -> Quality:
    experiment = "en-de interleaved" if "lattice" not in decoder and "non-auto" not in decoder else "en-de lattice"
    counts = Counts(round(1000 * steps), 0, 30_000, 31_000)
    given = {"experiment": experiment, "workload": TEST, "notes": {"parts": parts, "data": data}, **more}
    tag = ModelTag(model, f"hash-{model}")
    return make_quality(
        decoder.replace("|", " "), f"{decoder}|{END}", bleu, tag, counts=counts, precision="fp16", **given
    )


def transformer(model: str, width: int, bleu: float, steps: float, data: str, layers: int = 6, **more: Any) -> Quality:
    decoder = "greedy" if width == 1 else f"beam|width:{width}|n_best:1"
    return quality(model, decoder, {"model": _size(layers)}, bleu, steps, data, **more)


def interleaved(
    model: str, h: int, c: int, width: int, bleu: float, steps: float, data: str, layers: int = 6, dedup: int = 0,
    switches: dict[str, Any] | None = None, **more: Any,
) -> Quality:  # fmt: skip
    parts = {"model": _size(layers), "interleaving": {"h": h, "c": c, "width": 256, **(switches or {})}}
    decoder = f"interleaved|width:{width}|end:any-direction|dedup:{dedup}"
    return quality(model, decoder, parts, bleu, steps, data, **more)


def _size(layers: int) -> dict[str, Any]:
    return {"width": 256, "encoder_layers": 6, "decoder_layers": layers}


def lattice(
    model: str, k: int, window: int, bleu: float, data: str = "distilled", layers: int = 1, **more: Any
) -> Quality:
    parts = {"model": {"width": 256, "decoder_layers": layers, "order": 3}, "tables": {"entries": 5}}
    decoder = f"lattice|candidates:{k}|length_window:{window}|order:2|construction:tables|search:serial|n_best:1"
    return quality(model, f"{decoder}|normalise:vocabulary", parts, bleu, 1.0, data, **more)


def one_pass(model: str, bleu: float, layers: int) -> Quality:
    parts = {"model": {"width": 256, "decoder_layers": layers}}
    return quality(model, "non-autoregressive|length_window:3|dedup:0", parts, bleu, 1.0, "distilled")


def perplexity(value: float) -> tuple[Score, ...]:
    return (Score("perplexity", value, "p"),)


def bins(*values: float) -> tuple[LengthBin, ...]:
    return tuple(
        LengthBin(10 * place + 1, 10 * place + 10, 500, (Score("BLEU", value, "tok:13a"),))
        for place, value in enumerate(values)
    )


def tables(records: list[Any]) -> list[Section]:
    found = paper_sections(records)
    return [*found["interleaved"], *found["lattice"]]


def section(records: list[Any], name: str, place: str = "en-de-interleaved-en-de-test") -> Section:
    (found,) = [one for one in tables(records) if one.name == f"{name}/{place}"]
    return found


def rows(found: Section) -> list[list[str]]:
    """Headings first."""
    return table_rows(found.text)


def column(found: Section, heading: str) -> list[str]:
    table = rows(found)
    return [row[table[0].index(heading)] for row in table[1:]]


def names(records: list[Any]) -> set[str]:
    return {one.name.partition("/")[0] for one in tables(records)}


def test_linked_models_stand_beside_those_without_and_nowhere_else() -> None:
    linked = {"link": 64}
    records: list[Record] = [
        transformer("en-de-kd", 4, 25.0, 30.5, "distilled"),
        interleaved("en-de-ib", 2, 1, 4, 24.0, 15.5, "distilled"),
        interleaved("en-de-sa", 2, 2, 4, 20.5, 8.0, "distilled"),
        interleaved("en-de-sa", 2, 2, 1, 19.3, 7.9, "distilled"),
        interleaved("en-de-sa-linked", 2, 2, 4, 22.25, 8.1, "distilled", switches=linked),
        interleaved("en-de-sa-linked", 2, 2, 1, 21.5, 8.0, "distilled", switches=linked),
        interleaved("en-de-sa-linked", 2, 2, 4, 22.3, 8.1, "distilled", dedup=4, switches=linked),
        interleaved("en-de-lonely", 2, 3, 4, 22.0, 6.0, "distilled", switches=linked),
    ]
    found = section(records, "interleaved-links")
    assert column(found, "beam") == ["4", "1"]
    assert column(found, "BLEU") == ["20.50", "19.30"]
    assert column(found, "linked: BLEU") == ["22.25", "21.50"]
    assert column(found, "linked − unlinked") == ["+1.75", "+2.20"]
    assert "22.25" not in section(records, "interleaved").text
    assert "interleaved-links" not in names(records[:4])


def test_table_1_has_both_data_steps_and_training_speed() -> None:
    comparison = Comparison("BLEU", "tok:13a", 25.0, 24.6, -0.4, -0.7, -0.1, 0.01, 1000, 1)
    records: list[Record] = [
        transformer("en-de-small", 4, 24.0, 30.0, "original"),
        transformer("en-de-kd", 4, 25.0, 30.5, "distilled"),
        transformer("en-de-kd", 1, 24.5, 30.0, "distilled"),
        interleaved("en-de-ib", 2, 1, 4, 23.3, 15.5, "original"),
        interleaved(
            "en-de-ib-kd",
            2,
            1,
            4,
            24.6,
            15.0,
            "distilled",
            against=(Against("out/kd.test/beam.txt", 1000, comparison),),
        ),
        interleaved("en-de-ib-kd", 2, 1, 4, 24.7, 15.0, "distilled", dedup=4),
        Training(make_origin(), "en-de-speed-kd", "small.yaml", 1, 300, 1.0, 1000.0),
        Training(make_origin(), "en-de-speed-ib-kd", "x.yaml", 1, 300, 1.0, 970.0),
    ]
    found = section(records, "interleaved")
    table = rows(found)
    assert [row[:3] for row in table[1:]] == [
        ["small", "Transformer", "4"],
        ["small", "Transformer", "1"],
        ["small", "IBDecoder", "4"],
    ]
    assert column(found, "BLEU") == ["24.00", "·", "23.30"]
    assert column(found, "KD: BLEU") == ["25.00", "24.50", "24.60"]
    assert column(found, "KD: BLEU − Transformer")[2] == "−0.40 (−0.70 to −0.10)"
    assert column(found, "steps") == ["30.50", "30.00", "15.00"]
    assert column(found, "training speed") == ["1.00×", "·", "0.97×"]
    assert column(found, "paper, KD: BLEU") == ["27.3", "26.8", "27.1"]
    # Without a run alone on the device, the trainings themselves, marked.
    records[-2:] = [
        Training(make_origin(), "a", "a.yaml", 1, 300, 1.0, 1000.0, model_hash="hash-en-de-kd"),
        Training(make_origin(), "b", "b.yaml", 1, 300, 1.0, 900.0, model_hash="hash-en-de-ib-kd"),
    ]
    found = section(records, "interleaved")
    assert column(found, "training speed")[2] == "0.90× *"
    assert "*: trained beside others." in found.text


def test_tables_2_and_3_read_the_switches() -> None:
    records: list[Record] = [
        transformer("small", 4, 24.0, 30.0, "original", scores=perplexity(5.0)),
        interleaved("ib", 2, 1, 4, 23.0, 15.0, "original", scores=perplexity(6.0)),
        interleaved("mask", 2, 1, 4, 22.5, 15.0, "original", switches={"mask": "vanilla"}),
        interleaved("sides", 2, 1, 4, 18.0, 15.0, "original", switches={"order": "middle-to-side"}),
        interleaved("sa2", 1, 2, 4, 21.0, 15.0, "original", scores=perplexity(10.0)),
        interleaved("sa4", 1, 4, 4, 16.0, 8.0, "original", scores=perplexity(20.0)),
        interleaved("one", 2, 1, 4, 23.5, 30.0, "original", switches={"autoregressive": True}, scores=perplexity(5.5)),
        interleaved("kd", 2, 1, 4, 25.0, 15.0, "distilled"),
    ]
    found = section(records, "ablations")
    assert column(found, "model") == [
        "IBDecoder",
        "IBDecoder, vanilla mask",
        "IBDecoder, middle to side",
        "vanilla SA, c=2",
        "vanilla SA, c=4",
    ]
    assert column(found, "BLEU − IBDecoder") == ["·", "−0.50", "−5.00", "−2.00", "−7.00"]
    assert column(found, "paper: BLEU") == ["26.2", "25.7", "20.7", "24.1", "18.7"]
    found = section(records, "factorisations")
    assert column(found, "one word per step") == ["5.00", "5.50"]
    assert column(found, "two words") == ["10.00", "6.00"]
    assert column(found, "PMI, nats") == ["0.693", "0.087"]
    assert column(found, "PMI, log10") == ["0.301", "0.038"]


def test_table_4_sets_students_beside_the_full_models() -> None:
    records = [
        transformer("small", 4, 24.0, 30.0, "original"),
        transformer("student", 4, 23.0, 30.0, "original", layers=2),
        transformer("student-kd", 4, 24.1, 30.0, "distilled", layers=2),
        interleaved("ib", 2, 1, 4, 23.0, 15.0, "original"),
        interleaved("ib-student-kd", 2, 1, 4, 23.9, 15.0, "distilled", layers=2),
    ]
    found = section(records, "students")
    assert [row[1:5] for row in rows(found)[1:]] == [
        ["Transformer", "6", "original", "24.00"],
        ["Transformer", "2", "original", "23.00"],
        ["Transformer", "2", "distilled", "24.10"],
        ["IBDecoder", "6", "original", "23.00"],
        ["IBDecoder", "2", "distilled", "23.90"],
    ]
    assert column(found, "paper: BLEU") == ["26.9", "26.0", "26.7", "26.2", "26.6"]


def timed(name: str, decoder: str, part: dict[str, Any], speed: float, batch: int, **more: Any) -> Latency:
    one = make_latency(name, speed=speed, batch_size=batch, spread=0.0, origin=make_origin("batches"), **more)
    return replace(one, decoder=f"{decoder}|{END}", notes={"parts": part})


def test_figure_2_compares_at_the_same_batch_and_beam() -> None:
    ib = {"interleaving": {"h": 2, "c": 1}}
    records: list[Any] = []
    for batch in (1, 8):
        records += [
            timed("v greedy", "greedy", {}, 1.0, batch, role="baseline", order=0),
            timed("v beam", "beam|width:4", {}, 0.5, batch, role="baseline", order=1),
            timed("ib greedy", "interleaved|width:1", ib, 2.0, batch, order=2),
            timed("ib beam", "interleaved|width:4", ib, 1.5, batch, order=3),
        ]
    found = section(records, "batches", "batches-en-de-test-fast-device")
    assert [row[:2] for row in rows(found)[1:]] == [["IBDecoder", "1"], ["IBDecoder", "4"]]
    for heading in ("batch 1", "batch 8"):
        ratios = [float(cell.removesuffix("×")) for cell in column(found, heading)]
        assert ratios == pytest.approx([2.0, 3.0], rel=0.03)
    (chart,) = found.charts
    assert [line["name"] for line in chart.shown[0]["lines"]] == ["IBDecoder, beam 1", "IBDecoder, beam 4"]


def test_figures_3_and_4() -> None:
    over = (Score("OTEM-2", 1.5, "otem"),)
    records = [
        transformer("kd", 4, 25.0, 30.0, "distilled", by_length=bins(26.0, 24.0)),
        interleaved("ib", 2, 1, 4, 24.6, 15.0, "distilled", by_length=bins(25.5, 23.0), scores=over),
        interleaved("sa", 2, 2, 4, 23.6, 8.0, "distilled", by_length=bins(25.0, 21.0), scores=over),
        interleaved("c4", 2, 4, 4, 20.0, 4.0, "distilled", scores=over),
        interleaved("c4", 2, 4, 4, 21.0, 4.0, "distilled", dedup=4, scores=over),
        interleaved("c4-original", 2, 4, 4, 15.0, 4.0, "original"),
    ]
    found = section(records, "lengths")
    assert rows(found)[0] == ["source tokens", "sentences", "Transformer", "IBDecoder", "IBDecoder + SA"]
    assert rows(found)[2] == ["11 to 20", "500", "24.00", "23.00", "21.00"]
    found = section(records, "words-per-step")
    assert column(found, "c") == ["1", "2", "4"]
    assert column(found, "steps") == ["15.00", "8.00", "4.00"]
    assert column(found, "BLEU: KD") == ["24.60", "23.60", "20.00"]
    assert column(found, "BLEU: KD, de-duplicated") == ["·", "·", "21.00"]
    assert column(found, "BLEU: original") == ["·", "·", "15.00"]
    assert [panel["y"] for panel in found.charts[0].shown] == ["BLEU", "OTEM-2 (less is better)"]


def test_lattice_tables_2_and_9() -> None:
    records = [
        *(lattice("kd", k, window, 10 + k / 10 + window) for k in (1, 32, 64, 128) for window in (0, 3)),
        *(lattice("original", k, 3, 8 + k / 10, data="original") for k in (32, 64, 128)),
        transformer("small", 5, 25.0, 30.0, "original", experiment="en-de lattice"),
        lattice("deep", 64, 3, 20.0, layers=2),
    ]
    place = "en-de-lattice-en-de-test"
    found = section(records, "lattice-windows", place)
    assert column(found, "K") == ["128", "64", "32", "1"]
    assert column(found, "BLEU, window 0") == ["22.80", "16.40", "13.20", "10.10"]
    assert column(found, "BLEU, window 3")[1] == "19.40"
    assert column(found, "paper: BLEU, window 0") == ["·", "31.05", "30.16", "5.10"]
    found = section(records, "lattice-candidates", place)
    assert [row[1:5] for row in rows(found)[1:]][:2] == [
        ["distilled", "32", "16.20", "−8.80"],
        ["distilled", "64", "19.40", "−5.60"],
    ]
    assert column(found, "paper: BLEU − beam") == ["−3.56", "−2.63", "−2.44", "−4.46", "−3.31", "−3.13"]


def test_lattices_are_compared_with_the_model_of_their_size_and_data() -> None:
    other = {"experiment": "en-de lattice"}
    records = [
        lattice("kd", 64, 3, 20.0),
        lattice("original", 64, 3, 18.0, data="original"),
        transformer("small-distilled", 5, 26.0, 30.0, "distilled", **other),
        transformer("small", 5, 25.0, 30.0, "original", **other),
        *(lattice(f"l{depth}", 64, 3, 20.0 + depth, layers=depth) for depth in (2, 6)),
    ]
    found = section(records, "lattice-candidates", "en-de-lattice-en-de-test")
    assert column(found, "BLEU − beam") == ["−6.00", "−7.00"]
    assert "(small distilled: 26.00; small original: 25.00)" in found.text
    beam = section(records, "lattice-depths", "en-de-lattice-en-de-test").charts[0].shown[0]["lines"][-1]
    assert (beam["name"], beam["points"][0]) == ("beam", (1.0, 26.0))


def test_lattice_depths_beside_the_one_pass_model() -> None:
    records = [
        *(lattice(f"l{depth}", 64, 3, 20.0 + depth, layers=depth) for depth in (1, 2, 6)),
        *(one_pass(f"n{depth}", 10.0 + depth, depth) for depth in (1, 6)),
    ]
    found = section(records, "lattice-depths", "en-de-lattice-en-de-test")
    assert column(found, "layers") == ["1", "2", "6"]
    assert column(found, "lattice, K=64: BLEU") == ["21.00", "22.00", "26.00"]
    assert column(found, "one pass: BLEU") == ["11.00", "·", "16.00"]
    assert [line["name"] for line in found.charts[0].shown[0]["lines"]] == ["lattice, K=64", "one pass"]


def curves(name: str, model: str, places: tuple[float, ...], **values: tuple[float, ...]) -> Curves:
    lines = tuple(Curve(one.replace("_", "-"), some) for one, some in values.items())
    return Curves(make_origin("en-de lattice"), name, ModelTag(model), TEST, "axis", places, lines, "lattice|K")


def test_curves_become_figures() -> None:
    records = [
        curves("recall", "lattice", (1, 2, 64), tables=(0.3, 0.4, 0.9), shared=(0.1, 0.1, 0.5)),
        curves("recall", "nat", (1, 2, 64), one_pass=(0.5, 0.6, 0.95)),
        curves("ranks", "lattice", (1, 2, 3, 4), edges=(50, 30, 10, 10)),
        curves(
            "stages", "lattice", tuple(range(5, 35)), encode=(500.0,) * 30, search=tuple(10.0 * n for n in range(30))
        ),
    ]
    assert [from_line(to_line(one)) for one in records] == records
    place = "en-de-lattice-en-de-test"
    found = section(records, "recall", place)
    assert rows(found)[0] == ["K", "tables", "shared", "one-pass (nat)"]
    assert rows(found)[-1] == ["64", "90.0", "50.0", "95.0"]
    found = section(records, "ranks", place)
    assert column(found, "first") == ["50.0"]
    assert column(found, "first 3") == ["90.0"]
    found = section(records, "stages", place)
    assert column(found, "output tokens")[0] == "5 to 7"
    assert column(found, "together, ms")[0] == "0.510"


def test_curves_have_a_value_for_each_place() -> None:
    with pytest.raises(OptionError, match="'curves' expects 3 values of a, found 2"):
        curves("recall", "m", (1, 2, 3), a=(1.0, 2.0))


def test_nothing_is_made_of_nothing() -> None:
    assert names([]) == set()
    assert names([transformer("small", 4, 24.0, 30.0, "original")]) == set()
    assert names([lattice("kd", 64, 3, 20.0)]) == set()


def test_the_results_page_shows_tables_and_draws_charts(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records: list[Any] = [
        transformer("kd", 4, 25.0, 30.0, "distilled", by_length=bins(26.0, 24.0, 23.0)),
        interleaved("ib", 2, 1, 4, 24.6, 15.0, "distilled", by_length=bins(25.5, 23.0, 22.0)),
        curves("recall", "lattice", (1, 2, 64), tables=(0.3, 0.4, 0.9)),
    ]
    charts = ["en-de-interleaved-en-de-test-source-lengths.svg", "en-de-lattice-en-de-test-recall.svg"]
    assert {*charts, "results.md", "interleaved.md", "lattice.md"} <= {path.name for path in render(records, tmp_path)}
    page = (tmp_path / "results" / "interleaved.md").read_text()
    assert "![Quality by source length](../figures/en-de-interleaved-en-de-test-source-lengths.svg)" in page
    assert render(records, tmp_path, check=True) == []
    assert "recall/en-de-lattice-en-de-test" in sections(records)
    other = tmp_path / "README.md"
    other.write_text("<!-- report:figure/en-de-lattice-en-de-test-recall -->\n<!-- /report -->\n")
    assert insert_all(other, records, tmp_path)
    assert "figures/en-de-lattice-en-de-test-recall.svg" in other.read_text()
    # Other data, another chart; no data, no chart.
    records[2] = curves("recall", "lattice", (1, 2, 64), tables=(0.3, 0.4, 0.8))
    assert [path.name for path in render(records, tmp_path)] == [charts[1], "lattice.md"]
    assert [path.name for path in render(records[:2], tmp_path)] == [charts[1], "results.md", "lattice.md"]
    assert not (tmp_path / "results" / "lattice.md").exists()
