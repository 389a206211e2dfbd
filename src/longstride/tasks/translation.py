"""How translations are scored: corpus BLEU and chrF of sacreBLEU on detokenized text, each with its signature.

The two classes are the only place that knows sacreBLEU; its statistics per sentence, which its own significance tests
use, are what :mod:`longstride.tasks.bootstrap` resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from longstride.tasks.score import Figures, Metric, Score, check_pairs

ORDER = 4
"""of the n-grams that BLEU goes up to"""


class _Sacrebleu(Metric):
    def __init__(self, scorer: Any) -> None:
        self._scorer = scorer
        self._scorer.num_refs = 1  # as the signature says even before anything was scored

    @property
    def signature(self) -> str:
        """SacreBLEU's own, its version included."""
        return str(self._scorer.get_signature().format())

    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Figures:
        """SacreBLEU's counts of n-grams and lengths: [sentences, figures]."""
        check_pairs(outputs, references)
        counts = self._scorer._extract_corpus_statistics(list(outputs), [list(references)])
        return np.asarray(counts, dtype=np.float64)

    def value(self, summed: NDArray[Any]) -> float:
        """From 0 to 100."""
        # Counts are whole numbers: handing over ints keeps every rounding as it is in sacreBLEU itself.
        return float(self._scorer._compute_score_from_stats([int(count) for count in summed]).score)


class Bleu(_Sacrebleu):
    """Corpus BLEU over the 13a tokenization, exponential smoothing, mixed case: sacreBLEU's default.

    With tokenize "none" words are what stands between white space: for outputs and references that are tokenized
    already, as in papers that print tokenized BLEU.

    Where no reference has four tokens, as in toys, there is no 4-gram to be right and the default is 0 for whatever is
    said; `effective_order` then counts n-grams as far as there are any, and the signature says so (``eff:yes``).
    """

    def __init__(self, effective_order: bool = False, tokenize: Literal["13a", "none"] = "13a") -> None:
        self.name = "BLEU" if tokenize == "13a" else "BLEU (tokenized)"
        # force: outputs that end in " ." are the system's own doing; the signature already says what was scored.
        super().__init__(BLEU(tokenize=tokenize, force=True, effective_order=effective_order))

    def all_short(self, references: Sequence[str]) -> bool:
        """Whether there are references, and no 4-gram in any."""
        tokens = self._scorer.tokenizer
        return bool(references) and all(
            len(line.split()) < ORDER and len(tokens(line).split()) < ORDER for line in references
        )


class Chrf(_Sacrebleu):
    """Corpus chrF2: character 6-grams, no word n-grams; sacreBLEU's default."""

    name = "chrF"

    def __init__(self) -> None:
        super().__init__(CHRF())


def translation_metrics(references: Sequence[str] = ()) -> tuple[Metric, ...]:
    """BLEU and chrF, BLEU first: the one that tables lead with; as these references, if given, allow."""
    return (Bleu(Bleu().all_short(references)), Chrf())


def score_translations(outputs: Sequence[str], references: Sequence[str]) -> list[Score]:
    """BLEU and chrF of detokenized outputs; another count of references is an InputError."""
    return [metric.score(outputs, references) for metric in translation_metrics(references)]
