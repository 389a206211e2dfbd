"""A published model, where there is one: `LONGSTRIDE_PUBLISHED_MODELS` names a folder with `bart-g2p-us`, spelling to
phonemes by Peter Reid as published, without a tokenizer, and `bart-g2p-us-text`, the same with one and words.txt.xz."""

from __future__ import annotations

import json
import lzma
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from longstride.interop.hf.check import compare_with_transformers
from longstride.translator import load
from tests.cli.conftest import Run, run

__all__ = ["run"]

HERE = Path(os.environ.get("LONGSTRIDE_PUBLISHED_MODELS", "nowhere"))
WORDS = int(os.environ.get("LONGSTRIDE_IMPORT_SENTENCES", "500"))
pytestmark = pytest.mark.skipif(not HERE.is_dir(), reason="LONGSTRIDE_PUBLISHED_MODELS names no folder")


def with_tokenizer(folder: Path) -> None:
    """Letters in, phonemes out: ids are places in the two strings of config.json."""
    config = json.loads((folder / "config.json").read_text())
    letters, phonemes = config["grapheme_chars"], config["phoneme_chars"]
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    size = config["vocab_size"]
    tokens = [*special, *letters[4:], *(f"<{number}>" for number in range(len(letters), size))]
    said = [{"type": "Replace", "pattern": {"String": token}, "content": phoneme}
            for token, phoneme in zip(tokens[4:], phonemes[4:], strict=False) if token != phoneme]  # fmt: skip
    added = [{"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for id, token in enumerate(special)]  # fmt: skip
    one = {"id": "A", "type_id": 0}
    around: dict[str, Any] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {**one, "id": "<s>"}}, {"Sequence": one}, {"SpecialToken": {**one, "id": "</s>"}}],
        "pair": [{"Sequence": one}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}
                           for id, token in ((1, "<s>"), (2, "</s>"))},
    }  # fmt: skip
    model = {"type": "WordLevel", "vocab": {token: id for id, token in enumerate(tokens)}, "unk_token": "<unk>"}
    each = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    decoder = {"type": "Sequence", "decoders": [*said, {"type": "Fuse"}]}
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                    "pre_tokenizer": each, "post_processor": around, "decoder": decoder, "model": model})
    )  # fmt: skip
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend", **named}))


@pytest.mark.parametrize("name", ["bart-g2p-us", "bart-g2p-us-text"])
def test_it_is_imported_compared_and_translates(run: Run, tmp_path: Path, name: str) -> None:
    pytest.importorskip("transformers")
    folder = Path(shutil.copytree(HERE / name, tmp_path / name, copy_function=shutil.copyfile))
    folder.chmod(0o755)
    if not (folder / "tokenizer.json").exists():
        assert "expected tokenizer.json or vocab.json, merges.txt" in run("import", folder, "-o", tmp_path / "o").error
        with_tokenizer(folder)
    ran = run("import", folder, "-o", tmp_path / "ours")
    assert ran.code == 0, ran.err
    assert "the same, token by token" in ran.out
    if name == "bart-g2p-us":
        assert "ignored, as transformers does not read it either: grapheme_chars, phoneme_chars." in ran.err
    assert run("translate", "-m", tmp_path / "ours", stdin=b"hello\n").out == "hˈɛlO\n"
    words = lzma.decompress((HERE / "bart-g2p-us-text" / "words.txt.xz").read_bytes()).decode().split("\n")
    lines = words[:: len(words) // WORDS][:WORDS]
    compared = compare_with_transformers(folder, load(tmp_path / "ours", device="cpu"), lines)
    assert compared.first is None
    assert compared.sentences == len(lines)
