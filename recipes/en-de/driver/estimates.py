"""Guesses of minutes on one H200, from what was measured so far (docs/log.md). Replace them as more is measured."""

from __future__ import annotations

PASS = 15.9e6
"""target tokens of one pass over the 500,000 pairs"""
UPDATES = 508
"""updates of one pass at 32k target tokens each"""

BASE, SMALL = 0.68e6, 1.7e6
"""target tokens a second, each alone on the GPU"""
START = 0.75
"""minutes to import, load, compile"""
CROWDED = 1.6
"""three small models side by side each take longer than one alone by this factor"""

GREEDY, BEAM = 1170.0, 650.0
"""test sentences a second, eager, batch 512"""
TEST = 2000
LOAD = 0.25
"""minutes to import and load where nothing is compiled"""


def base_training(updates: int, faster: float = 1.0) -> float:
    """A base model trained for so many updates; `faster` where parts are frozen or missing."""
    return round(START + updates / UPDATES * PASS / (BASE * faster) / 60, 1)


def small_training(passes: float = 6, faster: float = 1.0) -> float:
    """A small model beside two others."""
    return round(START + CROWDED * passes * PASS / (SMALL * faster) / 60, 1)


def decoding(greedy: int = 0, beam: int = 0, sentences: int = TEST) -> float:
    """One process that decodes a test set so many times greedily (or in fewer steps) and so many times by beam."""
    return round(LOAD + sentences * (greedy / GREEDY + beam / BEAM) / 60, 1)


def timing(candidates: int, sentences: int, milliseconds: float, passes: int = 1) -> float:
    """One process that times candidates one sentence at a time; each is also warmed up and traced once."""
    return round(LOAD + candidates * sentences * (passes + 1.2) * milliseconds / 60_000, 1)
