"""Small models to hand over, and folders they were handed over in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from longstride import model_folder
from longstride.contract import DEFAULT_IDS, RESERVED
from longstride.model_folder import DecoderConfig, ModelFolder, Part
from longstride.nn.transformer import Transformer
from longstride.runtime.eager import EagerRunner
from longstride.text.tokenizer import Tokenizer, WordsTokenizer
from longstride.translator import Translator
from tests.models import tiny_model

LETTERS = "abcdefgh"

MakeTranslator = Callable[..., Translator]


def letters(extra: str = "") -> WordsTokenizer:
    return WordsTokenizer([*RESERVED, *LETTERS, *extra])


@pytest.fixture(autouse=True)
def _no_model_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def shy(model: Transformer) -> Transformer:
    """Make what is never generated as good as impossible, so that forbidding it changes no other probability.

    The first coordinate of the decoder's output is made 1 for good; what embeddings hold there is then a bias.
    """
    with torch.no_grad():
        closing = model.decoder_layers()[-1].feed_forward_residual.norm
        closing.weight[0], closing.bias[0] = 0.0, 1.0
        output = model.target_embedding if model.output_embedding is None else model.output_embedding
        output.weight[:, 0] = 0.0
        output.weight[list(DEFAULT_IDS.never_generated), 0] = -60.0
    return model


@pytest.fixture
def make_translator(tmp_path: Path) -> MakeTranslator:
    """A translator of a tiny random model in float32, with any options of the Transformer."""

    def make(
        seed: int = 0, tokenizer: Tokenizer | None = None, source_tokenizer: Tokenizer | None = None, **changes: Any
    ) -> Translator:
        tokenizer = tokenizer or letters()
        settings = {"vocabulary": tokenizer.size, "longest": 40, "encoder_layers": 2, "sharpness": 1.0, **changes}
        if source_tokenizer is not None:
            settings["source_vocabulary"] = source_tokenizer.size
        model = tiny_model(seed, torch.float32, **settings)
        if model.options.norm == "post":
            shy(model)
        decoders = {name: DecoderConfig({"model": "model"}) for name in ("greedy", "beam")}
        path = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        part = Part("transformer", model.options, model)
        model_folder.write(path, {"model": part}, decoders, "greedy", tokenizer, source_tokenizer)
        return Translator(ModelFolder(path), EagerRunner("cpu", "fp32"))

    return make


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder to fill."""
    folder = tmp_path / "exported"
    folder.mkdir()
    return folder
