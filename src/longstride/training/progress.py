"""Where a run stands: what a checkpoint keeps (counters, random states), the clock, and whether it is asked to stop."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longstride.contract import ModelFolderError
from longstride.training.prefetch import Group


@dataclass
class Progress:
    """Counters and scores; plain data."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """batches of this epoch already used, by all processes together"""
    tokens: int = 0
    """target tokens of all updates up to the last training record"""
    seconds: float = 0.0
    """wall time of the processes that worked on this run before"""
    records: int = 0
    """lines of the metrics file"""
    window: dict[str, float] = field(default_factory=dict)
    """sums since the last training record"""
    best: dict[str, float] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    """each validation's last value"""
    scored_step: int = -1
    """when the monitored validation last ran"""
    waited: int = 0
    """validations of the monitor since its best"""
    pending: list[str] = field(default_factory=list)
    """validations that were due when the run was asked to stop"""

    def advance(self, group: Group) -> None:
        """Count one update."""
        self.step += 1
        self.epoch, self.batch = (group.epoch + 1, 0) if group.ends_epoch else (group.epoch, group.after)

    def as_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Any, where: str) -> Progress:
        """From a checkpoint."""
        known = asdict(Progress())
        if not isinstance(values, dict) or values.keys() != known.keys():
            raise ModelFolderError(f"{where}: expected progress fields {sorted(known)}, found others.")
        for name, default in known.items():
            kinds = (int, float) if isinstance(default, float) else type(default)
            if isinstance(values[name], bool) or not isinstance(values[name], kinds):
                raise ModelFolderError(f"{where}: expected progress.{name} like {default!r}, found {values[name]!r}.")
        return Progress(**values)


class Clock:
    """Wall time since it was made, and the part of it that was spent on updates; awaits the device at pauses alone."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._started = time.perf_counter()
        self._paused = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds in all."""
        return time.perf_counter() - self._started

    @property
    def working(self) -> float:
        """Seconds outside of pauses."""
        return self.elapsed - self._paused

    def settle(self) -> None:
        """Wait until the device has done all it was given."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """What happens inside (validation, checkpoints) does not count as working."""
        self.settle()
        before = self.elapsed
        try:
            yield
        finally:
            self.settle()
            self._paused += self.elapsed - before


def seed_everything(seed: int, rank: int) -> None:
    """Seed Python, numpy and torch, differently for each process."""
    mixed = int(np.random.SeedSequence((seed, rank)).generate_state(1, np.uint32)[0])
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of every global generator that this process uses."""
    _, words, gauss = random.getstate()
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    inner = numpy_state["state"]
    state = {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": _optional(gauss),
        "numpy": torch.from_numpy(np.append(inner["key"], inner["pos"]).astype(np.int64)),
        "numpy_gauss": _optional(numpy_state["gauss"] if numpy_state["has_gauss"] else None),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Put back what `random_state` gave."""
    gauss = state["python_gauss"].tolist()
    random.setstate((3, tuple(state["python"].tolist()), gauss[0] if gauss else None))
    *key, position = state["numpy"].tolist()
    gauss = state["numpy_gauss"].tolist()
    np.random.set_state(("MT19937", np.array(key, dtype=np.uint32), position, len(gauss), gauss[0] if gauss else 0.0))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def _optional(value: float | None) -> Tensor:
    """[0] or [1] float64: a number that may be absent."""
    return torch.tensor([] if value is None else [value], dtype=torch.float64)


class StopRequest:
    """While entered (in the main thread), Ctrl-C and SIGTERM are polite requests; a second Ctrl-C insists."""

    def __init__(self) -> None:
        self.made = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python delivers signals nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.made and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.made = True
