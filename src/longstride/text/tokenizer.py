"""Text to ids and back: SentencePiece models, and words for text that is already split. Knows no model and no batch.

Every vocabulary begins with the five reserved symbols (pad, unk, start, eos, mask). No text can name one: a literal
``<s>`` or ``<mask>`` in a line is encoded as the characters it consists of, or as unknown. Ids come and go WITHOUT the
end-of-sentence id; whoever makes batches appends it.

What does not survive a SentencePiece round trip: U+2581 (the sign SentencePiece writes spaces with) comes back as a
space, and lone surrogates, which are not text, are refused. All else comes back exactly: runs of spaces, leading and
trailing ones, and characters never seen in training included.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, final

import sentencepiece

from longstride.contract import (
    DEFAULT_IDS,
    EOS,
    MASK,
    PAD,
    RESERVED,
    START,
    UNK,
    InputError,
    ModelFolderError,
    OptionError,
    SpecialIds,
)
from longstride.text.files import read_regular, written_whole

_WORDS_HEADER = "longstride-words 1"
HF_HEADER = b"longstride-hf-tokenizer 1\n"
"""How the file of a Hugging Face tokenizer begins."""
PIXELS_HEADER = b"longstride-pixels 1\n"
"""The file of the tokenizer of pictures, which has nothing else in it."""
_TRAINING_THREADS = 16
FEW = 64
"""Lines that one thread is done with before others have started."""
"""Not the machine's count: sums over threads would otherwise make unigram models differ from machine to machine."""

Join = Literal["@@", "none"]


class Tokenizer(ABC):
    """Text to ids and back, the end-of-sentence id neither produced nor expected."""

    kind: str
    """How the file is to be read: "sentencepiece", "words", "pixels" or "hugging face"."""
    size: int
    """How many ids there are, the reserved ones included."""
    special: SpecialIds = DEFAULT_IDS
    """Those of its ids that stand for no text."""
    complete: bool = False
    """Another library's tokenizer: text is read as that library reads it, and its rows begin and end as models want
    them, EOS included."""
    languages: Mapping[str, int] = MappingProxyType({})
    """Code -> id of the languages that a text can be marked with."""
    forced_first: int | None = None
    """The first token of every output, where that is the target's language."""
    start: int | None = None
    """The decoder's first input, where that is the target's language."""

    @property
    @abstractmethod
    def serialized(self) -> bytes:
        """The bytes of the tokenizer's file."""

    @abstractmethod
    def encode_many(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """The ids of many lines, on `threads` threads (default: all cores)."""

    @abstractmethod
    def decode_many(self, rows: Sequence[Sequence[int]], threads: int | None = None) -> list[str]:
        """The texts of many rows of ids, on `threads` threads; reserved ids other than unk leave no trace in them."""

    @abstractmethod
    def as_decoded(self, text: str) -> str:
        """A line of a corpus as decoding its ids would spell it: what outputs are compared with."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for, for people who read traces."""

    def ended(self, ids: list[int], longest: int) -> list[int]:
        """A row of `encode_many` as a model reads it: with its end, and cut to `longest` tokens."""
        return [*ids[: longest - 1], self.special.eos]

    def encode_for_batches(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many lines without EOS, which batches append to sources and targets alike."""
        return self.encode_many(texts)

    def as_target(self) -> Tokenizer:
        """The target's tokenizer of a folder that has one file for both."""
        return self

    def with_languages(self, source: str | None = None, target: str | None = None) -> Tokenizer:
        """The same tokenizer for texts in other languages."""
        raise OptionError(
            "Languages can be named to a model with language tokens (M2M100, NLLB, mBART), and this one has none: it "
            "translates its one pair of languages without them."
        )

    def encode(self, text: str) -> list[int]:
        """The ids of one line."""
        return self.encode_many([text], threads=1)[0]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self.decode_many([ids], threads=1)[0]

    @property
    def sha256(self) -> str:
        """The SHA-256 of the tokenizer's file."""
        return hashlib.sha256(self.serialized).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer's file, whole or not at all."""
        with written_whole(path) as temporary:
            temporary.write_bytes(self.serialized)


@final
class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model whose first five pieces are the reserved ones."""

    kind = "sentencepiece"

    def __init__(self, serialized: bytes, name: str = "tokenizer") -> None:
        """Load from the bytes of a model file; `name` stands in errors."""
        self._serialized = serialized
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            loaded = bool(serialized) and self._processor.LoadFromSerializedProto(serialized)
        except (RuntimeError, TypeError, ValueError) as error:  # a message that is no UTF-8 is a ValueError
            raise ModelFolderError(f"{name}: expected a SentencePiece model, found something else.") from error
        if not loaded:
            raise ModelFolderError(f"{name}: expected a SentencePiece model, found {len(serialized)} bytes of none.")
        self.size = int(self._processor.get_piece_size())
        try:  # every piece, and what unk is spelt as: SentencePiece takes bytes of any kind for text
            pieces = self._processor.id_to_piece(list(range(self.size)))
            self._processor.decode([UNK])
        except UnicodeDecodeError:
            raise ModelFolderError(f"{name}: expected pieces in UTF-8, found others.") from None
        _check_reserved(pieces[: len(RESERVED)], name)
        if self._processor.unk_id() != UNK:
            raise ModelFolderError(f"{name}: expected unk at id {UNK}, found it at {self._processor.unk_id()}.")

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePieceTokenizer, (self._serialized,)

    @property
    def serialized(self) -> bytes:
        """The model file."""
        return self._serialized

    def encode_many(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """The ids of many lines."""
        if not texts:
            return []
        try:
            if (threads or _threads(texts)) == 1:  # one by one: SentencePiece starts a thread for any list
                return [self._processor.encode(text) for text in texts]
            rows: list[list[int]] = self._processor.encode(list(texts), num_threads=threads or _threads(texts))
        except (TypeError, UnicodeEncodeError, RuntimeError):
            # What is raised for text that is none depends on the version of SentencePiece; say it in our words.
            for text in texts:
                refuse_surrogates(text)
            raise
        return rows

    def decode_many(self, rows: Sequence[Sequence[int]], threads: int | None = None) -> list[str]:
        """The texts of many rows of ids."""
        if not rows:
            return []  # SentencePiece would take this for one row
        visible = [_visible(row) for row in rows]
        if (threads or _threads(rows)) == 1:
            return [self._processor.decode(row) for row in visible]
        texts: list[str] = self._processor.decode(visible, num_threads=threads or _threads(rows))
        return texts

    def as_decoded(self, text: str) -> str:
        """Decoding gives the text itself."""
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces, with SentencePiece's sign for spaces."""
        return [self._processor.id_to_piece(int(id)) for id in ids]


@final
class WordsTokenizer(Tokenizer):
    """Words between spaces, tabs or line breaks, each with an id; unknown words become unk.

    With join "@@", text is taken to be split by byte-pair encoding with that continuation sign, and decoding undoes it.
    """

    kind = "words"

    def __init__(self, words: Sequence[str], join: Join = "@@", name: str = "vocabulary") -> None:
        """`words` in the order of their ids, the five reserved ones first; `name` stands in errors."""
        if join not in ("@@", "none"):
            raise OptionError(f"join expects @@ or none, found {join}.")
        _check_reserved(words[: len(RESERVED)], name)
        self._words = list(words)
        # Reserved words are left out, so that text cannot name them.
        self._ids = {word: id for id, word in enumerate(self._words) if id >= len(RESERVED)}
        for id, word in enumerate(self._words[len(RESERVED) :], start=len(RESERVED)):
            if not word or any(space in word for space in " \t\n\r"):
                raise ModelFolderError(f"{name}, word {id + 1}: expected one word without spaces, found {word!r}.")
            if word in RESERVED or self._ids[word] != id:
                raise ModelFolderError(f"{name}, word {id + 1}: expected every word once, found {word!r} again.")
        self.join: Join = join
        self.size = len(self._words)

    @property
    def serialized(self) -> bytes:
        """A header with the join, then one word per line."""
        return "\n".join([f"{_WORDS_HEADER} join={self.join}", *self._words, ""]).encode("utf-8")

    @staticmethod
    def from_bytes(serialized: bytes, name: str = "vocabulary") -> WordsTokenizer:
        """Read what `serialized` wrote; `name` stands in errors."""
        try:
            header, *words = serialized.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ModelFolderError(f"{name}: expected UTF-8, found byte {error.start + 1} to be none.") from error
        if header not in (f"{_WORDS_HEADER} join={join}" for join in ("@@", "none")):
            raise ModelFolderError(
                f'{name}, line 1: expected "{_WORDS_HEADER} join=@@" (or join=none), found {header[:80]!r}.'
            )
        if not words or words.pop() != "":
            raise ModelFolderError(f"{name}: expected a last line that ends in a line break, found a cut one.")
        return WordsTokenizer(words, "@@" if header.endswith("@@") else "none", name)

    def encode_many(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """The ids of many lines; looking words up gains nothing from threads."""
        return [[self._ids.get(word, UNK) for word in _split_words(text)] for text in texts]

    def decode_many(self, rows: Sequence[Sequence[int]], threads: int | None = None) -> list[str]:
        """The words with spaces between, continuations joined if so asked."""
        return [self._joined(" ".join(self._words[id] for id in _visible(row))) for row in rows]

    def as_decoded(self, text: str) -> str:
        """Split words are joined."""
        return self._joined(" ".join(_split_words(text)))

    def _joined(self, text: str) -> str:
        return (text + " ").replace("@@ ", "").removesuffix(" ") if self.join == "@@" else text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The words as they stand in the vocabulary."""
        return [self._words[id] for id in ids]


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load a tokenizer of any kind, told apart by how the file begins."""
    try:
        serialized = read_regular(path)
    except FileNotFoundError as error:
        raise ModelFolderError(f"{path}: expected a tokenizer, found no file.") from error
    except OSError as error:
        raise ModelFolderError(f"{path}: expected a tokenizer, could not read it ({error.strerror}).") from error
    if serialized.startswith(HF_HEADER):
        from longstride.text.hf_tokenizer import HFTokenizer

        return HFTokenizer.from_bytes(serialized, str(path))
    if serialized == PIXELS_HEADER:
        from longstride.text.pixels import PixelTokenizer

        return PixelTokenizer()
    if serialized.startswith((_WORDS_HEADER.split()[0].encode(), RESERVED[PAD].encode())):
        return WordsTokenizer.from_bytes(serialized, str(path))
    return SentencePieceTokenizer(serialized, str(path))


def train_sentencepiece(
    lines: Iterable[str],
    size: int,
    model_path: str | os.PathLike[str],
    kind: Literal["bpe", "unigram"] = "bpe",
    *,
    split_digits: bool = False,
    called: str = "size",
) -> SentencePieceTokenizer:
    """Train a joint SentencePiece model on lines of text, of which those longer than 8192 bytes are left out.

    The same lines give the same model on every machine. `called` is what errors call the size.
    """
    if kind not in ("bpe", "unigram"):
        raise OptionError(f"kind expects bpe or unigram, found {kind}.")
    if size <= len(RESERVED) + 256:
        least = len(RESERVED) + 256
        raise OptionError(f"{called} expects more than {least} (reserved symbols and bytes), found {size}.")
    feed = _Feed(lines)
    serialized = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(feed),
            model_writer=serialized,
            vocab_size=size,
            model_type=kind,
            character_coverage=0.9999,
            byte_fallback=True,
            split_digits=split_digits,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=START,
            eos_id=EOS,
            pad_piece=RESERVED[PAD],
            unk_piece=RESERVED[UNK],
            bos_piece=RESERVED[START],
            eos_piece=RESERVED[EOS],
            control_symbols=[RESERVED[MASK]],
            max_sentence_length=8192,
            num_threads=_TRAINING_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        if feed.error is None:
            raise OptionError(f"{called} expects {_fitting(str(error))}, found {size:,}.") from error
    if feed.error is not None:
        raise feed.error
    tokenizer = SentencePieceTokenizer(serialized.getvalue(), str(model_path))
    tokenizer.save(model_path)
    return tokenizer


def _fitting(reason: str) -> str:
    """The sizes that a text allows, by what SentencePiece says of another one."""
    if most := re.search(r"value <= (\d+)", reason):
        return f"at most {int(most[1]):,} for this text"
    if least := re.search(r"required_chars\. \d+ vs (\d+)", reason):
        return f"at least {int(least[1]):,} for the characters of this text"
    return "text to make pieces of"


def build_words(
    lines: Iterable[str],
    path: str | os.PathLike[str],
    size: int | None = None,
    join: Join = "@@",
    *,
    called: str = "size",
) -> WordsTokenizer:
    """Build a vocabulary of words: the `size` most frequent, reserved included; `called` so in errors."""
    if size is not None and size <= len(RESERVED):
        raise OptionError(f"{called} expects more than the {len(RESERVED)} reserved symbols, found {size}.")
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_split_words(line))
    for reserved in RESERVED:
        counts.pop(reserved, None)
    # Ties are broken by the word, so that the order of lines does not matter.
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    kept = ranked if size is None else ranked[: size - len(RESERVED)]
    tokenizer = WordsTokenizer([*RESERVED, *kept], join, str(path))
    tokenizer.save(path)
    return tokenizer


class _Feed:
    """Lines for the trainer, which swallows what its iterator raises: the error is kept to be raised afterwards."""

    def __init__(self, lines: Iterable[Any]) -> None:
        self._lines = lines
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._lines
        except Exception as error:
            self.error = error


def _check_reserved(found: Sequence[str], name: str) -> None:
    if tuple(found) != RESERVED:
        raise ModelFolderError(
            f"{name}: expected the first five symbols to be {' '.join(RESERVED)}, found {' '.join(found) or 'none'}."
        )


_SPACES = str.maketrans("\t\r\n", "   ")
"""What no word of a vocabulary can have in it; files may have a carriage return in the midst of a line."""


def refuse_surrogates(text: str) -> None:
    """Refuse what is no text: half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"Expected text, found a lone surrogate at character {error.start + 1}.") from error


def _split_words(text: str) -> list[str]:
    # Only these: a no-break space, for one, is part of a word in text that was split by other tools.
    return [word for word in text.translate(_SPACES).split(" ") if word]


def _threads(lines: Sequence[object]) -> int:
    """One for a few lines, for which others would start too late; else all there are."""
    return 1 if len(lines) < FEW else -1


def _visible(ids: Sequence[int]) -> list[int]:
    if isinstance(ids, list) and min(ids, default=0) >= len(RESERVED):  # as nearly all are
        return ids
    return [int(id) for id in ids if id == UNK or id >= len(RESERVED)]
