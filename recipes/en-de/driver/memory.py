"""Gigabytes of device memory at the peak, by job: as trainings recorded it (`peak_memory`), batches of 32k tokens; the
teacher's have 65k."""

from __future__ import annotations

MEASURED = {
    "verifier": 12.1,
    "small": 7.4,
    "small-6-2": 6.0,
    "small-6-1": 5.4,
    "blockwise-frozen-original": 10.2,
    "blockwise-frozen-distilled": 10.2,
    "blockwise-fine-tuned": 14.3,
    "blockwise-fine-tuned-linked": 18.3,
    "drafter-shared": 45.1,
    "drafter-shared-1": 14.6,
    "drafter-shared-2": 18.2,
    "drafter-linked-2-k5": 12.4,
    "drafter-own": 21.1,
    "drafter-shared-k20-2-short": 23.8,
    "drafter-shared-k30-2-short": 33.1,
    "interleaved-small": 10.8,
    "interleaved-small-distilled": 11.0,
    "interleaved-base": 16.3,
    "lattice": 7.7,
}
"""of a recipe, or of a run that has settings of its own"""
GUESSED = {
    "teacher": 22.0,
    "drafter-shared-k15-2-short": 21.0,
    "drafter-shared-k25-2-short": 28.5,
    "lattice-small": 7.5,
    "nat-small": 7.5,
}
"""from those that are most like them; replace these by what is measured"""
CONTEXT = 1.5
"""what every process takes beside its tensors: code, libraries' workspaces, what the allocator rounds up"""
EVALUATION = 5.0
TIMED = 8.0
"""of several models at once"""
DISTILLATION = 20.0
"""of three processes"""
TABLES = 10.0
"""alignment may take 8"""


def training(recipe: str, name: str = "") -> float:
    """Of a training, by its own name if it is known by that, else by its recipe."""
    known = {**GUESSED, **MEASURED}
    return round(known.get(name, known.get(recipe, MEASURED["verifier"])) + CONTEXT, 1)
