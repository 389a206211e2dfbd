"""What is read and how quality is scored."""

from longstride.tasks.bootstrap import Comparison, paired_bootstrap
from longstride.tasks.score import Metric, Score, id_repetition, repetition_rate, word_repetition
from longstride.tasks.translation import Bleu, Chrf, score_translations, translation_metrics

__all__ = [
    "Bleu",
    "Chrf",
    "Comparison",
    "Metric",
    "Score",
    "id_repetition",
    "paired_bootstrap",
    "repetition_rate",
    "score_translations",
    "translation_metrics",
    "word_repetition",
]
