"""A whole pass, from source ids to outputs, for runners that record: some sentences, in one of a few shapes.

A pass over one sentence is several hundred kernels of a few microseconds each, so launching them is what it costs. The
lengths that sentences are padded to are rungs of a ladder, close together where sentences are many; how many columns a
lattice has follows from the rung. Which sentences of a batch go together is `portions`' to say. Knows no session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, Runner, Source
from longstride.search.lengths import Window
from longstride.systems.lattice.pipeline import Pipeline, Sentences

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
        self._waiting: list[Tensor] = []
        """the same on the host, once for each pass that is under way: a copy may not have begun yet"""
        self._under_way = 0
        self._pass: Callable[[], Tensor] | None = None

    @property
    def recordings(self) -> int:
        """How many recordings it holds."""
        return int(self._pass is not None)

    @property
    def nbytes(self) -> int:
        """What its tensors take."""
        return self._arrivals.nbytes

    def launch(self, source: Source, bounds: Tensor) -> Tensor:
        """What `pipeline.packed` says of these sentences and of nobody's, on the device; the next one writes over it.

        Sentences and bounds [rows, 3], as `Pipeline.bounds` has them, are on the host.
        """
        count, (rows, room) = source.rows, self._arrivals.shape
        width, arrivals = room - 3, self._next_waiting()
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
        return self._pass()

    def finish(self) -> None:
        """Somebody has waited for the device: no copy is under way."""
        self._under_way = 0

    def _next_waiting(self) -> Tensor:
        if self._under_way == len(self._waiting):
            made = torch.zeros(self._arrivals.shape, dtype=torch.int64)
            self._waiting.append(made.pin_memory() if self._runner.device.type == "cuda" else made)
        self._under_way += 1
        return self._waiting[self._under_way - 1]

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


def decode_recorded(pipeline: Pipeline, runner: Runner, groups: Sequence[tuple[Source, Shape]]) -> list[Tensor]:
    """A pass over each group of sentences, by recordings made for their shapes now or before; outputs on the host.

    The host waits once for all of them. The next call may write over what is given.
    """
    taken: dict[tuple[int, int, int], RecordedPass] = {}
    found = []
    for source, shape in groups:
        size = (shape.rows, shape.width, shape.columns)
        if size not in taken:
            taken[size] = _borrowed(pipeline, runner, size)
        outputs = taken[size].launch(source, shape.bounds)
        found.append(outputs if len(groups) == 1 else outputs.clone())
    fetched = runner.fetch(*found)
    for (rows, width, columns), used in taken.items():
        used.finish()
        runner.give_back(_family(pipeline, rows), (width, columns), used)
    return [outputs[: source.rows] for outputs, (source, _) in zip(fetched, groups, strict=True)]


def _borrowed(pipeline: Pipeline, runner: Runner, size: tuple[int, int, int]) -> RecordedPass:
    rows, width, columns = size
    return runner.borrow(
        _family(pipeline, rows), (width, columns), lambda: RecordedPass(pipeline, runner, rows, width, columns)
    )


def _family(pipeline: Pipeline, rows: int) -> tuple[object, ...]:
    """How many rows is told by the family, so that each number of them may hold all lengths."""
    return ("lattice", rows, *pipeline.identity)
