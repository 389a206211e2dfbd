"""Text in, text out: wires tokenizers, systems and a runtime together.

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
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import resources
from pathlib import Path
from typing import Any, overload

from torch import nn

from longstride.contract import (
    Decoded,
    Decoder,
    Hypothesis,
    Likelihood,
    Limits,
    ModelFolderError,
    OptionError,
    Prefixes,
    Runner,
    Source,
)
from longstride.contract.bundled import BUNDLED
from longstride.contract.decoding import refilled_groups
from longstride.contract.options import Range, as_dict, shown
from longstride.contract.suggestions import meant
from longstride.model_folder import DecoderConfig, ModelFolder
from longstride.registry import DECODERS, check_decoder, check_folder, find, part_builder, split_options
from longstride.runtime.choosing import fastest_batch, make_runner
from longstride.search.options import BeamOptions
from longstride.systems.autoregressive.decoder import Beam
from longstride.terminology import Placing, TermPlacer
from longstride.text.glossary import Given, Glossary
from longstride.text.sentences import alternating
from longstride.translation import BREAK, Translation, given_drafts, joined
from longstride.verification.draft_policy import LengthFile
from longstride.verification.session import VerifyingDecoder

BY_TEXT = "text-verify"
"""The decoder that drafts by given texts."""
DRAFTED = "draft-verify"
"""The decoder that drafts by a model."""
DRAFTER = "drafter"
"""A kind of part, and the role that it plays."""
MANY = 64
"""Outputs that are made into text at once."""
KEPT_DECODERS = 64
"""Decoders that are kept made, by name and options."""
BATCHES = Range(1, math.inf)
"""More than there are lines means all of them."""


_SENTENCE = re.compile(r"[^\s.!?…。！？]+(?: [^\s.!?…。！？]+)*[.!?…。！？]?")
"""Words with a space between two, and an end: what splitting would leave as it is"""
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
    """Open a model folder (or the one that comes with the package) for translating, with another folder's drafter.

    `threads` are those of native and onnx (default: all cores); `tell` hears what these could not do, and did eagerly.
    """
    path = bundled_folder() if str(model) == BUNDLED else Path(model)
    other = ModelFolder(drafter) if drafter is not None else None
    folder = ModelFolder(path)
    return Translator(folder, make_runner(device, precision, runtime, threads, tell, folder.precision), other)


def bundled_folder() -> Path:
    """Where the model lies that comes with the package."""
    return Path(str(resources.files("longstride") / "bundled"))


class Translator:
    """A loaded model folder and the decoders it offers."""

    lengths: Callable[[list[str]], LengthFile] | None = None
    """where draft lengths that decoders measure (adaptive) are kept, by the identities of the folders in use"""

    def __init__(self, folder: ModelFolder, runner: Runner, drafter: ModelFolder | None = None) -> None:
        self.folder = folder
        self.runner = runner
        self.source_tokenizer, self.target_tokenizer = folder.tokenizers()
        self._parts: dict[str, nn.Module] = {}
        self._homes = {name: (folder, name) for name in folder.parts}  # where a part's weights lie, and under what name
        self._decoders = dict(folder.decoders)
        self._checked: set[str] = set()  # decoders whose options were found to be right
        self._made: dict[Hashable, tuple[Decoder, Limits]] = {}  # by name and options: making one takes a millisecond
        self._default = folder.config.default_decoder
        self._language: dict[str, Any] = {}  # limits that the target's language asks for
        check_folder(folder, self.source_tokenizer, self.target_tokenizer)
        if drafter is not None:
            self._take_drafter(drafter)

    @property
    def decoders(self) -> list[str]:
        """Names of the decoders this model offers, its default first."""
        return [self._default, *(name for name in self._decoders if name != self._default)]

    @property
    def possible(self) -> list[str]:
        """Names of further decoders that this model has all it takes for, though its folder does not list them."""
        listed = self._decoders
        return [
            name
            for name, kind in DECODERS.items()
            if name not in listed and kind.comes_with in listed and (self.one_vocabulary or not kind.one_vocabulary)
        ]

    @property
    def one_vocabulary(self) -> bool:
        """Source and target ids mean the same."""
        return self.source_tokenizer.sha256 == self.target_tokenizer.sha256

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

    def part(self, name: str) -> nn.Module:
        """A part's module, loaded when first asked for."""
        if name not in self._parts:
            folder, there = self._homes[name]
            self._parts[name] = self.runner.place(folder.load(there, part_builder(folder, there)))
        return self._parts[name]

    def parts_of(self, decoder: str) -> dict[str, nn.Module]:
        """Role -> module, for one of this model's decoders."""
        config = self._decoder_config(decoder)
        return {role: self.part(part) for role, part in config.parts.items()}

    def decoder(self, name: str | None = None, /, **options: Any) -> tuple[Decoder, Limits]:
        """A decoder with its options, and the limits on its outputs, from one set of names."""
        # 1, 1.0 and True are equal to Python, and not the same to an option.
        key = (name, self.lengths, tuple((option, type(value), value) for option, value in options.items()))
        if not all(isinstance(value, str | float | int | None) for value in options.values()):  # lists have no hash
            return self._make(name, options)
        found = self._made.get(key)
        if found is None:
            found = self._make(name, options)
            if len(self._made) >= KEPT_DECODERS:
                self._made.clear()
            self._made[key] = found  # never read again here: another thread may have cleared it
        return found

    def _make(self, name: str | None, options: Mapping[str, Any]) -> tuple[Decoder, Limits]:
        name = name or self._default
        config = self._decoder_config(name)
        kind = find(DECODERS, name, "decoder")
        if kind.one_vocabulary and not self.one_vocabulary:
            raise OptionError(
                f"{name} expects one vocabulary for source and target, but {self.folder.path} has a tokenizer for each."
            )
        self.check(name)
        own, limits = split_options(
            kind.options, {**self._own_limits, **config.defaults, **self._language, **options}, name
        )
        made, limits = kind.build(self.parts_of(name), self.runner, own), self._fitting(limits)
        if self.lengths is not None and getattr(own, "adaptive", False) and isinstance(made, VerifyingDecoder):
            made.keep_lengths(self.lengths(sorted({folder.identity for folder, _ in self._homes.values()})))
        made.check_limits(limits)
        return made, limits

    def batched_decoder(self, name: str | None = None, /, **options: Any) -> tuple[Decoder, Limits]:
        """The same for several sentences side by side: without drafts where these would slow it down, unless options
        say how to draft; a folder's defaults speak of one sentence at a time."""
        made, limits = self.decoder(name, **options)
        if not isinstance(made, VerifyingDecoder):
            return made, limits
        return made.without_slow_drafts(self._decoder_config(made.name).defaults.keys() - options.keys()), limits

    def likelihood(self, decoder: str | None = None) -> Likelihood | None:
        """How probable the model holds given outputs: by the decoder named, else by the first that can say; or none."""
        for name in self.decoders if decoder is None else [decoder]:
            self._decoder_config(name)
            build = DECODERS[name].likelihood
            if build is not None:
                return build(self.parts_of(name), self.runner)
        return None

    def ensemble(self, others: Sequence[Translator], /, **options: Any) -> tuple[Decoder, Limits]:
        """Beam search with the mean of several models' probabilities."""
        for other in others:
            if other.target_tokenizer.sha256 != self.target_tokenizer.sha256:
                raise OptionError(
                    f"An ensemble expects one vocabulary: {other.folder.path} has another tokenizer than "
                    f"{self.folder.path}."
                )
        own, limits = split_options(BeamOptions, {**self._own_limits, **self._language, **options}, "beam")
        models: list[Any] = [translator.parts_of("beam")["model"] for translator in (self, *others)]
        shortest = min((self, *others), key=lambda translator: translator.longest)
        made, limits = Beam(models, self.runner, own), shortest._fitting(limits)
        made.check_limits(limits)
        return made, limits

    @property
    def batch(self) -> int:
        """Sentences that are decoded side by side where nobody says how many."""
        return fastest_batch(self.runner.name)

    @property
    def longest(self) -> int:
        """The most tokens, EOS counted, that a source may have."""
        options = [folder.parts[name].options for folder, name in self._homes.values()]
        # Heads and tables have no positions of their own.
        return min((int(each["longest"]) for each in options if "longest" in each), default=1024)

    def encode(
        self, lines: Sequence[str], warn: Callable[[str], None] | None = None, first_line: int = 1
    ) -> list[list[int]]:
        """Ids ending in EOS; a line of more tokens than the model can read is cut, with a warning that names it."""
        tokenizer, longest = self.source_tokenizer, self.longest
        encoded = tokenizer.encode_many([self.readable(line) for line in lines])
        ended = 0 if tokenizer.complete else 1  # EOS is yet to come
        for number, ids in enumerate(encoded):
            if len(ids) + ended > longest:
                message = (
                    f"line {number + first_line} has {len(ids)} tokens and was cut at the model's limit of "
                    f"{longest - ended}."
                )
                (warn or partial(warnings.warn, stacklevel=2))(message)
        return [tokenizer.ended(ids, longest) for ids in encoded]

    def _sentences(self, text: str) -> list[str]:
        """Sentences at even places, what stands between them at odd ones."""
        return [text] if _SENTENCE.fullmatch(text) and self.fits(text) else alternating(text, self.fits)

    def fits(self, line: str) -> bool:
        """Whether the model can read a line without anything of it being cut."""
        most = self.longest - (0 if self.source_tokenizer.complete else 1)
        if 4 * len(line) < most:  # whatever it is, a character is no more than four bytes
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
    def translate(self, text: str, /, decoder: str | None = None, **options: Any) -> str: ...

    @overload
    def translate(self, text: Sequence[str], /, decoder: str | None = None, **options: Any) -> list[Translation]: ...

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
    ) -> str | list[Translation]:
        """Translate one text (a str gives a str) or many (a list gives a list of the same length).

        A text is a line; one with line breaks in it is translated line by line, and keeps them. Of a model that reads
        sentences it is split into these, and what is too long for the model into parts, unless it is to be read
        `whole` (False: it is split in any case; with `drafts` never).
        `batch` sentences are decoded side by side (default: as many as is fastest, :attr:`batch`); `warn` hears of
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
        batch = self.batch if batch is None else batch
        if not BATCHES.fits(int, batch):
            raise OptionError(f"batch expects {BATCHES.described(int)}, found {shown(batch)}.")
        chosen, limits = self.decoder(decoder, **options)
        terms = None if glossary is None else self.glossary(glossary, chosen)
        if whole is None:
            whole = not self.folder.config.sentences
        parts_of = BREAK.split if whole or drafts is not None else self._sentences
        texts = [parts_of(one) for one in ([text] if isinstance(text, str) else text)]
        for number, parts in enumerate(texts, first_line):
            if kept := max((len(word) for gap in parts[1::2] for word in gap.split()), default=0):
                (warn or partial(warnings.warn, stacklevel=2))(
                    f"line {number} has {kept:,} characters without a space, which are no word and stand in the output "
                    f"as they are; with spaces or line breaks in them they are translated."
                )
        lines = [self.readable(line) for parts in texts for line in parts[::2]]  # between them, the breaks
        ids = self.encode(lines, warn, first_line)
        done = [Translation("")] * len(lines)
        full = [index for index, line in enumerate(lines) if line.strip()]
        if min(batch, len(full)) > 1 and not trace:
            chosen, limits = self.batched_decoder(decoder, **options)
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
                source = Source.of([ids[index] for index in group], numbers=[first_line - 1 + index for index in group])
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
                for index, steps in zip(group, decoded.traces or (), strict=False):
                    done[index] = replace(done[index], trace=steps)
            # Outputs that lack a term come again, with a prefix that has it.
            led = [index for some in apart for index in some if index in placing]
            prefixes = {index: found for index in led if (found := placing[index](done[index].tokens))}
            apart = [[index for index in prefixes if (index in drafted) == given] for given in (True, False)]
        finished = iter(done)
        again = [([next(finished) for _ in parts[::2]], parts[1::2]) for parts in texts]
        result = [joined(each, breaks) if breaks else each[0] for each, breaks in again]
        return result[0].text if isinstance(text, str) else result

    # --- glossaries --------------------------------------------------------------------------------------------------

    @cached_property
    def placer(self) -> TermPlacer:
        """Finds places for terms; the likelihood is the model's own."""
        likelihood = self.likelihood("greedy") if "greedy" in self._decoders else self.likelihood()
        assert likelihood is not None, "whoever obeys prefixes says how probable outputs are"
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

    def check(self, *decoders: str) -> None:
        """Refuse decoders (default: all) whose parts or options are not as their kinds want them, reading no weight."""
        for name in decoders or self.folder.decoders:
            if name not in self._checked and name in self.folder.decoders:
                check_decoder(self.folder, name)
                self._checked.add(name)

    def _take_drafter(self, other: ModelFolder) -> None:
        """Let another folder's drafter draft for this model; it then does so unless told otherwise."""
        found = [name for name, part in other.parts.items() if part.kind == DRAFTER]
        if not found:
            raise ModelFolderError(
                f"{other.path}: expected a model folder with a drafter, found the parts {', '.join(other.parts)}."
            )
        mine, theirs = self.folder.config, other.config
        if any(
            getattr(mine, field) != getattr(theirs, field)
            for field in ("tokenizer_sha256", "source_tokenizer_sha256", "special_ids")
        ):
            raise OptionError(
                f"The drafter in {other.path} expects the vocabulary it was trained with, "
                f"found another tokenizer in {self.folder.path}."
            )
        verifier = self._decoder_config("greedy").parts["model"]
        self._parts.pop(DRAFTER, None)
        self._homes[DRAFTER] = (other, found[0])
        for name, kind in DECODERS.items():
            if set(kind.roles) == {"model", DRAFTER}:
                defaults = other.decoders[name].defaults if name in other.decoders else {}
                self._decoders[name] = DecoderConfig({"model": verifier, DRAFTER: DRAFTER}, defaults)
        self._default = DRAFTED
        self.decoder()  # a drafter that does not fit is refused here

    def _decoder_config(self, name: str) -> DecoderConfig:
        if name in self._decoders:
            return self._decoders[name]
        if name in self.possible:
            return DecoderConfig(self._decoders[DECODERS[name].comes_with].parts)
        names = [*self.decoders, *self.possible]
        near, there = meant(name, names), ", ".join(names)
        raise OptionError(f"The model {self.folder.path} has no decoder {name!r}{near}; it has {there}.")

    @cached_property
    def _own_limits(self) -> dict[str, Any]:
        """The limits that its folder asks for, where they are not the usual ones."""
        usual = as_dict(Limits())
        return {name: value for name, value in as_dict(self.folder.config.limits).items() if value != usual[name]}

    def _fitting(self, limits: Limits) -> Limits:
        """Outputs can be no longer than the model has positions for, and only ids that it knows can be banned."""
        size = self.target_tokenizer.size
        if unknown := [token for token in limits.banned if token >= size]:
            raise OptionError(f"banned expects ids of the model's vocabulary, 0 to {size - 1}, found {unknown[0]}.")
        if limits.forced_first is not None and limits.forced_first >= size:
            raise OptionError(
                f"forced_first expects an id of the model's vocabulary, 0 to {size - 1}, found {limits.forced_first}."
            )
        if limits.max_length > self.longest - 1:
            return Limits(**{**vars(limits), "max_length": self.longest - 1})
        return limits


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
