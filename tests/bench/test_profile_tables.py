"""Records of profiles come back as they were, and tables of them add up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longstride.bench.page import results_pages, sections
from longstride.bench.profile import with_weights
from longstride.bench.record_files import from_line, to_line
from longstride.bench.record_parts import MemoryUse, ModelTag, Stage
from longstride.bench.records import Profile
from longstride.bench.sources import in_words, profile_sections, profile_tables
from longstride.contract import InputError, OptionError
from tests.bench.conftest import TEST, make_origin, table_rows


def made(candidate: str = "draft-verify", peak: int | None = 3 * 2**20, **changes: Any) -> Profile:
    stages = (
        Stage("remember", 2, 400, 4_000_000),
        Stage("remember-draft", 2, 400, 4_000_000),
        Stage("choose", 8, 2_000, 1_000_000),
        Stage("verify", 8, 1_000, 2_000_000),
        Stage("search", 2, 100, 0),
    )
    settings: dict[str, Any] = {
        "origin": make_origin(),
        "candidate": candidate,
        "decoder": f"{candidate}|k:25",
        "model": ModelTag("base", "ab"),
        "workload": TEST,
        "batch_size": 1,
        "sentences": 2,
        "plain_us": (1_500, 2_500),
        "watched_us": 5_000,
        "stages": stages,
        "bandwidth": 1e11,
        "precision": "fp16",
        "runtime": "eager",
        "memory": MemoryUse(device_peak=peak),
        "reserved": None if peak is None else 2 * peak,
    }
    return Profile(**{**settings, **changes})


def test_a_record_comes_back_as_it_was() -> None:
    for record in (made(), made(bandwidth=None, peak=None, notes={"parts": {}})):
        assert from_line(to_line(record)) == record
    assert json.loads(to_line(made()))["kind"] == "profile"


def test_more_in_stages_than_in_the_whole_is_refused() -> None:
    with pytest.raises(OptionError, match="no more microseconds than the whole pass took, 3000, found 3900"):
        made(watched_us=3_000)
    with pytest.raises(OptionError, match="'sentences' expects 1 or more"):
        made(sentences=0)
    with pytest.raises(InputError, match="'watched_us' expects int"):
        from_line(to_line(made()).replace('"watched_us":5000', '"watched_us":"long"'))


def test_weights_are_told_by_stage() -> None:
    found = with_weights(made(), {"verify": 7})
    assert [stage.weights for stage in found.stages] == [None, None, None, 7, None]


def test_the_table_of_stages_adds_up() -> None:
    heading, *rows = table_rows(profile_tables([made()])[1])
    cells = [dict(zip(heading, row, strict=True)) for row in rows]
    assert [row["stage"] for row in cells] == [
        *("encoder", "drafter's encoder", "drafter", "verifier", "search", "all else"),
    ]
    assert sum(float(row["share, %"]) for row in cells) == pytest.approx(100)
    assert cells[2]["calls per sentence"] == "4.00"
    assert cells[2]["ms per sentence"] == "1.000"
    assert cells[2]["ms per call"] == "0.250"
    assert cells[3]["floor, ms per call"] == "0.020"
    assert cells[3]["times the floor"] == "6.2"
    assert [row["times the floor"] for row in cells[4:]] == ["·", "·"]


def test_parts_stand_below_their_stage_and_add_nothing() -> None:
    stages = (
        Stage("enter", 2, 900, 8_000_000),
        Stage("enter / remember", 2, 500, 4_000_000, "enter"),
        Stage("iterate 25", 8, 3_000, 3_000_000),
        Stage("enter / remember-draft", 2, 300, 4_000_000, "enter"),
        Stage("iterate 25 / verify", 8, 2_000, 2_000_000, "iterate 25"),
    )
    record = made(stages=stages)
    assert record.rest_us == 1_100
    assert from_line(to_line(record)) == record
    totals, text = profile_tables([record])
    heading, *rows = table_rows(text)
    assert [row[heading.index("stage")] for row in rows] == [
        *("encoders and entrance, recorded", "- encoder", "- drafter's encoder"),
        *("iteration, recorded (25)", "- verifier", "all else"),
    ]
    assert "With a dash" in text
    assert table_rows(totals)[1][table_rows(totals)[0].index("floor, ms")] == "0.200"


def test_the_table_of_totals_has_floor_and_memory() -> None:
    text = profile_tables([made(), made("greedy", peak=None, bandwidth=None)])[0]
    heading, first, second = table_rows(text)
    row = dict(zip(heading, first, strict=True))
    # (2 x 4 MB + 2 x 4 MB + 8 x 1 MB + 8 x 2 MB) / 2 sentences, at 100 GB/s
    assert (row["floor, ms"], row["ms per sentence"], row["times the floor"]) == ("0.200", "2.000", "10.0")
    assert (row["peak, MiB"], row["taken, MiB"], row["all else, %"]) == ("3", "6", "22.0")
    assert dict(zip(heading, second, strict=True))["floor, ms"] == "·"
    assert "100 GB/s" in text
    assert "GAD++ 1613 MiB" in text


def test_the_papers_figures_stand_where_a_draft_is_verified() -> None:
    assert "42.81 %" in profile_tables([made()])[1]
    assert "42.81 %" not in profile_tables([made("greedy")])[1]
    assert profile_tables([]) == []


def test_names_in_words() -> None:
    assert in_words("iterate 25") == "iteration, recorded (25)"
    assert in_words("something new") == "something new"


def test_sections_are_by_batch_size_and_keep_the_latest() -> None:
    later = make_origin(date="2024-06-01T10:00:00Z")
    records = [
        made(origin=later, plain_us=(9_000_000,)),
        made(),
        made(batch_size=8),
        made("greedy", order=1),
    ]
    found = profile_sections(records)
    assert [one.name.partition("/")[0] for one in found] == ["profile", "profile-stages", "profile-stages"]
    heading, *rows = table_rows(found[0].text)
    assert [(row[0], row[heading.index("batch size")]) for row in rows] == [
        *(("draft-verify", "1"), ("greedy", "1"), ("draft-verify", "8")),
    ]
    assert "4500.000" in found[0].text
    assert {row[0] for row in table_rows(found[2].text)[1:]} == {"draft-verify"}
    page = results_pages(records)["results/profiles.md"]
    assert page.startswith("# Profiles\n")
    assert [text for text in sections(records).values() if text not in page] == []


def test_what_profiles_share_is_told_once() -> None:
    heading, *_ = table_rows(profile_tables([made(), made("greedy", runtime="cuda-graph")])[0])
    assert heading[:3] == ["decoder", "runtime", "sentences"]
    assert "All: model base, precision fp16, batch size 1." in profile_tables([made(), made("greedy", runtime="x")])[0]
