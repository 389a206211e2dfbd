"""Tables of analyses from hand-made records: the right figure in the right cell, and no table without records."""

from __future__ import annotations

import dataclasses
from typing import Any

from longstride.bench.page import results_pages, sections
from longstride.bench.record_parts import Counts, ModelTag, WorkloadTag
from longstride.bench.records import Contrastive, Quality
from longstride.bench.sources import sections as tables_of
from longstride.tasks.contrastive import Cell
from longstride.tasks.likelihood import MutualInformation
from longstride.tasks.score import LengthBin, Score

from .conftest import make_origin, make_quality, table_rows

PAIRS = WorkloadTag("pairs.json", "ef", 40)
TWO_ENDS = "2-directions-side-to-middle"


def quality(name: str, **more: Any) -> Quality:
    return make_quality(name, f"{name}|", model=f"{name}-model", **more)


def bins(*values: float, limits: tuple[int, ...] = (1, 9, 9, 30), signature: str = "tok:13a") -> tuple[LengthBin, ...]:
    return tuple(
        LengthBin(limits[2 * place], limits[2 * place + 1], 100, (Score("BLEU", value, signature),))
        for place, value in enumerate(values)
    )


def test_quality_by_length() -> None:
    records = [
        quality("greedy", by_length=bins(25.5, 21.25)),
        quality("interleaved", by_length=bins(24.5, 20.125)),
        quality("other bins", by_length=bins(1.0, 2.0, limits=(1, 8, 9, 30))),
        quality("other score", by_length=bins(1.0, 2.0, signature="tok:none")),
        quality("none"),
    ]
    (section,) = tables_of("analyses", records)
    heading, *rows = table_rows(section.text)
    assert heading == ["decoder", "model", "1-9", "9-30"]
    assert rows == [
        ["greedy", "greedy-model", "25.50", "21.25"],
        ["interleaved", "interleaved-model", "24.50", "20.12"],
    ]
    assert "in bins of 100 sentences" in section.text
    assert sections(records)[section.name] == section.text
    assert f"## {section.title}\n" in results_pages(records)["results/analyses.md"]


def test_long_tables_are_files_of_their_own() -> None:
    few, many = ([quality(f"k={k}", by_length=bins(25.0, 21.0)) for k in range(count)] for count in (24, 25))
    assert "| k=0 " in results_pages(few)["results/analyses.md"]
    pages = results_pages(many)
    assert "| k=0 " not in pages["results/analyses.md"]
    assert "[25 rows](tables/" in pages["results/analyses.md"]


def test_mutual_information_beside_the_papers() -> None:
    def found(nats: float, order: str, together: int) -> MutualInformation:
        return MutualInformation(nats, nats - 0.01, nats + 0.01, 6.0, 5.0, "base", order, together, "abc")

    records = [
        quality("sa", mutual_information=found(0.5, "left-to-right", 2)),
        quality("both-ends", mutual_information=found(-0.023, TWO_ENDS, 2)),
        quality("four", mutual_information=found(0.1, TWO_ENDS, 4)),
        quality("none"),
    ]
    again = dataclasses.replace(records[0], candidate="sa, another search")
    (section,) = tables_of("analyses", [*records, again])
    found_rows = table_rows(section.text)[1:]
    assert len(found_rows) == 3, "one row for a model, however often it was decoded"
    assert {row[0].removesuffix("-model"): row[1:] for row in found_rows} == {
        "sa": ["left-to-right", "2", "6.00", "5.00", "+0.500 (+0.490 to +0.510)", "+0.217", "+0.235"],
        "both-ends": [TWO_ENDS, "2", "6.00", "5.00", "-0.023 (-0.033 to -0.013)", "-0.010", "-0.014"],
        "four": [TWO_ENDS, "4", "6.00", "5.00", "+0.100 (+0.090 to +0.110)", "+0.043", "·"],
    }


def test_decoders_by_text() -> None:
    """BLEU beside greedy's of the same model and text; of two texts alone there is no table."""
    counts = Counts(100, 100, 200, 220, 0, 0, (), (), (), (), 0, 0)

    def scored(decoder: str, text: str, bleu: float) -> Quality:
        return make_quality(decoder, f"{decoder}|", bleu, workload=WorkloadTag(text, text, 20), counts=counts)

    home = [scored("greedy", "home", 20.0), scored("draft", "home", 15.0)]
    near = [scored("greedy", "near", 10.0), scored("draft", "near", 5.0)]
    assert tables_of("analyses", [*home, *near]) == []
    (section,) = tables_of("analyses", [*home, *near, scored("greedy", "away", 8.0)])
    assert table_rows(section.text) == [
        ["decoder", "home", "near", "away"],
        ["greedy", "20.0 / 100 / 2.00", "10.0 / 100 / 2.00", "8.0 / 100 / 2.00"],
        ["draft", "15.0 / 75 / 2.00", "5.0 / 50 / 2.00", "·"],
    ]


def test_contrastive_pairs_by_type_and_distance() -> None:
    first = Contrastive(
        make_origin(),
        "greedy",
        ModelTag("base", "ab"),
        PAIRS,
        "contrastive|…",
        (Cell("agreement", 1, 20, 19), Cell("agreement", 16, 10, 5), Cell("polarity", None, 10, 8)),
    )
    only = dataclasses.replace(first, candidate="interleaved", cells=(Cell("agreement", 2, 4, 3),))
    (section,) = tables_of("analyses", [first, only])
    heading, *rows = table_rows(section.text)
    assert heading == ["model", "scored by", "error", "pairs", "right, %", "at 1", "at 2", "at >15"]
    assert rows == [
        ["base", "greedy", "all", "40", "80.0", "95.0", "·", "50.0"],
        ["base", "greedy", "agreement", "30", "80.0", "95.0", "·", "50.0"],
        ["base", "greedy", "polarity", "10", "80.0", "·", "·", "·"],
        ["base", "interleaved", "agreement", "4", "75.0", "·", "75.0", "·"],
    ]
    assert section.name.startswith("contrastive/")
    later = dataclasses.replace(first, origin=dataclasses.replace(first.origin, date="2999-01-01"), cells=only.cells)
    (again,) = tables_of("analyses", [later, first])
    assert len(table_rows(again.text)) == 2  # the latest alone
    (both,) = tables_of("analyses", [dataclasses.replace(later, precision="int8"), first])
    assert table_rows(both.text)[0][:3] == ["model", "scored by", "precision"]
    assert {row[2] for row in table_rows(both.text)[1:]} == {"", "int8"}, "another precision is no repeat"


def test_nothing_asked_for_makes_no_table() -> None:
    assert tables_of("analyses", [quality("greedy")]) == []
