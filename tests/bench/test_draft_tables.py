"""The papers' tables from hand-made records: the right figure in the right cell, and no table without records."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from longstride.bench.page import paper_sections, results_pages, sections
from longstride.bench.record_parts import Against, Agreement, Counts, Equality, Mismatch, ModelTag
from longstride.bench.records import Exactness, Quality, Record
from longstride.bench.sources import Section, list_table
from longstride.bench.table import comma_separated
from longstride.bench.view import Scope, View
from longstride.tasks.bootstrap import Comparison
from longstride.tasks.score import Score
from longstride.verification.exactness import BatchInvarianceReport

from .conftest import TEST, make_latency, make_origin, make_quality, table_rows

END = "adaptive:false|eager|fp16|v0.1.0"


def quality(model: str, decoder: str, bleu: float, block: float = 1.0, **more: Any) -> Quality:
    """Made up: `block` tokens per iteration, all iterations verifying."""
    counts = Counts(
        10_000, 12_000, round(10_000 * block) - 2000, round(10_000 * block), 40_000, 20_000,
        (10_000,) * 4, (10_000, 8000, 4000), (8000, 4000), (), 10_000, round(10_000 * block),
    )  # fmt: skip
    given = {"counts": counts, "precision": "fp16", "scores": (Score("repetition", 0.2, "words"),), **more}
    return make_quality(decoder.replace("|", " "), decoder, bleu, model, "en-de", **given)


def blockwise(
    model: str, k: int, bleu: float, block: float, accept: str = "exact", least: int = 1, **more: Any
) -> Quality:
    return quality(model, f"blockwise|k:{k}|accept:{accept}|min_block:{least}|{END}", bleu, block, **more)


def drafted(model: str, k: int, bleu: float, block: float, accept: str = "exact", **more: Any) -> Quality:
    drafter = {"block": k, "encoder": "shared", "decoder_layers": 6, "width": 512, **more.pop("drafter", {})}
    notes = {"parts": {"drafter": drafter}}
    return quality(model, f"draft-verify|k:{k}|accept:{accept}|min_block:1|{END}", bleu, block, notes=notes, **more)


FROZEN = {"frozen": True, "data": "distilled", "base_data": "distilled"}
TUNED = {"frozen": False, "data": "distilled", "base_data": "distilled"}
MIXED = {"frozen": True, "data": "distilled", "base_data": "original"}


def tables(records: list[Record]) -> list[Section]:
    found = paper_sections(records)
    return [*found["blockwise"], *found["drafts"]]


def table(records: list[Quality], name: str) -> tuple[list[list[str]], str]:
    """The rows of a section's table, headings first, and the notes below."""
    found: list[Record] = list(records)
    (section,) = [one for one in tables(found) if one.name == f"{name}/en-de-en-de-test"]
    return table_rows(section.text), section.text.splitlines()[-1]


def test_blockwise_has_a_row_per_k_and_a_column_per_model() -> None:
    same = Equality("greedy", 2000, 0)
    records = [
        blockwise("frozen", 1, 25.0, 1.0, notes=FROZEN, equality=same),
        blockwise("frozen", 8, 25.0, 1.91, notes=FROZEN, equality=Equality("greedy", 2000, 3)),
        blockwise("tuned", 8, 24.6, 4.7, notes=TUNED),
        blockwise("mixed", 8, 24.8, 1.8, notes=MIXED),
        blockwise("frozen", 8, 24.0, 2.5, accept="top:2", notes=FROZEN),
    ]
    tree = f"blockwise|k:8|accept:exact|min_block:1|tree:16|{END}"
    records.append(quality("frozen", tree, 25.0, 2.6, notes=FROZEN))
    (heading, first, second), notes = table(records, "blockwise")
    assert heading == [
        "k",
        "frozen; base: original, heads: distilled",
        "frozen; base: distilled, heads: distilled",
        "paper, Distillation",
        "fine-tuned; base: distilled, heads: distilled",
        "paper, Both",
    ]
    assert first == ["1", "·", "25.00 / 1.00", "26.41 / 1.00", "·", "·"]
    assert second == ["8", "24.80 / 1.80", "25.00 / 1.91", "26.25 / 1.91", "24.60 / 4.70", "26.11 / 4.69"]
    assert "3 of 2,000 outputs, at most, differ from those of greedy" in notes
    assert "tok:13a" in notes


def test_every_precision_has_a_table_of_its_own() -> None:
    records: list[Record] = [blockwise("frozen", k, 25.0, 1.5, notes=FROZEN) for k in (1, 4, 8)]
    records += [blockwise("frozen", k, 24.0, 1.5, notes=FROZEN, precision="int8") for k in (1, 8)]
    found = {one.name: one for one in tables(records) if one.name.startswith("blockwise/")}
    assert set(found) == {"blockwise/en-de-en-de-test", "blockwise/en-de-int8-en-de-test"}
    first, second = found.values()
    assert (first.text.count("25.00 /"), first.text.count("24.00 /")) == (3, 0)
    assert (second.text.count("25.00 /"), second.text.count("24.00 /")) == (0, 2)
    assert second.title == "en-de, int8: blockwise parallel decoding by block size, en-de test"
    listed = sections(records)["quality/en-de-en-de-test"]
    assert listed.count("| fp16 ") == 3
    assert listed.count("| int8 ") == 2, "a list has them side by side"


def test_other_acceptance_stands_beside_exact() -> None:
    records = [
        blockwise("tuned", 1, 25.0, 1.0, notes=TUNED),
        blockwise("tuned", 8, 24.6, 4.7, notes=TUNED),
        blockwise("tuned", 8, 24.2, 5.3, accept="top:2", notes=TUNED),
        blockwise("tuned", 8, 22.0, 5.0, least=2, notes=TUNED),
        blockwise("frozen", 8, 24.9, 2.1, accept="top:2", notes=FROZEN),
        blockwise("mixed", 8, 24.9, 1.9, notes=MIXED),
    ]
    (heading, frozen, tuned), _ = table(records, "blockwise-variants")
    assert heading == ["model", "k", "exact", "exact, at least 2", "top:2", "paper, top:2"]
    assert tuned[1:] == ["8", "24.60 / 4.70", "22.00 / 5.00", "24.20 / 5.30", "25.71 / 5.34"]
    assert frozen[1:] == ["8", "·", "·", "24.90 / 2.10", "·"], "the paper has top-2 for the last column alone"


def test_pictures_have_a_table_of_their_own() -> None:
    taken = {"notes": {"frozen": True, "data": "original", "base_data": "original"}}
    records = [
        dataclasses.replace(one, scores=(Score("PSNR", 19.2, "psnr"), *one.scores[1:]))
        for one in [blockwise("faces", 10, 0, 1.6, "distance:2", **taken), blockwise("faces", 10, 0, 1.1, **taken)]
    ]
    (heading, row), notes = table(records, "blockwise-pictures")
    assert heading == ["heads", "k", "exact", "distance:2", "paper, distance:2"]
    assert row == ["Regular", "10", "19.20 dB / 0.90", "19.20 dB / 1.40", "1.40"], "tokens without the end"
    assert "Table 2" in notes
    assert not [one for one in tables(list(records)) if one.name.startswith(("blockwise/", "blockwise-variants/"))]


def methods() -> list[Quality]:
    found = Comparison("BLEU", "x", 25.0, 25.2, 0.2, 0.05, 0.41, 0.02, 1000, 1)
    against = (Against("greedy", 2000, found),)
    return [
        drafted("d", 25, 25.2, 7.0, accept="top:3,gap:1.0", against=against),
        drafted("d", 25, 25.0, 5.0, equality=Equality("greedy", 2000, 0)),
        quality("d", "draft|k:25|eager|fp16|v0.1.0", 22.5, 20.0, notes={"parts": {"drafter": {"block": 25}}}),
        quality("d", "beam|width:5|eager|fp16|v0.1.0", 25.4),
        dataclasses.replace(quality("d", "greedy|eager|fp16|v0.1.0", 25.0), role="baseline", candidate="greedy"),
        drafted("d", 25, 24.0, 9.0, accept="top:9,gap:9.0"),
        quality("unrelated", "greedy|eager|fp16|v0.1.0", 30.0),
    ]


def test_methods_are_those_of_the_paper_in_its_order() -> None:
    (heading, *rows), notes = table(methods(), "drafts")
    assert [row[0] for row in rows] == [
        "verifier, beam 5",
        "verifier, greedy",
        "drafter alone (k=25)",
        "GAD (k=25)",
        "GAD++ (k=25, top:3,gap:1.0)",
    ]
    assert heading[-3:] == ["paper: BLEU", "paper: iterations", "paper: repetition, %"]
    told = dict(zip(heading, rows[-1], strict=True))
    assert told["BLEU"] == "25.20"
    assert told["tokens/iteration"] == "6.80"  # as the paper counts, without EOS: 7.00 with it
    assert told["iterations"] == "5.00"
    assert told["BLEU − greedy"] == "+0.20 (+0.05 to +0.41)"
    assert dict(zip(heading, rows[-2], strict=True))["differ from greedy"] == "0 of 2,000"
    assert rows[-1][-3:] == ["28.89", "4.0", "0.17"]
    assert "95 % intervals" in notes


def test_the_sweep_says_what_the_development_set_chooses() -> None:
    figures = {(3, 1.0): (7.0, 25.3), (3, 2.0): (8.0, 25.1), (5, 1.0): (7.1, 25.2), (5, 2.0): (8.4, 24.9)}
    records = [
        drafted("d", 25, bleu, tokens, accept=f"top:{beta},gap:{gap}")
        for (beta, gap), (tokens, bleu) in figures.items()
    ]
    records.append(quality("d", "greedy|eager|fp16|v0.1.0", 25.0))
    (heading, *rows), notes = table(records, "sweep")
    assert heading == ["gap τ", "top-3", "paper, top-3", "top-5", "paper, top-5"]
    assert rows[1] == ["2", "7.80 / 25.10", "8.64 / 26.92", "8.20 / 24.90", "8.77 / 26.92"]
    assert "the best BLEU is that of top:3,gap:1.0" in notes
    assert "the fastest that has no less is top:3,gap:2.0" in notes


def test_block_sizes_and_makes_of_drafters() -> None:
    records = [
        drafted("k10", 10, 25.0, 4.0, drafter={"block": 10}),
        drafted("k25", 25, 25.0, 5.0),
        drafted("k25", 25, 25.1, 6.0, accept="top:3,gap:1.0"),
        drafted("k25", 10, 25.0, 3.9, drafter={"block": 25}),
        drafted("own", 25, 25.0, 5.2, drafter={"encoder": "own"}),
        drafted("shallow", 25, 25.0, 3.2, drafter={"decoder_layers": 1}),
        quality("own", "draft|k:25|eager|fp16|v0.1.0", 22.5, 20.0, notes={"parts": {"drafter": {"block": 25}}}),
    ]
    (heading, *rows), notes = table(records, "block-sizes")
    assert [row[0] for row in rows] == ["10", "25"]
    assert rows[0][1:] == ["3.80", "25.00", "·", "·", "5.97", "26.68"]
    assert rows[1][1:] == ["4.80", "25.00", "5.80", "25.10", "7.56", "26.92"]
    assert "6 layers of width 512, encoder shared" in notes
    (heading, *rows), _ = table(records, "drafters")
    told = [dict(zip(heading, row, strict=True)) for row in rows]
    assert [one["drafter"] for one in told] == ["k10", "k25", "own", "shallow"]
    assert [one["encoder"] for one in told] == ["shared", "shared", "own", "shared"]
    assert [one["decoder layers"] for one in told] == ["6", "6", "6", "1"]
    assert told[2]["drafter alone: BLEU"] == "22.50"


def test_places_are_chances_given_what_came_before() -> None:
    records = [blockwise("m", k, 25.0, 2.0) for k in (4, 8)]
    (heading, only), _ = table(records, "places")
    assert heading == ["decoder", "model", "1", "2", "3"]
    assert only[0].startswith("blockwise k:8"), "the largest block says most"
    assert only[2:] == ["0.80", "0.50", "0.00"]


@pytest.mark.parametrize("baseline", [False, True])
def test_a_run_without_a_baseline_has_no_speed_ups(baseline: bool) -> None:
    """As bench --no-baselines leaves it."""
    rivals: list[Record] = [make_latency("greedy", role="baseline")] if baseline else []
    found = [
        dataclasses.replace(make_latency(f"blockwise k={k}", order=k), decoder=f"blockwise|k:{k}|accept:exact|tree:0")
        for k in (2, 4, 8)
    ]
    (clock,) = (one for one in tables([*rivals, *found]) if one.name.startswith("blockwise-clock/"))
    heading, *rows = table_rows(clock.text)
    assert heading == ["k", "mean accepted block", "ms", *(["over greedy"] if baseline else [])]
    assert [row[0] for row in rows] == ["2", "4", "8"]
    assert sections([*rivals, *found])


def test_without_records_there_is_no_table() -> None:
    lone: list[Record] = [
        make_latency("greedy"),
        blockwise("m", 8, 25.0, 2.0),
        quality("m", "greedy|eager|fp16|v0.1.0", 25.0),
        quality("m", "beam|width:5|eager|fp16|v0.1.0", 25.0),
    ]
    assert tables(lone) == []
    assert list_table("exactness", lone) is None


def test_old_records_have_no_mean_block_and_are_still_told() -> None:
    old = [dataclasses.replace(blockwise("m", k, 25.0, 2.0), counts=Counts(10, 12, 18, 20, drafted=30)) for k in (4, 8)]
    (_, *rows), _ = table(old, "blockwise")
    assert [row[0] for row in rows] == ["4", "8"]


def test_a_signature_is_read_back() -> None:
    one = View(blockwise("m", 8, 25.0, 2.0, accept="top:3,gap:1.5", least=2), Scope())
    names = ("decoder", "k", "accept", "min_block", "top", "gap", "exact")
    assert [one[name] for name in names] == ["blockwise", 8, "top:3,gap:1.5", 2, 3, 1.5, False]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_exactness_is_told_with_its_margins(precision: str) -> None:
    record = Exactness(
        make_origin("en-de"), "blockwise", "blockwise|k:8", ModelTag("frozen"), TEST, 512,
        Agreement("greedy by the same steps", 2000, 0),
        Agreement("greedy", 2000, 2, (Mismatch(1, 3, 40, 41, 0.002), Mismatch(5, 3, 40, 41, 0.004))),
        precision=precision, runtime="eager", place=BatchInvarianceReport(512, 8, 0, 0, 1, 0.01),
    )  # fmt: skip
    older = dataclasses.replace(record, origin=make_origin("en-de", date="2020-01-01"), batch_size=3)
    text = list_table("exactness", [record, older])
    assert text is not None
    heading, row = table_rows(text)  # the latest alone
    told = dict(zip(heading, row, strict=True))
    assert told["differ, same shape"] == "0 of 2,000"
    assert told["differ, width 1"] == "2 of 2,000"
    assert told["margin there: median"] == "0.0030"
    assert told["largest"] == "0.0040"
    assert told["moved slots"] == "1 of 4,096"
    assert "device" not in told, "it is the same for all, and told below"
    assert "Margin: " in text
    same = dataclasses.replace(record, width_one=record.same_shape, precision="fp64")
    text = list_table("exactness", [record, same])
    assert text is not None
    assert [row[3] for row in table_rows(text)[1:]] == ["fp64", precision], "from high precision to low"
    alone = list_table("exactness", [same])
    assert alone is not None
    assert "argin" not in alone, "none was looked at"


def test_the_page_shows_them_all() -> None:
    records: list[Record] = [*methods(), blockwise("m", 4, 25.0, 2.0), blockwise("m", 8, 25.0, 2.0)]
    page = "".join(results_pages(records).values())
    found = sections(records)
    assert {"drafts/en-de-en-de-test", "blockwise/en-de-en-de-test"} <= set(found)
    for name in found:
        assert found[name] in page or comma_separated(found[name]) in page
