"""Which sentences of a batch go through one recorded pass together: few shapes, little padding, bounded memory.

Sentences are taken by length, so that those of about the same length are padded together, and always as many at a time:
whatever the size of a batch, each length then has one shape. Knows no tensors but lengths, and no session.
"""

from __future__ import annotations

from dataclasses import dataclass

from longstride.contract import Runner, Source
from longstride.systems.lattice.pipeline import Pipeline
from longstride.systems.lattice.recorded import Shape, rung, shape_of

MOST_ROWS = 16
"""Sentences of a portion: with these a device is busy with candidates and scores, which grow with them, most of the
time; the search, which goes column by column whatever their number, is what more of them would share."""
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
    if count <= MOST_ROWS:
        shape = shape_of(pipeline, runner, source)
        if count == 1 or shape.rows <= pipeline.rows_at_once(shape.width, shape.columns, AT_ONCE):
            return [Portion(list(range(count)), source, shape)]
    order = source.lengths.argsort(descending=True, stable=True)
    longest = source.lengths[order].tolist()
    found, first = [], 0
    while first < count:
        rows = order[first : first + _most(pipeline, rung(longest[first], pipeline.longest))]
        some = Source(source.ids[rows], source.lengths[rows])
        found.append(Portion(rows.tolist(), some, shape_of(pipeline, runner, some)))
        first += len(rows)
    return found


def _most(pipeline: Pipeline, width: int) -> int:
    """Of sources so long, the most sentences that a portion has: a power of two, which runners do not round up."""
    fitting = pipeline.rows_at_once(width, pipeline.columns(width), AT_ONCE)
    return min(MOST_ROWS, 1 << (fitting.bit_length() - 1))
