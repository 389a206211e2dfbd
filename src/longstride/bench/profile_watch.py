"""A runner that says where the time goes: it hands everything to another and reads a clock around each stage.

A stage is a program, or a recording where the runner records: what is done within one is counted with it and not once
more. The device is synchronised before and after each, so that a stage's time is its own; a decode that is watched
therefore takes longer than one that is not, and what is learnt are shares. With marks, the programs within a recording
are told too, as parts of it. Knows no system.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

import torch
from torch import Tensor

from longstride.contract import Program, Runner
from longstride.contract.running import K, M, Pooled, R

Clock = Callable[[], int]
"""Nanoseconds that only ever grow."""


@dataclass
class Spent:
    """What one stage has taken so far."""

    calls: int = 0
    nanoseconds: int = 0
    within: str = ""
    """the stage that it is part of"""


def part_name(whole: str, part: str) -> str:
    """``iterate 25 / verify``: a program within a recording."""
    return f"{whole} / {part}"


def synchronizer(device: torch.device) -> Callable[[], None]:
    """What waits until a device is done with all it was given."""
    if device.type != "cuda":
        return lambda: None
    return lambda: torch.cuda.synchronize(device)


class Stopwatch:
    """Adds up what stages take, while it is `on`."""

    def __init__(self, synchronize: Callable[[], None], clock: Clock = time.perf_counter_ns) -> None:
        self.on = False
        self.spent: dict[str, Spent] = {}
        """by stage, in the order of first calls"""
        self._synchronize = synchronize
        self._clock = clock
        self._within = False

    def timed(self, name: str, function: Callable[[], R]) -> R:
        """What the function gives; its time is the stage's, unless it runs within another stage."""
        if not self.on or self._within:
            return function()
        self._within = True
        try:
            self._synchronize()
            begun = self._clock()
            found = function()
            self._synchronize()
            took = self._clock() - begun
        finally:
            self._within = False
        self._add(name, took)
        return found

    def part(self, whole: str, name: str, nanoseconds: int) -> None:
        """So much of what a stage has just taken was one of its parts."""
        self._add(part_name(whole, name), nanoseconds, whole)

    def _add(self, name: str, nanoseconds: int, within: str = "") -> None:
        spent = self.spent.setdefault(name, Spent(within=within))
        spent.calls += 1
        spent.nanoseconds += nanoseconds


class Marks(Protocol):
    """Timestamps inside captured graphs, so that a recording can be taken apart; they cost it a little time."""

    def capturing(self) -> bool:
        """Whether what runs now is captured: only then is a mark one of the recording's."""

    def mark(self) -> Any:
        """A timestamp here, anew each time the recording is repeated."""

    def nanoseconds(self, first: Any, last: Any) -> int:
        """From one mark to another, in the last repetition; the device has been waited for."""


class CudaMarks:
    """Events of CUDA's; `external` ones become part of a graph."""

    def capturing(self) -> bool:
        """Of the current stream."""
        return torch.cuda.is_current_stream_capturing()

    def mark(self) -> Any:
        """An event on the current stream."""
        event = torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def nanoseconds(self, first: Any, last: Any) -> int:
        """As the device's own clock has it."""
        milliseconds: float = first.elapsed_time(last)
        return max(0, round(1e6 * milliseconds))


class Delegate(Runner):
    """Another runner under its own name, to be watched: every answer is that runner's."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.name, self.device, self.precision = runner.name, runner.device, runner.precision
        self.records, self.binds = runner.records, runner.binds

    def place(self, module: M) -> M:
        """As the other does."""
        return self.runner.place(module)

    def call(self, program: Program, *arguments: Any) -> Any:
        """As the other does."""
        return self.runner.call(program, *arguments)


def _asked(name: str) -> Callable[..., Any]:
    return lambda self, *arguments: getattr(self.runner, name)(*arguments)


_ASKED = "describe report tell_once forget uses round_up acquire ready release beside join send fetch"
for _name in _ASKED.split():
    setattr(Delegate, _name, _asked(_name))
for _name in ("fuses", "moves_rows", "plain", "steady_slots"):
    setattr(Delegate, _name, property(attrgetter(f"runner.{_name}")))


class Watched(Delegate):
    """A runner under a stopwatch.

    Where the runner repeats a recording, that is one stage, under the recording's name; where it leaves a function as
    it is, the programs that this calls are stages of their own. With `marks`, recordings that are made while the watch
    is on have marks in them; tables are then kept apart, so that those of a pass that nobody watches have none.
    """

    def __init__(self, runner: Runner, watch: Stopwatch, marks: Marks | None = None) -> None:
        super().__init__(runner)
        self.watch = watch
        self.marks = marks
        self._recording = False
        self._marked: list[tuple[str, Any, Any]] = []

    def call(self, program: Program, *arguments: Any) -> Any:
        """One stage; while something is recorded, nothing that waits for the device may run."""
        if self._recording:
            return self._recorded(program, *arguments)
        return self.watch.timed(program.name, partial(self.runner.call, program, *arguments))

    def bound(self, program: Program, *arguments: Any) -> Callable[[], Any]:
        """One stage each time it is called."""
        return partial(self.watch.timed, program.name, self.runner.bound(program, *arguments))

    def record(self, name: str, function: Callable[[], R], state: Sequence[Tensor]) -> Callable[[], R]:
        """One stage each time the recording is repeated."""
        self._recording = True
        try:
            found = self.runner.record(name, function, state)
        finally:
            self._recording = False
            marked, self._marked = self._marked, []
        if found is function:  # by this very function sessions know that it was not recorded
            return function
        again = partial(self.watch.timed, name, found)
        return partial(self._taken_apart, name, again, marked) if marked else again

    def acquire(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """As the other does; one with marks for who is watched, without for who is not."""
        return self.runner.acquire(self._family(family), shape, make)

    def ready(self, family: Hashable, shape: Hashable) -> bool:
        """As the other does."""
        return self.runner.ready(self._family(family), shape)

    def release(self, family: Hashable, shape: Hashable, table: Pooled) -> None:
        """As the other does."""
        self.runner.release(self._family(family), shape, table)

    def _family(self, family: Hashable) -> Hashable:
        return family if self.marks is None else (family, self.watch.on)

    def _recorded(self, program: Program, *arguments: Any) -> Any:
        """Part of a recording, between two marks."""
        marks = self.marks
        if marks is None or not self.watch.on or not marks.capturing():
            return self.runner.call(program, *arguments)
        first = marks.mark()
        found = self.runner.call(program, *arguments)
        self._marked.append((program.name, first, marks.mark()))
        return found

    def _taken_apart(self, name: str, again: Callable[[], R], marked: Sequence[tuple[str, Any, Any]]) -> R:
        found = again()
        if self.watch.on:
            assert self.marks is not None
            for program, first, last in marked:
                self.watch.part(name, program, self.marks.nanoseconds(first, last))
        return found
