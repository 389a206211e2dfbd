"""Training by the command line: what a recipe may get wrong, stopping, going on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from longstride.cli import train
from longstride.contract import RESERVED
from longstride.tasks.toys import SYMBOLS
from longstride.text.tokenizer import WordsTokenizer, load_tokenizer
from longstride.training.metrics import Record
from tests.cli.conftest import Run
from tests.folders import LONGEST, write_folder
from tests.training.toys import TIMING, read_metrics

TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {
        "task": "copy",
        "pairs": 120,
        "valid_pairs": 8,
        "tokenizer_kind": "words",
        "vocabulary": 64,
        "batches": {"tokens": 64},
    },
    "model": {"width": 16, "feed_forward": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "longest": 32},
    "objective": {"kind": "autoregressive", "label_smoothing": 0.1},
    "training": {"steps": 12, "log_every": 1, "checkpoint_every": 4, "schedule": {"warmup": 4}},
    "validation": {"metric": "exact", "every": 6},
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path


def weights(run_folder: Path) -> bytes:
    return (run_folder / "model" / "model.safetensors").read_bytes()


def untimed(run_folder: Path) -> list[dict[str, Any]]:
    records = read_metrics(run_folder / "metrics.jsonl")
    return [{name: value for name, value in record.items() if name not in TIMING} for record in records]


def test_a_recipe_becomes_a_model_that_translates(run: Run, recipe: Path, tmp_path: Path) -> None:
    ran = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu")
    assert (ran.code, ran.out) == (0, "")
    assert "12 updates in" in ran.err
    assert f"{tmp_path / 'run' / 'model'}" in ran.err
    assert run("translate", "-m", tmp_path / "run", stdin=b"a b\n").out.count("\n") == 1
    provenance = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["provenance"]
    assert provenance["recipe"]["name"] == "tiny"
    assert provenance["updates"] == 12
    assert set(provenance["validation"]) == {"loss", "exact"}
    ran_as = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert ran_as["training"]["schedule"]["warmup"] == 4


def test_set_changes_the_recipe(run: Run, recipe: Path, tmp_path: Path) -> None:
    changes = ["--set", "training.steps=3", "--set", "model.width=8", "--set", "validation.metric=none"]
    assert run("train", recipe, "-o", tmp_path / "run", *changes, "--device", "cpu").code == 0
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert config["parts"]["model"]["options"]["width"] == 8
    assert config["provenance"]["updates"] == 3


@pytest.mark.parametrize("stop_at", [2, 5, 6])
def test_stopped_and_resumed_is_never_stopped(
    run: Run, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    assert run("train", recipe, "-o", tmp_path / "whole", "--device", "cpu").code == 0
    told = train._Reporter.record

    def interrupt(self: train._Reporter, record: Record) -> None:
        told(self, record)
        if record.step == stop_at and record.kind == "training":
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(train._Reporter, "record", interrupt)
        stopped = run("train", recipe, "-o", tmp_path / "parts", "--device", "cpu")
    assert stopped.code == 130
    assert "go on with --resume" in stopped.err
    assert not (tmp_path / "parts" / "model").exists()
    resumed = run("train", recipe, "-o", tmp_path / "parts", "--resume", "--device", "cpu")
    assert resumed.code == 0
    assert f"Going on from update {stop_at}." in resumed.err
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    assert untimed(tmp_path / "parts") == untimed(tmp_path / "whole")


def test_ctrl_c_leaves_a_checkpoint(recipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "longstride", "train", str(recipe), "-o", str(folder), "--device", "cpu"]
    long = ["--set", "training.steps=1000000", "--set", "training.checkpoint_every=1000000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*command, *long], stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            while process.poll() is None and not (folder / "metrics.jsonl").exists():
                time.sleep(0.05)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "Stopped (interrupted); go on with --resume." in said
    assert "Traceback" not in said
    assert len(list((folder / "checkpoints").glob("step-*"))) == 1
    assert not (folder / "model").exists()


def test_a_folder_with_a_run_in_it_is_left_alone(run: Run, recipe: Path, tmp_path: Path) -> None:
    assert run("train", recipe, "-o", tmp_path / "run", "--device", "cpu", "--set", "training.steps=2").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    error = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu").error
    assert "run: expected a new folder, found a run in it; go on with --resume" in error
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["colour=red"], ["recipe.yaml: there is no option 'colour'", "training"]),
        (["training.stpes=3"], ["recipe.yaml: there is no option 'training.stpes'", "steps"]),
        (["training.steps=few"], ["recipe.yaml: training.steps expects a whole number from 0 to", "found 'few'"]),
        (["training.steps=0"], ["recipe.yaml: ", "steps"]),
        (["training.schedule.kind=steep"], ["recipe.yaml: 'training.schedule.kind' expects noam|", "'steep'"]),
        (["data.task=sort"], ["recipe.yaml: 'data.task' expects files|copy|reverse, found 'sort'"]),
        (["model.heads=3"], ["tiny, model: heads expects a divisor of the width 16, found 3"]),
        (["model.haeds=2"], ["tiny, model: there is no option 'haeds'", "heads"]),
        (["objective.kind=telepathy"], ["There is no objective 'telepathy'. Available:", "autoregressive"]),
        (["objective.label_smoothing=2"], ["tiny, objective: label_smoothing expects a number", "found 2.0"]),
        (["warm_start=nowhere"], ["nowhere: expected a model folder, found nothing"]),
        (["data.task=files"], ["data.train_source and data.train_target expect text files"]),
        (
            ["data.task=files", "data.train_source=no.src", "data.train_target=no.tgt"],
            ["no.src: expected a text file, found none"],
        ),
    ],
)
def test_a_bad_recipe_is_refused_before_anything_is_written(
    run: Run, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: list[str], told: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [part for change in changes for part in ("--set", change)]
    error = run("train", recipe, "-o", "run", "--device", "cpu", *settings).error
    assert [part for part in told if part not in error] == []
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"name: [", "not valid YAML"),
        (b"\xff", "not valid YAML"),
        (b"- a\n- b\n", "expected a recipe of named options, found list"),
        (b"", "expected a recipe of named options, found NoneType"),
        (b"1: 2\n", "expected a name for an option, found 1"),
        (b"name: x\n", "the option 'training'"),
    ],
)
def test_what_is_no_recipe_is_refused(run: Run, tmp_path: Path, text: bytes, told: str) -> None:
    (tmp_path / "recipe.yaml").write_bytes(text)
    error = run("train", tmp_path / "recipe.yaml", "-o", tmp_path / "run").error
    assert told in error
    assert "recipe.yaml: " in error


def test_a_missing_recipe_or_device_is_refused(run: Run, recipe: Path, tmp_path: Path) -> None:
    assert "none.yaml: expected a recipe, found no such file" in run("train", "none.yaml", "-o", tmp_path / "r").error
    assert "expected a recipe, found a folder" in run("train", tmp_path, "-o", tmp_path / "r").error
    assert "found 'abacus'" in run("train", recipe, "-o", tmp_path / "r", "--device", "abacus").error
    assert not (tmp_path / "r").exists()


def test_source_and_target_of_different_length_are_refused(run: Run, recipe: Path, tmp_path: Path) -> None:
    for name, lines in (("a", 3), ("b", 4)):
        (tmp_path / name).write_text("a b c\n" * lines)
    sides = [f"data.{split}_{side}" for split in ("train", "valid") for side in ("source", "target")]
    settings = [part for key, name in zip(sides, "abab", strict=True) for part in ("--set", f"{key}={tmp_path / name}")]
    error = run(
        "train", recipe, "-o", tmp_path / "run", "--device", "cpu", "--set", "data.task=files", *settings
    ).failure
    assert f"found 3 in {tmp_path / 'a'} and 4 in {tmp_path / 'b'}" in error


def test_a_warm_start_copies_weights(run: Run, recipe: Path, tmp_path: Path) -> None:
    assert run("train", recipe, "-o", tmp_path / "first", "--device", "cpu").code == 0
    still = ["--set", f"warm_start={tmp_path / 'first'}", "--set", "training.schedule.peak=1e-30"]
    ran = run("train", recipe, "-o", tmp_path / "second", "--device", "cpu", "--set", "training.steps=1", *still)
    assert ran.code == 0
    assert "weights copied" in ran.err
    assert weights(tmp_path / "second") == weights(tmp_path / "first")


def test_a_warm_start_from_another_shape_is_refused(run: Run, recipe: Path, tmp_path: Path) -> None:
    assert run("train", recipe, "-o", tmp_path / "first", "--device", "cpu").code == 0
    changes = ["--set", f"warm_start={tmp_path / 'first'}", "--set", "model.width=8"]
    error = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu", *changes).failure
    assert "expects shape [25, 8] for 'target_embedding.weight', found [25, 16]" in error


def test_a_warm_start_with_another_tokenizer_is_refused(run: Run, recipe: Path, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other")
    WordsTokenizer([*RESERVED, *"cba"]).save(tmp_path / "words")
    settings = ["--set", f"warm_start={other}", "--set", f"data.tokenizer={tmp_path / 'words'}"]
    error = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu", *settings).failure
    assert f"{other}: expected a model with the tokenizer of this recipe, found one with another" in error


def test_beside_a_warm_start_no_tokenizer_is_made(run: Run, recipe: Path, tmp_path: Path) -> None:
    """Its ids mean something to the model already."""
    WordsTokenizer([*RESERVED, *SYMBOLS, "more"]).save(tmp_path / "words")
    other = write_folder(tmp_path / "other", tokenizer=load_tokenizer(tmp_path / "words"), width=16, feed_forward=16)
    settings = ["--set", f"warm_start={other}", "--set", "training.steps=1", "--set", f"model.longest={LONGEST}"]
    ran = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu", *settings)
    assert ran.code == 0, ran.err
    assert (tmp_path / "run" / "tokenizer.model").read_bytes() == (tmp_path / "words").read_bytes()
    named = ["--set", f"data.tokenizer={tmp_path / 'none'}"]
    error = run("train", recipe, "-o", tmp_path / "another", "--device", "cpu", *settings, *named).error
    assert f"tiny: data.tokenizer expects the tokenizer of {other}, found no file {tmp_path / 'none'}; --set" in error
    assert f"--set data.tokenizer={other / 'tokenizer.model'} names it" in error
    assert not (tmp_path / "another").exists()
    assert not (tmp_path / "none").exists()


def test_a_vocabulary_that_the_text_does_not_give_leaves_no_folder(run: Run, recipe: Path, tmp_path: Path) -> None:
    settings = ["--set", "data.tokenizer_kind=bpe", "--set", "data.vocabulary=16000"]
    told = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu", *settings).failure
    assert re.search(r"data\.vocabulary expects at most \d+ for this text, found 16,000\.", told)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


def test_what_the_model_has_no_positions_for_is_left_out(run: Run, recipe: Path, tmp_path: Path) -> None:
    settings = ["--set", "model.longest=8", "--set", "training.steps=2", "--set", "model.positions=learned"]
    ran = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu", *settings)
    assert ran.code == 0
    assert "train pairs are longer than the model's 8 positions: left out." in ran.err


def test_records_that_cannot_be_written_are_told_before_anything_is(run: Run, recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no record\n")
    for record in ("text", "text/below", "n" * 300):
        ran = run("train", recipe, "-o", tmp_path / "run", "--record", tmp_path / record)
        assert (ran.code, record in ran.error) == (2, True)
        assert not (tmp_path / "run").exists()


def test_what_is_wrong_with_the_data_is_no_misuse_once_files_are_written(run: Run, tmp_path: Path) -> None:
    """Exit code 2 promises that nothing was."""
    (tmp_path / "text").write_bytes(b"a b\n\xff\n")
    data = {name: str(tmp_path / "text") for name in ("train_source", "train_target", "valid_source", "valid_target")}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({**TINY, "data": {"tokenizer_kind": "words", **data}}))
    ran = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu")
    assert "text, line 2: " in ran.failure


def test_a_model_larger_than_memory_is_refused_before_anything_is_written(
    run: Run, recipe: Path, tmp_path: Path
) -> None:
    large = [part for size in ("width", "feed_forward") for part in ("--set", f"model.{size}=65536")]
    error = run("train", recipe, "-o", tmp_path / "run", *large, "--set", "model.encoder_layers=100").error
    assert "tiny, model: expected weights that fit into memory" in error
    assert not (tmp_path / "run").exists()


def test_the_vocabulary_is_not_set_in_vain(run: Run, recipe: Path, tmp_path: Path) -> None:
    """It comes with the tokenizer, whatever a recipe says."""
    error = run("train", recipe, "-o", tmp_path / "run", "--set", "model.vocabulary=Infinity").error
    assert "tiny: model.vocabulary comes with the tokenizer and cannot be set, found 'Infinity'" in error


def test_the_gpu_that_is_named_is_the_one_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"the GPU {device}")
    assert train.device_name("cuda:1") == "the GPU cuda:1"
