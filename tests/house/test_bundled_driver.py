"""The driver of the bundled family: its commands can be read, and tiny models go all the way to one folder."""

from __future__ import annotations

import importlib.util
import json
import runpy
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from longstride import model_folder
from longstride.cli.main import main
from longstride.cli.train import read_recipe
from longstride.contract import ModelFolderError, WorkError
from longstride.contract.options import assignments, parse
from longstride.model_folder import ModelFolder, Part
from longstride.objectives import OBJECTIVES
from longstride.registry import DECODERS, PARTS, part_builder
from longstride.systems.lattice.build import BuildOptions
from longstride.tasks.toys import generate
from longstride.text.corpus import read_lines
from longstride.translator import load
from tests.house.test_driver import read

HERE = Path(__file__).parents[2] / "recipes" / "bundled" / "en-de"
OURS = ("drive", "driver", "family", "bundled_drive")


@pytest.fixture(scope="module")
def drive() -> Iterator[ModuleType]:
    """drive.py as a module; what it imports is forgotten afterwards."""
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("bundled_drive", HERE / "drive.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bundled_drive"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def task(drive: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A dry run on generated text: what a teacher would have written, and everyday sentences with two variants each."""
    folder = tmp_path_factory.mktemp("data")
    pairs = list(generate("numbers", 500, seed=3, split="train"))
    held_out = list(generate("numbers", 20, seed=4, split="test"))
    write(folder / "distilled" / "train.src", folder / "distilled" / "train.tgt", pairs[:250])
    everyday = [(source, text) for source, target in pairs[250:] for text in (f"{target} Nun ja.", target)]
    everyday.append(("i forgot my umbrella on the train this morning", "Ein Beispiel."))
    write(folder / "everyday" / "train.en", folder / "everyday" / "train.de", everyday)
    for kind in ("debates", "everyday"):
        for split, some in (("valid", held_out[:10]), ("test", held_out[10:13])):
            write(folder / kind / f"{split}.en", folder / kind / f"{split}.de", some)
    names = ("distilled", "debates", "everyday")
    return drive.Task(folder / "work", *(folder / name for name in names), dry=True)


def write(source: Path, target: Path, pairs: list[tuple[str, str]]) -> None:
    source.parent.mkdir(exist_ok=True)
    source.write_text("".join(f"{one}\n" for one, _ in pairs))
    target.write_text("".join(f"{other}\n" for _, other in pairs))


def carry_out(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's command, in this process."""
    if command[:2] == ("-m", "longstride"):
        assert main(list(command[2:])) == 0
        return
    monkeypatch.setattr(sys, "argv", list(command))
    runpy.run_path(command[0], run_name="__main__")


@pytest.fixture(scope="module")
def made(drive: ModuleType, task: Any) -> Any:
    """Everything up to the card, except what reads a clock."""
    with pytest.MonkeyPatch.context() as patch:
        task.outputs.mkdir(parents=True)
        for stage in drive.stages(task):
            if stage.name == "bench":
                continue
            for job in stage.jobs:
                assert not job.missing, f"{stage.name}/{job.name}"
                carry_out(job.command, patch)
                assert stage.name == "evaluate" or job.made or not job.makes
    return task


def test_every_command_can_be_read(drive: ModuleType, task: Any) -> None:
    for dry in (True, False):
        for stage in drive.stages(replace(task, dry=dry)):
            for job in stage.jobs:
                if job.command[:2] != ("-m", "longstride"):
                    assert Path(job.command[0]).is_file()
                    continue
                told = read(list(job.command[2:]))
                for decoder in (told.get("decoders") or "").split(","):
                    assert decoder in ("", *DECODERS)


def test_every_job_on_the_gpu_says_what_memory_it_takes(drive: ModuleType, task: Any) -> None:
    jobs = [job for stage in drive.stages(task) for job in stage.jobs]
    assert all((job.gigabytes > 0) == (0 < job.share < 1) for job in jobs), "clocks are read on a CPU"
    assert sum(job.gigabytes for job in jobs if job.checkpoints) < 60


def test_recipes_have_the_options_that_are_set(drive: ModuleType, task: Any) -> None:
    jobs = [job for stage in drive.stages(task) for job in stage.jobs if "train" in job.command[:3]]
    assert [job.name for job in jobs] == ["verifier", "heads", "drafter", "interleaved", "lattice"]
    for job in jobs:
        told = read(list(job.command[2:]))
        for settings in ({}, dict(assignments(told["set"]))):
            recipe = read_recipe(told["recipe"], settings)
            assert recipe.name == f"bundled-en-de-{job.name}"
            assert recipe.store == "fp16"
            kind = OBJECTIVES[recipe.objective["kind"]]
            parse(kind.options, {key: value for key, value in recipe.objective.items() if key != "kind"}, job.name)
        # By hand as by the driver: the recipe's own paths are those of the driver's own folder.
        plain = read_recipe(told["recipe"], {})
        for path in (plain.data.train_source, plain.data.tokenizer, plain.data.cache, plain.base, plain.warm_start):
            assert not path or path.startswith("runs/bundled-en-de/")
    tables = drive.stages(task)[2].jobs[0]
    parse(BuildOptions, dict(assignments(read(list(tables.command[2:]))["set"])), "tables")


def test_everything_needed_is_made(drive: ModuleType, task: Any) -> None:
    stages = drive.stages(task)
    produced = {path for stage in stages for job in stage.jobs for path in job.makes} | {task.records}
    for stage in stages:
        for job in stage.jobs:
            assert set(job.needs) <= produced, f"{stage.name}/{job.name}"


def test_the_gpu_is_asked_for_eight_minutes_at_most(drive: ModuleType, task: Any) -> None:
    on_gpu = drive.chosen(drive.stages(task), ["corpora", "verifier", "decoders", "assemble"])
    assert sum(stage.minutes for stage in on_gpu) <= 8


def test_the_command_line_lists_and_shows(drive: ModuleType, tmp_path: Path, capsys: Any) -> None:
    assert drive.main(["--work", str(tmp_path), "--list"]) == 0
    assert "verifier: to do, estimated" in capsys.readouterr().out
    assert drive.main(["--work", str(tmp_path), "--only", "decoders/heads", "--commands"]) == 0
    assert "python -m longstride train" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        drive.main(["--only", "nothing"])


def test_the_corpus_is_mixed(made: Any) -> None:
    told = json.loads((made.mixed / "mix.json").read_text())
    sources = list(read_lines(made.side("train", "en")))
    targets = list(read_lines(made.side("train", "de")))
    assert told["pairs"]["distilled"] == 250
    assert len(sources) == len(targets) == sum(told["pairs"].values())
    everyday = sources[250:]
    assert len(set(everyday)) == len(everyday), "one variant each"
    assert not [text for text in targets if "Nun ja" in text or "Beispiel" in text], "the shortest; no example"
    assert len(list(read_lines(made.side("valid", "en")))) == told["valid"] == 20


def test_one_folder_has_every_decoder_and_one_encoder(made: Any) -> None:
    translator = load(made.bundle, device="cpu")
    assert set(translator.decoders) == {
        *("greedy", "beam", "blockwise", "draft-verify", "draft", "interleaved", "lattice")
    }
    for decoder in translator.decoders:
        assert len(translator.translate(["two", "seven hundred"], decoder, max_length=12)) == 2
    for name, run, part in (("interleaved", "interleaved", "model"), ("scorer", "lattice", "model")):
        alone = load(made.work / run / "model", device="cpu").part(part).state_dict()
        together = translator.part(name).state_dict()
        assert all(bool((together[key] == value).all()) for key, value in alone.items())
    stored = [file.stat().st_size for file in made.bundle.glob("*.safetensors")]
    parts = [file.stat().st_size for run in ("verifier", "interleaved") for file in made.work.glob(f"{run}/model/*.s*")]
    assert sum(stored) < sum(parts) + (made.bundle / "tables.safetensors").stat().st_size + 300_000


def test_the_folder_says_where_it_comes_from(made: Any) -> None:
    text = (made.bundle / "config.json").read_text()
    assert str(made.work) not in text
    provenance = json.loads(text)["provenance"]
    assert provenance["recipe"]["name"] == "bundled-en-de"
    assert set(provenance["runs"]) == {"verifier", "heads", "drafter", "interleaved", "lattice", "tables"}
    assert provenance["runs"]["heads"]["recipe"]["base"] == "runs/bundled-en-de/verifier"
    assert "entries" in provenance["runs"]["tables"]


def test_runs_may_have_been_made_elsewhere(drive: ModuleType, made: Any, tmp_path: Path) -> None:
    """Trained on one machine, put together on another: the folder names no place on either."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made.work, elsewhere)
    sys.modules["family.assemble"].assemble(elsewhere, tmp_path / "bundle", made.records)
    text = (tmp_path / "bundle" / "config.json").read_text()
    assert str(made.work) not in text
    assert str(elsewhere) not in text
    assert '"runs/bundled-en-de/verifier"' in text


def test_the_card_is_filled_from_records(made: Any) -> None:
    card = (made.bundle / "README.md").read_text()
    assert "<!--" not in card
    for word in ("CC BY 2.0 FR", "European Parliament", "tatoeba.org", "manythings.org/anki", "Apache-2.0", "250"):
        assert word in card
    assert "everyday test, 3 sentences, fp32" in card
    assert card.count("\n| draft-verify | ") == 2
    assert "Not measured yet." in card, "no clock ran"
    assert (made.bundle / "examples.tsv").read_text() == (HERE / "examples.tsv").read_text()


def test_scores_of_other_weights_are_not_told(drive: ModuleType, made: Any, tmp_path: Path) -> None:
    other = tmp_path / "records.jsonl"
    lines = [json.loads(line) for line in made.records.read_text().splitlines()]
    for line in lines:
        if "model" in line:
            line["model"]["hash"] = "another"
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))
    own = [one for one in sys.modules["family.card"].read_records([other]) if hasattr(one, "scores")]
    assert own
    assert sys.modules["family.card"]._own(own, ModelFolder(made.bundle).sha256) == []


def test_what_is_too_large_is_refused(drive: ModuleType, made: Any, tmp_path: Path) -> None:
    assemble = sys.modules["family.assemble"].assemble
    with pytest.raises(WorkError, match=r"expected at most 0\.1 MB, found .* \(README\.md"):
        assemble(made.work, tmp_path / "out", made.records, most=100_000)
    assert list(tmp_path.iterdir()) == []
    sizes = assemble(made.work, tmp_path / "out", made.records, default="greedy")
    assert sum(sizes.values()) < sys.modules["family.assemble"].MOST
    assert load(tmp_path / "out", device="cpu").decoders[0] == "greedy"
    assert ModelFolder(tmp_path / "out").sha256 == ModelFolder(made.bundle).sha256, "the same again"


@pytest.mark.parametrize(
    ("run", "told"),
    [("heads", "expected it to build on"), ("lattice", "expected the encoder and embeddings of 'model'")],
)
def test_models_of_another_verifier_are_refused(
    drive: ModuleType, made: Any, tmp_path: Path, run: str, told: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("verifier", "heads", "drafter", "interleaved", "lattice"):
        (work / name).symlink_to(made.work / name)
    (work / run).unlink()
    folder = ModelFolder(made.work / run / "model")
    parts = {}
    for name, part in folder.parts.items():
        kind = PARTS[part.kind]
        options = parse(kind.options, part.options, name)
        module = folder.load(name, part_builder(folder, name))
        for weight in module.parameters():
            weight.data.add_(0.25)
        parts[name] = Part(part.kind, options, module)
    model_folder.write(
        work / run, parts, folder.decoders, folder.config.default_decoder, folder.tokenizers()[0], provenance={}
    )
    with pytest.raises(ModelFolderError, match=told):
        sys.modules["family.assemble"].assemble(work, tmp_path / "out", made.records)
    assert not (tmp_path / "out").exists()
