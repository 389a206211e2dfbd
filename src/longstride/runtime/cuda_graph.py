"""The CUDA runner: what a session does between two looks at its results is captured as one CUDA graph and relaunched.

A decoder's step is a hundred kernels of a few microseconds each; launching them one by one takes several times as long
as running them. A graph of them is launched at once. Graphs are captured when they are first needed, for the shapes of
one table; tables are kept when a session is closed, so that the next session of the same kind finds them captured.
Model calls outside of a recording run as they are. Knows no system.
"""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor

from longstride.contract import OptionError, Precision, Program, Runner
from longstride.contract.running import K, Kept, M, R
from longstride.nn import fused_trials
from longstride.nn.backends import avoid_planned_attention
from longstride.nn.fused import KERNELS
from longstride.runtime.cuda_graph_recorder import CudaRecorder, Recorded, Recorder
from longstride.runtime.cuda_graph_tables import Tables, most_bytes

Tell = Callable[[str], None]

RECOMPILATIONS = 256
"""Shapes that one function may be compiled for; PyTorch's own limit is a handful, beyond which it gives up silently."""


@dataclass(frozen=True)
class Statistics:
    """What recording has cost so far."""

    graphs: int
    """held now"""
    recorded: int
    """ever"""
    seconds: float
    """spent recording, warming up and compiling included"""
    graph_bytes: int
    """device memory of the graphs held now"""
    table_bytes: int
    """device memory of the tables that wait for their next session"""

    def describe(self) -> str:
        """One sentence for a person."""
        return (
            f"{self.recorded} graphs were captured in {self.seconds:.1f} s; {self.graphs} are held, in "
            f"{self.graph_bytes / 2**20:.0f} MiB, and {self.table_bytes / 2**20:.0f} MiB of tables."
        )


class Recording(Generic[R]):
    """A function that was recorded: calling it repeats the recording and gives the same tensors each time."""

    def __init__(self, name: str, function: Callable[[], R], state: Sequence[Tensor], recorded: Recorded) -> None:
        self.name = name
        self._held = (function, tuple(state))  # a graph knows addresses: what lies there must not be freed
        self._replay = recorded.replay
        self._result: R = recorded.result
        self.nbytes = recorded.nbytes

    def __call__(self) -> R:
        """Launch it."""
        self._replay()
        return self._result


class CudaGraphRunner(Runner):
    """Carries programs out by CUDA graphs; `compiled`, after PyTorch's compiler has fused what it can of them.

    Compiling makes steps faster and takes long, for every new shape. `fused` takes kernels of our own
    (longstride.nn.fused) where there are some, all but those named in `without`, once each has been seen to give what
    it should; what is compiled has the compiler's. `least_step` widens steps of one row: products of one vector take
    other, sometimes slower kernels. With `ahead`, sessions launch an iteration before they have looked at the last one
    (`Runner.ahead`). `recorder` is for tests.
    """

    records = True

    def __init__(
        self,
        device: torch.device | str = "cuda",
        precision: Precision = "fp16",
        compiled: bool = False,
        fused: bool = True,
        without: Collection[str] = (),
        least_step: int = 1,
        ahead: bool = False,
        tell: Tell | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.device = torch.device(device)
        if precision == "int8":
            raise OptionError("precision int8 expects the runtime native or onnx, found cuda-graph.")
        if recorder is None and not (self.device.type == "cuda" and torch.cuda.is_available()):
            raise OptionError(f"The runtime cuda-graph expects a CUDA device, found {device}.")
        self.name = "cuda-compiled" if compiled else "cuda-graph"
        self.precision = precision
        self._compiled: dict[Hashable, Callable[..., Any]] | None = {} if compiled else None
        self._as_a_whole = False  # while something is compiled that calls programs
        if compiled:
            _allow_many_shapes()
        self._tell = tell or _warn
        self._told: set[str] = set()
        self.least_step = least_step
        self.ahead = ahead
        self._recorder = recorder or CudaRecorder(self.device)
        self._recordings: weakref.WeakSet[Recording[Any]] = weakref.WeakSet()
        self._recorded = 0
        self._seconds = 0.0
        self.tables = Tables(most_bytes=most_bytes(_memory(self.device)))
        """those that no session uses now"""
        avoid_planned_attention()
        unknown = sorted(set(without) - set(KERNELS))
        if unknown:
            raise OptionError(f"without expects names among {', '.join(KERNELS)}, found {', '.join(unknown)}.")
        self._kernels = frozenset(KERNELS) - frozenset(without) if fused and not compiled else frozenset()

    def place(self, module: M) -> M:
        """Move, convert, switch dropout off, and choose the kernels of its parts."""
        placed = module.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)
        for why, names in fused_trials.switch(placed, self.device, self.dtype, self._kernels).items():
            meant = "; ".join(KERNELS[name] for name in names)
            self._say_once(f"without {meant}", f"does without kernels of our own ({meant})", why)
        return placed

    def call(self, program: Program, *arguments: Any) -> Any:
        """Run it; within a recording, this is recorded."""
        if self._as_a_whole:  # asked first: the compiler, which is at work then, stops at the next question
            return program.function(*arguments)
        if torch.is_inference_mode_enabled():
            return self._call(program, arguments)
        with torch.inference_mode():
            return self._call(program, arguments)

    def _call(self, program: Program, arguments: Sequence[Any]) -> Any:
        if self._compiled is None:
            return program.function(*arguments)
        key = program.identity
        if key not in self._compiled:
            self._compiled[key] = torch.compile(program.function, dynamic=False)
        try:
            return self._compiled[key](*arguments)
        except Exception as error:
            # A program that fails by itself fails again here, with its own message.
            result = program.function(*arguments)
            self._compiled[key] = program.function
            self._say_once(program.name, f"runs the program {program.name!r} without compiling it", error)
            return result

    # --- recordings --------------------------------------------------------------------------------------------------

    def record(
        self, name: str, function: Callable[[], R], state: Sequence[Tensor], alone: bool = False
    ) -> Callable[[], R]:
        """Capture it now; where that cannot be done, say so and leave it as it is."""
        begun = time.perf_counter()
        try:
            found = self._whole(name, function, state) if alone and self._compiled is not None else None
            found = found or self._record(function, state)
        except Exception as error:
            self._say_once(name, f"carries out {name!r} without capturing it", error)
            return function
        finally:
            self._seconds += time.perf_counter() - begun
        recording = Recording(name, function, state, found)
        self._recordings.add(recording)
        self._recorded += 1
        return recording

    def _whole(self, name: str, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded | None:
        """Recorded after being compiled as a whole, what lies between the programs included; None where it cannot."""
        self._as_a_whole = True
        try:
            return self._record(torch.compile(function, dynamic=False), state)
        except Exception as error:
            self._say_once(name, f"compiles the programs of {name!r} one by one", error)
            return None
        finally:
            self._as_a_whole = False

    def _record(self, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded:
        before = [tensor.clone() for tensor in state]
        try:
            self._recorder.warm_up(function)
        finally:
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)
        return self._recorder.record(function, state)

    def room(self, size: int, least: int = 1) -> int:
        """The next power of two."""
        return max(least, 1 << max(0, size - 1).bit_length())

    def borrow(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """One that was captured before, if there is."""
        return self.tables.borrow(family, shape, make)

    def give_back(self, family: Hashable, shape: Hashable, table: Kept) -> None:
        """Keep it for the next session."""
        self.tables.give_back(family, shape, table)

    @property
    def statistics(self) -> Statistics:
        """What recording has cost so far."""
        held = list(self._recordings)
        graph_bytes = sum(recording.nbytes for recording in held)
        return Statistics(
            len(held), self._recorded, self._seconds, graph_bytes, sum(table.nbytes for table in self.tables)
        )

    def report(self) -> str:
        """How many graphs there are, how long capturing took, what they hold."""
        return self.statistics.describe() if self._recorded else ""

    def _say_once(self, name: str, what: str, error: Exception | str) -> None:
        if name not in self._told:
            self._told.add(name)
            why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            self._tell(f"The runtime {self.name} {what}: {why}.")


def _memory(device: torch.device) -> int:
    """Bytes of the device's memory; 0 for what tests take for one."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


def _allow_many_shapes() -> None:
    import torch._dynamo

    config: Any = torch._dynamo.config
    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(config, name):
            setattr(config, name, max(RECOMPILATIONS, getattr(config, name)))


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
