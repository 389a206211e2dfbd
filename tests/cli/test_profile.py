"""Profiles by the command line: who is profiled, what is recorded, told and refused. No test looks at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longstride.bench.record_files import read_records
from longstride.bench.records import Profile
from longstride.cli import profile as command
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.translator import load
from tests.cli.conftest import Run, write_pairs
from tests.decoding.test_draft_verify import write_drafted
from tests.folders import write_folder
from tests.runtime.recording import TapeRecorder

SHORT = ["--set", "max_length=4"]


@pytest.fixture(autouse=True)
def _small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longstride.bench.profile.COPIED", {"cpu": 4096})


@pytest.fixture
def source(tmp_path: Path) -> list[Any]:
    return ["-s", write_pairs(tmp_path, 5, ("", "a"))[0], "--device", "cpu", *SHORT]


def profiles(path: Path) -> list[Profile]:
    found = read_records([path])
    assert all(isinstance(one, Profile) for one in found)
    return found  # type: ignore[return-value]


def test_every_decoder_is_profiled_alone(run: Run, source: list[Any], tmp_path: Path) -> None:
    model, records = write_drafted(tmp_path / "drafted"), tmp_path / "records.jsonl"
    how = ["--record", records, "--experiment", "where", "--workload", "toy", "--runtime", "eager"]
    ran = run("profile", "-m", model, *source, "--sentences", "3", *how)
    assert ran.code == 0
    assert "| drafter's encoder" in ran.out
    assert "Table 7" in ran.out
    assert "3 records appended" in ran.err
    found = profiles(records)
    assert [one.candidate for one in found] == ["draft-verify", "draft", "greedy"]
    for one in found:
        assert (one.sentences, one.batch_size, one.workload.name, one.workload.size) == (3, 1, "toy", 5)
        assert (one.origin.experiment, one.runtime, one.precision) == ("where", "eager", "fp32")
        assert all(stage.weights for stage in one.stages)
        assert one.bandwidth
        assert one.notes["differing"] == 0
        assert one.options == {"max_length": "4"}
    assert {stage.name for stage in found[0].stages} == {"remember", "remember-draft", "step"}


def test_of_several_models_those_that_have_a_decoder_take_part(run: Run, source: list[Any], tmp_path: Path) -> None:
    plain, drafted = write_folder(tmp_path / "plain"), write_drafted(tmp_path / "drafted")
    records = tmp_path / "records.jsonl"
    asked = ["--decoders", "draft-verify:k=2,greedy,plain/beam:width=2", "--batch", "2", "--record", records]
    assert run("profile", "-m", plain, "-m", drafted, *source, *asked).code == 0
    found = profiles(records)
    assert [one.candidate for one in found] == [
        *("tiny greedy", "tiny beam width=2", "drafted draft-verify k=2", "drafted greedy"),
    ]
    assert {one.batch_size for one in found} == {2}
    assert [one.order for one in found] == [0, 1, 2, 3]
    assert all(stage.weights for one in found for stage in one.stages)  # of the last batch, a single sentence, too


def test_recordings_are_stages(run: Run, source: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CUDA device: what is captured is a stage, with the weights that all programs in it read."""
    model, records = write_drafted(tmp_path / "drafted"), tmp_path / "records.jsonl"
    opening = command.shared.open_model

    def open_model(folder: str, runtime: str, *others: Any) -> Any:
        translator = opening(folder, "eager", *others)
        if runtime == "cuda-graph":
            translator.runner = CudaGraphRunner("cpu", "fp32", recorder=TapeRecorder())
        return translator

    monkeypatch.setattr(command.shared, "open_model", open_model)
    asked = ["--decoders", "draft-verify,greedy", "--runtime", "cuda-graph", "--record", records]
    ran = run("profile", "-m", model, *source, *asked)
    assert ran.code == 0
    assert "iteration, recorded (4)" in ran.out
    drafting, greedy = profiles(records)
    assert {stage.name.split()[0] for stage in drafting.stages} == {"enter", "iterate"}
    whole = load(model, device="cpu")
    weights = sum(one.nbytes for part in whole.parts_of("draft-verify").values() for one in part.parameters())
    read = {stage.name: stage.weights for stage in drafting.stages}
    assert None not in read.values()
    assert weights / 2 < sum(filter(None, read.values())) < 2 * weights
    assert sum(stage.weights or 0 for stage in greedy.stages) < sum(filter(None, read.values()))
    assert "graphs were captured" in ran.err


def test_what_was_measured_stands_without_a_floor(
    run: Run, model: Path, source: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*others: Any) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr("longstride.bench.profile_weights.ReadingRunner", refuse)
    records = tmp_path / "records.jsonl"
    ran = run("profile", "-m", model, *source, "--decoders", "greedy", "--record", records)
    assert ran.code == 0
    assert "no floor is told: no such thing" in ran.err
    assert "times the floor" not in ran.out
    assert [stage.weights for stage in profiles(records)[0].stages] == [None, None]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--decoders", "gredy"], "--decoders expects decoders that a model has (greedy, beam"),
        (["--decoders", "other/greedy"], "--decoders expects one of the models tiny, found 'other'"),
        (["--decoders", "beam:breadth=3"], "The decoder beam has no option 'breadth'"),
        (["--decoders", ""], "--decoders expects name"),
        (["--sentences", "0"], "--sentences"),
        (["--batch", "0"], "--batch"),
        (["--precision", "fp8"], "--precision expects"),
        (["--runtime", "magic"], "There is no runtime 'magic'"),
        (["--inside"], "--inside expects the runtime cuda-graph, found native"),
        (["--drafter", "x", "-m", "y"], "--drafter expects one --model that it drafts for, found 2"),
    ],
)
def test_misuse_is_refused(run: Run, model: Path, source: list[Any], asked: list[str], said: str) -> None:
    assert said in run("profile", "-m", model, *source, *asked).error


def test_files_are_looked_at_before_the_work(run: Run, model: Path, source: list[Any], tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("dear diary\n")
    assert (
        "notes, line 1: expected a JSON object"
        in run("profile", "-m", model, *source, "--record", tmp_path / "notes").error
    )
    (tmp_path / "empty").write_text("\n\n")
    assert "expected at least one sentence" in run("profile", "-m", model, "-s", tmp_path / "empty").error
