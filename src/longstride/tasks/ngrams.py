"""Scores by counting n-grams: GLEU of corrections, and OTEM, of what is said too often.

GLEU (Napoles et al., 2015; "GLEU without tuning", 2016) is BLEU that knows the source: n-grams that an output shares
with the reference count for it, those it shares with the source but should have changed (in the source, nowhere in the
reference) count against it. For n = 1 to 4, with clipped counts,

    p_n = max(0, shared with reference - shared with source where the reference has none) / (length + 1 - n)

summed over the corpus, sentence by sentence, before dividing; GLEU = brevity penalty * geometric mean of p_1 to p_4.
With several references one of them is drawn for each sentence, and the score is the mean over 500 such draws. The
draws are seeded as in the authors' script, so that the same files always give the same figure.

Text is split at white space and nothing else: outputs, sources and references must be tokenized alike, as JFLEG is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from longstride.contract import InputError, OptionError
from longstride.tasks.score import Figures, Metric, check_pairs
from longstride.version import __version__

ORDER = 4
DRAWS = 500
SEED_STEP = 101
"""Draw j is seeded with j times this, as in the authors' script"""
FIGURES = 2 + 2 * ORDER
"""Lengths of output and reference, then per order what counts for the output and how much could"""


class Gleu(Metric):
    """GLEU of outputs for these sources against these references; made for one test set, whole and in order."""

    name = "GLEU"

    def __init__(self, sources: Sequence[str], references: Sequence[Sequence[str]], draws: int = DRAWS) -> None:
        """`references` are whole sets, each with one line per source."""
        if not sources or not references:
            raise InputError(
                f"GLEU expects sources and references, found {len(sources)} sources, {len(references)} reference sets."
            )
        for number, lines in enumerate(references, start=1):
            if len(lines) != len(sources):
                raise InputError(
                    f"Expected one reference per source in set {number}, found {len(sources)} sources and "
                    f"{len(lines)} references."
                )
        self._sources = [ngrams(line.split(), ORDER) for line in sources]
        self._references = [[ngrams(line.split(), ORDER) for line in lines] for lines in references]
        self._lengths = [[len(line.split()) for line in lines] for lines in references]
        self._drawn = _draw(len(sources), len(references), draws)  # [draws, sentences]

    @property
    def signature(self) -> str:
        """``gleu|n:4|references:4|draws:500|tokens:white-space|case:mixed|v0.1.0``"""
        draws, sets = len(self._drawn), len(self._references)
        return f"gleu|n:{ORDER}|references:{sets}|draws:{draws}|tokens:white-space|case:mixed|v{__version__}"

    def statistics(self, outputs: Sequence[str], references: Sequence[str] = ()) -> Figures:
        """[sentences, draws * FIGURES]: every draw's own. The references are those it was made with."""
        if len(outputs) != len(self._sources):
            raise InputError(f"Expected one output per source, found {len(self._sources)} and {len(outputs)}.")
        found = np.zeros((len(outputs), len(self._references), FIGURES))
        for sentence, line in enumerate(outputs):
            words = line.split()
            counts = ngrams(words, ORDER)
            for set_, (lines, lengths) in enumerate(zip(self._references, self._lengths, strict=True)):
                figures = _figures(counts, self._sources[sentence], lines[sentence])
                found[sentence, set_] = [len(words), lengths[sentence], *figures]
        chosen = found[np.arange(len(outputs))[:, None], self._drawn.T]  # [sentences, draws, FIGURES]
        return chosen.reshape(len(outputs), -1)

    def value(self, summed: NDArray[Any]) -> float:
        """From 0 to 100: the mean over draws."""
        return 100.0 * float(_gleu(summed.reshape(-1, FIGURES)).mean())


def _draw(sentences: int, sets: int, draws: int) -> NDArray[np.int64]:
    """[draws, sentences] which reference each draw takes for each sentence."""
    if sets == 1:
        return np.zeros((1, sentences), dtype=np.int64)
    drawn = np.empty((draws, sentences))
    for draw in range(draws):
        rng = random.Random(draw * SEED_STEP)
        drawn[draw] = [rng.random() for _ in range(sentences)]
    # Not randint, which later Pythons draw in another way: so the published figures for JFLEG come out to the digit.
    return (drawn * sets).astype(np.int64)


def _figures(
    output: list[Counter[tuple[str, ...]]],
    source: list[Counter[tuple[str, ...]]],
    reference: list[Counter[tuple[str, ...]]],
) -> list[int]:
    """Per order what counts for the output, never below nothing, and how many n-grams it has."""
    figures: list[int] = []
    for mine, wrong, right in zip(output, source, reference, strict=True):
        shared = sum(min(count, right[gram]) for gram, count in mine.items())
        kept = sum(min(count, wrong[gram]) for gram, count in mine.items() if gram not in right)
        figures += [max(0, shared - kept), sum(mine.values())]
    return figures


def _gleu(figures: NDArray[Any]) -> Figures:
    """[draws] from 0 to 1, of each draw's sums [draws, FIGURES]; nothing shared at some order is 0."""
    whole: NDArray[np.bool_] = (figures != 0).all(axis=1, keepdims=False)
    safe = np.where(whole[:, None], figures, 1.0)
    brevity = np.minimum(0.0, 1.0 - safe[:, 1] / safe[:, 0])
    precision = np.log(safe[:, 2::2] / safe[:, 3::2]).mean(axis=1)
    return np.where(whole, np.exp(brevity + precision), 0.0)


class OverTranslation(Metric):
    """OTEM (Yang et al., 2018) of detokenized outputs, with n-grams of up to `order` words; lower is better.

    p_n is what n-grams occur too often by, over the number of n-grams of the outputs, both summed over the corpus;

        OTEM-N = LP * geometric mean of p_1 to p_N,    LP = exp(1 - r / c) where c >= r, else 1

    with c and r the tokens of all outputs and all references. The authors' script prints OTEM-2; OTEM-4 looks as far as
    BLEU does. They expect tokenized text; ours goes through sacreBLEU's 13a tokenization, as for BLEU.
    """

    def __init__(self, order: int = 2) -> None:
        if order < 1:
            raise OptionError(f"order expects 1 or more, found {order}.")
        self.name = f"OTEM-{order}"
        self._order = order
        self._tokenizer = Tokenizer13a()  # type: ignore[no-untyped-call]

    @property
    def signature(self) -> str:
        """``otem|n:2|tok:13a|case:mixed|percent|v0.1.0``"""
        return f"otem|n:{self._order}|tok:13a|case:mixed|percent|v{__version__}"

    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Figures:
        """[sentences, 2 + 2 * order]: lengths of output and reference, then per order what is too much, and all."""
        check_pairs(outputs, references)
        found = np.zeros((len(outputs), 2 + 2 * self._order))
        for place, pair in enumerate(zip(outputs, references, strict=True)):
            output, reference = (self._tokenizer(line).split() for line in pair)
            figures: list[int] = []
            grams = zip(ngrams(output, self._order), ngrams(reference, self._order), strict=True)
            for mine, right in grams:
                figures += [_too_many(mine, right), sum(mine.values())]
            found[place] = [len(output), len(reference), *figures]
        return found

    def value(self, summed: NDArray[Any]) -> float:
        """In percent."""
        said, wanted = summed[:2]
        too_many, every = summed[2::2], summed[3::2]
        if not (too_many > 0).all():
            return 0.0
        longer = np.exp(1.0 - wanted / said) if said >= wanted else 1.0
        return 100.0 * float(longer * np.exp(np.log(too_many / every).mean()))


def _too_many(output: Counter[tuple[str, ...]], reference: Counter[tuple[str, ...]]) -> int:
    """Occurrences beyond those of the reference, or beyond the first where it has none."""
    return sum(max(0, count - max(1, reference[gram])) for gram, count in output.items())


def ngrams(words: Sequence[str], order: int) -> list[Counter[tuple[str, ...]]]:
    """How often each n-gram occurs, for n = 1 to `order`."""
    return [
        Counter(tuple(words[place : place + n]) for place in range(len(words) + 1 - n)) for n in range(1, order + 1)
    ]
