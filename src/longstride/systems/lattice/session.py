"""Lattice decoding as a session: which sentences go through one step together, and the buffers of a captured step.

A step over one sentence is several hundred kernels of a few microseconds each, so runners that can capture it and
repeat the capture. For these sources are padded to one of few widths, from which the number of columns follows, and
sentences of about the same length go together, so that few captures serve all batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from longstride.contract import Source
from longstride.engine.one_step import OneStepSession
from longstride.search.lengths import Window
from longstride.systems.lattice.pipeline import Pipeline, Sentences

WIDTHS = (8, 16, 24, 32, 40, 48, 64, 96, 128, 192)
"""The widths that sources are padded to: close together where sentences are many."""
LONG = 256
"""Longer sources are padded to a multiple of this."""
MAX_ROWS = 16
"""The sentences of a captured step: enough to keep a device busy with scoring, which takes most of the time."""
MAX_NUMBERS = 1 << 26
"""The widest tensor of a captured step may hold so many numbers; see :meth:`Pipeline.rows_at_once`."""


class LatticeSession(OneStepSession[Sentences]):
    """Sentences are on the device from when they are admitted; a step takes all of a batch that fit into one."""

    def __init__(self, pipeline: Pipeline, capacity: int) -> None:
        super().__init__(pipeline.runner, capacity)
        self._pipeline = pipeline

    def prepare(self, source: Source) -> list[tuple[list[int], Sentences]]:
        """Bring new sentences to the device."""
        sentences = self._pipeline.read(source)
        most = self._pipeline.rows_at_once(sentences.ids.shape[1], sentences.columns)
        rows = list(range(source.rows))
        if len(rows) <= most:
            return [(rows, sentences)]
        return [(rows[at : at + most], sentences.slice(at, at + most)) for at in range(0, source.rows, most)]

    def decode(self, portions: list[Sentences]) -> list[Tensor]:
        """A step over each portion."""
        return self._runner.fetch(*map(self._pipeline.step, portions))


# --- captured steps --------------------------------------------------------------------------------------------------


def padded_width(length: int, most: int) -> int:
    """The width to pad a source to, at most `most` unless it is longer itself."""
    above = next((width for width in WIDTHS if width >= length), -(-length // LONG) * LONG)
    return max(length, min(above, most))


class Shape(NamedTuple):
    """Of a captured step."""

    rows: int
    width: int
    columns: int


class Portion(NamedTuple):
    """Sentences on the host that go through one captured step."""

    source: Source
    bounds: Tensor
    """[sentences, 3] as :meth:`Pipeline.bounds` has them"""
    shape: Shape

    @staticmethod
    def of(pipeline: Pipeline, source: Source) -> Portion:
        """All of these sentences."""
        bounds = pipeline.bounds(source)
        longest, _, columns = bounds.amax(dim=0).tolist()
        width = padded_width(longest, pipeline.longest)
        shape = Shape(pipeline.runner.round_up(source.rows), width, max(pipeline.columns(width), columns))
        return Portion(source, bounds, shape)


def portions(pipeline: Pipeline, source: Source) -> list[tuple[list[int], Portion]]:
    """All sentences of a batch, by length where they are many: the rows of the batch that each portion holds."""
    if source.rows <= MAX_ROWS:
        whole = Portion.of(pipeline, source)
        if source.rows == 1 or whole.shape.rows <= pipeline.rows_at_once(*whole.shape[1:], MAX_NUMBERS):
            return [(list(range(source.rows)), whole)]
    order = source.lengths.argsort(descending=True, stable=True)
    longest = source.lengths[order].tolist()
    found, first = [], 0
    while first < source.rows:
        width = padded_width(longest[first], pipeline.longest)
        fitting = pipeline.rows_at_once(width, pipeline.columns(width), MAX_NUMBERS)
        # A power of two, which runners do not round up.
        rows = order[first : first + min(MAX_ROWS, 1 << (fitting.bit_length() - 1))]
        found.append((rows.tolist(), Portion.of(pipeline, Source(source.ids[rows], source.lengths[rows]))))
        first += len(rows)
    return found


class StepBuffers:
    """Where the sentences of a captured step lie, and the capture; reusable."""

    def __init__(self, pipeline: Pipeline, shape: Shape) -> None:
        self._pipeline = pipeline
        self._shape = shape
        # Ids, then length and window, so that one copy brings all of it.
        self._inputs = torch.zeros(shape.rows, shape.width + 3, dtype=torch.int64, device=pipeline.runner.device)
        self._staged: list[Tensor] = []
        """the same on the host, once for each step that is under way: a copy may not have begun yet"""
        self._under_way = 0
        self._step: Callable[[], Tensor] | None = None

    @property
    def recordings(self) -> int:
        """How many captures it holds."""
        return int(self._step is not None)

    @property
    def nbytes(self) -> int:
        """What its tensors take."""
        return self._inputs.nbytes

    def launch(self, portion: Portion) -> Tensor:
        """The outputs of these sentences, then of rows that hold none, on the device; the next launch overwrites it."""
        source, width, inputs = portion.source, self._shape.width, self._next_staged()
        count, widest = source.rows, min(source.longest, width)
        inputs.fill_(self._pipeline.special.pad)
        inputs[:count, :widest] = source.ids[:, :widest]
        inputs[:count, width:] = portion.bounds
        if count < len(inputs):  # the other rows hold the shortest sentence there is
            inputs[count:, 0] = self._pipeline.special.eos
            inputs[count:, width:] = torch.tensor([1, 2, 2])
        self._pipeline.runner.send(inputs, self._inputs)
        if self._step is None:
            self._step = self._pipeline.runner.record("lattice", self._run, [])
        return self._step()

    def finish(self) -> None:
        """The host has waited for the device: no copy is under way."""
        self._under_way = 0

    def _next_staged(self) -> Tensor:
        if self._under_way == len(self._staged):
            made = torch.zeros(self._inputs.shape, dtype=torch.int64)
            self._staged.append(made.pin_memory() if self._inputs.device.type == "cuda" else made)
        self._under_way += 1
        return self._staged[self._under_way - 1]

    def _run(self) -> Tensor:
        width = self._shape.width
        lengths, shortest, longest = self._inputs[:, width:].unbind(dim=1)
        window = Window(shortest, longest)
        return self._pipeline.step(Sentences(self._inputs[:, :width], lengths, True, window, self._shape.columns))


class CapturedLatticeSession(OneStepSession[Portion]):
    """For runners that record: a step takes sentences from ids on the host to outputs."""

    def __init__(self, pipeline: Pipeline, capacity: int) -> None:
        super().__init__(pipeline.runner, capacity)
        self._pipeline = pipeline

    def prepare(self, source: Source) -> list[tuple[list[int], Portion]]:
        """Settle which sentences go together."""
        return portions(self._pipeline, source)

    def decode(self, portions: list[Portion]) -> list[Tensor]:
        """By captures made for the portions' shapes now or before."""
        used: dict[Shape, StepBuffers] = {}
        found = []
        for portion in portions:
            shape = portion.shape
            if shape not in used:
                made = partial(StepBuffers, self._pipeline, shape)
                used[shape] = self._runner.acquire(self._family(shape), shape[1:], made)
            outputs = used[shape].launch(portion)
            found.append(outputs if len(portions) == 1 else outputs.clone())
        fetched = self._runner.fetch(*found)
        for shape, buffers in used.items():
            buffers.finish()
            self._runner.release(self._family(shape), shape[1:], buffers)
        return fetched

    def _family(self, shape: Shape) -> tuple[object, ...]:
        """How many rows is told by the family, so that each number of them may hold all lengths."""
        return ("lattice", shape.rows, *self._pipeline.identity)
