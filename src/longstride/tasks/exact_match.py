"""Exact match: the share of outputs that are the reference, to the letter. For toys, which have one right answer.

White space at the ends of a line does not count. An output is right if it is any of several references, which are
given as one text with a line for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longstride.tasks.score import Figures, Metric, check_pairs


class ExactMatch(Metric):
    """Outputs that equal their reference, in percent."""

    name = "exact match"
    signature = "exact-match|lines|percent"

    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Figures:
        """[sentences, 2]: right or not, and one."""
        check_pairs(outputs, references)
        right = [
            output.strip() in [line.strip() for line in reference.split("\n")]
            for output, reference in zip(outputs, references, strict=True)
        ]
        return np.stack([np.array(right, dtype=np.float64), np.ones(len(right))], axis=1)

    def value(self, summed: NDArray[Any]) -> float:
        """From 0 to 100."""
        return 100.0 * float(summed[0] / summed[1])
