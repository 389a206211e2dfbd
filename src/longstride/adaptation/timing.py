"""The time of an update, measured on updates with a learning rate of zero; compiling is not part of it.

A kernel is compiled when a batch of a new kind is met, which takes up to half a minute on a machine that has not met it
before and says nothing about later updates. So batches of all kinds are trained on first; then updates are timed until
two windows of them agree.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from longstride.contract import Batch, BatchSource, Objective
from longstride.training.distributed import alone
from longstride.training.options import TrainingOptions
from longstride.training.prefetch import Prefetch, groups
from longstride.training.progress import StopRequest
from longstride.training.update import Updater, compiled

WINDOW, LEAST, WITHIN = 0.005, 5, 0.1
"""The length of a window, as a share of the training time; its fewest readings; by what share two windows may differ"""
PATIENCE = 0.05
"""The share of the training time that timing may take"""
TURNS = 3
"""Updates that are timed with one thread, and with all"""
TOGETHER = 4
"""Updates between two readings on a GPU, since a reading waits for it"""
_TILES = (16, 32, 64, 128)
"""Lengths up to which kernels of attention are one and the same"""


class Steady:
    """Collects the seconds of updates until two windows of them agree."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: of the whole training"""
        self._window, self._patience = WINDOW * seconds, PATIENCE * seconds
        self._readings: list[float] = []
        self._windows: list[list[float]] = [[]]
        self._taken = 0.0

    def add(self, reading: float, updates: int = 1) -> None:
        """Add a reading: `updates` of them took `reading` seconds each."""
        self._taken += reading * updates
        self._readings.append(reading)
        self._windows[-1].append(reading)
        if len(self._windows[-1]) >= LEAST and sum(self._windows[-1]) * updates >= self._window:
            self._windows.append([])

    @property
    def agree(self) -> bool:
        """True once the last two whole windows agree."""
        if len(self._windows) < 3:
            return False
        before, after = map(statistics.median, self._windows[-3:-1])
        return max(before, after) <= (1 + WITHIN) * min(before, after)

    @property
    def done(self) -> bool:
        """True once windows agree, or patience is over."""
        return self.agree or self._taken >= self._patience

    @property
    def each(self) -> float:
        """Seconds of an update: of the windows that agree, or of the later half."""
        if self.agree:
            return statistics.median([*self._windows[-3], *self._windows[-2]])
        return statistics.median(self._readings[len(self._readings) // 2 :])

    @property
    def span(self) -> tuple[float, float]:
        """The shortest and the longest reading."""
        return min(self._readings), max(self._readings)


class EveryKind(BatchSource):
    """A batch of every kind that kernels are compiled for, the frequent kinds first; then all batches of an epoch."""

    def __init__(self, batches: BatchSource, canvas: int) -> None:
        """`canvas`: slots that are added to a target"""
        self._batches, self._canvas = batches, canvas
        first: dict[tuple[object, ...], Batch] = {}
        count: Counter[tuple[object, ...]] = Counter()
        for batch in batches.epoch(0):
            count[kind := self._kind(batch)] += 1
            first.setdefault(kind, batch)
        # Sizes that happen to be equal are taken for one: a source that is aligned, as targets are, comes late.
        self._first = [first[kind] for kind in sorted(first, key=lambda kind: (bool(kind[0]), -count[kind]))]

    def _kind(self, batch: Batch) -> tuple[object, ...]:
        rows, source = batch.source.shape
        padded = bool((batch.source_lengths != source).any())
        return source % 16 == 0, padded, rows == 1, _tile(source), _tile(batch.target.shape[1] + self._canvas)

    @property
    def kinds(self) -> int:
        """The number of batches that come first."""
        return len(self._first)

    def batches_in(self, number: int) -> int:
        """The number of batches of an epoch."""
        return self._batches.batches_in(number) + (self.kinds if number == 0 else 0)

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch; one of every kind comes before the first epoch."""
        if number == 0:
            yield from self._first
        yield from self._batches.epoch(number)


def _tile(length: int) -> int:
    return next((tile for tile in _TILES if length <= tile), 2 * _TILES[-1])


@dataclass(frozen=True)
class Trial:
    """The result of a trial."""

    compiling: float
    """seconds until every kind of batch had been trained on"""
    steady: Steady
    threads: int
    """PyTorch's threads, by which updates are fastest"""


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Let PyTorch use this number of threads within."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fastest(timed: Callable[[int], float]) -> int:
    """Return the number of threads for updates: all, or one where they wait for cores that other programs use."""
    taken: dict[int, list[float]] = {torch.get_num_threads(): [], 1: []}
    for _ in range(TURNS if len(taken) > 1 else 0):
        for count, readings in taken.items():
            with with_threads(count):
                readings.append(timed(1))
    return min(taken, key=lambda count: statistics.median(taken[count] or [0]))


def trial(
    model: nn.Module,
    objective: Objective,
    batches: BatchSource,
    canvas: int,
    options: TrainingOptions,
    device: torch.device,
    seconds: float | None,
    clock: Callable[[], float] = time.perf_counter,
) -> Trial | None:
    """Compile for every kind of batch, then time updates for a training of `seconds`, or for none (None).

    The weights stay as they are. Returns None if asked to stop.
    """
    gpu = device.type == "cuda"
    team = alone(device)
    updater = Updater(model.to(device).train(), compiled(model, objective, options.compile), options, team)
    first, source = 1, batches
    if gpu or options.compile != "none":
        source = EveryKind(batches, canvas)
        first = source.kinds
    updates = groups(source, objective, team, options.accumulation, options.seed, 0, 0)

    def timed(count: int) -> float:
        begun = clock()
        for _ in range(count):
            updater.apply(stream.next(), 0.0)  # the weights stay
        if gpu:
            torch.cuda.synchronize(device)
        return clock() - begun

    compiling, steady = 0.0, Steady(seconds or 0)
    together = TOGETHER if gpu else 1
    with StopRequest() as stop, Prefetch(updates, options.prefetch, device) as stream:
        for _ in range(first):
            compiling += timed(1)
            if stop.made:
                return None
        short = seconds is not None and 2 * TURNS * compiling <= 2 * PATIENCE * seconds
        threads = torch.get_num_threads() if gpu or not short else _fastest(timed)
        with with_threads(threads):
            while seconds is not None and not steady.done:
                steady.add(timed(together) / together, together)
                if stop.made:
                    return None
    return Trial(compiling, steady, threads)
