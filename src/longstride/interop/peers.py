"""Other libraries as decoders: what people would use instead, on the same weights, seen through our contract.

A peer decodes whole batches and keeps its state to itself: it has no session and no trace. Ids go in and come out;
text stays outside, as with our own decoders. Lengths are limited as ours are; a library that knows only one limit for
a batch is given the widest and its outputs are cut.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from longstride.contract import (
    DEFAULT_IDS,
    DTYPES,
    Decoded,
    Decoder,
    Hypothesis,
    Limits,
    OptionError,
    Session,
    Source,
    SpecialIds,
    WorkError,
    option,
)
from longstride.contract.decoding import HARD_LIMITS, Tell
from longstride.contract.options import Options
from longstride.interop.exportable import GREEDY
from longstride.runtime.libraries import package
from longstride.translator import Translator

PEERS = ("hf", "ctranslate2")
"""Libraries, by the names that exports have too."""

COMPILED = "hf-compiled"
"""A peer that is the first library once more, compiled."""

ASSISTED = "hf-assisted"
"""And once more, with a smaller model that drafts."""

BUCKET = 32
"""Where shapes are compiled, sources are padded to a multiple of this."""

LOOKED_UP = 10
"""Tokens that prompt lookup drafts at once, as transformers' documentation has it."""

Rows = list[list[int]]


@dataclass(frozen=True)
class PeerOptions(Options):
    """How a peer searches."""

    width: int = option(1, "Hypotheses kept per sentence; 1 is greedy search.", least=1, most=1000)
    strength: float = option(0.0, "Scores are log-probability / length^strength.", least=-10, most=10)


class Peer(Decoder):
    """Another library with a model loaded."""

    options: PeerOptions
    version: str
    """the library's"""
    precision: str
    threads: int
    special: SpecialIds = DEFAULT_IDS
    obeys = HARD_LIMITS - {"forced_last", "max_repeats", "prefixes"}

    @property
    def signature(self) -> str:
        """``ctranslate2|width:1|strength:0.0|threads:2|int8|v4.8.4``"""
        o = self.options
        search = f"width:{o.width}|strength:{o.strength}|threads:{self.threads}"
        return f"{self.name}|{search}|{self.precision}|v{self.version}"

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """A peer keeps its state to itself."""
        raise WorkError(f"{self.name} decodes whole batches and has no session to start.")

    def decode(
        self,
        source: Source,
        limits: Limits | None = None,
        capacity: int | None = None,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Decoded:
        """Decode all rows, at most `capacity` at a time; there is never a trace."""
        limits = limits or Limits()
        self.check_limits(limits)
        step = max(1, capacity or source.rows)
        outputs: Rows = []
        for first in range(0, source.rows, step):
            part = source.slice(first, first + step)
            longest = limits.longest_outputs(part.lengths).tolist()
            outputs += [row[:most] for row, most in zip(self._outputs(part, limits, longest), longest, strict=True)]
        found = [[Hypothesis(row, math.nan, math.nan)] for row in outputs]
        if tell is not None:
            tell(list(enumerate(found)))
        return Decoded(found)

    @abstractmethod
    def _outputs(self, source: Source, limits: Limits, longest: Sequence[int]) -> Rows:
        """The ids of each row without EOS; they may be longer than a row's own limit."""

    def _forbidden(self, limits: Limits) -> list[int]:
        return sorted({*self.special.never_generated, *limits.banned})


class HuggingFace(Peer):
    """`generate` of transformers, with its cache, on a folder written by :mod:`longstride.interop.hf`.

    With `compiled` it is asked for its static cache, with which it compiles and captures the decoder's step on a CUDA
    device; sources are then padded to a few lengths and outputs limited alike, so that few shapes are compiled. With
    `prompt_lookup` it drafts what followed the last tokens where they stood before, and with an `assistant`, the folder
    of a smaller model with the same vocabulary, what that one writes: both one sentence at a time, which is all that
    transformers has for them.
    """

    name = "hf"

    def __init__(
        self,
        folder: Path,
        options: PeerOptions | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        compiled: bool = False,
        prompt_lookup: bool = False,
        assistant: Path | None = None,
    ) -> None:
        transformers = package("transformers")
        self.options = options or PeerOptions()
        self.version = str(transformers.__version__)
        self.precision = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}.get(dtype, str(dtype))
        self.threads = torch.get_num_threads()
        self._model = _loaded(transformers, folder, device, dtype)
        self._compiled = compiled
        self._assistance: dict[str, Any] = {"prompt_lookup_num_tokens": LOOKED_UP} if prompt_lookup else {}
        if compiled:
            self.name = COMPILED
        if assistant is not None:
            self.name = ASSISTED
            smaller = _loaded(transformers, assistant, device, dtype)
            needed, found = (model.config.vocab_size for model in (self._model, smaller))
            if needed != found:
                raise OptionError(f"{assistant}: expected an assistant with the model's {needed} ids, found {found}.")
            self._assistance = {"assistant_model": smaller}

    def _outputs(self, source: Source, limits: Limits, longest: Sequence[int]) -> Rows:
        if not self._assistance:
            return self._generated(source, limits, longest)
        with quiet(package("transformers")):  # the assistant's settings are the library's own doing
            return [
                row
                for place in range(source.rows)
                for row in self._generated(source.slice(place, place + 1), limits, longest[place : place + 1])
            ]

    def _generated(self, source: Source, limits: Limits, longest: Sequence[int]) -> Rows:
        device = self._model.device
        o = self.options
        settings: dict[str, Any] = {"length_penalty": o.strength} if o.width > 1 else dict(self._assistance)
        if limits.min_length:
            settings["min_new_tokens"] = limits.min_length
        if limits.forced_first is not None:
            settings["forced_bos_token_id"] = limits.forced_first
        if limits.no_repeat_ngram:
            settings["no_repeat_ngram_size"] = limits.no_repeat_ngram
        if forbidden := self._forbidden(limits):
            settings["bad_words_ids"] = [[token] for token in forbidden]
        ids, most = source.ids, max(longest)
        if self._compiled:
            settings["cache_implementation"] = "static"
            ids = F.pad(ids, (0, -source.longest % BUCKET), value=self.special.pad)
            most = limits.max_length
        visible = torch.arange(ids.shape[1]) < source.lengths[:, None]
        highest = most + 2  # the start symbol and EOS count
        if "assistant_model" in self._assistance:
            # A draft's last token is read too, and there may be no position for it. Without a mask, transformers 5.22
            # has the assistant read its whole output again behind a cache that holds it.
            highest = min(highest, getattr(self._model.config, "max_position_embeddings", None) or highest)
            settings["decoder_attention_mask"] = torch.ones(source.rows, 1, dtype=torch.long, device=device)
        found = self._model.generate(
            input_ids=ids.to(device),
            attention_mask=visible.long().to(device),
            max_length=highest,
            num_beams=o.width,
            do_sample=False,
            **settings,
        )
        return [until(self.special.eos, row[1:]) for row in found.tolist()]


def _loaded(transformers: Any, folder: Path, device: torch.device | str, dtype: torch.dtype) -> Any:
    if not (folder / "config.json").is_file():
        raise OptionError(f"{folder}: expected a Hugging Face folder, found no config.json.")
    with quiet(transformers):
        try:
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True, dtype=dtype)
        except (OSError, ValueError) as error:
            said = str(error).splitlines()[0][:200]
            raise OptionError(f"{folder}: expected an encoder-decoder of transformers, found none: {said}") from None
    return model.to(device).eval()


class CTranslate2(Peer):
    """`translate_batch` on the processor, on a folder written by :mod:`longstride.interop.ctranslate2`.

    The library takes and gives pieces, not ids: looking them up counts as its own time.
    """

    name = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        source_pieces: Sequence[str],
        target_pieces: Sequence[str],
        options: PeerOptions | None = None,
        precision: str = "fp32",
        threads: int | None = None,
        complete: bool = False,
    ) -> None:
        """`complete`: the library is told of the end of sources, which it puts there itself otherwise."""
        ctranslate2 = package("ctranslate2")
        self._end = 0 if complete else 1
        self.options = options or PeerOptions()
        self.version = str(ctranslate2.__version__)
        self.precision = precision
        self.threads = threads or torch.get_num_threads()
        computation = {"fp32": "float32", "int8": "int8"}[precision]
        if computation not in ctranslate2.get_supported_compute_types("cpu"):
            raise OptionError(f"CTranslate2 expects a processor that it can compute in {precision} on, found this one.")
        self._translator = ctranslate2.Translator(
            str(folder), "cpu", compute_type=computation, inter_threads=1, intra_threads=self.threads
        )
        self._source_pieces = list(source_pieces)
        self._target_pieces = list(target_pieces)
        self._target_ids = {piece: number for number, piece in enumerate(target_pieces)}

    def _outputs(self, source: Source, limits: Limits, longest: Sequence[int]) -> Rows:
        pieces, o = self._source_pieces, self.options
        rows = list(zip(source.ids.tolist(), source.lengths.tolist(), strict=True))
        first = limits.forced_first
        found = self._translator.translate_batch(
            [[pieces[token] for token in ids[: length - self._end]] for ids, length in rows],
            target_prefix=None if first is None else [[self._target_pieces[first]]] * len(rows),
            no_repeat_ngram_size=limits.no_repeat_ngram,
            beam_size=o.width,
            length_penalty=o.strength,
            suppress_sequences=[[self._target_pieces[token]] for token in self._forbidden(limits)],
            max_input_length=0,
            max_decoding_length=max(longest),
            min_decoding_length=limits.min_length,
        )
        return [[self._target_ids[piece] for piece in result.hypotheses[0]] for result in found]


def open_peer(
    name: str,
    folder: Path,
    translator: Translator,
    options: PeerOptions | None = None,
    precision: str = "fp32",
    threads: int | None = None,
    assistant: Path | None = None,
) -> Peer:
    """A peer by name, on a folder that was exported from this model, for the device that this model is on."""
    peer: Peer
    if name in (HuggingFace.name, COMPILED, ASSISTED):
        peer = HuggingFace(
            folder,
            options,
            translator.runner.device,
            DTYPES[precision],
            compiled=name == COMPILED,
            assistant=assistant if name == ASSISTED else None,
        )
    elif name == CTranslate2.name:
        source, target = (
            one.pieces(range(one.size)) for one in (translator.source_tokenizer, translator.target_tokenizer)
        )
        peer = CTranslate2(folder, source, target, options, precision, threads, translator.source_tokenizer.complete)
    else:
        raise OptionError(f"There is no peer {name!r}. Available: {', '.join(PEERS)}.")
    peer.special = translator.folder.special
    return peer


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Neither bars nor advice of the library's."""
    logging = transformers.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def until(eos: int, row: list[int]) -> list[int]:
    """What stands before the end of sentence."""
    return row[: row.index(eos)] if eos in row else row


SENTENCES = (
    "Good morning!",
    "We met three old friends in the garden yesterday.",
    "The house is small, but it has a large window.",
    "Can you tell me where the station is?",
    "She bought twenty-four red apples and two loaves of bread on the market.",
    "No one knew why the train was late, and nobody asked.",
    "1, 2, 3: that is how it begins.",
    "Yes.",
)
"""What an export is checked with where nothing else is given; every vocabulary reads something in them."""


@dataclass(frozen=True)
class Agreement:
    """How many outputs are the same, id by id."""

    compared: int
    differing: tuple[int, ...]
    """places of those that are not"""

    def __str__(self) -> str:
        same = self.compared - len(self.differing)
        if not self.differing:
            return f"{same} of {self.compared} outputs are the same, id by id"
        return (
            f"{same} of {self.compared} outputs are the same, id by id; the first that is not: {self.differing[0] + 1}"
        )


def compare(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> Agreement:
    """Count rows of ids that differ."""
    pairs = list(zip(ours, theirs, strict=True))
    return Agreement(len(pairs), tuple(place for place, (one, other) in enumerate(pairs) if list(one) != list(other)))


def agreement(translator: Translator, peer: Peer, lines: Sequence[str]) -> Agreement:
    """Decode lines by our greedy search and by the peer; empty lines are nothing to compare."""
    decoder, limits = translator.decoder(GREEDY)
    ids = translator.encode([line for line in lines if line.strip()], warn=lambda said: None)
    source = Source.of(ids)
    return compare(decoder.decode(source, limits).tokens, peer.decode(source, limits).tokens)
