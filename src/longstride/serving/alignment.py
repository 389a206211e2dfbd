"""Which words of a text became which of its translation, by where the decoder looked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longstride import ops
from longstride.contract import Program, Source
from longstride.nn.cross_attention import cross_attention
from longstride.nn.transformer import Transformer
from longstride.serving.markup import marked, needs_words
from longstride.text.glossary import joins
from longstride.text.tokenizer import Tokenizer
from longstride.translator import Translator

if TYPE_CHECKING:
    from longstride.serving.html import Segment
    from longstride.serving.service import TranslatedPiece

Line = tuple[str, list[int], list[int], str]
"""A sentence's text and ids, its output's ids and text."""
ROWS = 16
"""Sentences that are looked at side by side."""
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class AlignedWords:
    """The words and signs of an output, and where each comes from."""

    spans: list[tuple[int, int]]
    """characters of the output, for each word"""
    sources: NDArray[np.int64]
    """[tokens, 2] characters of the source"""
    shares: NDArray[np.float64]
    """[words, tokens] the share of each word that comes from each token; a row sums to 1"""

    def moved(self, source: int, target: int) -> AlignedWords:
        """Return the same words, moved by these numbers of characters."""
        spans = [(start + target, end + target) for start, end in self.spans]
        return AlignedWords(spans, self.sources + source, self.shares)

    def within(self, start: int, end: int) -> list[float]:
        """Return for each word the share, from 0 to 1, that comes from these characters of the source."""
        first, last = self.sources[:, 0], self.sources[:, 1]
        common = np.minimum(last, end) - np.maximum(first, start)
        found: list[float] = (self.shares * np.clip(common / np.maximum(1, last - first), 0, 1)).sum(axis=1).tolist()
        return found


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

    def align(self, lines: Sequence[Line]) -> list[AlignedWords]:
        """The words of each output."""
        found: list[AlignedWords] = []
        for first in range(0, len(lines), ROWS):
            some = lines[first : first + ROWS]
            weights = self._weights([ids for _, ids, _, _ in some], [output for _, _, output, _ in some])
            found += [self._words(*line, rows) for line, rows in zip(some, weights, strict=True)]
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

    def _words(
        self, text: str, ids: list[int], output: list[int], written: str, weights: NDArray[np.float64]
    ) -> AlignedWords:
        sources = token_spans(self._translator.source_tokenizer, ids, text)
        targets = token_spans(self._translator.target_tokenizer, output, written)
        silent = sources[:, 0] == sources[:, 1]  # EOS and its like, at which decoders look when nothing is to be seen
        looked = np.where(silent, 0.0, weights[: len(output), : len(ids)])
        words, units = word_spans(written), []
        for start, end in words:
            common = np.minimum(targets[:, 1], end) - np.maximum(targets[:, 0], start)
            shares = np.clip(common, 0, None) @ looked
            total = shares.sum()
            units.append(shares / total if total > 0 else shares)
        return AlignedWords(words, sources, np.array(units).reshape(len(words), len(sources)))


def rewritten(
    done: Sequence[tuple[Segment, list[TranslatedPiece]]],
    align: Callable[[Sequence[Line]], Iterable[AlignedWords]],
    escape: Callable[[str], str],
) -> list[str]:
    """Return translated texts, `escape`d, with their tags. `align` returns the words of outputs; it is asked only for
    texts whose tags depend on them, and may return nothing."""
    asked = [number for number, (segment, _) in enumerate(done) if needs_words(segment.text, segment.marks)]
    looked = iter(
        align(
            [(one.piece.text, one.ids, one.tokens, one.text) for number in asked for one in done[number][1] if one.ids]
        )
    )
    words = {number: list[AlignedWords]() for number in range(len(done))}
    for number in asked:
        source = target = 0
        for one in done[number][1]:
            before, after = one.piece.before, one.piece.after
            if one.ids and (found := next(looked, None)) is not None:
                words[number].append(found.moved(source + len(before), target + len(before)))
            source += len(str(one.piece))
            target += len(before) + len(one.text) + len(after)
    return [
        marked(
            segment.text, segment.marks, "".join(one.piece.holding(one.text) for one in pieces), words[number], escape
        )
        for number, (segment, pieces) in enumerate(done)
    ]


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
