"""What the `tokenizers` library runs: a tokenizer.json as it is, or byte-level BPE from vocab.json and merges.txt."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from longstride.contract import ModelFolderError, OptionError
from longstride.text.hf_tokenizer.languages import spelt
from longstride.text.hf_tokenizer.sentencepieces import VOCABULARY, cleaned_up
from longstride.text.hf_tokenizer.settings import TOKENIZER_JSON, AddedToken, Settings, json_object

MERGES = "merges.txt"


class LibraryTokenizer:
    """Text to ids without prefix and suffix, and ids to text, by the `tokenizers` library."""

    def __init__(self, files: Mapping[str, bytes], settings: Settings, name: str) -> None:
        self._name = name
        library = _library(name)
        if TOKENIZER_JSON in files:
            self._tokenizer = _from_json(library, files, settings, name)
        else:
            self._tokenizer = _byte_level(library, files, settings, name)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        _add(library, self._tokenizer, settings, name)
        self._tokenizer.encode_special_tokens = settings.flag("split_special_tokens")
        self.ids: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        self.tokens: dict[int, str] = {id: token for token, id in self.ids.items()}
        known = self._tokenizer.get_added_tokens_decoder()
        self.skipped = frozenset(id for id, token in known.items() if token.special)
        self.languages = spelt(settings.family, {self.tokens[id]: id for id in self.skipped})
        # Version 5 of transformers cleans no BPE up, whatever the folder says, unless this is set too.
        bpe = type(self._tokenizer.model).__name__ == "BPE"
        forced = settings.flag("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output")
        self._clean = settings.flag("clean_up_tokenization_spaces") and (forced or not bpe)

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.tokens, default=-1) + 1

    def encode(self, texts: Sequence[str], threads: int | None) -> list[list[int]]:
        """The ids of texts; the library has its own threads."""
        try:
            found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except BaseException as error:
            # The library's own errors have no better class; a panic, over a slow pattern for one, is no Exception.
            if type(error) is not Exception and type(error).__name__ != "PanicException":
                raise
            raise ModelFolderError(f"{self._name}: the tokenizer cannot read every text ({error}).") from None
        return [list(each.ids) for each in found]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The texts of ids, without special tokens."""
        texts: list[str] = self._tokenizer.decode_batch([list(row) for row in rows], skip_special_tokens=True)
        return [cleaned_up(text) for text in texts] if self._clean else texts

    def around(self, name: str) -> tuple[list[int], list[int]]:
        """Prefix and suffix by the post-processor of tokenizer.json."""
        processor = self._tokenizer.post_processor
        return _around(json.loads(processor.__getstate__()) if processor is not None else None, name)


def _library(name: str) -> Any:
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise OptionError(
            f"The tokenizer of {name} expects the package tokenizers, which is not installed here: "
            f"pip install 'longstride[tokenizers]'."
        ) from None


def _from_json(library: Any, files: Mapping[str, bytes], settings: Settings, name: str) -> Any:
    values = json_object(files, TOKENIZER_JSON, name)
    before = values.get("pre_tokenizer")
    if settings.family == "bart" and isinstance(before, dict) and before.get("type") == "ByteLevel":
        before["add_prefix_space"] = settings.flag("add_prefix_space")  # BART's class takes it from its settings alone
    try:
        return library.Tokenizer.from_str(json.dumps(values))
    except Exception as error:
        raise ModelFolderError(
            f"{name}, {TOKENIZER_JSON}: the package tokenizers {library.__version__} could not read it ({error})."
        ) from None


def _byte_level(library: Any, files: Mapping[str, bytes], settings: Settings, name: str) -> Any:
    for key in ("add_bos_token", "add_eos_token"):
        if key in settings.values:
            raise ModelFolderError(f"{name}: {key} is not supported without a {TOKENIZER_JSON}; expected none.")
    try:
        lines = files[MERGES].decode("utf-8").splitlines()
        merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        model = library.models.BPE(
            json_object(files, VOCABULARY, name),
            merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
            fuse_unk=False,
        )
    except ModelFolderError:
        raise
    except Exception as error:
        raise ModelFolderError(f"{name}: expected {VOCABULARY} and {MERGES} to fit, found {error}.") from None
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=settings.flag("add_prefix_space"))
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _add(library: Any, tokenizer: Any, settings: Settings, name: str) -> None:
    """Tokens that the settings add to those of the file, each at the id that is told."""

    def made(token: AddedToken, special: bool) -> Any:
        flags = {key: getattr(token, key) for key in ("lstrip", "rstrip", "single_word", "normalized")}
        return library.AddedToken(token.content, special=special, **flags)

    known = tokenizer.get_added_tokens_decoder()
    for id, token in settings.added.items():
        if id not in known or known[id].content != token.content:
            tokenizer.add_tokens([made(token, token.special)])
        if tokenizer.token_to_id(token.content) != id:
            raise ModelFolderError(
                f"{name}: the added token {token.content!r} expects the id {id}, found "
                f"{tokenizer.token_to_id(token.content)} in the vocabulary."
            )
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    tokenizer.add_special_tokens([made(token, True) for token in settings.special if token.content not in special])


def _around(processor: dict[str, Any] | None, name: str) -> tuple[list[int], list[int]]:
    kind = processor["type"] if processor is not None else "none"
    if processor is None or kind == "ByteLevel":
        return [], []
    if kind in ("RobertaProcessing", "BertProcessing"):
        return [int(processor["cls"][1])], [int(processor["sep"][1])]
    if kind == "Sequence":
        inner = [_around(each, name) for each in processor["processors"]]
        return [id for prefix, _ in inner[::-1] for id in prefix], [id for _, suffix in inner for id in suffix]
    if kind == "TemplateProcessing":
        sides: tuple[list[int], list[int]] = ([], [])
        side = 0
        for part in processor["single"]:
            if "Sequence" in part:
                side = 1
            else:
                sides[side].extend(processor["special_tokens"][part["SpecialToken"]["id"]]["ids"])
        return sides
    raise ModelFolderError(f"{name}, {TOKENIZER_JSON}: the post_processor {kind} is not supported.")
