"""Model folders for tests: a tiny random model over words of one letter, written like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from longstride import model_folder
from longstride.contract import RESERVED
from longstride.model_folder import DecoderConfig, Part
from longstride.tasks.toys import SYMBOLS
from longstride.text.files import file_sha256
from longstride.text.tokenizer import Tokenizer, WordsTokenizer
from tests.models import tiny_model

LONGEST = 24
"""Positions of the tiny model: a line of more tokens, EOS counted, is cut."""


def words() -> WordsTokenizer:
    return WordsTokenizer([*RESERVED, *SYMBOLS])


def write_folder(path: Path, seed: int = 0, tokenizer: Tokenizer | None = None, **changes: Any) -> Path:
    tokenizer = tokenizer or words()
    settings = {"vocabulary": tokenizer.size, "longest": LONGEST, **changes}
    model = tiny_model(seed, torch.float32, **settings)
    decoders = {name: DecoderConfig({"model": "model"}) for name in ("greedy", "beam")}
    part = Part("transformer", model.options, model)
    model_folder.write(path, {"model": part}, decoders, "greedy", tokenizer, provenance={"recipe": {"name": "tiny"}})
    return path


def edit_config(folder: Path, *keys: str, value: Any) -> None:
    """Set a field of config.json; without a value of its own (None) the field is taken out."""
    file = folder / model_folder.CONFIG
    config = json.loads(file.read_text())
    place = config
    for key in keys[:-1]:
        place = place[key]
    if value is None:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    file.write_text(json.dumps(config))


def replace_weights(folder: Path, content: bytes) -> None:
    """Other bytes under the same name, with the hash that config.json then has to have."""
    file = folder / "model.safetensors"
    file.write_bytes(content)
    edit_config(folder, "parts", "model", "sha256", value=file_sha256(file))
