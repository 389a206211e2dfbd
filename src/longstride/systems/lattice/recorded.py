"""A whole pass, from source ids to outputs, for runners that record: a few sentences, in one of a few shapes.

A pass over one sentence is several hundred kernels of a few microseconds each, so launching them is what it costs. The
lengths that sentences are padded to are rungs of a ladder, close together where sentences are many; how many columns a
lattice has follows from the rung. Knows no session: whoever has the outputs copies them before the next pass.
"""

from __future__ import annotations

from collections.abc import Callable

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
        self._pass: Callable[[], Tensor] | None = None

    @property
    def recordings(self) -> int:
        """How many recordings it holds."""
        return int(self._pass is not None)

    @property
    def nbytes(self) -> int:
        """What its tensors take."""
        return self._arrivals.nbytes

    def decode(self, source: Source, window: Window) -> Tensor:
        """What `pipeline.packed` says of these sentences, all on the host; good until the next call."""
        count, width = source.rows, self._arrivals.shape[1] - 3
        widest = min(source.longest, width)
        arrivals = torch.full(self._arrivals.shape, PAD, dtype=torch.int64)
        arrivals[count:, 0] = EOS  # nobody's rows hold the shortest sentence there is
        arrivals[count:, width:] = torch.tensor([1, 2, 2])
        arrivals[:count, :widest] = source.ids[:, :widest]
        arrivals[:count, width:] = torch.stack([source.lengths, window.shortest, window.longest], dim=1)
        self._runner.send(arrivals, self._arrivals)
        if self._pass is None:
            self._pass = self._runner.record("lattice", self._run, [])
        return self._pass()[:count]

    def _run(self) -> Tensor:
        width = self._arrivals.shape[1] - 3
        ids, (length, shortest, longest) = self._arrivals[:, :width], self._arrivals[:, width:].unbind(dim=1)
        sentences = Sentences(ids, length, True, Window(shortest, longest), self._columns)
        return self._pipeline.outputs(sentences, self._pipeline.encode(sentences))


def records(pipeline: Pipeline, runner: Runner, source: Source) -> bool:
    """Whether these sentences are few enough, and their lattices small enough, for one recording."""
    rows, width, columns, _ = _shape(pipeline, runner, source)
    return rows <= min(MOST_ROWS, pipeline.rows_at_once(width, columns))


def decode_recorded(pipeline: Pipeline, runner: Runner, source: Source) -> Tensor:
    """A pass over sentences on the host, by a recording made for their shape now or before."""
    rows, width, columns, window = _shape(pipeline, runner, source)
    # How many rows is told by the family, so that each number of them may hold all lengths.
    family, shape = ("lattice", rows, *pipeline.identity), (width, columns)
    taken = runner.borrow(family, shape, lambda: RecordedPass(pipeline, runner, rows, width, columns))
    found = taken.decode(source, window)
    runner.give_back(family, shape, taken)
    return found


def _shape(pipeline: Pipeline, runner: Runner, source: Source) -> tuple[int, int, int, Window]:
    """Rows, width and columns of the recording for these sentences, and their windows."""
    window = pipeline.window(source.lengths)
    width = rung(int(source.lengths.max()), pipeline.longest)
    ordinary = pipeline.window(torch.tensor([width])).longest
    return runner.room(source.rows), width, max(int(ordinary), int(window.longest.max())), window
