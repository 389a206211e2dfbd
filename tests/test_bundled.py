"""The model that comes with the package loads, is whole, and translates what it was made for."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

import longstride
from longstride.model_folder import ModelFolder
from longstride.tasks.toys import generate
from longstride.translator import BUNDLED, Translator, load

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(longstride.__file__).parent / "bundled"
MOST_BYTES = 2_500_000
HELD_OUT = 100
RIGHT = 90
"""The recipe's model has more of them right; less than this is no longer that model."""


@lru_cache(maxsize=1)
def bundled() -> Translator:
    return load(device="cpu")


@lru_cache(maxsize=2)
def exactly_right(decoder: str) -> int:
    pairs = list(generate("numbers", HELD_OUT, seed=11, split="test"))
    outputs = bundled().translate([source for source, _ in pairs], decoder, batch=50)
    return sum(output.text == target for output, (_, target) in zip(outputs, pairs, strict=True))


def within(said: object, whole: object) -> bool:
    """Whether all that a recipe's file says is in the recipe as it ran, which has the defaults besides."""
    if isinstance(said, dict) and isinstance(whole, dict):
        return all(key in whole and within(value, whole[key]) for key, value in said.items())
    return said == whole


def test_it_is_the_default_and_has_a_name() -> None:
    assert load(device="cpu").folder.path == load(BUNDLED, device="cpu").folder.path == FOLDER
    assert bundled().decoders == ["blockwise", "greedy", "beam"]


def test_it_is_small_and_whole() -> None:
    folder = ModelFolder(FOLDER)
    for part in folder.parts:  # filling checks the hash, every name and every shape
        bundled().part(part)
    assert folder.tokenizers()[0].size == folder.parts["model"].options["vocabulary"]
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < MOST_BYTES


def test_it_says_where_it_comes_from() -> None:
    text = (FOLDER / "config.json").read_text(encoding="utf-8")
    provenance = json.loads(text)["provenance"]
    for name, made in (("heads", provenance), ("numbers", provenance["base"])):
        recipe = yaml.safe_load((ROOT / "recipes" / "bundled" / f"{name}.yaml").read_text(encoding="utf-8"))
        assert within(recipe, made["recipe"])
    assert not [place for place in ("/home", "/work", "/tmp", "/root") if place in text]
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for word in ("Apache-2.0", "bundled/numbers.yaml", "bundled/heads.yaml", "not a general translator"):
        assert word in card


@pytest.mark.parametrize("decoder", ["greedy", "beam"])
def test_it_translates_what_it_never_saw(decoder: str) -> None:
    assert exactly_right(decoder) >= RIGHT


def test_beam_search_is_no_worse_than_greedy() -> None:
    assert exactly_right("beam") >= exactly_right("greedy") - 1


def test_one_sentence_in_one_out() -> None:
    text = bundled().translate("The train to Vienna leaves at half past six from platform eighteen.")
    assert text == "Der Zug nach Wien fährt um halb sieben von Gleis achtzehn ab."


def test_blockwise_gives_greedys_output_in_fewer_iterations() -> None:
    """In float64, where shapes cannot flip a near-tie."""
    translator = load(device="cpu", precision="fp64")
    sources = [source for source, _ in generate("numbers", 60, seed=12, split="test")]
    greedy = translator.translate(sources, "greedy", trace=True)
    blockwise = translator.translate(sources, "blockwise", trace=True)
    assert [one.text for one in blockwise] == [one.text for one in greedy]
    iterations = [sum(one.trace.iterations for one in found if one.trace) for found in (greedy, blockwise)]
    assert iterations[1] * 1.2 < iterations[0]
