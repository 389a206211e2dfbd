"""Guesses of minutes on one H200, from what was measured (docs/log.md, minutes.jsonl of past runs).

Trainings are guessed as they run beside others: the GPU is full, kernels run at once (MPS), and each has its share of
the rate that all of them have together. Without MPS they take half as long again.
"""

from __future__ import annotations

from driver.commands import SMALL_TRAINING, TRAINING
from driver.jobs import GPU_AT_ONCE

PASS = 15.5e6
"""target tokens of one pass over the 500,000 pairs; of distilled ones half a million fewer"""
UPDATES = 507
"""updates of one pass at 32k padded target tokens each"""

BASE, SMALL = 1.3e6, 2.2e6
"""target tokens a second of all trainings together, five to seven of one size"""
BASE_ALONE, SMALL_ALONE = 0.68e6, 1.7e6
BASE_LARGE = 0.94e6
"""of a base model alone whose batches have twice the tokens: its host keeps up with the GPU"""
START = 0.5
"""minutes to import, load, compile"""
AROUND = 0.7
"""minutes of a teacher's checkpoints and validations"""
TEACHER, VERIFIER = 5600, 1500
"""updates of 65k tokens: what teacher.yaml has, and a verifier that is to be made quickly"""
GPU_SECONDS = {"verifier": 0.070, "heads": 0.060, "drafter": 0.030}
"""of the GPU an update: a verifier's of 65k tokens; linked heads', trained with their base, and a linked drafter's (two
layers, blocks of 10 after three cuts of every target) of 32k. In the tenth run 1,500, 2,510 and 8,533 of them took 8.0
minutes side by side"""
DISTILLED = 1805.0
"""lines a second by beam 5, five processes through MPS"""

GREEDY, BEAM = 500.0, 300.0
"""test sentences a second, eager, batch 512, beside trainings"""
TEST = 2000
LOAD = 0.15
"""minutes to import and load where nothing is compiled"""


def base_training(updates: int, faster: float = 1.0, share: float = TRAINING) -> float:
    """A base model trained for so many updates beside others; `faster` where parts are frozen or missing."""
    return _minutes(updates / UPDATES * PASS, BASE * faster, share)


def alone(updates: int) -> float:
    """A base model with the GPU for itself, since all else waits for it."""
    return round(START + updates / UPDATES * PASS / BASE_ALONE / 60, 1)


def large_alone(updates: int) -> float:
    """The same with batches of 65k tokens."""
    return round(START + AROUND + 2 * updates / UPDATES * PASS / BASE_LARGE / 60, 1)


def distilling(lines: int) -> float:
    """A teacher's beam-5 output."""
    return round(LOAD + lines / DISTILLED / 60, 1)


def small_training(passes: float = 6, faster: float = 1.0, tokens: float = PASS) -> float:
    """A small model beside others."""
    return _minutes(passes * tokens, SMALL * faster, SMALL_TRAINING)


def _minutes(tokens: float, rate: float, share: float) -> float:
    return round(START + tokens / (rate * share / GPU_AT_ONCE) / 60, 1)


def decoding(greedy: int = 0, beam: int = 0, sentences: int = TEST) -> float:
    """One process that decodes a test set so many times greedily (or in fewer steps) and so many times by beam."""
    return round(LOAD + sentences * (greedy / GREEDY + beam / BEAM) / 60, 1)


def timing(candidates: int, sentences: int, milliseconds: float, passes: int = 1) -> float:
    """One process that times candidates one sentence at a time; each is also warmed up and traced once."""
    return round(LOAD + candidates * sentences * (passes + 1.2) * milliseconds / 60_000, 1)
