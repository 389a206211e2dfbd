"""Small valid things that cases are made from: made once, copied into the folder of each case that asks for them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import yaml

from longstride import model_folder
from longstride.model_folder import DecoderConfig, Part
from longstride.systems.non_autoregressive.model import OnePass, OnePassOptions
from longstride.tasks.toys import generate
from longstride.text.tokenizer import train_sentencepiece
from tests.family import tiny_tables, write_family
from tests.folders import LONGEST, words, write_folder
from tests.fuzz.grammar import ROOT
from tests.models import tiny_options
from tests.spoken_task import numbers

MODELS = ("tiny", "family", "pieces", "tables", "one-pass", "run")
"""Greedy and beam; every decoder of the bundled family; SentencePiece; tables alone; one pass; in a run's folder."""


@dataclass(frozen=True)
class Material:
    """Where the models lie, and texts to take samples from."""

    folder: Path
    records: tuple[str, ...]
    """lines of the committed records, some of each kind"""
    recipes: dict[str, dict[str, Any]]
    """the toy recipes, scaled down to two updates"""
    examples: str
    """the bundled model's sentences to show"""

    def model(self, name: str, to: Path) -> Path:
        """A copy of a model folder."""
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.folder / name, to, dirs_exist_ok=True)
        return to


def make(folder: Path) -> Material:
    """Everything, in a new folder."""
    write_folder(folder / "tiny")
    write_family(folder / "family")
    write_folder(folder / "run" / "model")
    lines = [line for pair in numbers(300) for line in pair]
    pieces = train_sentencepiece(lines, 400, folder / "pieces.model")
    write_folder(folder / "pieces", tokenizer=pieces)
    tables, tokenizer = tiny_tables(words()), words()
    model_folder.write(
        folder / "tables",
        {"tables": Part("tables", tables.options, tables)},
        {"counts": DecoderConfig({"tables": "tables"})},
        "counts",
        tokenizer,
    )
    options = OnePassOptions(**{**vars(tiny_options(vocabulary=tokenizer.size, longest=LONGEST)), "copy": "soft"})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        one_pass = Part("one-pass", options, OnePass(options))
    decoders = {"non-autoregressive": DecoderConfig({"model": "model"})}
    model_folder.write(folder / "one-pass", {"model": one_pass}, decoders, "non-autoregressive", tokenizer)
    examples = "".join(f"{source}\t{target}\n" for source, target in generate("reverse", 2))
    return Material(folder, tuple(_records()), dict(_recipes()), examples)


def _records() -> list[str]:
    """A few of each kind and file, the shorter ones."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in sorted((ROOT / "benchmarks" / "results").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            found.setdefault((file.name, str(json.loads(line).get("kind"))), []).append(line)
    return [line for lines in found.values() for line in sorted(lines, key=len)[:3]]


def _recipes() -> list[tuple[str, dict[str, Any]]]:
    """As short and small as they can be, over the tokenizer and the base of the tiny model."""
    found = []
    for file in sorted((ROOT / "recipes" / "toy").glob("*.yaml")):
        recipe = yaml.safe_load(file.read_text(encoding="utf-8"))
        if "stages" in recipe:  # a pipeline
            continue
        recipe["data"] |= {"task": "reverse", "pairs": 40, "valid_pairs": 4, "tokenizer": "base/tokenizer.model"}
        recipe["training"] |= {"steps": 2, "validate_every": 2, "checkpoint_every": 1, "log_every": 1}
        recipe["training"]["schedule"] |= {"warmup": 1}
        recipe["validation"] |= {"sentences": 4, "every": 2}
        model = recipe["model"]
        model |= {name: 16 for name in ("width", "feed_forward") if name in model}
        model |= {name: 24 for name in ("longest",) if name in model}
        model |= {"heads": 2} if "heads" in model else {}
        if "base" in recipe:
            recipe["base"] = "base"
        found.append((file.stem, recipe))
    return found


def some_records(material: Material, rng: Random) -> list[str]:
    """Lines for one file."""
    return rng.sample(material.records, rng.randint(1, 4))
