"""Batches made ready for updates ahead of time, by one background thread. Knows the data only by the contract.

Every batch's randomness is seeded by (seed, epoch, place in the epoch): what is prepared depends neither on when the
thread ran nor on where a run was stopped and resumed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from longstride.contract import Batch, BatchSource, Objective, Prepared, WorkError
from longstride.training.distributed import Team


@dataclass(frozen=True)
class Group:
    """The batches of one update that fall to this process."""

    batches: list[Prepared]
    epoch: int
    after: int
    """batches of the epoch that are used up once this update is made, by all processes together"""
    ends_epoch: bool
    idle: bool = False
    """an epoch's last update had no batch left for this process: it runs along with a weight of zero"""

    @property
    def tokens(self) -> int:
        """Target tokens that carry loss in this process."""
        return 0 if self.idle else sum(prepared.tokens for prepared in self.batches)


def generator_for(seed: int, epoch: int, index: int) -> torch.Generator:
    """The generator that prepares batch `index` of an epoch."""
    high, low = np.random.SeedSequence((seed, epoch, index)).generate_state(2, np.uint32)
    return torch.Generator().manual_seed((int(high) & 0x7FFFFFFF) << 32 | int(low))


def groups(
    data: BatchSource,
    objective: Objective,
    team: Team,
    accumulation: int,
    seed: int,
    epoch: int,
    skip: int,
    step: int = 0,
    total: int = 1,
) -> Iterator[Group]:
    """All updates from batch `skip` of an epoch on, epoch after epoch without end; an epoch's last may be smaller.

    `step` of `total` updates have been made before the first of these.
    """
    pin = team.device.type == "cuda"
    while True:
        count = data.batches_in(epoch)
        if count < 1:
            raise WorkError(f"epoch {epoch} of the training data expects at least one batch, found none.")
        batches = data.epoch(epoch, skip)
        for first in range(skip, count, accumulation * team.world):
            size = min(accumulation * team.world, count - first)
            mine = range(team.rank, size, team.world) or range(size - 1, size)
            ready = []
            for offset in range(size):
                batch = _next(batches, epoch, count)
                if offset in mine:
                    rng = generator_for(seed, epoch, first + offset)
                    ready.append(objective.prepare(batch, rng, min(1.0, step / total)))
            yield Group(
                [prepared.pinned() for prepared in ready] if pin else ready,
                epoch,
                first + size,
                ends_epoch=first + size == count,
                idle=team.rank >= size,
            )
            step += 1
        epoch, skip = epoch + 1, 0


def _next(batches: Iterator[Batch], epoch: int, count: int) -> Batch:
    batch = next(batches, None)
    if batch is None:
        raise WorkError(f"epoch {epoch} of the training data expects {count} batches, found fewer.")
    return batch


class Prefetch:
    """Draws groups in a background thread into a bounded queue. A context manager; leaving it ends the thread."""

    def __init__(self, source: Iterator[Group], ahead: int, device: torch.device) -> None:
        self._source = source
        self._device = device
        self._queue: queue.Queue[Group | BaseException] = queue.Queue(maxsize=max(1, ahead))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="prefetch", daemon=True) if ahead else None

    def __enter__(self) -> Prefetch:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def next(self) -> Group:
        """The next group, waiting for it if need be."""
        if not self._thread:
            return next(self._source)
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def _work(self) -> None:
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)  # or pinning would make a context on the first GPU
            while not self._stop.is_set():
                self._put(next(self._source))
        except BaseException as error:  # raised again where the groups are used
            self._put(error)

    def _put(self, item: Group | BaseException) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return
