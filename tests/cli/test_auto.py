"""What examines models takes the fastest runtime too, says once which, and records it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longstride.runtime import choosing
from longstride.runtime.choosing import make_runner
from tests.cli.conftest import Run, write_pairs
from tests.decoding.test_draft_verify import write_drafted
from tests.folders import write_folder

ON_A_PROCESSOR = ["--device", "cpu", "--threads", "1"]


@pytest.fixture
def texts(tmp_path: Path) -> list[Any]:
    source, reference = write_pairs(tmp_path, 3)
    return ["-s", source, "-r", reference, "--set", "max_length=4", *ON_A_PROCESSOR]


def carried_out(record: Path) -> set[tuple[str, str]]:
    told = [json.loads(line) for line in record.read_text().splitlines()]
    return {(one["runtime"], one["precision"]) for one in told}


@pytest.mark.parametrize("command", ["evaluate", "exactness"])
def test_the_fastest_runtime_is_said_once_and_recorded(
    run: Run, texts: list[Any], tmp_path: Path, command: str
) -> None:
    model = write_drafted(tmp_path / "drafted")
    fastest = make_runner("cpu", "auto", "auto")
    for asked, runtime in (([], fastest.name), (["--runtime", "eager"], "eager")):
        record = tmp_path / f"{runtime}.jsonl"
        ran = run(command, "-m", model, *texts, *asked, "--decoders", "draft-verify", "--record", record)
        assert ran.code == 0, ran.err
        assert ran.err.count("Carried out by ") == (not asked)
        assert carried_out(record) == {(runtime, "fp32")}


def test_who_chose_no_precision_hears_of_int8_where_floats_are_computed_natively(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["translate", "-m", model, *ON_A_PROCESSOR]
    found = [run(*asked, *more, stdin=b"a b\n").err for more in ([], ["--precision", "fp32"], ["--runtime", "eager"])]
    native = make_runner("cpu", "auto", "auto").name == "native"
    there = native and choosing.fastest_precision("cpu", "native", "int8") == "int8"
    assert ["(--precision int8 is usually faster)" in told for told in found] == [there, False, False]
    monkeypatch.setattr(choosing, "_integers", lambda: False)
    assert "faster" not in run(*asked, stdin=b"a b\n").err


def test_another_model_is_run_alike(run: Run, model: Path, texts: list[Any], tmp_path: Path) -> None:
    ran = run("evaluate", "-m", model, *texts, "--against", write_folder(tmp_path / "other", seed=5))
    assert ran.err.count("Carried out by ") == 1


def test_likelihoods_are_recorded_as_they_are_carried_out(run: Run, model: Path, tmp_path: Path) -> None:
    """No processor's runtime has a graph of them."""
    wrong = {"type": "word", "contrastive": "b"}
    (tmp_path / "pairs.json").write_text(json.dumps([{"source": "a", "reference": "a", "errors": [wrong]}]))
    record = tmp_path / "records.jsonl"
    for asked in ([], ["--runtime", "native"]):
        ran = run("contrastive", tmp_path / "pairs.json", "-m", model, *ON_A_PROCESSOR, *asked, "--record", record)
        assert ran.code == 0, ran.err
        assert ran.err.count("Carried out by ") == 1
    assert carried_out(record) == {("eager", "fp32")}
