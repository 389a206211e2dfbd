"""The English-German family that comes with the package: whole, small, and sensible."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

import longstride
from longstride.cli.demo import examples
from longstride.cli.options import settings
from longstride.cli.train import read_recipe
from longstride.contract import Decoded
from longstride.model_folder import ModelFolder
from longstride.tasks.translation import score_translations
from longstride.translator import BUNDLED, Translator, load
from tests.house.test_pipeline import pipeline

RECIPES = Path(__file__).resolve().parents[1] / "recipes" / "bundled" / "en-de"
FOLDER = Path(longstride.__file__).parent / "bundled"
FAMILY = {"greedy", "beam", "blockwise", "draft-verify", "draft", "interleaved", "lattice"}
MOST_BYTES = 64_000_000
LEAST_CHRF = {"greedy": 45.0, "beam": 45.0, "interleaved": 35.0, "draft": 25.0, "lattice": 25.0}
"""Of the examples; a model that has learnt to translate has more, one that only writes German has half of it."""


@lru_cache(maxsize=2)
def family(precision: str = "fp32") -> Translator:
    return load(device="cpu", precision=precision)  # type: ignore[arg-type]


@pytest.mark.parametrize("sign", ["\n", "\r", "\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\0", "\t", "\u3000"])
def test_what_follows_a_break_or_control_character_is_translated(sign: str) -> None:
    found = family().translate(f"Good morning.{sign}I like books.")
    assert re.findall(r"\w+", found) == ["Guten", "Morgen", "Ich", "mag", "Bücher"]


def test_a_word_of_a_million_characters_stands_as_it_is() -> None:
    """It once was decoded, in thousands of parts."""
    word, told = "x" * 10**6, list[str]()
    found = family().translate(["Hello!", f"Good morning. {word}"], warn=told.append)
    assert [one.text for one in found] == ["Hallo!", f"Guten Morgen! {word}"]
    assert (len(told), "line 2 has 1,000,000 characters" in told[0]) == (1, True)


PIECES = ["\ufeff", "~", "don't", "@user", "the", "£8", "😀", "1,000.5", "<b>", "日本", "\xad", "n'"]


@lru_cache
def by_onnx() -> Translator:
    return load(device="cpu", runtime="onnx", precision="int8", threads=1)


@settings_of(max_examples=8)
@example(["\ufeff", "~", "don't", "@user", "the", "£8"], 3)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.sampled_from([3, 5]))
def test_drafts_write_greedys_output_of_odd_lines_in_int8(pieces: list[str], k: int) -> None:
    """By ONNX Runtime, which rounded a step of a draft otherwise than one of greedy search."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    greedy, drafted = (
        by_onnx().translate([" ".join(pieces)], name, batch=1, **options)[0].tokens
        for name, options in (("greedy", {}), ("draft-verify", {"tree": 0, "k": k}))
    )
    assert drafted == greedy


def test_it_is_the_default_and_has_a_name() -> None:
    assert family().folder.path == load(BUNDLED, device="cpu").folder.path == FOLDER
    assert set(ModelFolder(FOLDER).decoders) == FAMILY
    assert family().decoders[0] == "greedy"


def test_it_is_whole_and_fits_the_repository() -> None:
    for part in family().folder.parts:  # filling checks the hash, every name and every shape
        family().part(part)
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < MOST_BYTES
    text = (FOLDER / "config.json").read_text(encoding="utf-8")
    assert not [place for place in ("/home", "/work", "/tmp", "/root") if f'"{place}' in text]


@pytest.mark.parametrize("name", ["verifier", "heads", "drafter", "interleaved", "lattice"])
def test_it_says_by_what_recipe_each_part_was_made(name: str) -> None:
    made = ModelFolder(FOLDER).config.provenance["runs"][name]
    stages = pipeline.read_pipeline(RECIPES / "longer.yaml", {}).stages
    (stage,) = [one for one in stages if one.name.split("/")[-1] == name]
    said = [word for flag, word in pairwise(shlex.split(stage.commands[0])) if flag == "--set"]
    recipe = read_recipe(RECIPES / f"{name}.yaml", settings(said))
    assert json.loads(json.dumps(asdict(recipe))) == made["recipe"]


def test_its_card_names_sources_licences_and_scores() -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for word in ("CC BY 2.0 FR", "tatoeba.org", "European Parliament", "recipes/bundled/en-de", "| greedy |"):
        assert word in card
    for word in ("<!--", "Not measured yet"):
        assert word not in card


def test_verified_decoders_write_what_greedy_writes() -> None:
    """In float64, where shapes cannot flip a near-tie."""
    sources = [source for source, _ in examples(FOLDER)]
    outputs = {
        name: family("fp64").translate(sources, name, trace=True) for name in ("greedy", "blockwise", "draft-verify")
    }
    texts = {name: [one.text for one in found] for name, found in outputs.items()}
    assert texts["blockwise"] == texts["draft-verify"] == texts["greedy"]
    iterations = [sum(one.trace.iterations for one in found if one.trace) for found in outputs.values()]
    assert max(iterations[1:]) < iterations[0], "and in fewer iterations"


@pytest.mark.parametrize("decoder", sorted(LEAST_CHRF))
def test_it_translates_sensibly(decoder: str) -> None:
    pairs = examples(FOLDER)
    outputs = [one.text for one in family().translate([source for source, _ in pairs], decoder)]
    (chrf,) = [one for one in score_translations(outputs, [text for _, text in pairs]) if one.name == "chrF"]
    assert chrf.value >= LEAST_CHRF[decoder]


def test_on_a_processor_sentences_side_by_side_are_not_drafted_unless_options_say_how() -> None:
    """There drafts take longer than they save; outputs are the same."""
    translator, lines = family("fp64"), ["A man is reading a book.", "Two dogs run."]
    seen: list[Decoded] = []
    texts = [
        [one.text for one in translator.translate(lines, name, watch=seen.append, **options)]
        for name, options in (("greedy", {}), ("draft-verify", {}), ("draft-verify", {"k": 4}))
    ]
    assert texts[0] == texts[1] == texts[2]
    greedy, undrafted, drafted = (one.iterations for one in seen)
    assert drafted < undrafted == greedy
    translator.translate(lines[:1], "draft-verify", watch=seen.append)
    assert seen[-1].iterations < greedy
