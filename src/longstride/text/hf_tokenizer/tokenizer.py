"""A Hugging Face tokenizer as one of the project's: one file that holds the original ones, and languages to choose."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, final, get_args

from longstride.contract import ModelFolderError, OptionError, SpecialIds
from longstride.text.files import parse_json
from longstride.text.hf_tokenizer.languages import DEFAULT_SOURCE, check_language
from longstride.text.hf_tokenizer.library import MERGES, LibraryTokenizer
from longstride.text.hf_tokenizer.sentencepieces import (
    M2M100_MODEL,
    MARIAN_MODELS,
    TARGET_VOCABULARY,
    VOCABULARY,
    m2m100_pieces,
    marian_pieces,
)
from longstride.text.hf_tokenizer.settings import (
    ADDED_TOKENS,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    Family,
    Settings,
    read_settings,
)
from longstride.text.tokenizer import HF_HEADER, Tokenizer, refuse_surrogates

SPIECE = "spiece.model"
FILES = (
    *(TOKENIZER_CONFIG, SPECIAL_TOKENS, ADDED_TOKENS, TOKENIZER_JSON),
    *(VOCABULARY, TARGET_VOCABULARY, MERGES, *MARIAN_MODELS, M2M100_MODEL, SPIECE),
)
"""What a Hugging Face folder may have for its tokenizer."""

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError)
"""What reading files raises that are not what they should be, where nothing better was said."""

Side = Literal["source", "target"]


class _Engine(Protocol):
    """Text to ids and back, without prefix and suffix."""

    ids: dict[str, int]
    tokens: dict[int, str]
    skipped: frozenset[int]
    languages: dict[str, int]

    @property
    def size(self) -> int: ...

    def encode(self, texts: Sequence[str], threads: int | None) -> list[list[int]]: ...

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]: ...


@dataclass(frozen=True)
class Origin:
    """The files that a tokenizer was read from, and what is made of them: shared by all copies."""

    name: str
    """in errors"""
    family: Family
    files: Mapping[str, bytes]
    """those of the tokenizer, byte for byte"""
    sizes: tuple[int, int]
    """ids that the model has for its source and target, which may be more than the tokenizer has; 0: as many"""
    converted: bytes | None = None
    """a tokenizer.json that was made of a SentencePiece model"""
    settings: Settings = field(init=False)
    engines: tuple[_Engine, _Engine] = field(init=False)
    """of source and target"""

    def __post_init__(self) -> None:
        if self.family not in get_args(Family):
            raise ValueError(f"the family {self.family!r}")
        if unknown := [name for name in self.files if name not in FILES]:
            raise ValueError(f"a file {unknown[0]!r}")
        files = dict(self.files) if self.converted is None else {**self.files, TOKENIZER_JSON: self.converted}
        settings = read_settings(files, self.family, self.name)
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "engines", _engines(files, settings, self.name))

    @property
    def separate(self) -> bool:
        """Whether source and target ids mean different things."""
        return self.family == "marian" and self.settings.flag("separate_vocabs")


def _engines(files: Mapping[str, bytes], settings: Settings, name: str) -> tuple[_Engine, _Engine]:
    if settings.family == "marian" and VOCABULARY in files:
        return marian_pieces(files, settings, name)
    engine: _Engine
    if settings.family == "m2m100" and VOCABULARY in files:
        engine = m2m100_pieces(files, settings, name)
    else:
        engine = LibraryTokenizer(files, settings, name)
    return engine, engine


@final
class HFTokenizer(Tokenizer):
    """One side of a Hugging Face tokenizer, with the languages that are in force."""

    kind = "hugging face"
    complete = True

    def __init__(
        self, origin: Origin, side: Side = "source", source_lang: str | None = None, target_lang: str | None = None
    ) -> None:
        """Languages: None is what the folder says, if it says any."""
        self.origin, self.side = origin, side
        self._engine = origin.engines[side == "target"]
        self.languages = self._engine.languages
        own = self._engine.size
        self.size = max(own, told) if (told := origin.sizes[side == "target"]) else own
        # bart-large-cnn's model has no row for <mask>, which no text of a user has either.
        needed = set(range(told, own)) - self._engine.skipped | set(self.languages.values()) & set(range(told, own))
        if told and needed:
            raise ModelFolderError(f"{origin.name}: the model expects {told} ids, found {own} in its tokenizer.")
        self.special = self._special_ids()
        self.source_lang, self.target_lang = source_lang, target_lang
        for code, what in ((source_lang, "source_lang"), (target_lang, "target_lang")):
            if code is not None:
                check_language(code, self.languages if what == "target_lang" else self._sources, what, origin.name)
        language = self.languages[target_lang] if target_lang is not None else None
        self.forced_first = language if self.family in ("nllb", "m2m100", "mbart50") else None
        self.start = language if self.family == "mbart" else None
        self.prefix, self.suffix = (tuple(ids) for ids in self._around())

    @property
    def family(self) -> Family:
        """Whose way it is to put language tokens around text."""
        return self.origin.family

    @property
    def _sources(self) -> Mapping[str, int]:
        """Languages that a source can be marked with: Marian's tokens are of the target alone."""
        return {} if self.family == "marian" else self.languages

    def as_target(self) -> HFTokenizer:
        """The other side of a tokenizer of one vocabulary."""
        if self.side == "target" or self.origin.separate:
            return self
        return HFTokenizer(self.origin, "target", self.source_lang, self.target_lang)

    def with_languages(self, source: str | None = None, target: str | None = None) -> HFTokenizer:
        """The same with other languages; None leaves one as it is."""
        return HFTokenizer(self.origin, self.side, source or self.source_lang, target or self.target_lang)

    def write_files(self, folder: Path) -> None:
        """Write the original files, byte for byte."""
        for name, content in self.origin.files.items():
            (folder / name).write_bytes(content)

    def encode_many(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """The ids of many lines with what their family puts around them, as the model reads them."""
        if not texts:
            return []
        try:
            rows = self._engine.encode(texts, threads)
        except (TypeError, UnicodeEncodeError):
            for text in texts:
                refuse_surrogates(text)
            raise
        if self.family == "marian" and self.prefix:  # a code that the text itself begins with counts
            coded = [text.startswith(">>") and "<<" in text for text in texts]
            return [[*(() if has else self.prefix), *row, *self.suffix] for has, row in zip(coded, rows, strict=True)]
        return [[*self.prefix, *row, *self.suffix] for row in rows]

    def ended(self, ids: list[int], longest: int) -> list[int]:
        """Text is cut, what stands behind it is not."""
        return ids if len(ids) <= longest else [*ids[: max(longest - len(self.suffix), 0)], *self.suffix]

    def encode_for_batches(self, texts: Sequence[str]) -> list[list[int]]:
        """The same without EOS at the end; refused where something else stands there."""
        if self.suffix[-1:] != (self.special.eos,):
            raise ModelFolderError(
                f"{self.origin.name}: training expects a tokenizer whose rows end in </s>, found another last token."
            )
        return [row[:-1] for row in self.encode_many(texts)]

    def decode_many(self, rows: Sequence[Sequence[int]], threads: int | None = None) -> list[str]:
        """The texts of many rows, special tokens left out."""
        return self._engine.decode([[int(id) for id in row] for row in rows]) if rows else []

    def as_decoded(self, text: str) -> str:
        """References stay as they are."""
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The tokens; ids that the model has and its tokenizer has not are numbered."""
        return [self._engine.tokens.get(int(id), f"<unused {int(id)}>") for id in ids]

    @cached_property
    def serialized(self) -> bytes:
        """One JSON document with the original files; their text as text, their bytes in base64."""
        origin = self.origin
        values: dict[str, Any] = {
            "family": origin.family,
            "sizes": list(origin.sizes),
            "source_lang": self.source_lang,
            "target_lang": self.target_lang,
            "side": self.side if origin.separate else None,
            "files": {name: _packed(content) for name, content in sorted(origin.files.items())},
            "converted": None if origin.converted is None else _packed(origin.converted),
        }
        return HF_HEADER + json.dumps(values, ensure_ascii=False, indent=1).encode("utf-8") + b"\n"

    @staticmethod
    def from_bytes(serialized: bytes, name: str = "tokenizer") -> HFTokenizer:
        """Read what `serialized` wrote; `name` stands in errors."""
        try:
            values = parse_json(serialized.removeprefix(HF_HEADER))
            converted = values["converted"]
            origin = Origin(
                name,
                values["family"],
                {file: _unpacked(content) for file, content in values["files"].items()},
                (int(values["sizes"][0]), int(values["sizes"][1])),
                None if converted is None else _unpacked(converted),
            )
            side: Side = "target" if values["side"] == "target" else "source"
            languages = [None if code is None else str(code) for code in (values["source_lang"], values["target_lang"])]
        except MALFORMED as error:
            raise ModelFolderError(f"{name}: expected a Hugging Face tokenizer's files, found {error!r}.") from None
        try:
            return HFTokenizer(origin, side, *languages)
        except OptionError as error:
            raise ModelFolderError(f"{name}: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.serialized, self.side)

    def _special_ids(self) -> SpecialIds:
        ids, named = self._engine.ids, self.origin.settings.named
        found = {key: ids[token.content] for key, token in named.items() if token.content in ids}
        for key in ("pad_token", "eos_token"):
            if key not in found:
                raise ModelFolderError(f"{self.origin.name}: expected a tokenizer with a {key}, found none.")
        return SpecialIds(
            pad=found["pad_token"],
            unk=found.get("unk_token"),
            start=found.get("bos_token", found["pad_token"]),
            eos=found["eos_token"],
            mask=found.get("mask_token"),
        )

    def _around(self) -> tuple[list[int], list[int]]:
        """What this side puts before and behind text."""
        family, eos = self.family, self.special.eos
        if family == "tokenizers":
            assert isinstance(self._engine, LibraryTokenizer)
            return self._engine.around(self.origin.name)
        if family == "bart":
            named = self.origin.settings.named
            return [self._engine.ids[named["cls_token"].content]], [self._engine.ids[named["sep_token"].content]]
        if family in ("t5", "pegasus"):
            return [], [eos]
        if family == "marian":
            given = self.side == "source" and self.target_lang is not None
            return ([self.languages[str(self.target_lang)]] if given else []), [eos]
        source = self.source_lang or DEFAULT_SOURCE[family]
        code = source if self.side == "source" else self.target_lang or source
        check_language(code, self.languages, "source_lang", self.origin.name)
        language = self.languages[code]
        behind = family == "mbart" or self.origin.settings.flag("legacy_behaviour")
        return ([], [eos, language]) if behind else ([language], [eos])


def _restored(serialized: bytes, side: Side) -> HFTokenizer:
    found = HFTokenizer.from_bytes(serialized)
    return found.as_target() if side == "target" else found


def _packed(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


def _unpacked(content: dict[str, str]) -> bytes:
    return content["text"].encode("utf-8") if "text" in content else base64.b64decode(content["base64"], validate=True)
