"""Every recipe that is shipped can be read, and what recipes make is made once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from longstride import model_folder
from longstride.cli.train import read_recipe
from longstride.contract import RESERVED, Limits, OptionError
from longstride.contract.options import as_dict, parse
from longstride.model_folder import DecoderConfig, ModelFolder, Part
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.recipe import Recipe, ValidationOptions, _objective, _plan, run
from longstride.systems.lattice.tables import Tables, TablesOptions
from longstride.text.tokenizer import WordsTokenizer
from longstride.translator import load
from tests.models import tiny_model

ROOT = Path(__file__).resolve().parents[1]
PIPELINES = ("all.yaml", "half-hour.yaml", "family.yaml", "longer.yaml", "pipeline.yaml")
RECIPES = sorted(path for path in (ROOT / "recipes").rglob("*.yaml") if path.name not in PIPELINES)


@cache
def shipped(path: Path) -> Recipe:
    """Read once for all tests: YAML takes its time."""
    return read_recipe(path, {})


def test_there_are_recipes() -> None:
    assert {"copy.yaml", "reverse.yaml"} <= {path.name for path in RECIPES}


def _base(vocabulary: int) -> dict[str, nn.Module]:
    """Everything that any recipe may build on."""
    tables = TablesOptions(vocabulary, vocabulary, "", "", entries=0, longest_source=1, longest_target=1)
    return {"model": Transformer(TransformerOptions(vocabulary)), "tables": Tables(tables)}


@pytest.mark.parametrize("path", RECIPES, ids=[str(path.relative_to(ROOT / "recipes")) for path in RECIPES])
def test_a_shipped_recipe_is_one(path: Path) -> None:
    recipe = shipped(path)
    kind, _ = _objective(recipe)
    with torch.device("meta"):
        base = _base(recipe.data.vocabulary) if kind.needs_base else {}
        kind.model(_plan(recipe, recipe.data.vocabulary, base))
    assert recipe.name
    assert recipe.about, "expected a recipe to say what it is for"


def test_every_shipped_recipe_has_a_name_of_its_own() -> None:
    named = Counter(shipped(path).name for path in RECIPES)
    assert [name for name, times in named.items() if times > 1] == []


@pytest.mark.parametrize("path", RECIPES, ids=[str(path.relative_to(ROOT / "recipes")) for path in RECIPES])
def test_a_shipped_recipe_explains_itself(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert text.count("#") >= 5


@pytest.mark.parametrize("path", RECIPES, ids=[str(path.relative_to(ROOT / "recipes")) for path in RECIPES])
def test_a_shipped_recipe_averages_the_end_of_its_run(path: Path) -> None:
    training = shipped(path).training
    if training.average == "last" and training.steps:
        assert (training.average_count - 1) * training.checkpoint_every <= training.average_span * training.steps


def files(folder: Path, lines: int = 40) -> dict[str, str]:
    made = [f"{'abcdefghij'[n % 10]} b {'klmnopqrst'[n // 10 % 10]}" for n in range(lines)]
    for side in ("source", "target"):
        (folder / f"{side}.txt").write_text("".join(line + "\n" for line in made))
    return {
        f"{split}_{side}": str(folder / f"{side}.txt") for split in ("train", "valid") for side in ("source", "target")
    }


def small(data: dict[str, object]) -> Recipe:
    return parse(
        Recipe,
        {
            "name": "small",
            "data": {"tokenizer_kind": "words", "vocabulary": 40, "batches": {"tokens": 64}, **data},
            "model": {"width": 8, "feed_forward": 8, "heads": 1, "encoder_layers": 1, "decoder_layers": 1},
            "training": {"steps": 2},
            "validation": {"metric": "bleu", "sentences": 5},
        },
    )


def test_text_files_are_binarized_once_and_again_when_they_change(tmp_path: Path) -> None:
    data = files(tmp_path)
    first = run(replace(small(data), store="int8"), tmp_path / "run")
    assert first.model == tmp_path / "run" / "model"
    assert ModelFolder(first.model).stored("model") == "int8"
    assert set(first.result.scores) == {"loss", "bleu"}
    cache = tmp_path / "run" / "train.ids"
    stamp = cache.stat().st_mtime_ns
    shared = small({**data, "cache": str(tmp_path / "run"), "tokenizer": str(tmp_path / "run" / "tokenizer.model")})
    run(replace(shared, warm_start=str(first.model)), tmp_path / "two")  # floats once they are read, and trained on
    assert ModelFolder(tmp_path / "two" / "model").stored("model") == "fp32"
    assert cache.stat().st_mtime_ns == stamp
    files(tmp_path, lines=50)
    run(shared, tmp_path / "three")
    assert cache.stat().st_mtime_ns != stamp


def on_a_base(folder: Path, objective: str, source: WordsTokenizer | None = None) -> Recipe:
    """Something that is added to a tiny model which asks for limits and beams of its own."""
    tokenizer = WordsTokenizer([*RESERVED, *"abcdefghijklmnopqrst"])
    tokenizer.save(folder / "words")
    own: dict[str, Any] = {} if source is None else {"source_vocabulary": source.size, "tie": "target"}
    model = tiny_model(0, torch.float32, vocabulary=tokenizer.size, **own)
    model_folder.write(
        folder / "base",
        {"model": Part("transformer", model.options, model)},
        {"greedy": DecoderConfig({"model": "model"}), "beam": DecoderConfig({"model": "model"}, {"width": 3})},
        "greedy",
        tokenizer,
        source,
        limits=Limits(forced_first=7, max_length=9, no_repeat_ngram=2),
        sentences=True,
    )
    recipe = small({**files(folder), "tokenizer": str(folder / "words")})
    added: dict[str, Any] = {"drafter": {"block": 3, "width": 8, "feed_forward": 8, "heads": 1, "decoder_layers": 1}}
    how: dict[str, Any] = {
        "base": str(folder / "base"),
        "objective": {"kind": objective},
        "validation": ValidationOptions("none"),
    }
    return replace(recipe, **how, model=added.get(objective, {"k": 2, "feed_forward": 8}))


@pytest.mark.parametrize("objective", ["drafter", "blockwise"])
def test_what_a_base_asks_for_is_asked_for_still(tmp_path: Path, objective: str) -> None:
    """Its greedy output is the same: an imported model's may have to begin with a language, say."""
    made = run(on_a_base(tmp_path, objective), tmp_path / "run").model
    assert made is not None
    before, after = ModelFolder(tmp_path / "base"), ModelFolder(made)
    assert (after.config.limits, after.config.sentences) == (before.config.limits, before.config.sentences)
    assert after.decoders["beam"] == before.decoders["beam"]
    outputs = [
        [one.tokens for one in load(path, device="cpu").translate(["a b c", "d e f"], "greedy")]
        for path in (before.path, after.path)
    ]
    assert outputs[0] == outputs[1]


def test_a_base_with_a_tokenizer_for_each_side_is_refused(tmp_path: Path) -> None:
    """A recipe has one, whose ids its source embeddings do not know."""
    recipe = on_a_base(tmp_path, "drafter", WordsTokenizer([*RESERVED, *"tsrqponmlkjihgfedcba"]))
    with pytest.raises(OptionError, match="one tokenizer for source and target, found one for each"):
        run(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recipe_survives_being_written_and_read(tmp_path: Path) -> None:
    for path in RECIPES:
        recipe = shipped(path)
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(as_dict(recipe), sort_keys=False))
        assert read_recipe(tmp_path / "recipe.yaml", {}) == recipe
