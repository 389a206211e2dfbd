"""The pipeline of the bundled family: tiny models go all the way to one folder, and what does not fit is refused."""

from __future__ import annotations

import json
import runpy
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from longstride import model_folder
from longstride.cli.main import main
from longstride.cli.train import read_recipe
from longstride.contract import ModelFolderError, WorkError
from longstride.contract.options import parse
from longstride.model_folder import ModelFolder, Part
from longstride.nn.weights import SCALE, quantized
from longstride.registry import PARTS, part_builder
from longstride.text.corpus import read_lines
from longstride.translator import load
from tests.house.test_pipeline import ROOT, module, pipeline
from tests.spoken_task import numbers

HERE = ROOT / "recipes" / "bundled" / "en-de"
assemble, card = module("assemble", HERE), module("card", HERE)
RUNS = ("verifier", "heads", "drafter", "interleaved", "lattice")

TINY_MODEL = "model.width=32 model.feed_forward=64 model.heads=2"
TINY = {
    "verifier": f"{TINY_MODEL} model.encoder_layers=1 model.decoder_layers=3",
    "heads": "model.feed_forward=16",
    "drafter-first": TINY_MODEL,
    "drafter": TINY_MODEL,
    "interleaved": f"{TINY_MODEL} model.encoder_layers=1 model.decoder_layers=3",
    "lattice": f"{TINY_MODEL} model.encoder_layers=1",
}
"""what makes a recipe's model tiny"""
FEW = (
    "training.epochs=0 training.steps=4 training.schedule.warmup=1 training.checkpoint_every=1 training.keep=2 "
    "training.average_count=2 training.precision=fp32 training.compile=none data.batches.tokens=512 "
    "data.vocabulary=600 validation.sentences=8"
)


class GraphValue:
    """A run of the pipeline."""

    def __init__(self, work: Path) -> None:
        self.work, self.bundle, self.records = work, work / "bundle", work / "records.jsonl"
        self.mixed = work / "distilled"

    def side(self, split: str, side: str) -> Path:
        """A file of the mixed corpus."""
        return self.mixed / (f"{split}.{side}.xz" if split == "train" else f"{split}.{side}")


def write(source: Path, target: Path, pairs: list[tuple[str, str]]) -> None:
    source.parent.mkdir(exist_ok=True)
    source.write_text("".join(f"{one}\n" for one, _ in pairs))
    target.write_text("".join(f"{other}\n" for _, other in pairs))


def texts(folder: Path) -> None:
    """What a teacher would have written, and everyday sentences with two variants each."""
    pairs = list(numbers(500, seed=3, split="train"))
    held_out = list(numbers(20, seed=4, split="test"))
    write(folder / "distilled" / "train.src", folder / "distilled" / "train.tgt", pairs[:250])
    everyday = [(source, text) for source, target in pairs[250:] for text in (f"{target} Nun ja.", target)]
    everyday.append(("i forgot my umbrella on the train this morning", "Ein Beispiel."))
    write(folder / "everyday" / "train.en", folder / "everyday" / "train.de", everyday)
    for kind in ("debates", "everyday"):
        for split, some in (("valid", held_out[:10]), ("test", held_out[10:13])):
            write(folder / kind / f"{split}.en", folder / kind / f"{split}.de", some)


def carry_out(command: str, patch: pytest.MonkeyPatch) -> None:
    """A command of the pipeline, in this process."""
    program, *words = shlex.split(command)
    if program == "longstride":
        tiny = f"{TINY[Path(words[1]).stem]} {FEW}".split() if words[0] == "train" else []
        assert main([*words, *(part for one in tiny for part in ("--set", one))]) == 0
        return
    more = [part for one in FEW.split() for part in ("--set", one)] if words[0].endswith("prepare.py") else []
    patch.setattr(sys, "argv", [*words, *more])
    runpy.run_path(words[0], run_name="__main__")


def carry_out_all(name: str, folder: Path, changes: dict[str, str]) -> None:
    """A pipeline of the family, except what reads a clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        here = {name: str(folder / name) for name in ("work", "distilled", "debates", "everyday")}
        decoding = "--runtime eager --precision fp32 --set max_length=4"
        small = {"ending": "", "copies": "20", "decoding": decoding}
        for stage in pipeline.read_pipeline(HERE / name, {**here, **small, **changes}).stages:
            if stage.name.startswith("bench"):
                continue
            missing = [path for path in stage.inputs if not Path(path).exists()]
            assert not missing, f"{stage.name}: {missing}"
            for command in stage.commands:
                carry_out(command, patch)
            missing = [path for path in stage.outputs if not Path(path).exists()]
            assert not missing, f"{stage.name}: {missing}"
            if stage.name in ("own", "taught"):  # four updates teach a model nothing that would be worth learning
                for path, side in zip(stage.outputs, ("src", "tgt"), strict=True):
                    shutil.copyfile(folder / "distilled" / f"train.{side}", path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GraphValue:
    """Everything up to the card."""
    folder = tmp_path_factory.mktemp("data")
    texts(folder)
    carry_out_all("family.yaml", folder, {"pieces": "600", "runtime": "eager", "precision": "fp32"})
    return GraphValue(folder / "work")


def test_recipes_name_the_files_of_the_pipeline() -> None:
    """By hand as by the pipeline."""
    for run in RUNS:
        recipe = read_recipe(HERE / f"{run}.yaml", {})
        assert recipe.name == f"bundled-en-de-{run}"
        assert recipe.store == "fp16"
        for path in (
            recipe.data.train_source,
            recipe.data.tokenizer,
            recipe.data.cache,
            recipe.base,
            recipe.warm_start,
        ):
            assert not path or path.startswith("runs/bundled-en-de/")


def test_the_corpus_is_mixed(made: Any) -> None:
    told = json.loads((made.mixed / "mix.json").read_text())
    sources = list(read_lines(made.side("train", "en")))
    targets = list(read_lines(made.side("train", "de")))
    assert told["pairs"]["distilled"] == 250
    assert len(sources) == len(targets) == sum(told["pairs"].values())
    everyday = sources[250 : 250 + told["pairs"]["everyday"]]
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
        for key, weight in alone.items():
            kept = quantized(key, weight) if weight.dim() > 1 else {}
            value = kept[key] * kept[key + SCALE][..., None] if kept else weight
            assert torch.equal(together[key], value), key
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


def test_runs_may_have_been_made_elsewhere(made: Any, tmp_path: Path) -> None:
    """Trained on one machine, put together on another: the folder names no place on either."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made.work, elsewhere)
    assemble.assemble(elsewhere, tmp_path / "bundle", made.records)
    text = (tmp_path / "bundle" / "config.json").read_text()
    assert str(made.work) not in text
    assert str(elsewhere) not in text
    assert '"runs/bundled-en-de/verifier"' in text


def test_the_card_is_filled_from_records(made: Any) -> None:
    text = (made.bundle / "README.md").read_text()
    assert "<!--" not in text
    for word in ("CC BY 2.0 FR", "European Parliament", "tatoeba.org", "manythings.org/anki", "Apache-2.0", "250"):
        assert word in text
    assert "everyday test, 3 sentences, fp32, " in text
    assert text.count("\n| draft-verify | ") == 2
    assert "Not measured yet." in text, "no clock ran"
    assert (made.bundle / "examples.tsv").read_text() == (HERE / "examples.tsv").read_text()


def test_columns_without_anything_in_them_are_left_out() -> None:
    assert card._table([("run", ["a", "b"]), ("commit", ["", ""]), ("minutes", ["1", ""])]) == (
        "| run | minutes |\n|---|---|\n| a | 1 |\n| b |  |"
    )


def test_scores_of_other_weights_are_not_told(made: Any, tmp_path: Path) -> None:
    other = tmp_path / "records.jsonl"
    lines = [json.loads(line) for line in made.records.read_text().splitlines()]
    for line in lines:
        if "model" in line:
            line["model"]["hash"] = "another"
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))
    own = [one for one in card.read_records([other]) if hasattr(one, "scores")]
    assert own
    assert card._own(own, ModelFolder(made.bundle)) == []


def test_scores_that_a_new_part_has_no_bearing_on_are_still_told(made: Any, tmp_path: Path) -> None:
    """A shortlist bears on draft-verify alone."""
    before = tmp_path / "before"
    shutil.copytree(made.bundle, before)
    config = json.loads((before / "config.json").read_text())
    del config["parts"]["shortlist"], config["decoders"]["draft-verify"]["parts"]["shortlist"]
    (before / "config.json").write_text(json.dumps(config))
    records = [one for one in card.read_records([made.records]) if isinstance(one, card.Quality)]
    earlier = ModelFolder(before).sha256
    again = [replace(one, model=replace(one.model, hash=earlier)) for one in records]
    assert {one.candidate for one in card._own(again, ModelFolder(made.bundle))} == {*assemble.DECODERS} - {
        "draft-verify"
    }


def test_the_family_is_trained_on(made: Any) -> None:
    """Its verifier by more text, encoder too; each of the others begins as it was, reads the new encoder, and they make
    one folder again."""
    folder = made.work.parent
    shutil.copyfile(folder / "distilled" / "train.src", folder / "debates" / "train.en")
    with (folder / "debates" / "train.en").open("a") as file:
        file.write("seven hundred and two, one by one by one, are seven hundred and four\n")
    on = folder / "on"
    still = f"--set warm_start={on}/begun/family --set training.schedule.peak=1e-12"
    changes = {"work": str(on), "family": str(made.bundle), "teacher": str(made.work / "verifier"), "fitted": still}
    carry_out_all("longer.yaml", folder, {**changes, "scoring": "--runtime eager --precision fp32"})
    further = list(read_lines(on / "further.en"))
    assert further[0].startswith("seven hundred and two, one"), "lines that no teacher was asked for come first"
    assert not {*further} & {*read_lines(folder / "distilled" / "train.src")}
    assert json.loads((on / "distilled" / "mix.json").read_text())["pairs"]["distilled"] == 500
    old, begun = (load(one, device="cpu") for one in (made.bundle, on / "begun" / "family"))
    new = load(on / "verifier" / "model", device="cpu").part("model").state_dict()
    for name in ("interleaved", "scorer", "drafter"):
        states = [one.part(name).state_dict() for one in (old, begun)]
        lent = [key for key in states[0] if key.startswith(assemble.ENCODER)]
        assert lent
        for key, weight in states[1].items():
            assert torch.equal(weight, new[key] if key in lent else states[0][key]), key
    for name in ("heads", "drafter", "interleaved", "scorer"):
        place = assemble.LAYOUT[name]
        trained = load(on / place.run / "model", device="cpu").part(place.part).state_dict()
        for key, weight in begun.part(name).state_dict().items():
            assert torch.allclose(trained[key], weight, atol=1e-3), f"{name}: {key}"
    assemble.assemble(on, folder / "again", on / "records.jsonl")
    assert load(folder / "again", device="cpu").decoders == old.decoders


def test_what_is_too_large_is_refused(made: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"expected at most 0\.1 MB, found .* \(README\.md"):
        assemble.assemble(made.work, tmp_path / "out", made.records, most=100_000)
    assert list(tmp_path.iterdir()) == []
    sizes = assemble.assemble(made.work, tmp_path / "out", made.records, default="greedy")
    assert sum(sizes.values()) < assemble.MOST
    assert load(tmp_path / "out", device="cpu").decoders[0] == "greedy"
    assert ModelFolder(tmp_path / "out").sha256 == ModelFolder(made.bundle).sha256, "the same again"


@pytest.mark.parametrize(
    ("run", "told"),
    [("heads", "expected it to build on"), ("lattice", "expected the encoder and embeddings of 'model'")],
)
def test_models_of_another_verifier_are_refused(made: Any, tmp_path: Path, run: str, told: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in RUNS:
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
        assemble.assemble(work, tmp_path / "out", made.records)
    assert not (tmp_path / "out").exists()
