"""Checkpoints are whole or absent; the newest and best are kept; averages are means."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from longstride.contract import ModelFolderError, WorkError
from longstride.training.checkpoints import Checkpoint, Checkpoints, average, best, latest, listed, load
from tests.training.toys import train_toy, weights


def checkpoint(step: int, goodness: float | None = None, lasting: bool = True) -> Checkpoint:
    model = {"w": torch.full((3, 2), float(step)), "count": torch.tensor(step)}
    return Checkpoint(step, model, {"exp_avg/w": torch.ones(3, 2)}, {"note": "a"}, goodness, lasting)


def write(folder: Path, *steps: int, keep: int = 50) -> Checkpoints:
    store = Checkpoints(folder, keep)
    for step in steps:
        store.save(checkpoint(step))
    store.wait()
    return store


def test_round_trip(tmp_path: Path) -> None:
    write(tmp_path, 7)
    path = latest(tmp_path)
    assert path is not None
    found = load(path)
    assert (found.step, found.state, found.goodness, found.lasting) == (7, {"note": "a"}, None, True)
    assert torch.equal(found.model["w"], torch.full((3, 2), 7.0))
    assert torch.equal(found.training["exp_avg/w"], torch.ones(3, 2))


def test_tensors_may_change_once_save_returns(tmp_path: Path) -> None:
    store, saved = Checkpoints(tmp_path, 1), checkpoint(1)
    path = store.save(saved)
    saved.model["w"].zero_()
    store.wait()
    assert torch.equal(load(path).model["w"], torch.ones(3, 2))


@pytest.mark.parametrize("moment", ["model.safetensors", "training.safetensors", "rename"])
def test_a_crash_while_writing_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    write(tmp_path, 1)

    def crash(*arguments: Any) -> None:
        raise OSError("no space left")

    if moment == "rename":
        monkeypatch.setattr(os, "rename", crash)
    else:
        from longstride.training import checkpoints

        real = checkpoints.write_tensors

        def save(tensors: Any, path: Path) -> None:
            if path.name == moment:
                path.write_bytes(b"half a file")
                crash()
            real(tensors, path)

        monkeypatch.setattr(checkpoints, "write_tensors", save)
    store = Checkpoints(tmp_path, 50)
    store.save(checkpoint(2))
    with pytest.raises(WorkError, match="no space left"):
        store.wait()
    assert list(listed(tmp_path)) == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001"]


def test_what_a_killed_process_left_is_not_listed_and_swept_up(tmp_path: Path) -> None:
    write(tmp_path, 1)
    left = tmp_path / ".writing-2-999"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    assert latest(tmp_path) == tmp_path / "step-00000001"
    Checkpoints(tmp_path, 1)
    assert not left.exists()


def test_the_newest_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4, 5, keep=2)
    assert list(listed(tmp_path)) == [4, 5]


def test_the_best_are_kept_besides_without_their_optimizer(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=1, keep_best=2)
    for step, goodness in enumerate([3.0, 9.0, None, 8.0, 1.0, 2.0], start=1):
        store.save(checkpoint(step, goodness))
    store.wait()
    assert list(listed(tmp_path)) == [2, 4, 6]
    assert [path.name for path in best(tmp_path, 2)] == ["step-00000002", "step-00000004"]
    assert not (tmp_path / "step-00000002/training.safetensors").exists()
    assert (tmp_path / "step-00000006/training.safetensors").exists()
    assert store.would_keep(8.5)
    assert not store.would_keep(8.0)


def test_a_checkpoint_made_only_to_stop_goes_when_there_is_a_newer(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    for step, lasting in ((1, True), (2, False)):
        store.save(checkpoint(step, lasting=lasting))
    store.wait()
    assert list(listed(tmp_path)) == [1, 2]
    store.save(checkpoint(3))
    store.wait()
    assert list(listed(tmp_path)) == [1, 3]


def test_the_same_step_again_renews_what_is_known_of_it(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2, keep_best=1)
    store.save(checkpoint(1, lasting=False))
    path = store.save(checkpoint(1, goodness=5.0))
    store.wait()
    found = load(path)
    assert (found.goodness, found.lasting) == (5.0, True)
    assert sorted(file.name for file in path.iterdir()) == ["model.safetensors", "state.json", "training.safetensors"]


def test_damage_is_named(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    (tmp_path / "step-00000001/state.json").write_text("{")
    (tmp_path / "step-00000002/model.safetensors").write_bytes(b"xx")
    state = json.loads((tmp_path / "step-00000003/state.json").read_text()) | {"format": 99}
    (tmp_path / "step-00000003/state.json").write_text(json.dumps(state))
    for step, message in ((1, "state.json: expected"), (2, "model.safetensors: not a"), (3, "format 1, found 99")):
        with pytest.raises(ModelFolderError, match=message):
            load(tmp_path / f"step-{step:08d}")


def test_average_is_the_mean(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 6)
    mean = average(list(listed(tmp_path).values()))
    assert torch.equal(mean["w"], torch.full((3, 2), 3.0))
    assert mean["w"].dtype == torch.float32
    assert mean["count"] == 6
    with pytest.raises(WorkError, match="at least one"):
        average([])


def test_a_run_ends_with_the_mean_of_its_last_checkpoints(tmp_path: Path) -> None:
    model, result = train_toy(tmp_path, steps=20, checkpoint_every=4, average="last", average_count=3, average_span=0.4)
    assert result.averaged == (12, 16, 20)
    files = [load_file(tmp_path / f"checkpoints/step-{step:08d}/model.safetensors") for step in result.averaged]
    for name in files[0]:
        mean = sum(file[name].double() for file in files) / 3
        assert torch.equal(weights(model)[name], mean.float()), name
    assert "output.weight" not in files[0]  # tied: stored once
    assert torch.equal(model.output.weight, model.embedding.weight)
