"""How summaries are scored: ROUGE-1, ROUGE-2 and ROUGE-L (Lin, 2004), as F1 in percent, each with its signature.

The class is the only place that knows the package rouge-score. A corpus has the mean of its sentences' F1, so that a
resampled corpus costs one matrix product, as for every metric.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longstride.contract import OptionError
from longstride.tasks.score import Figures, Metric, Score, check_pairs

KINDS = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeL"}
"""Shared words, shared pairs of words, the longest common subsequence; by the names that rouge-score has for them."""


class Rouge(Metric):
    """One of them.

    Words are what rouge-score takes for words: lower case, Latin letters and digits alone. With `stem`, English endings
    are taken off first (Porter), as the original script's option -m does.
    """

    def __init__(self, name: str = "ROUGE-L", stem: bool = True) -> None:
        if name not in KINDS:
            raise OptionError(f"ROUGE expects one of {', '.join(KINDS)}, found {name}.")
        self.name, self._stem = name, stem
        self._scorer = _scorer(KINDS[name], stem)

    @property
    def signature(self) -> str:
        """``rougeL|f1:mean|tok:rouge-score|case:lc|stem:porter|v:0.1.2``"""
        stem = "porter" if self._stem else "no"
        return f"{KINDS[self.name]}|f1:mean|tok:rouge-score|case:lc|stem:{stem}|v:{version('rouge-score')}"

    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Figures:
        """[sentences, 2]: F1, and one."""
        check_pairs(outputs, references)
        kind = KINDS[self.name]
        found = [
            self._scorer.score(reference, output)[kind].fmeasure
            for output, reference in zip(outputs, references, strict=True)
        ]
        return np.stack([np.array(found, dtype=np.float64), np.ones(len(found))], axis=1)

    def value(self, summed: NDArray[Any]) -> float:
        """From 0 to 100."""
        return 100.0 * float(summed[0] / summed[1])


def _scorer(kind: str, stem: bool) -> Any:
    try:
        package = importlib.import_module("rouge_score.rouge_scorer")
    except ImportError as error:
        raise OptionError(
            f"ROUGE expects the package rouge-score, found no {error.name}: pip install 'longstride[summarization]'."
        ) from None
    return package.RougeScorer([kind], use_stemmer=stem)


def summary_metrics() -> tuple[Metric, ...]:
    """ROUGE-L first: the one that the interleaved paper prints and that tables lead with."""
    return tuple(Rouge(name) for name in ("ROUGE-L", "ROUGE-1", "ROUGE-2"))


def score_summaries(outputs: Sequence[str], references: Sequence[str]) -> list[Score]:
    """ROUGE-L, ROUGE-1 and ROUGE-2, and how long outputs are: F1 is easily had by saying more or less."""
    said, wanted = (sum(len(line.split()) for line in lines) for lines in (outputs, references))
    ratio = 100.0 * said / wanted if wanted else 100.0
    return [
        *(metric.score(outputs, references) for metric in summary_metrics()),
        Score("length", ratio, "length|words|of-reference|percent"),
    ]
