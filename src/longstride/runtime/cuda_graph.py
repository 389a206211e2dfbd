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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic

import torch
from torch import Tensor

from longstride.contract import OptionError, Precision, Program, Runner
from longstride.contract.running import K, M, Pooled, R
from longstride.ops import avoid_planned_attention
from longstride.ops.cuda import self_test
from longstride.ops.cuda.table import HEADS, MANY_SLOTS, NAMES, inference_table
from longstride.ops.kernels import TYPES, WAITED, KernelTable, current, kernels_of
from longstride.runtime.cuda_graph_recorder import CudaRecorder, Recorded, Recorder
from longstride.runtime.cuda_graph_tables import Tables, most_bytes

Tell = Callable[[str], None]


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
    """Carries programs out by CUDA graphs.

    `fused` takes kernels of our own (longstride.ops.cuda.table) where there are some, all but those named in `without`,
    once a quick check has found them right here. `recorder` is for tests.
    """

    records = True

    def __init__(
        self,
        device: torch.device | str = "cuda",
        precision: Precision = "fp16",
        fused: bool = True,
        without: Collection[str] = (),
        tell: Tell | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.device = torch.device(device)
        if precision == "int8":
            raise OptionError("precision int8 expects the runtime native or onnx, found cuda-graph.")
        if recorder is None and not (self.device.type == "cuda" and torch.cuda.is_available()):
            raise OptionError(f"The runtime cuda-graph expects a CUDA device, found {device}.")
        self.name = "cuda-graph"
        self.precision = precision
        self._tell = tell or _warn
        self._told: set[str] = set()
        # What runs beside steps yields to them: kernels of a graph have the priority of the stream it was captured on.
        self._recorder = recorder or CudaRecorder(self.device, priority=-1)
        self._side = None if recorder else CudaRecorder(self.device)
        self._recordings: weakref.WeakSet[Recording[Any]] = weakref.WeakSet()
        self._recorded = 0
        self._seconds = 0.0
        self.tables = Tables(most_bytes=most_bytes(_memory(self.device)))
        """those that no session uses now"""
        avoid_planned_attention()
        unknown = sorted(set(without) - set(NAMES))
        if unknown:
            raise OptionError(f"without expects names among {', '.join(NAMES)}, found {', '.join(unknown)}.")
        self._names = frozenset(NAMES) - frozenset(without) if fused else frozenset()

    @cached_property
    def kernels(self) -> KernelTable | None:
        """Those that carry out operations; None: PyTorch does."""
        if self.device.type != "cuda" or self.dtype not in TYPES or not self._names:
            return None
        against = self_test.unsupported_reason(self.device, self.dtype)
        if against:
            self._say_once("kernels", "does without kernels of our own", against)
            return None
        against = self_test.overlap_unsupported_reason(self.device, self.dtype) if "overlap" in self._names else ""
        if against:
            self._say_once("overlap", f"does without {NAMES['overlap']}", against)
        overlap = WAITED if "overlap" in self._names and not against else 0
        return inference_table(self.dtype, self._names, overlap=overlap)

    @property
    def fuses(self) -> bool:
        """Where kernels of our own have passed the quick check of the device."""
        return self.device.type == "cuda" and not self_test.unsupported_reason(self.device, self.dtype)

    @property
    def steady_slots(self) -> int | None:
        """Where products are ours, as many as these are used for."""
        return MANY_SLOTS if self.dtype.itemsize == 2 and self.uses("product") else None

    @property
    def moves_rows(self) -> bool:
        """Where products are ours: their bits do not depend on how many rows there are, as long as numbers have 16."""
        return super().moves_rows or (self.dtype.itemsize == 2 and self.uses("product"))

    def uses(self, kernel: str, head: int | None = None) -> bool:
        """Whether it is in the table, and written for such heads."""
        return self.kernels is not None and kernel in self.kernels.names and (head is None or head in HEADS)

    def place(self, module: M) -> M:
        """As everywhere, and wait for it."""
        placed = super().place(module)
        if self.kernels is not None and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # kernels read weights without waiting for whoever wrote them
        return placed

    def call(self, program: Program, *arguments: Any) -> Any:
        """Run it; within a recording, this is recorded."""
        # Entering these once more takes as long as a small kernel.
        if torch.is_inference_mode_enabled() and current() is self.kernels:
            return program.function(*arguments)
        with torch.inference_mode(), kernels_of(self.kernels):
            return program.function(*arguments)

    # --- recordings --------------------------------------------------------------------------------------------------

    def record(self, name: str, function: Callable[[], R], state: Sequence[Tensor]) -> Callable[[], R]:
        """Capture it now; where that cannot be done, say so and leave it as it is."""
        begun = time.perf_counter()
        try:
            found = self._record(function, state)
        except Exception as error:
            self._say_once(name, f"carries out {name!r} without capturing it", error)
            return function if self.kernels is None else partial(self._uncaptured, function)
        finally:
            self._seconds += time.perf_counter() - begun
        recording = Recording(name, function, state, found)
        self._recordings.add(recording)
        self._recorded += 1
        return recording

    def _record(self, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded:
        recorder = self._recorder
        self._wait()  # warming up writes what is used beside it
        if self._side is not None and torch.cuda.current_stream(self.device) == self._side.stream:
            recorder = self._side
            for tensor in state:  # whoever lets go of it last, it may still be written
                tensor.record_stream(self._side.stream)
        before = [tensor.clone() for tensor in state]
        with kernels_of(self.kernels):
            try:
                recorder.warm_up(function)
            finally:
                for tensor, value in zip(state, before, strict=True):
                    tensor.copy_(value)
                self._wait()
            return recorder.record(function, state)

    def _wait(self) -> None:
        if self._side is not None:
            torch.cuda.synchronize(self.device)

    def beside(self) -> AbstractContextManager[Any]:
        """On a stream of its own."""
        return nullcontext() if self._side is None else torch.cuda.stream(self._side.stream)

    def join(self) -> None:
        """Each stream waits for the other; the host waits for none."""
        if self._side is not None:
            here = torch.cuda.current_stream(self.device)
            here.wait_stream(self._side.stream)
            self._side.stream.wait_stream(here)

    def _uncaptured(self, function: Callable[[], R]) -> R:
        with torch.inference_mode(), kernels_of(self.kernels):
            return function()

    def round_up(self, size: int, least: int = 1) -> int:
        """The next power of two."""
        return max(least, 1 << max(0, size - 1).bit_length())

    def acquire(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """One that was captured before, if there is."""
        return self.tables.acquire(family, shape, make)

    def ready(self, family: Hashable, shape: Hashable) -> bool:
        """Whether one was left by an earlier session."""
        return self.tables.holds(family, shape)

    def release(self, family: Hashable, shape: Hashable, table: Pooled) -> None:
        """Keep it for the next session."""
        self.tables.release(family, shape, table)

    @property
    def statistics(self) -> Statistics:
        """What recording has cost so far."""
        held = list(self._recordings)
        graph_bytes = sum(recording.nbytes for recording in held)
        return Statistics(
            len(held), self._recorded, self._seconds, graph_bytes, sum(table.nbytes for table in self.tables)
        )

    def report(self) -> str:
        """How many graphs there are, how long capturing took, what they hold, and what no kernel of ours fits."""
        if not self._recorded:
            return ""
        left = sorted(self.kernels.unsupported) if self.kernels is not None else []
        told = f" No kernel of our own fits some of: {', '.join(left)}; PyTorch carries it out." if left else ""
        return self.statistics.describe() + told

    def _say_once(self, name: str, what: str, error: Exception | str) -> None:
        why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        self.tell_once(f"The runtime {self.name} {what}: {why}.", name)

    def tell_once(self, told: str, about: str = "") -> None:
        """Let a person know something, the first time; of one thing it is `about`, the first of it."""
        if (about or told) not in self._told:
            self._told.add(about or told)
            self._tell(told)


def _memory(device: torch.device) -> int:
    """Bytes of the device's memory; 0 for what tests take for one."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
