"""Going on with a run: as it was started or not at all, and a refusal leaves every byte as it was."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from longstride import recipe_origin
from longstride.cli import train
from longstride.cli.main import main
from longstride.contract.options import fields
from longstride.recipe import Recipe
from longstride.recipe_origin import MAY_CHANGE
from longstride.training.metrics import Record
from longstride.training.options import Schedule
from tests.cli.conftest import Run
from tests.cli.test_train import TINY, recipe, untimed, weights

__all__ = ["recipe"]  # a fixture

Bytes = dict[Path, bytes]


def contents(folder: Path) -> Bytes:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def text_files(folder: Path) -> dict[str, str]:
    for name in ("source", "target"):
        lines = [f"{'abcdefghij'[n % 10]} b {'klmnopqrst'[n // 10 % 10]} {name[0]}" for n in range(60)]
        (folder / f"{name}.txt").write_text("".join(line + "\n" for line in lines))
    return {
        f"{split}_{side}": str(folder / f"{side}.txt") for split in ("train", "valid") for side in ("source", "target")
    }


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, the text it learns from, and a run of it that was stopped at its third update."""
    folder = tmp_path_factory.mktemp("stopped")
    data = {**TINY["data"], "task": "files", **text_files(folder)}
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**TINY, "data": data}))
    arguments = ["train", folder / "recipe.yaml", "-o", folder / "run", "--device", "cpu"]
    told = train._Reporter.record

    def interrupt(self: train._Reporter, record: Record) -> None:
        told(self, record)
        if record.step == 6:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train._Reporter, "record", interrupt)

        assert main([str(each) for each in arguments]) == 130
    return folder


@pytest.fixture
def begun(stopped: Path, tmp_path: Path) -> Path:
    """The same run, to be spoilt."""
    shutil.copytree(stopped / "run", tmp_path / "run")
    return tmp_path / "run"


def going_on(run: Run, stopped: Path, folder: Path, *more: str) -> Any:
    settings = [part for one in more for part in ("--set", one)]
    return run("train", stopped / "recipe.yaml", "-o", folder, "--resume", "--device", "cpu", *settings)


OTHER: dict[str, str] = {
    "data.batches.count": "both",
    "name": "other",
    "data.task": "reverse",
    "data.tokenizer_kind": "bpe",
    "data.tokenizer": "elsewhere/tokenizer.model",
    "training.schedule.kind": "constant",
    "training.precision": "bf16",
    "training.monitor": "exact",
    "training.freeze": "encoder.*",
    "training.optimizer.beta1": "0.8",
    "training.optimizer.beta2": "0.9",
    "training.schedule.floor": "1e-5",
    "validation.metric": "bleu",
    "data.filter.max_ratio": "3",
    "data.batches.sentences": "97",
    "objective.kind": "non-autoregressive",
    "objective.label_smoothing": "0.2",
    "model.width": "8",
    "model.dropout": "0.3",
    "model.longest": "64",
    "model.norm": "pre",
    "init": "depth-scaled",
}
"""Values that these options may have, and do not have in the recipe."""
ALLOWED = {
    "about": "said",
    "training.average": "last",
    "training.average_span": "1",
    "training.keep": "5",
    "training.steps": "13",
    "store": "fp16",
}


def other(name: str, kind: str, default: str) -> str:
    """Some other value than the recipe's."""
    if name in OTHER:
        return OTHER[name]
    if kind == "bool":
        return "false" if default == "true" else "true"
    if kind.startswith("whole number"):
        return "97"
    if kind.startswith("number"):
        return "0.375"
    return "nowhere"


NAMES = [
    *(entry for entry in fields(Recipe) if entry[0] not in MAY_CHANGE | {"model", "objective"}),
    *((name, "", "", "") for name in OTHER if name.startswith(("model.", "objective."))),
]


@pytest.mark.parametrize("entry", NAMES, ids=[entry[0] for entry in NAMES])
def test_any_other_recipe_is_refused_and_nothing_is_touched(
    run: Run, stopped: Path, entry: tuple[str, str, str, str]
) -> None:
    name, kind, default, _ = entry
    before = contents(stopped)
    error = going_on(run, stopped, stopped / "run", f"{name}={other(name, kind, default)}").error
    told = (f"but {name} was ", f"but {name} (", "nowhere: expected")
    assert any(part in error for part in told), error
    assert contents(stopped) == before


def test_what_is_said_to_may_change_exists_and_may(run: Run, stopped: Path, begun: Path) -> None:
    assert {entry[0] for entry in fields(Recipe)} >= MAY_CHANGE
    assert going_on(run, stopped, begun, *(f"{name}={value}" for name, value in ALLOWED.items())).code == 0
    kept = yaml.safe_load((begun / "recipe.yaml").read_text())
    assert (kept["about"], kept["training"]["steps"]) == ("said", 13)
    assert recipe_origin.read(begun).recipe == kept  # type: ignore[union-attr]


def test_the_documentation_names_what_may_change() -> None:
    told = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    assert [name for name in MAY_CHANGE if f"`{name}`" not in told] == []


def test_resuming_is_never_having_stopped_though_files_moved(run: Run, stopped: Path, begun: Path) -> None:
    """Options that come as text are equal to those of the file, and files are known by what is in them."""
    whole = begun.with_name("whole")
    assert run("train", stopped / "recipe.yaml", "-o", whole, "--device", "cpu").code == 0
    moved = begun.with_name("moved.txt")
    shutil.copy(stopped / "source.txt", moved)
    same = ["model.width=16", "objective.label_smoothing=1e-1", f"data.train_source={moved}"]
    assert going_on(run, stopped, begun, *same).code == 0
    assert weights(begun) == weights(whole)
    assert untimed(begun) == untimed(whole)


@pytest.mark.parametrize("name", ["source.txt", "target.txt"])
def test_data_that_changed_under_its_name_is_refused(run: Run, stopped: Path, begun: Path, name: str) -> None:
    before, text = contents(begun), (stopped / name).read_text()
    try:
        (stopped / name).write_text(text.replace("b", "c", 1))
        error = going_on(run, stopped, begun).error
    finally:
        (stopped / name).write_text(text)
    assert f"data.train_{name[:6]} ({stopped / name}) had SHA-256" in error
    assert contents(begun) == before


def test_another_tokenizer_is_refused(run: Run, stopped: Path, begun: Path) -> None:
    file = begun / "tokenizer.model"
    words = file.read_text().split("\n")
    words[-2], words[-3] = words[-3], words[-2]
    file.write_text("\n".join(words))
    before = contents(begun)
    assert "data.tokenizer () had SHA-256" in going_on(run, stopped, begun).error
    assert contents(begun) == before


def test_another_base_under_the_same_name_is_refused(run: Run, recipe: Path, tmp_path: Path) -> None:
    assert run("train", recipe, "-o", tmp_path / "base", "--device", "cpu", "--set", "training.steps=2").code == 0
    warm = ["--set", f"warm_start={tmp_path / 'base'}", "--device", "cpu", "--resume"]
    assert run("train", recipe, "-o", tmp_path / "run", *warm, "--set", "training.steps=2").code == 0
    shutil.rmtree(tmp_path / "base")
    assert run("train", recipe, "-o", tmp_path / "base", "--device", "cpu", "--set", "training.steps=3").code == 0
    before = contents(tmp_path / "run")
    error = run("train", recipe, "-o", tmp_path / "run", *warm).error
    assert f"warm_start ({tmp_path / 'base'}) had SHA-256" in error
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("flags", [["--resume"], []])
@pytest.mark.parametrize("left", ["origin.json", "recipe.yaml"])
def test_a_run_killed_before_its_first_checkpoint_goes_on_alike(
    run: Run, stopped: Path, begun: Path, flags: list[str], left: str
) -> None:
    """What it was started with stands in origin.json or, for runs of earlier versions, in recipe.yaml alone."""
    shutil.rmtree(begun / "checkpoints")
    (begun / ({"origin.json", "recipe.yaml"} - {left}).pop()).unlink()
    before = contents(begun)
    command = ["train", stopped / "recipe.yaml", "-o", begun, "--device", "cpu", *flags]
    assert "but model.width was 16 and is now '8'" in run(*command, "--set", "model.width=8").error
    assert contents(begun) == before
    assert run(*command).code == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1, "recipe": 3, "contents": {}}', '{"format": 2}'])
def test_an_origin_that_is_none_is_told_of(run: Run, stopped: Path, begun: Path, text: str) -> None:
    (begun / "origin.json").write_text(text)
    assert "origin.json: expected" in going_on(run, stopped, begun).error


# --- damaged checkpoints ---------------------------------------------------------------------------------------------


def spoil_with_nan(path: Path) -> None:
    tensors = load_file(path / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, path / "model.safetensors")


def swap_moments(path: Path) -> None:
    tensors = load_file(path / "training.safetensors")
    name = next(name for name in tensors if name.startswith("exp_avg/"))
    save_file({**tensors, name: torch.zeros(3)}, path / "training.safetensors")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def edit_state(path: Path, **changes: Any) -> None:
    state = json.loads((path / "state.json").read_text())
    state["state"] |= changes
    (path / "state.json").write_text(json.dumps(state))


DAMAGE = {
    "cut": lambda path: cut(path / "model.safetensors"),
    "garbage": lambda path: (path / "training.safetensors").write_bytes(b"garbage" * 99),
    "empty": lambda path: (path / "training.safetensors").write_bytes(b""),
    "missing": lambda path: (path / "model.safetensors").unlink(),
    "no-state": lambda path: (path / "state.json").unlink(),
    "deep-state": lambda path: (path / "state.json").write_text("[" * 100_000),
    "other-state": lambda path: (path / "state.json").write_text('{"format": 1}'),
    "no-progress": lambda path: edit_state(path, progress=None),
    "odd-progress": lambda path: edit_state(path, progress={"step": "six"}),
    "nan": spoil_with_nan,
    "moments": swap_moments,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_offered(
    run: Run, stopped: Path, begun: Path, damage: str
) -> None:
    folder = begun / "checkpoints"
    assert [path.name for path in sorted(folder.iterdir())] == ["step-00000004", "step-00000006"]
    DAMAGE[damage](folder / "step-00000006")
    before = contents(folder)
    error = going_on(run, stopped, begun).failure
    assert "The checkpoint step-00000006 is damaged (" in error
    assert f"; remove {folder / 'step-00000006'} to go on from step-00000004." in error
    assert contents(folder) == before


def test_without_its_last_checkpoint_a_run_goes_on_from_the_one_before(run: Run, stopped: Path, begun: Path) -> None:
    """As a damaged one tells one to; whatever the damage was, it is gone with the folder."""
    shutil.rmtree(begun / "checkpoints" / "step-00000006")
    gone_on = going_on(run, stopped, begun)
    assert gone_on.code == 0
    assert "Going on from update 4." in gone_on.err


def test_only_a_checkpoint_that_can_be_gone_on_from_is_offered(run: Run, stopped: Path, begun: Path) -> None:
    """The best of older ones are kept without their optimizer."""
    (begun / "checkpoints" / "step-00000004" / "training.safetensors").unlink()
    cut(begun / "checkpoints" / "step-00000006" / "model.safetensors")
    assert "there is no earlier one to go on from" in going_on(run, stopped, begun).failure


def test_a_damaged_older_checkpoint_is_told_of_at_once(run: Run, stopped: Path, begun: Path) -> None:
    older = begun / "checkpoints" / "step-00000004"
    (older / "state.json").write_text("{")
    assert f"remove {older} to go on without it" in going_on(run, stopped, begun).failure


@pytest.mark.parametrize("changes", [["training.steps=1"], ["training.steps=6", "training.checkpoint_every=3"]])
def test_weights_that_are_not_finite_are_never_kept(
    run: Run, recipe: Path, tmp_path: Path, changes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Schedule, "rate", lambda self, step: 1e38)
    settings = [part for one in changes for part in ("--set", one)]
    ran = run("train", recipe, "-o", tmp_path / "run", "--device", "cpu", *settings)
    assert ran.code == 1, ran
    assert "expected finite weights, found others in" in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "run" / "model").exists()
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
