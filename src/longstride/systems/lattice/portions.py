"""Which sentences of a batch go through one recorded pass together: few shapes, little padding, bounded memory.

Sentences are taken by length, so that those of about the same length are padded together. A pass costs something beside
its sentences' columns (the search goes column by column whatever the number of rows, an encoder of few rows is a chain
of small kernels), so large portions are better than small ones as long as they do not pad much more. Knows no tensors
but lengths, and no session.
"""

from __future__ import annotations

from dataclasses import dataclass

from longstride.contract import Runner, Source
from longstride.systems.lattice.pipeline import Pipeline
from longstride.systems.lattice.recorded import Shape, rung, shape_of

FEW, MANY = 8, 32
"""Sentences of a portion. More than FEW are taken so many at a time, so that large batches need two shapes a length; up
to FEW are one portion, whose rows a runner rounds up."""
A_PASS = 64
"""What a pass costs beside its columns, in columns of one sentence: on an H200 one of 38 columns took 0.28 ms for its
candidates and scores and 0.25 for the rest, and in larger portions columns are cheaper."""
AT_ONCE = 1 << 26
"""Numbers that the widest tensor of a recorded pass may hold; see :meth:`Pipeline.rows_at_once`."""


@dataclass(frozen=True)
class Portion:
    """Sentences that go together."""

    rows: list[int]
    """which of the batch's"""
    source: Source
    shape: Shape


def portions(pipeline: Pipeline, runner: Runner, source: Source) -> list[Portion]:
    """All sentences of a batch on the host, each in one portion."""
    count = source.rows
    if count <= FEW:
        shape = shape_of(pipeline, runner, source)
        if count == 1 or shape.rows <= pipeline.rows_at_once(shape.width, shape.columns, AT_ONCE):
            return [Portion(list(range(count)), source, shape)]
    order = source.lengths.argsort(descending=True, stable=True)
    widths = [rung(length, pipeline.longest) for length in source.lengths[order].tolist()]
    found, first = [], 0
    for size in sizes([(pipeline.columns(width), _most(pipeline, width)) for width in widths]):
        rows = order[first : first + size]
        some = Source(source.ids[rows], source.lengths[rows])
        found.append(Portion(rows.tolist(), some, shape_of(pipeline, runner, some)))
        first += size
    return found


def _most(pipeline: Pipeline, width: int) -> int:
    """A power of two."""
    most = pipeline.rows_at_once(width, pipeline.columns(width), AT_ONCE)
    return 1 << (most.bit_length() - 1)


def sizes(sentences: list[tuple[int, int]]) -> list[int]:
    """How many of them to take at a time, so that all together cost least.

    sentences: for each, from the longest to the shortest, its lattice's columns and how many of its length fit.
    """
    count = len(sentences)
    cost = [0.0] * (count + 1)
    taken = [0] * count
    for first in reversed(range(count)):
        columns, most = sentences[first]
        left = count - first
        tried = [size for size in (MANY, FEW) if size <= most and left > FEW] or [min(most, _room(left), FEW)]
        cost[first], taken[first] = min(
            (A_PASS + size * columns + cost[min(count, first + size)], min(size, left)) for size in tried
        )
    found, first = [], 0
    while first < count:
        found.append(taken[first])
        first += taken[first]
    return found


def _room(count: int) -> int:
    return 1 << (count - 1).bit_length()
