"""Grammatical error correction: text with errors in, the same text without them out.

A test set is a source file and one or more files of references, line by line, all tokenized alike: corrections are
scored word by word as they stand, and a model learns the tokenization of its training text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from longstride.contract import InputError
from longstride.tasks.ngrams import Gleu
from longstride.tasks.score import Score
from longstride.text.corpus import read_lines

_Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Corrections:
    """A test set: sources, and whole sets of references, each with one line per source."""

    sources: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]

    @property
    def metric(self) -> Gleu:
        """How outputs for these sources are scored."""
        return Gleu(self.sources, self.references)


def read_corrections(source: _Path, references: Sequence[_Path]) -> Corrections:
    """Read a test set; a file of references with another number of lines is an error that names both."""
    if not references:
        raise InputError(f"{source}: expected at least one file of references, found none.")
    sources = tuple(read_lines(source))
    sets = []
    for path in references:
        lines = tuple(read_lines(path))
        if len(lines) != len(sources):
            raise InputError(
                f"Expected as many references as source lines, found {len(sources)} in {source} and {len(lines)} in "
                f"{path}."
            )
        sets.append(lines)
    return Corrections(sources, tuple(sets))


def score_corrections(outputs: Sequence[str], test_set: Corrections) -> list[Score]:
    """GLEU of the outputs, GLEU of the sources left as they are, and the share of lines that were changed."""
    metric = test_set.metric
    untouched = metric.score(test_set.sources, test_set.references[0])
    changed = sum(a.split() != b.split() for a, b in zip(outputs, test_set.sources, strict=True))
    return [
        metric.score(outputs, test_set.references[0]),
        Score("GLEU (source)", untouched.value, untouched.signature),
        Score("changed", 100.0 * changed / len(test_set.sources), "changed|lines|percent"),
    ]
