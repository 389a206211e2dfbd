import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longstride.bench.record_files import append_records, from_line, read_records, to_line
from longstride.bench.record_parts import Agreement, Counts, Curve, MemoryUse, Mismatch, ModelTag, Stage, WorkloadTag
from longstride.bench.records import (
    KINDS,
    Contrastive,
    Curves,
    Distillation,
    Exactness,
    Profile,
    Quality,
    Record,
    Training,
)
from longstride.bench.traced_pass import count
from longstride.contract import Event, InputError, Trace, WorkError
from longstride.tasks.contrastive import Cell
from longstride.tasks.likelihood import MutualInformation
from longstride.tasks.score import LengthBin, Score
from longstride.verification.exactness import BatchInvarianceReport

from .conftest import make_latency, make_origin

SCORES = (Score("BLEU", 25.5, "tok:13a"),)
RECORDS: list[Record] = [
    make_latency("greedy", role="baseline"),
    make_latency("peer", sample=(1, 5, 9)),
    make_latency("greedy", role="baseline", batch_size=8),
    Quality(make_origin(), "beam", "beam|width:5", ModelTag("base", "ab"), WorkloadTag("test", "cd", 2000), SCORES),
    Training(make_origin(), "teacher", "recipes/teacher.yaml", 52_000_000, 10_000, 6.5, 530_000.0, SCORES, epochs=12.0),
    Distillation(make_origin(), "train", "teacher", "beam|width:5", 500_000, 5.5, "ef" * 32, dropped=12),
    Exactness(
        make_origin(),
        "blockwise",
        "blockwise|k:8",
        ModelTag("base", "ab"),
        WorkloadTag("test", "cd", 2000),
        512,
        Agreement("greedy, same steps", 2000, 0),
        Agreement("greedy", 2000, 1, (Mismatch(17, 3, 40, 41, 0.002),)),
        place=BatchInvarianceReport(512, 8, 0, 0, 0, 0.0),
    ),
    Quality(
        make_origin(),
        "interleaved",
        "interleaved|width:1",
        ModelTag("base", "ab"),
        WorkloadTag("test", "cd", 2000),
        SCORES,
        by_length=(LengthBin(1, 7, 200, SCORES), LengthBin(7, 9, 200, SCORES)),
        mutual_information=MutualInformation(-0.03, -0.05, -0.01, 4.72, 4.86, "counterpart", "order", 2, "abc"),
    ),
    Contrastive(
        make_origin(),
        "interleaved",
        ModelTag("base", "ab"),
        WorkloadTag("pairs.json", "cd", 30),
        "contrastive|log-probability|ties:wrong",
        (Cell("agreement", 3, 20, 19), Cell("polarity", None, 10, 7)),
    ),
    Profile(
        make_origin(),
        "greedy",
        "greedy|fp16",
        ModelTag("base", "ab"),
        WorkloadTag("test", "cd", 50),
        1,
        2,
        (1_000, 2_000),
        4_000,
        (Stage("remember", 2, 900, 10**7), Stage("verify", 9, 3_000)),
        4e12,
        memory=MemoryUse(device_peak=2**30),
        reserved=2**31,
    ),
    Curves(
        make_origin(),
        "recall",
        ModelTag("base", "ab"),
        WorkloadTag("valid", "cd", 30),
        "candidates",
        (1.0, 2.0),
        (Curve("tables", (0.5, 0.75)),),
    ),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_line_says_all_of_a_record(record: Record) -> None:
    line = to_line(record)
    assert "\n" not in line
    assert from_line(line) == record
    assert to_line(from_line(line)) == line


def test_records_from_before_a_field_was_there_are_still_read() -> None:
    values = json.loads(to_line(RECORDS[0]))
    assert values.pop("preparation") is None
    assert from_line(json.dumps(values)) == RECORDS[0]


def test_every_kind_is_tried() -> None:
    assert {record.kind for record in RECORDS} == set(KINDS)


def test_appending_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    append_records(path, RECORDS[:2])
    append_records(path, RECORDS[2:])
    assert read_records([path]) == RECORDS
    assert [file.name for file in path.parent.iterdir()] == ["results.jsonl"], "no temporary file stays"


def test_nothing_is_written_when_a_record_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_records(path, RECORDS[:1])
    before = path.read_bytes()
    bad = Training(make_origin(), "teacher", "r", 1, 1, float("nan"), 1.0)
    with pytest.raises(ValueError, match="JSON"):
        append_records(path, [RECORDS[1], bad])
    assert path.read_bytes() == before


def test_line_separators_inside_text_end_no_record(tmp_path: Path) -> None:
    record = Distillation(make_origin(), "odd\u2028name\x85", "t", "d", 1, 1.0, "h")
    append_records(tmp_path / "r.jsonl", [record])
    assert read_records([tmp_path / "r.jsonl"]) == [record]


def _changed(**changes: object) -> str:
    return json.dumps({**json.loads(to_line(RECORDS[5])), **changes})


TOO_LONG = to_line(RECORDS[0]).replace('"output_lengths":[', '"output_lengths":[4,')


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{", "line 2: expected a JSON object, found"),
        ("[]", "line 2: expected a JSON object, found list"),
        (_changed(schema=2), "line 2: expected records of schema 1, found schema 2"),
        (_changed(schema=None), "found schema None"),
        (
            _changed(kind="gossip"),
            "curves, training, distillation, found kind 'gossip'",
        ),
        (_changed(colour="red"), "line 2: there is no option 'colour'"),
        (_changed(minutes="long"), "line 2: 'minutes' expects float, found 'long'"),
        (TOO_LONG, "'output_lengths' expects 60 numbers, found 61"),
        (_changed(kind=["latency"]), "found kind ['latency']"),
        (_changed(minutes=-7).replace("-7", "9" * 5000), "line 2: expected a JSON object, found"),
        ("[" * 100_000, "line 2: expected a JSON object, found objects or lists too deep within one another"),
        (_changed(name="\ud800"), "line 2: expected a JSON object, found half a surrogate pair in a string"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_line(RECORDS[5]) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_records([path])
    assert found in str(error.value)
    assert str(path) in str(error.value)


def test_missing_cut_off_and_undecodable_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InputError, match=r"none\.jsonl: expected a file of records, found: No such file"):
        read_records([tmp_path / "none.jsonl"])
    (tmp_path / "latin.jsonl").write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(InputError, match="expected UTF-8, found an invalid byte at offset 7"):
        read_records([tmp_path / "latin.jsonl"])
    with pytest.raises(InputError, match="/dev/zero: expected a file of records, found none"):
        read_records(["/dev/zero"])
    (tmp_path / "cut.jsonl").write_text('{"schema": 1')
    with pytest.raises(WorkError, match=r"last line cut off; the records are kept in .*\.jsonl\."):
        append_records(tmp_path / "cut.jsonl", RECORDS)


def append_few(path: Path, name: str) -> None:
    for number in range(5):
        append_records(path, [Distillation(make_origin(), f"{name} {number}", "t", "d", 1, 1.0, "h")])


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: append_few(path, name), "abcd"))
    found = sorted(record.name for record in read_records([path]) if isinstance(record, Distillation))
    assert found == sorted(f"{name} {number}" for name in "abcd" for number in range(5))


def test_the_mean_block_leaves_out_iterations_that_only_propose() -> None:
    proposing = Event((0,), (5,), 0, 0, True)
    verifying = Event((1, 2, 3), (6, 7, 8), 3, 2, True, (6, 7, 9))
    counts = count([Trace((proposing, verifying, Event((4,), (3,), 3, 0, True)))], [[5, 6, 7, 8]], 4)
    assert (counts.verified, counts.verified_tokens, counts.mean_block) == (2, 4, 2.0)
    assert count([Trace((proposing, proposing))], [[5]], 2).mean_block == 1.0
    assert Counts(4, 5, 8, 9, drafted=6).mean_block is None, "an old record does not say"
