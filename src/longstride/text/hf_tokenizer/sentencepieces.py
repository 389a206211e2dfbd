"""Marian and M2M100: a SentencePiece model cuts text into pieces, a vocab.json has their ids.

The two are not aligned: a piece that vocab.json lacks is unknown, and a character that SentencePiece does not know may
have an id all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import sentencepiece

from longstride.contract import ModelFolderError
from longstride.text.hf_tokenizer.languages import M2M100, spelt
from longstride.text.hf_tokenizer.settings import AddedToken, Settings, json_object

VOCABULARY = "vocab.json"
TARGET_VOCABULARY = "target_vocab.json"
M2M100_MODEL = "sentencepiece.bpe.model"
MARIAN_MODELS = ("source.spm", "target.spm")

_SPACE = "▁"


class SentencePieces:
    """One side of such a tokenizer: text to ids without prefix and suffix, and ids to text."""

    def __init__(
        self,
        settings: Settings,
        vocabulary: Mapping[str, int],
        added: Mapping[int, AddedToken],
        languages: Mapping[str, int],
        encoder: sentencepiece.SentencePieceProcessor,
        decoder: sentencepiece.SentencePieceProcessor,
    ) -> None:
        """`vocabulary` has this side's pieces; `languages` (code -> id) are of Marian's vocabulary, beside M2M100's."""
        self._marian = settings.family == "marian"
        self._encoder, self._decoder = encoder, decoder
        self.languages = dict(languages)
        beside = {} if self._marian else {f"__{code}__": id for code, id in languages.items()}
        self.ids = {**vocabulary, **beside, **{token.content: id for id, token in added.items()}}
        self.tokens = {id: token for token, id in self.ids.items()}
        self._unknown = settings.named["unk_token"].content
        self._special = {token.content for token in settings.special}
        # Whether or not an M2M100 folder lists its languages as special tokens, they are no text.
        self.skipped = frozenset({self.ids[token] for token in self._special} | set(beside.values()))
        self._added = {token.content: token for token in added.values()}
        found = sorted(self._added, key=len, reverse=True)
        whole = settings.flag("split_special_tokens") or not found
        self._pattern = None if whole else re.compile("|".join(map(re.escape, found)))
        self._clean = settings.flag("clean_up_tokenization_spaces")

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.tokens, default=-1) + 1

    def encode(self, texts: Sequence[str], threads: int | None) -> list[list[int]]:
        """The ids of texts; SentencePiece is asked once for all that lies between added tokens."""
        split = [self._parts(text) for text in texts]
        segments = [part for parts in split for part, is_token in parts if not is_token]
        pieces = iter(self._encoder.encode(segments, out_type=str, num_threads=threads or -1) if segments else ())
        unknown, ids = self.ids[self._unknown], self.ids
        return [
            [ids.get(piece, unknown) for part, is_token in parts for piece in ([part] if is_token else next(pieces))]
            for parts in split
        ]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The texts of ids, without special tokens."""
        return [
            self._text([self.tokens.get(id, self._unknown) for id in row if id not in self.skipped]) for row in rows
        ]

    def _parts(self, text: str) -> list[tuple[str, bool]]:
        """Added tokens (True) and what lies between; Marian's >>code<< counts as one where a part begins with it."""
        parts: list[tuple[str, bool]] = []
        start = 0
        for match in self._pattern.finditer(text) if self._pattern is not None else ():
            parts += [(text[start : match.start()], False), (match[0], True)]
            start = match.end()
        parts.append((text[start:], False))
        for index, (part, is_token) in enumerate(parts):
            if is_token and self._added[part].rstrip:
                parts[index + 1] = (parts[index + 1][0].lstrip(), False)
            if is_token and self._added[part].lstrip:
                parts[index - 1] = (parts[index - 1][0].rstrip(), False)
        if self._marian:
            parts = [each for part, is_token in parts for each in ([(part, True)] if is_token else _coded(part))]
        return [each for each in parts if each[0]]

    def _text(self, tokens: list[str]) -> str:
        """Pieces joined by SentencePiece; special tokens among them (unk, of an unknown id) stand as they are."""
        text, pending = "", list[str]()
        for token in tokens:
            if token in self._special:
                text += self._joined(pending) + token + " " * self._marian
                pending = []
            else:
                pending.append(token)
        text += self._joined(pending)
        text = (text.replace(_SPACE, " ") if self._marian else text).strip()
        return cleaned_up(text) if self._clean else text

    def _joined(self, pieces: list[str]) -> str:
        return str(self._decoder.decode_pieces(pieces)) if pieces else ""


def marian_pieces(files: Mapping[str, bytes], settings: Settings, name: str) -> tuple[SentencePieces, SentencePieces]:
    """Source and target side; they share vocab.json unless the folder says that it has one for each."""
    source, target = (_processor(files, file, name) for file in MARIAN_MODELS)
    vocabulary = _vocabulary(files, VOCABULARY, name)
    added = _added(settings, vocabulary, name)
    if not settings.flag("separate_vocabs"):
        languages = spelt("marian", vocabulary)
        # Hugging Face decodes with the source's model where there is one vocabulary.
        return (
            SentencePieces(settings, vocabulary, added, languages, source, source),
            SentencePieces(settings, vocabulary, added, languages, target, source),
        )
    other = _vocabulary(files, TARGET_VOCABULARY, name)
    for key in ("eos_token", "unk_token", "pad_token"):
        token = settings.named[key].content
        if other.get(token) != vocabulary.get(token):
            raise ModelFolderError(
                f"{name}, {TARGET_VOCABULARY}: {token!r} expects the id {vocabulary.get(token)} that it has in "
                f"{VOCABULARY}, found {other.get(token)}."
            )
    return (
        SentencePieces(settings, vocabulary, added, {}, source, target),
        SentencePieces(settings, other, added, {}, target, target),
    )


def m2m100_pieces(files: Mapping[str, bytes], settings: Settings, name: str) -> SentencePieces:
    """Both sides; the languages' ids follow those of vocab.json."""
    processor = _processor(files, M2M100_MODEL, name)
    vocabulary = _vocabulary(files, VOCABULARY, name)
    told = settings.values.get("language_codes", "m2m100")
    if told not in M2M100:
        raise ModelFolderError(f"{name}: language_codes expects one of {', '.join(M2M100)}, found {told!r}.")
    languages = {code: len(vocabulary) + place for place, code in enumerate(M2M100[told].split())}
    added = _added(settings, vocabulary, name)
    for id, token in added.items():
        code = token.content.removeprefix("__").removesuffix("__")
        if (own := languages.get(code)) is not None and token.content == f"__{code}__" and own != id:
            raise ModelFolderError(f"{name}: the language {token.content} expects the id {own}, found {id}.")
    return SentencePieces(settings, vocabulary, added, languages, processor, processor)


def cleaned_up(text: str) -> str:
    """Spaces before punctuation and English contractions taken out, as clean_up_tokenization_spaces asks."""
    for found, wanted in _CLEANED:
        text = text.replace(found, wanted)
    return text


_CLEANED = (
    *((f" {sign}", sign) for sign in ".?!,"),
    (" ' ", "'"),
    *((f" {ending}", ending) for ending in ("n't", "'m", "'s", "'ve", "'re")),
)


def _coded(part: str) -> list[tuple[str, bool]]:
    """A >>code<< at the beginning of text is a token."""
    end = part.find("<<") if part.startswith(">>") else -1
    return [(part, False)] if end < 0 else [(part[: end + 2], True), (part[end + 2 :], False)]


def _added(settings: Settings, vocabulary: Mapping[str, int], name: str) -> dict[int, AddedToken]:
    """The added tokens by id: those told, then special ones, with new ids where the vocabulary has none."""
    added = dict(settings.added)
    known = {**vocabulary, **{token.content: id for id, token in added.items()}}
    told = {token.content for token in added.values()}
    following = len(known)
    for token in settings.special:
        if token.content in told or not token.content:
            continue
        if token.content not in known:
            known[token.content] = following
            following += 1
        added[known[token.content]] = token
    if single := next((token for token in added.values() if token.single_word), None):
        raise ModelFolderError(f"{name}: single_word true, of the added token {single.content!r}, is not supported.")
    return added


def _vocabulary(files: Mapping[str, bytes], file: str, name: str) -> dict[str, int]:
    found = json_object(files, file, name) if file in files else None
    if found is None:
        raise ModelFolderError(f"{name}: expected {file}, found no such file.")
    if wrong := next((token for token, id in found.items() if type(id) is not int or id < 0), None):
        raise ModelFolderError(f"{name}, {file}: {wrong!r} expects an id, found {found[wrong]!r}.")
    return found


def _processor(files: Mapping[str, bytes], file: str, name: str) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        loaded = bool(files.get(file)) and processor.LoadFromSerializedProto(files[file])
    except (RuntimeError, TypeError, ValueError):
        loaded = False
    if not loaded:
        found = "something else" if file in files else "no such file"
        raise ModelFolderError(f"{name}, {file}: expected a SentencePiece model, found {found}.")
    return processor
