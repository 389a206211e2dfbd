"""The whole road: text, aligned counts, a scorer trained on a recipe, a model folder, translations, pictures."""

from __future__ import annotations

import json
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest

from longstride import model_folder
from longstride.cli import lattice_inspect
from longstride.contract import ModelFolderError, OptionError
from longstride.contract.options import parse
from longstride.model_folder import DecoderConfig, Part
from longstride.recipe import Recipe, check, run
from longstride.systems.lattice.build import Text, build
from longstride.text.tokenizer import build_words
from longstride.translator import load
from tests.folders import write_folder

WORDS = "ABCDEFGH"


def _lines(count: int, seed: int) -> list[tuple[str, str]]:
    """Letters become small ones; one that follows the same letter becomes a digit."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        source = [draw.choice(WORDS) for _ in range(draw.randint(2, 6))]
        target = [
            str(WORDS.index(word)) if place and source[place - 1] == word else word.lower()
            for place, word in enumerate(source)
        ]
        pairs.append((" ".join(source), " ".join(target)))
    return pairs


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("road")
    for name, count, seed in (("train", 1500, 1), ("valid", 40, 2)):
        pairs = _lines(count, seed)
        (folder / f"{name}.src").write_text("".join(source + "\n" for source, _ in pairs))
        (folder / f"{name}.tgt").write_text("".join(target + "\n" for _, target in pairs))
    lines = (folder / "train.src").read_text().splitlines() + (folder / "train.tgt").read_text().splitlines()
    tokenizer = build_words(lines, folder / "tokenizer.model", 100)
    tables, _ = build(Text(folder / "train.src", folder / "train.tgt", tokenizer, tokenizer))
    part = Part("tables", tables.options, tables)
    decoders = {"counts": DecoderConfig({"tables": "tables"})}
    model_folder.write(folder / "tables", {"tables": part}, decoders, "counts", tokenizer)
    outcome = run(_recipe(folder), folder / "run")
    assert outcome.result.scores["exact"] > 0.5
    return folder


def _recipe(folder: Path, **changes: object) -> Recipe:
    settings: dict[str, object] = {
        "name": "road",
        "base": str(folder / "tables"),
        "data": {
            "train_source": str(folder / "train.src"),
            "train_target": str(folder / "train.tgt"),
            "valid_source": str(folder / "valid.src"),
            "valid_target": str(folder / "valid.tgt"),
            "tokenizer": str(folder / "tokenizer.model"),
            "batches": {"tokens": 400},
        },
        "model": {"width": 32, "feed_forward": 64, "heads": 4, "encoder_layers": 1, "longest": 32, "dropout": 0.0},
        "objective": {"kind": "lattice", "label_smoothing": 0.0},
        "training": {"steps": 200, "schedule": {"kind": "linear", "peak": 0.008, "warmup": 20}},
        "validation": {"metric": "exact", "every": 200},
        **changes,
    }
    return parse(Recipe, settings, "road")


def test_translates(road):
    translator = load(road / "run" / "model", device="cpu")
    assert translator.decoders == ["lattice", "counts"]
    pairs = _lines(60, 3)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    for options in ({}, {"search": "scan"}, {"order": 3}, {"construction": "shared"}, {"construction": "model"}):
        found = translator.translate(sources, **{"candidates": 16, **options})
        right = sum(one.text == other for one, other in zip(found, targets, strict=True))
        assert right > 25, options
    assert translator.translate(["", "A A"], trace=True)[0].text == ""


def test_a_scorer_starts_from_another_and_may_keep_its_encoder(road):
    recipe = _recipe(
        road,
        warm_start=str(road / "run"),
        training={"steps": 2, "freeze": ["model.encoder.*", "model.target_embedding.weight"]},
    )
    run(recipe, road / "again")
    before, after = (load(road / name / "model", device="cpu").part("model").state_dict() for name in ("run", "again"))
    assert all((before[name] == after[name]).all() for name in before if name.startswith("encoder."))
    assert any((before[name] != after[name]).any() for name in before if name.startswith("decoder."))


def test_draws(road, tmp_path, capsys):
    source = tmp_path / "in.txt"
    source.write_text("A A B\n\nC D E F\n")
    lattice_inspect.inspect(
        str(road / "run"),
        source,
        ["candidates=8"],
        4,
        tmp_path / "one.svg",
        tmp_path / "one.dot",
        None,
        None,
        "eager",
        "fp32",
        "cpu",
    )
    text = capsys.readouterr().out
    assert "  1  A A B" in text
    assert "  3  C D E F" in text
    assert "best" in text
    for name in ("one", "one-2"):
        ElementTree.fromstring((tmp_path / f"{name}.svg").read_text())
        assert (tmp_path / f"{name}.dot").read_text().startswith("digraph")


def test_counts_ranks_and_times_stages(road, tmp_path):
    lattice_inspect.inspect(
        str(road / "run"),
        road / "valid.src",
        ["candidates=8", "length_window=0"],
        4,
        None,
        None,
        tmp_path / "ranks.json",
        tmp_path / "times.jsonl",
        "eager",
        "fp32",
        "cpu",
    )
    found = json.loads((tmp_path / "ranks.json").read_text())
    words = sum(len(line.split()) for line in (road / "valid.src").read_text().splitlines())
    assert sum(found["edges"]) == sum(found["candidates"]) == found["words"] == words
    assert len(found["edges"]) == 8
    times = [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()]
    assert len(times) == 40
    assert all(times[0][stage] > 0 for stage in ("encode", "candidates", "score", "search"))


def test_refusals(road, tmp_path):
    with pytest.raises(OptionError, match="expects `base`"):
        check(_recipe(road, base=""))
    write_folder(tmp_path / "ordinary")
    with pytest.raises(OptionError, match="candidate tables named 'tables'"):
        check(_recipe(road, base=str(tmp_path / "ordinary")))
    lines = tmp_path / "lines.txt"
    lines.write_text("a b\n")
    with pytest.raises((OptionError, ModelFolderError), match="no decoder 'lattice'"):
        lattice_inspect.inspect(
            str(tmp_path / "ordinary"), lines, None, 4, None, None, None, None, "eager", "fp32", "cpu"
        )
    (tmp_path / "no").write_text("")
    with pytest.raises(OptionError, match="found a file"):
        lattice_inspect.inspect(
            str(road / "run"), lines, None, 4, tmp_path / "no" / "x.svg", None, None, None, "eager", "fp32", "cpu"
        )
