"""Which words of a text became which of its translation, by where the decoder looked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longstride import ops
from longstride.contract import Program, Source
from longstride.nn.cross_attention import cross_attention
from longstride.nn.transformer import Transformer
from longstride.text.glossary import joins
from longstride.text.tokenizer import Tokenizer
from longstride.translator import Translator

ROWS = 16
"""Sentences that are looked at side by side."""
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Unit:
    """A word of an output, or a sign, and where it comes from."""

    start: int
    end: int
    """characters of the output"""
    spans: NDArray[np.int64]
    """[tokens, 2] characters of the source"""
    shares: NDArray[np.float64]
    """[tokens] how much of it comes from each, 1 in all"""

    def moved(self, source: int, target: int) -> Unit:
        """So many characters further on, in both."""
        return Unit(self.start + target, self.end + target, self.spans + source, self.shares)

    def within(self, start: int, end: int) -> float:
        """How much of it comes from these characters of the source."""
        first, last = self.spans[:, 0], self.spans[:, 1]
        common = np.minimum(last, end) - np.maximum(first, start)
        return float((self.shares * np.clip(common / np.maximum(1, last - first), 0, 1)).sum())


class Aligner:
    """Looks again at what a model has written: one eager pass over an output that is known."""

    def __init__(self, translator: Translator, model: Transformer) -> None:
        self._translator, self._model = translator, model

    @staticmethod
    def of(translator: Translator) -> Aligner | None:
        """For models that write from left to right; None for others."""
        if "greedy" not in translator.decoders:
            return None
        model = translator.parts_of("greedy")["model"]
        return Aligner(translator, model) if isinstance(model, Transformer) else None

    def align(self, lines: Sequence[tuple[str, list[int], list[int], str]]) -> list[list[Unit]]:
        """For sentences as (text, ids, output's ids, output), the words of each output."""
        found: list[list[Unit]] = []
        for first in range(0, len(lines), ROWS):
            some = lines[first : first + ROWS]
            weights = self._weights([ids for _, ids, _, _ in some], [output for _, _, output, _ in some])
            found += [self._units(*line, rows) for line, rows in zip(some, weights, strict=True)]
        return found

    def _weights(self, sources: list[list[int]], outputs: list[list[int]]) -> NDArray[np.float64]:
        """[rows, target, source]"""
        read, written = Source.of(sources), Source.of([[self._model.special.start, *output] for output in outputs])
        runner = self._translator.runner
        given = (tensor.to(runner.device) for tensor in (read.ids, read.lengths, written.ids))
        found: Tensor = runner.call(Program("alignment", self._look), *given)
        return found.double().cpu().numpy()

    @torch.inference_mode()
    def _look(self, source: Tensor, lengths: Tensor, inputs: Tensor) -> Tensor:
        visible = ops.real(lengths, source.shape[1])
        return cross_attention(self._model, inputs, self._model.encode(source, visible), visible)

    def _units(
        self, text: str, ids: list[int], output: list[int], written: str, weights: NDArray[np.float64]
    ) -> list[Unit]:
        sources = token_spans(self._translator.source_tokenizer, ids, text)
        targets = token_spans(self._translator.target_tokenizer, output, written)
        silent = sources[:, 0] == sources[:, 1]  # EOS and its like, at which decoders look when nothing is to be seen
        looked = np.where(silent, 0.0, weights[: len(output), : len(ids)])
        units = []
        for start, end in word_spans(written):
            common = np.minimum(targets[:, 1], end) - np.maximum(targets[:, 0], start)
            shares = np.clip(common, 0, None) @ looked
            total = shares.sum()
            units.append(Unit(start, end, sources, shares / total if total > 0 else shares))
        return units


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where its words and signs begin and end. What stands on a letter (accents, vowels of Indian scripts) is no word
    to Python, and no tag may come between the two."""
    found: list[tuple[int, int]] = []
    for start, end in (one.span() for one in _WORD.finditer(text)):
        mark = unicodedata.category(text[start]).startswith("M")
        if found and found[-1][1] == start and (mark or joins(text[start - 1], text[start])):
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found


def token_spans(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> NDArray[np.int64]:
    """[tokens, 2] which characters of a text each token stands for, without white space before them; roughly, where
    the tokenizer has changed the text."""
    read = tokenizer.decode_many([list(ids[:count]) for count in range(len(ids) + 1)])
    ends = np.minimum(np.maximum.accumulate([len(one) for one in read]), len(read[-1]))
    if read[-1] != text:
        ends = np.rint(ends * (len(text) / max(1, len(read[-1])))).astype(np.int64)
    spans = []
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        part = text[start:end]
        spans.append((start + len(part) - len(part.lstrip()) if part.strip() else start, end))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
