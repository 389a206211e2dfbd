"""A Hugging Face folder's tokenizer: which of its files count, and whose way of using them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longstride.contract import ModelFolderError
from longstride.text.files import read_regular
from longstride.text.hf_tokenizer.languages import DEFAULT_SOURCE
from longstride.text.hf_tokenizer.library import MERGES
from longstride.text.hf_tokenizer.sentencepieces import M2M100_MODEL, MARIAN_MODELS, VOCABULARY
from longstride.text.hf_tokenizer.settings import TOKENIZER_CONFIG, TOKENIZER_JSON, Family, json_object, named_family
from longstride.text.hf_tokenizer.tokenizer import FILES, MALFORMED, SPIECE, HFTokenizer, Origin


@dataclass(frozen=True)
class HFTokenizers:
    """The tokenizers of a Hugging Face model."""

    source: HFTokenizer
    target: HFTokenizer

    @property
    def forced_first(self) -> int | None:
        """The target language's id, where the family begins every output with it and a target language is told."""
        return self.target.forced_first

    @property
    def start(self) -> int | None:
        """The target language's id, where the family takes it for the decoder's first input (mBART-25)."""
        return self.target.start

    @property
    def languages(self) -> dict[str, int]:
        """Code -> id of the languages that source or target can be marked with."""
        return dict(self.source.languages)


def read_hf_tokenizers(
    folder: str | os.PathLike[str],
    source_lang: str | None = None,
    target_lang: str | None = None,
    convert: Callable[[Path], bytes] | None = None,
) -> HFTokenizers:
    """Read a folder's tokenizers, with languages other than those it names.

    `convert` makes a tokenizer.json of a folder that has only a SentencePiece model and needs more than that.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFolderError(
            f"{folder}: expected a Hugging Face folder, found {'a file' if folder.exists() else 'none'}."
        )
    found = {name: read_regular(folder / name) for name in (*FILES, "config.json") if (folder / name).is_file()}
    model = json_object(found, "config.json", str(folder)) if "config.json" in found else {}
    files = {name: content for name, content in found.items() if name != "config.json"}
    family = _family(named_family(found, str(folder)), files, folder)
    converted = _converted(family, files, folder, convert)
    sizes = [model.get("vocab_size") or 0, model.get("decoder_vocab_size") or model.get("vocab_size") or 0]
    if any(type(size) is not int for size in sizes):
        raise ModelFolderError(f"{folder}, config.json: vocab_size expects a number, found {model['vocab_size']!r}.")
    try:
        origin = Origin(str(folder), family, files, (sizes[0], sizes[1]), converted)
    except MALFORMED as error:
        raise ModelFolderError(f"{folder}: expected a tokenizer's files, found {error!r}.") from None
    if family in DEFAULT_SOURCE:
        source_lang = source_lang or _language(origin, "src_lang") or DEFAULT_SOURCE[family]
        target_lang = target_lang or _language(origin, "tgt_lang")
    source = HFTokenizer(origin, "source", source_lang, target_lang)
    return HFTokenizers(source, HFTokenizer(origin, "target", source_lang, target_lang))


def _language(origin: Origin, key: str) -> str | None:
    told = origin.settings.values.get(key)
    if told is not None and not isinstance(told, str):
        raise ModelFolderError(f"{origin.name}, {TOKENIZER_CONFIG}: {key} expects a language's code, found {told!r}.")
    return told


def _family(named: Family | None, files: dict[str, bytes], folder: Path) -> Family:
    """The family that is named, or that the files are those of."""
    if named is None:
        if all(name in files for name in (*MARIAN_MODELS, VOCABULARY)):
            return "marian"
        if TOKENIZER_JSON in files:
            return "tokenizers"
        raise ModelFolderError(
            f"{folder}: expected a tokenizer (tokenizer_config.json with a tokenizer_class, or {TOKENIZER_JSON}), "
            f"found none."
        )
    if named == "marian" and TOKENIZER_JSON in files and VOCABULARY not in files:
        return "tokenizers"
    return named


def _converted(
    family: Family, files: dict[str, bytes], folder: Path, convert: Callable[[Path], bytes] | None
) -> bytes | None:
    """A tokenizer.json for what cannot be used as it is; None where that is not needed."""
    wanted = {
        "marian": (*MARIAN_MODELS, VOCABULARY),
        "m2m100": (M2M100_MODEL, VOCABULARY),
        "bart": (VOCABULARY, MERGES),
    }.get(family)
    if TOKENIZER_JSON in files or (wanted is not None and all(name in files for name in wanted)):
        return None
    if wanted is not None:
        missing = ", ".join(name for name in wanted if name not in files)
        raise ModelFolderError(
            f"{folder}: expected {TOKENIZER_JSON} or {', '.join(wanted)}, found no {missing}; the model that this "
            "one was made from has them."
        )
    if not (M2M100_MODEL in files or SPIECE in files):
        raise ModelFolderError(f"{folder}: expected {TOKENIZER_JSON}, found no such file.")
    if convert is None:
        raise ModelFolderError(
            f"{folder}: expected {TOKENIZER_JSON}, found only a SentencePiece model; where transformers is installed, "
            f"AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) makes one."
        )
    return convert(folder)
