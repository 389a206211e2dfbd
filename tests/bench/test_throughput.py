"""Throughput by batch size, from hand-made records: a row per decoder, a column per batch size, ratios within one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longstride.bench.page import sections
from longstride.bench.records import Latency
from longstride.bench.sources import sections as tables_of

from .conftest import make_latency, table_rows


def timed(name: str, size: int, microseconds: int, role: str = "candidate", order: int = 0) -> Latency:
    """Every call of every pass takes so long."""
    made = make_latency(name, role=role, order=order, batch_size=size, sentences=24)
    return replace(made, latencies_us=tuple(tuple(microseconds for _ in one) for one in made.latencies_us))


RECORDS = [
    timed("greedy", 1, 10_000, "baseline"),
    timed("drafts", 1, 4_000, order=1),
    timed("greedy", 8, 20_000, "baseline"),
    timed("drafts", 8, 25_000, order=1),
    timed("lattice", 8, 1_000, order=2),
]


def test_every_rate_and_ratio_stands_in_its_cell() -> None:
    (section,) = tables_of("throughput", RECORDS)
    assert table_rows(section.text) == [
        ["decoder", "batch 1", "batch 8"],
        ["greedy", "100 (1.00×)", "400 (1.00×)"],
        ["drafts", "250 (2.50×)", "320 (0.80×)"],
        ["lattice", "·", "8,000 (20.00×)"],
    ]
    (panel,) = section.charts[0].shown
    drawn = {line["name"]: line["points"] for line in panel["lines"]}["drafts"]
    assert [size for size, _ in drawn] == [1.0, 8.0]
    assert [rate for _, rate in drawn] == pytest.approx([250.0, 320.0])
    assert section.name in sections(RECORDS)


@pytest.mark.parametrize(
    "records", [RECORDS[:2], [], [replace(one, role="candidate") for one in RECORDS]], ids=["one size", "none", "alone"]
)
def test_nothing_is_made_of_one_batch_size_or_without_a_baseline(records: list[Latency]) -> None:
    assert tables_of("throughput", records) == []
