"""A whole pass, from source ids to outputs, for runners that record: a few sentences, in one of a few shapes.

A pass over one sentence is several hundred kernels of a few microseconds each, so launching them is what it costs. The
lengths that sentences are padded to are rungs of a ladder, close together where sentences are many; how many columns a
lattice has follows from the rung. Knows no session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, Runner, Source
from longstride.search.lengths import Window
from longstride.systems.lattice.pipeline import Pipeline, Sentences

MOST_ROWS = 8
"""More sentences than these keep a device busy without a recording."""
RUNGS = (8, 16, 24, 32, 40, 48, 64, 96, 128, 192)
_LAST = 256


def rung(length: int, most: int) -> int:
    """The length to pad a source to, at most `most` unless it is longer itself."""
    above = next((one for one in RUNGS if one >= length), -(-length // _LAST) * _LAST)
    return max(length, min(above, most))


class RecordedPass:
    """Room for `rows` sources of `width` tokens and lattices of `columns` columns."""

    def __init__(self, pipeline: Pipeline, runner: Runner, rows: int, width: int, columns: int) -> None:
        self._pipeline = pipeline
        self._runner = runner
        self._columns = columns
        # Ids, then length and window, so that one copy brings all of it.
        self._arrivals = torch.zeros(rows, width + 3, dtype=torch.int64, device=runner.device)
        self._waiting = torch.zeros(rows, width + 3, dtype=torch.int64)
        """the same on the host; whoever decodes waits for the outputs, and so for its copy"""
        if runner.device.type == "cuda":
            self._waiting = self._waiting.pin_memory()
        self._pass: Callable[[], Tensor] | None = None

    @property
    def recordings(self) -> int:
        """How many recordings it holds."""
        return int(self._pass is not None)

    @property
    def nbytes(self) -> int:
        """What its tensors take."""
        return self._arrivals.nbytes

    def decode(self, source: Source, bounds: Tensor) -> Tensor:
        """What `pipeline.packed` says of these sentences, on the host; bounds [rows, 3] as `Pipeline.bounds` has them.

        Sentences are all on the host.
        """
        count, (rows, room) = source.rows, self._arrivals.shape
        width, arrivals = room - 3, self._waiting
        widest = min(source.longest, width)
        arrivals.fill_(PAD)
        arrivals[:count, :widest] = source.ids[:, :widest]
        arrivals[:count, width:] = bounds
        if count < rows:  # nobody's rows hold the shortest sentence there is
            arrivals[count:, 0] = EOS
            arrivals[count:, width:] = torch.tensor([1, 2, 2])
        self._runner.send(arrivals, self._arrivals)
        if self._pass is None:
            self._pass = self._runner.record("lattice", self._run, [])
        return self._runner.fetch(self._pass())[0][:count]

    def _run(self) -> Tensor:
        width = self._arrivals.shape[1] - 3
        ids, (length, shortest, longest) = self._arrivals[:, :width], self._arrivals[:, width:].unbind(dim=1)
        sentences = Sentences(ids, length, True, Window(shortest, longest), self._columns)
        return self._pipeline.outputs(sentences, self._pipeline.encode(sentences))


@dataclass(frozen=True)
class Shape:
    """Of the recording for some sentences, and how long their outputs may be."""

    rows: int
    width: int
    columns: int
    bounds: Tensor
    """[sentences, 3] as `Pipeline.bounds` has them"""


def shape_of(pipeline: Pipeline, runner: Runner, source: Source) -> Shape:
    """Which recording these sentences want."""
    bounds = pipeline.bounds(source)
    longest, _, columns = bounds.amax(dim=0).tolist()
    width = rung(longest, pipeline.longest)
    return Shape(runner.room(source.rows), width, max(pipeline.columns(width), columns), bounds)


def records(pipeline: Pipeline, shape: Shape) -> bool:
    """Whether sentences are few enough, and their lattices small enough, for one recording."""
    return shape.rows <= min(MOST_ROWS, pipeline.rows_at_once(shape.width, shape.columns))


def decode_recorded(pipeline: Pipeline, runner: Runner, source: Source, shape: Shape) -> Tensor:
    """A pass over sentences on the host, by a recording made for their shape now or before; outputs on the host.

    The next call may write over them.
    """
    rows, width, columns = shape.rows, shape.width, shape.columns
    # How many rows is told by the family, so that each number of them may hold all lengths.
    family = ("lattice", rows, *pipeline.identity)
    taken = runner.borrow(family, (width, columns), lambda: RecordedPass(pipeline, runner, rows, width, columns))
    found = taken.decode(source, shape.bounds)
    runner.give_back(family, (width, columns), taken)
    return found
