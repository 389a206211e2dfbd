"""Tasks that are generated rather than read: copy and reverse.

They are learned in seconds, need no download, and show at once whether a model, a decoder or a training run
is sound. Knows no tokenizer and no model.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Literal

from longstride.contract import OptionError

Task = Literal["copy", "reverse"]
Split = Literal["train", "valid", "test"]

SYMBOLS = "abcdefghijklmnopqrst"
_SHORTEST, _LONGEST = 3, 8
_PARTS = 50
"""Of so many parts of all sources, by their hash, one is for validation and one for testing."""
_PATIENCE = 20_000
"""Draws in a row without a new pair after which the task is taken to be used up."""


def generate(task: Task, count: int, seed: int = 1, split: Split | None = None) -> Iterator[tuple[str, str]]:
    """`count` pairs of lines, no source twice, the same for the same arguments."""
    if task not in TASKS:
        raise OptionError(f"task expects one of {', '.join(TASKS)}, found {task}.")
    return distinct(TASKS[task], task, count, seed, split)


def distinct(
    drawing: Callable[[random.Random], tuple[str, str]], task: str, count: int, seed: int, split: Split | None
) -> Iterator[tuple[str, str]]:
    """`count` pairs of a task, drawn one by one, no source twice.

    A split holds only sources whose hash falls to it, so that whatever the seeds, no source of one split is in another.
    """
    if split not in (None, "train", "valid", "test"):
        raise OptionError(f"split expects train, valid or test, found {split}.")
    if count < 0:
        raise OptionError(f"count expects 0 or more, found {count}.")
    return _distinct(drawing, task, count, random.Random(f"{task} {seed} {split}"), split)


def split_of(source: str) -> Split:
    """The split a source belongs to, for good."""
    part = int.from_bytes(hashlib.sha256(source.encode("utf-8")).digest()[:8], "big") % _PARTS
    return "valid" if part == 0 else "test" if part == 1 else "train"


def _distinct(
    drawing: Callable[[random.Random], tuple[str, str]], task: str, count: int, rng: random.Random, split: Split | None
) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    misses = 0
    while len(seen) < count:
        source, target = drawing(rng)
        if source in seen or (split is not None and split_of(source) != split):
            misses += 1
            if misses > _PATIENCE:
                raise OptionError(f"count expects at most about {len(seen)} for {task}, found {count}.")
            continue
        misses = 0
        seen.add(source)
        yield source, target


def _copy(rng: random.Random) -> tuple[str, str]:
    line = " ".join(_symbols(rng))
    return line, line


def _reverse(rng: random.Random) -> tuple[str, str]:
    symbols = _symbols(rng)
    return " ".join(symbols), " ".join(reversed(symbols))


def _symbols(rng: random.Random) -> list[str]:
    return [rng.choice(SYMBOLS) for _ in range(rng.randint(_SHORTEST, _LONGEST))]


TASKS: dict[str, Callable[[random.Random], tuple[str, str]]] = {"copy": _copy, "reverse": _reverse}
