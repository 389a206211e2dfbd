"""OTEM: how much a system says more often than it should (Yang et al., 2018). Lower is better.

Definition. An n-gram g of an output occurs too often by

    over(g) = count(g) - reference(g)    where the reference has it, but less often
              count(g) - 1               where the reference does not have it, but the output says it more than once
              0                          otherwise

For n = 1 to N, p_n is the sum of over(g) divided by the number of n-grams of the outputs, both over the whole corpus:

    OTEM-N = LP * geometric mean of p_1 to p_N,    LP = exp(1 - r / c) where c >= r, else 1

with c and r the tokens of all outputs and all references: output that is longer than the references counts more. Where
nothing of some order occurs too often, the score is 0. It is given in percent. The authors' script prints OTEM-2;
OTEM-4 looks as far as BLEU does. They expect tokenized text; ours is detokenized and goes through sacreBLEU's 13a
tokenization, as for BLEU, so that figures depend on no model's vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from longstride.contract import OptionError
from longstride.tasks.ngrams import ngrams
from longstride.tasks.score import Figures, Metric, check_pairs
from longstride.version import __version__


class OverTranslation(Metric):
    """OTEM of detokenized outputs, with n-grams of up to `order` words."""

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
