"""A tokenizer trained once for all tests of this room, on sentences made up here."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from longstride.text.tokenizer import SentencePieceTokenizer, train_sentencepiece


def made_up_lines(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    words = ["".join(rng.choice("abcdefghijklmnoprstuvwzäöüß<>") for _ in range(rng.randint(1, 9))) for _ in range(300)]
    words += ["<s>", "</s>", "<mask>", "<pad>", "<unk>"]
    return [" ".join(rng.choice(words) for _ in range(rng.randint(1, 12))) for _ in range(count)]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    path: Path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return train_sentencepiece(made_up_lines(500), 500, path)
