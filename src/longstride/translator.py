"""Text in, text out: a loaded model with its tokenizers.

Empty lines stay empty, order is kept, and sentences of like length are decoded side by side. A text of several lines
keeps its line breaks, and each of its lines is translated by itself; so is each sentence of a line, with the white
space around it kept, where the model's folder says that it reads sentences.

Models stop writing at a character that they never saw in training. So separators and control characters that are in no
piece of the vocabulary (U+2028, form feeds, NUL) are read as spaces, and those of no width (U+200B) are left out.
"""

from __future__ import annotations

import copy
import math
import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import resources
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, overload

from longstride.contract import (
    Decoded,
    Decoder,
    Hypothesis,
    InputError,
    Limits,
    ModelFolderError,
    OptionError,
    Prefixes,
    Source,
)
from longstride.contract.bundled import BUNDLED
from longstride.contract.decoding import Finished, refilled_groups, sentence_number
from longstride.contract.options import Range, shown
from longstride.contract.trace import events_of
from longstride.loaded_model import DRAFTED, LoadedModel
from longstride.model_folder import ModelFolder
from longstride.runtime.choosing import make_runner
from longstride.terminology import Placing, TermPlacer
from longstride.text.glossary import Given, Glossary
from longstride.text.sentences import LONGEST_WORD, alternating
from longstride.translation import BREAK, GrowingText, Translation, given_drafts, joined

BY_TEXT = "text-verify"
"""The decoder that drafts by given texts."""
MANY = 64
"""Outputs that are made into text at once."""
NAMED = 5
"""Terms that a warning names."""
BATCHES = Range(1, math.inf)
"""More than there are lines means all of them."""

_SENTENCE = re.compile(r"(?=.*[^\W_])[^\s.!?…。！？]+(?: [^\s.!?…。！？]+)*[.!?…。！？]?")
"""Words with a space between two, one of them with a letter or digit, and an end: splitting leaves it as it is"""
_AROUND = 8
"""Tokens that tokenizers put before and behind a text, at most: a space, languages and the like"""
_SPACES = frozenset(("Cc", "Zs", "Zl", "Zp"))
_NO_WIDTH = frozenset(("Cf",))
"""Unicode's categories of characters that one does not see"""
_JOINER = "\u200d"
_JOINS_NOTHING = re.compile(rf"{_JOINER}(?=[\w\s]|$)|(?:^|(?<=[\w\s])){_JOINER}")
"""A joiner that does not stand between two signs, as it does within one emoji of several people"""


def load(
    model: str | os.PathLike[str] = BUNDLED,
    *,
    device: str = "auto",
    precision: str = "auto",
    runtime: str = "auto",
    drafter: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> Translator:
    """Open a model folder (or the one that comes with the package) for translating.

    `runtime` carries model calls out: native or onnx (processors), cuda-graph (CUDA), eager (PyTorch itself) or auto,
    the fastest of them; `device` is cpu, cuda, cuda:1 and so on, or auto, a CUDA device where there is one;
    `precision` is fp32, fp16, bf16 or fp64, with native or onnx fp32 or int8, or auto (fp16 by cuda-graph; int8
    natively if weights are stored so; else fp32). `drafter` is another model folder with the same vocabulary, whose
    drafter is to draft for this model. `threads` are those of native and onnx (default: all cores); `tell` hears what
    these could not do, and did eagerly.
    """
    for name, one in (("load", model), *([] if drafter is None else [("drafter", drafter)])):
        if not isinstance(one, str | os.PathLike):
            raise ModelFolderError(f"{name} expects the path of a model folder, found {shown(one)}.")
    path = bundled_folder() if str(model) == BUNDLED else Path(model)
    other = ModelFolder(drafter) if drafter is not None else None
    folder = ModelFolder(path)
    return Translator(folder, make_runner(device, precision, runtime, threads, tell, folder.precision), other)


def bundled_folder() -> Path:
    """Where the model lies that comes with the package."""
    return Path(str(resources.files("longstride") / "bundled"))


class Translator(LoadedModel):
    """A loaded model that reads and writes text."""

    def __repr__(self) -> str:
        by = f"{self.runner.name} in {self.runner.precision}"
        return f"<Translator {str(self.folder.path)!r}, carried out by {by}, decoders: {', '.join(self.decoders)}>"

    def with_languages(self, source: str | None = None, target: str | None = None) -> Translator:
        """The same model for texts in other languages, with the same weights in memory; None leaves one as it is."""
        if source is None and target is None:
            return self
        made = copy.copy(self)
        made.__dict__.pop("placer", None)  # which knows the languages
        made._made = {}
        made.source_tokenizer = self.source_tokenizer.with_languages(source, target)
        made.target_tokenizer = self.target_tokenizer.with_languages(source, target)
        if target is None:  # what outputs begin with stays as the folder says
            return made
        start, forced = made.target_tokenizer.start, made.target_tokenizer.forced_first
        if start is not None and start != self.folder.special.start:
            raise OptionError(
                f"target_lang expects the language that {self.folder.path} was imported with, which its decoder begins "
                f"with, found {target!r}; import the model again for it."
            )
        if forced is not None:
            made._language = {"forced_first": forced}
        return made

    def encode(
        self,
        lines: Sequence[str],
        warn: Callable[[str], None] | None = None,
        first_line: int = 1,
        numbers: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Ids ending in EOS; a line of more tokens than the model can read is cut, with a warning that names it: by its
        place, counted from `first_line`, or by its own of some `numbers`."""
        tokenizer, longest = self.source_tokenizer, self.longest
        encoded = tokenizer.encode_many([self.readable(line) for line in lines])
        ended = 0 if tokenizer.complete else 1  # EOS is yet to come
        for number, ids in zip(numbers or range(first_line, first_line + len(lines)), encoded, strict=True):
            if len(ids) + ended > longest:
                message = f"line {number} has {len(ids)} tokens and was cut at the model's limit of {longest - ended}."
                (warn or partial(warnings.warn, stacklevel=2))(message)
        return [tokenizer.ended(ids, longest) for ids in encoded]

    def _divided(self, text: str, whole: bool | None) -> list[str]:
        """Lines or sentences at even places, what stands between them at odd ones: lines where they are read `whole`,
        which is as the model reads them unless somebody says so."""
        if not self.folder.config.sentences if whole is None else whole:
            return BREAK.split(text)
        return [text] if _SENTENCE.fullmatch(text) and self.fits(text) else alternating(text, self.fits)

    def fits(self, line: str) -> bool:
        """Whether the model can read a line without anything of it being cut."""
        most = self.longest - (0 if self.source_tokenizer.complete else 1)
        # Whatever it is, a character is no more than four bytes; but some are written out as several first.
        read = line if line.isascii() else max(line, unicodedata.normalize("NFKC", line), key=len)
        if 4 * len(read) + _AROUND < most:
            return True
        return len(self.source_tokenizer.encode_many([self.readable(line)], threads=1)[0]) <= most

    def readable(self, line: str) -> str:
        """A line as the model is to read it: without characters that nobody sees and its vocabulary does not have.

        A letter with its accent apart, as in names of files on a Mac, is composed: vocabularies have it whole.
        """
        if self.source_tokenizer.complete:  # reads lines its own way
            return line
        if not unicodedata.is_normalized("NFC", line) and not self._known.issuperset(line):
            line = unicodedata.normalize("NFC", line)
        if line.isprintable():  # as nearly all are
            return line
        found = {sign for sign in line if not sign.isprintable() and sign not in self._known}
        spaces = {ord(sign): " " for sign in found if unicodedata.category(sign) in _SPACES}
        nothing = {ord(sign): "" for sign in found - {_JOINER} if unicodedata.category(sign) in _NO_WIDTH}
        seen = line.translate({**spaces, **nothing})
        return _JOINS_NOTHING.sub("", seen) if _JOINER in found else seen

    @cached_property
    def _known(self) -> frozenset[str]:
        """The characters that some piece of the source vocabulary has; single bytes are none."""
        return frozenset("".join(self.source_tokenizer.pieces(range(self.source_tokenizer.size))))

    def text(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Ids back to text, one line each."""
        # Vocabularies with single bytes in them can spell a line break; lines out must match lines in.
        return [text.replace("\n", " ").replace("\r", " ") for text in self.target_tokenizer.decode_many(list(rows))]

    @overload
    def translate(
        self, text: str, /, decoder: str | None = None, *, trace: Literal[True], **told: Any
    ) -> Translation: ...

    @overload
    def translate(
        self, text: str, /, decoder: str | None = None, *, trace: Literal[False] = ..., **told: Any
    ) -> str: ...

    @overload
    def translate(self, text: Sequence[str], /, decoder: str | None = None, **told: Any) -> list[Translation]: ...

    def translate(
        self,
        text: str | Sequence[str],
        /,
        decoder: str | None = None,
        *,
        batch: int | None = None,
        trace: bool = False,
        warn: Callable[[str], None] | None = None,
        first_line: int = 1,
        watch: Callable[[Decoded], None] | None = None,
        drafts: Sequence[str | None] | None = None,
        glossary: Given | None = None,
        source_lang: str | None = None,
        target_lang: str | None = None,
        whole: bool | None = None,
        **options: Any,
    ) -> str | Translation | list[Translation]:
        """Translate one text (a str gives a str, with `trace` a Translation) or many (a list gives a list of the same
        length, of Translations).

        A text is a line; one with line breaks in it is translated line by line, and keeps them. Of a model that reads
        sentences it is split into these, and what is too long for the model into parts, unless it is to be read
        `whole` (False: it is split in any case; with `drafts` never).
        `batch` sentences are decoded side by side (default: as many as is fastest, :attr:`batch` where they are many;
        a few may be decoded one by one, :meth:`decoder_for`); `trace` gives each
        Translation the steps that it came by, as its `trace`; `warn` hears of
        lines that were cut, counted from `first_line`; `watch` is shown the raw results of each group of lines;
        `drafts` are what the outputs may be like, a text or None for each, which makes greedy's output come faster
        (text-verify); `glossary` says what terms have to be called (docs/terminology.md): a file, pairs, or terms that
        are kept; `source_lang` and `target_lang` are codes of a multilingual model's languages. All other names are the
        decoder's options and limits.
        """
        if source_lang is not None or target_lang is not None:
            made = self.with_languages(source_lang, target_lang)
            told = {"batch": batch, "trace": trace, "warn": warn, "first_line": first_line, "watch": watch}
            return made.translate(text, decoder, **told, drafts=drafts, glossary=glossary, whole=whole, **options)
        if drafts is not None:
            decoder = drafting_decoder(decoder)
        if batch is not None and not BATCHES.fits(int, batch):
            raise OptionError(f"batch expects {BATCHES.described(int)}, found {shown(batch)}.")
        usual, limits = self.decoder(decoder, **options)
        terms = None if glossary is None else self.glossary(glossary, usual)
        texts = [self._divided(one, True if drafts is not None else whole) for one in _texts(text)]
        for number, parts in enumerate(texts, first_line):
            if (kept := max((len(word) for gap in parts[1::2] for word in gap.split()), default=0)) > LONGEST_WORD:
                (warn or partial(warnings.warn, stacklevel=2))(
                    f"line {number} has {kept:,} characters without a space, which are no word and stand in the output "
                    f"as they are; with spaces or line breaks in them they are translated."
                )
        lines = [self.readable(line) for parts in texts for line in parts[::2]]  # between them, the breaks
        numbers = [number for number, parts in enumerate(texts, first_line) for _ in parts[::2]]
        ids = self.encode(lines, warn, numbers=numbers)
        places = [
            sentence_number(number, part)
            for number, parts in enumerate(texts, first_line - 1)
            for part in range(len(parts[::2]))
        ]
        done = [Translation("")] * len(lines)
        full = [index for index, line in enumerate(lines) if line.strip()]
        chosen, limits = self.decoder_for(len(full), decoder, batch=batch, trace=trace, **options)
        batch = self.batch if batch is None else batch
        drafted = {} if drafts is None else given_drafts(texts, drafts, self.target_tokenizer, self.longest)
        apart = [[index for index in full if (index in drafted) == given] for given in (True, False)]
        placing = {} if terms is None else self.placing(terms, {index: lines[index] for index in full}, ids, limits)
        prefixes: dict[int, list[int]] = {}
        while any(apart):
            groups = [
                [some[place] for place in group]
                for some in apart
                for group in refilled_groups([len(ids[index]) for index in some], batch)
            ]
            for group in groups:
                source = Source.of([ids[index] for index in group], numbers=[places[index] for index in group])
                if group[0] in drafted:
                    source = replace(source, drafts=Source.of([drafted[index] for index in group]))
                if group[0] in prefixes:
                    some = Prefixes.of([prefixes[index] for index in group], self.placer.never_next)
                    source = replace(source, prefixes=some)
                writer = _Writer(self.text, group, done)
                decoded = chosen.decode(source, limits, capacity=batch, trace=trace, tell=writer.tell)
                writer.flush()
                if watch is not None:
                    watch(decoded)
                for index, steps in zip(group, decoded.traces or repeat(None), strict=False):
                    done[index] = replace(done[index], trace=steps, decoder=decoded.decoder)
            # Outputs that lack a term come again, with a prefix that has it.
            led = [index for some in apart for index in some if index in placing]
            prefixes = {index: found for index in led if (found := placing[index](done[index].tokens))}
            for index in led:
                if index not in prefixes and (lacks := placing[index].missing):
                    names = ", ".join(map(shown, lacks[:NAMED])) + (" and others" if len(lacks) > NAMED else "")
                    (warn or partial(warnings.warn, stacklevel=2))(
                        f"line {numbers[index]} lacks terms of the glossary, for which no place was found: {names}."
                    )
            apart = [[index for index in prefixes if (index in drafted) == given] for given in (True, False)]
            # By name: what is given would say nothing of how fast decoders are.
            chosen, _ = self.decoder_for(len(prefixes), usual.name, batch=batch, trace=trace, **options)
        finished = iter(done)
        again = [([next(finished) for _ in parts[::2]], parts[1::2]) for parts in texts]
        result = [joined(each, breaks) if breaks else each[0] for each, breaks in again]
        return result if not isinstance(text, str) else result[0] if trace else result[0].text

    def stream(
        self, text: str, /, decoder: str | None = None, whole: bool | None = None, **options: Any
    ) -> Generator[str, None, None]:
        """Translate one text, and give it piece by piece as it is written: joined, they are what :meth:`translate`
        gives. It may be read `whole` as there; all other names are the decoder's options and limits.

        A decoder that does not write from left to right, or a beam, gives a sentence when it is whole.
        """
        if not isinstance(text, str):
            raise InputError(f"stream expects one text, found {shown(text)}.")
        chosen, limits = self.decoder_for(1, decoder, **options)
        parts = self._divided(text, whole)

        def pieces() -> Generator[str, None, None]:
            for number, part in enumerate(parts):
                if number % 2:  # what divides lines or sentences
                    yield part
                elif part.strip():
                    source = Source.of(self.encode([self.readable(part)]), numbers=[sentence_number(0, number // 2)])
                    yield from self._streamed(source, chosen, limits)

        return pieces()

    def _streamed(self, source: Source, decoder: Decoder, limits: Limits) -> Generator[str, None, None]:
        session = decoder.suited(source, limits, 1).begin(source, limits, 1)
        growing, done = GrowingText(self.text, self.folder.special.eos), list[Finished]()
        (ticket,) = session.admit(source)
        try:
            while not done:
                for _, event, held_back in events_of(session.advance()):
                    if held_back is None and (new := growing.add(event)[1]):
                        yield new
                done = session.take_finished()
        finally:
            if not done:  # nobody wants the rest
                session.cancel(ticket)
            session.close()
        if rest := growing.end(list(done[0].hypotheses[0].tokens))[1]:
            yield rest

    # --- glossaries --------------------------------------------------------------------------------------------------

    @cached_property
    def placer(self) -> TermPlacer:
        """Finds places for terms; the likelihood is the model's own."""
        names = ["greedy"] if "greedy" in self._decoders else self.decoders
        likelihood = next((one for one in map(self.likelihood, names) if one is not None and one.offer), None)
        assert likelihood is not None, "decoders that obey prefixes say how probable outputs are"
        return TermPlacer(partial(self.encode, warn=lambda message: None), self.target_tokenizer, likelihood)

    def glossary(self, given: Given, decoder: Decoder) -> Glossary:
        """A glossary for outputs of this model and decoder; one that these cannot write is refused."""
        if "prefixes" not in decoder.obeys:
            raise OptionError(
                f"A glossary expects a decoder that writes from left to right, such as greedy, beam or {DRAFTED}, "
                f"found {decoder.name}."
            )
        found = Glossary.of(given)
        self.placer.check(found)
        return found

    def placing(
        self, glossary: Glossary, lines: Mapping[int, str], ids: Sequence[Sequence[int]], limits: Limits
    ) -> dict[int, Placing]:
        """Number of a line -> what leads its outputs to hold its terms, for lines that have some."""
        first = 0 if limits.forced_first is None else 1
        return {
            index: Placing(self.placer, terms, limits.longest_output(len(ids[index])), first)
            for index, line in lines.items()
            if (terms := glossary.terms(line)) is not None
        }


def _texts(text: object) -> list[str]:
    """One text or several as a list; None, bytes, a cell that is empty in somebody's table and the like are refused."""
    if isinstance(text, str):
        return [text]
    if not isinstance(text, Iterable) or isinstance(text, bytes):
        raise InputError(f"translate expects a text or several, found {shown(text)}.")
    texts = list(text)
    for number, one in enumerate(texts, start=1):
        if not isinstance(one, str):
            raise InputError(f"translate expects a text or several, found {shown(one)} as number {number}.")
    return texts


def drafting_decoder(name: str | None) -> str:
    """The decoder that given drafts are for; another one that was asked for is refused."""
    if name not in (None, BY_TEXT):
        raise OptionError(f"drafts expects the decoder {BY_TEXT}, or none named, found {name}.")
    return BY_TEXT


class _Writer:
    """Makes text of a group's outputs while the others are decoded, many at a time: a call costs more than a line."""

    def __init__(
        self, text: Callable[[list[list[int]]], list[str]], group: Sequence[int], done: list[Translation]
    ) -> None:
        """`group`: the place of each row's line in `done`."""
        self._text, self._group, self._done = text, group, done
        self._waiting: list[tuple[int, list[Hypothesis]]] = []

    def tell(self, rows: Sequence[tuple[int, list[Hypothesis]]]) -> None:
        """Rows are done."""
        self._waiting += rows
        if len(self._waiting) >= MANY:
            self.flush()

    def flush(self) -> None:
        """Write all that there is."""
        texts = self._text([found[0].tokens for _, found in self._waiting])
        for (row, found), line in zip(self._waiting, texts, strict=True):
            self._done[self._group[row]] = Translation(line, found[0].score, tuple(found[0].tokens), tuple(found))
        self._waiting = []


__all__ = ["BUNDLED", "Translation", "Translator", "bundled_folder", "load"]
