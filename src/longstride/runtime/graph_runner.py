"""What runners that build graphs share: a graph for each program that says how, eager calls for the rest.

A graph is built when its program is first called, and carried out from then on. A program without one, or one whose
graph is refused, runs eagerly in fp32; the person is told so. Knows no system.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longstride.contract import Feeds, GraphSpec, OptionError, Precision, Program, Runner
from longstride.contract.options import Range, shown
from longstride.contract.running import K, Pooled
from longstride.runtime.eager import EagerRunner
from longstride.runtime.graphs import Graph, HalfDoneError, renewed_in_children
from longstride.runtime.processor import Processor, this_processor

Tell = Callable[[str], None]


class GraphRunner(Runner, ABC):
    """Carries programs out by graphs on the processor."""

    binds = True

    def __init__(
        self,
        precision: Precision = "fp32",
        threads: int | None = None,
        tell: Tell | None = None,
        processor: Processor | None = None,
    ) -> None:
        if precision not in ("fp32", "int8"):
            raise OptionError(f"precision expects fp32 or int8 with the runtime {self.name}, found {precision!r}.")
        check_threads(threads)
        self.device = torch.device("cpu")
        self.precision = precision
        self.threads = threads or available_cores()
        self.processor = processor or this_processor()
        self._tell = tell or _warn
        self.graphs: dict[Hashable, Graph | None] = {}
        """built so far, by program, modules, settings and variant; None: it cannot be built"""
        self._tables = TablePool()
        self._told: set[str] = set()

    @abstractmethod
    def build(self, name: str, spec: GraphSpec, variant: Hashable) -> Graph:
        """The graph of a program."""

    def variant(self, feeds: Feeds) -> Hashable:
        """What tells one graph of a program from another, by what it is fed."""
        return None

    @property
    def plain(self) -> Runner:
        """PyTorch."""
        return EagerRunner(self.device, "fp32")

    def call(self, program: Program, *arguments: Any) -> Any:
        """By its graph, or eagerly where it has none."""
        if torch.is_inference_mode_enabled():  # entering it once more takes as long as a product
            return self._call(program, *arguments)
        with torch.inference_mode():
            return self._call(program, *arguments)

    def _call(self, program: Program, *arguments: Any) -> Any:
        spec = program.graph
        if spec is None:
            if not program.weightless:
                self._say_once(program.name, "it has no graph")
            return program.function(*arguments)
        feeds = spec.feeds(*arguments)
        key = (program.name, spec.modules, spec.settings, variant := self.variant(feeds))
        try:
            graph = self._graph(key, program.name, spec, variant)
            found = None if graph is None else graph(feeds)
        except HalfDoneError:
            raise
        except Exception as error:  # whatever a graph's own library refuses: the eager way is always there
            self._refused(key, program.name, error)
            found = None
        return program.function(*arguments) if found is None else spec.result(found, feeds)

    def bound(self, program: Program, *arguments: Any) -> Callable[[], Any]:
        """By a binding of its own to the tensors' memory: a call is then little more than the graph's own work."""
        again, spec = super().bound(program, *arguments), program.graph
        if spec is None:
            return again
        with torch.inference_mode():
            feeds = spec.feeds(*arguments)
            if not same_memory(feeds, spec.feeds(*arguments)):
                return again
            key = (program.name, spec.modules, spec.settings, variant := self.variant(feeds))
            try:
                graph = self._graph(key, program.name, spec, variant)
                binding = None if graph is None else graph.bound(feeds)
            except Exception as error:
                self._refused(key, program.name, error)
                binding = None
            if binding is None:
                return again
            run, outputs = binding
            result = spec.result(outputs, feeds)

        def call() -> Any:
            if self.graphs[key] is None:
                return again()
            try:
                run()
            except HalfDoneError:
                raise
            except Exception as error:
                self._refused(key, program.name, error)
                return again()
            return result

        return call

    def acquire(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """A table that an earlier session has left, with all that was bound in it."""
        return self._tables.acquire(family, shape, make)

    def release(self, family: Hashable, shape: Hashable, table: Pooled) -> None:
        """Keep a table for the next session of the same kind and shape."""
        self._tables.release(family, shape, table)

    def forget(self, modules: Sequence[nn.Module]) -> None:
        """Graphs that read their weights go, and free tables with all that was bound in them."""
        gone = {one for module in modules for one in module.modules()}
        for key in [key for key in list(self.graphs) if not gone.isdisjoint(key[1])]:  # type: ignore[index]
            self.graphs.pop(key, None)
        self._tables.clear()

    def _refused(self, key: Hashable, name: str, error: Exception) -> None:
        self.graphs[key] = None
        self._say_once(name, (str(error) or type(error).__name__).splitlines()[0])

    def _graph(self, key: Hashable, name: str, spec: GraphSpec, variant: Hashable) -> Graph | None:
        if key not in self.graphs:
            self.graphs[key] = self.build(name, spec, variant)
        return self.graphs[key]

    def _say_once(self, name: str, why: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._tell(f"The runtime {self.name} carries the program {name!r} out eagerly in fp32: {why}.")


def same_memory(feeds: Feeds, later: Feeds) -> bool:
    """Whether a graph is fed its arguments' own memory: what is worked out of them lies elsewhere each time."""
    before, after = ({**of.inputs, **of.state} for of in (feeds, later))
    return all(before[name].data_ptr() == after[name].data_ptr() for name in before)


CGROUP = Path("/sys/fs/cgroup")
"""Where Linux says how much of its cores a container may have."""


def available_cores(cgroup: Path = CGROUP) -> int:
    """Cores this process may run on; of more than a container is given, threads would wait busily for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _cores_granted(cgroup))))


def _cores_granted(cgroup: Path) -> float:
    """By the second version of control groups, or the first; as many as there are where nothing is said."""
    try:
        if (both := cgroup / "cpu.max").is_file():
            quota, period = both.read_text(encoding="ascii").split()
        else:
            quota, period = (
                (cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period")
            )
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):  # "max" where there is no bound
        return math.inf


def check_threads(threads: int | None) -> None:
    """Refuse more threads than could do any good: the system may not let a process start them."""
    cores = available_cores()
    bounds = Range(1, max(64, 4 * cores))
    if threads is not None and not bounds.fits(int, threads):
        raise OptionError(
            f"threads expects {bounds.described(int)} on this machine of {cores} cores, found {shown(threads)}."
        )


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


MOST = 128
MOST_BYTES = 256 << 20


class TablePool:
    """Free tables by family and shape, one of each, the longest unused going first; what is lent is nobody's here.

    Making a table, and binding what lies in it, takes as long as a draft. Sentences one by one need as many tables as
    they have lengths, which is why these are many and small; a large one is not kept.
    """

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._free: dict[Hashable, Pooled] = {}  # the longest unused first
        self.nbytes = 0
        """of all that wait"""
        self._turn = threading.RLock()  # of whoever takes or brings one
        renewed_in_children(self)

    def renew(self) -> None:
        """In a process that was forked: another thread of its parent's may have been taking one."""
        self._turn, self._free, self.nbytes = threading.RLock(), {}, 0

    def clear(self) -> None:
        """Let all of them go."""
        with self._turn:
            self._free.clear()
            self.nbytes = 0

    def __len__(self) -> int:
        return len(self._free)

    def acquire(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """The one that waits, or a new one."""
        found = self._taken((family, shape))
        return make() if found is None else found  # type: ignore[return-value]  # it is what `make` made before

    def release(self, family: Hashable, shape: Hashable, table: Pooled) -> None:
        """Keep it, if it keeps its shape, and let others go as far as there would be too much."""
        if not getattr(table, "steady", False) or table.nbytes > self._most_bytes:
            return
        key = (family, shape)
        with self._turn:
            self._taken(key)
            self._free[key] = table
            self.nbytes += table.nbytes
            while len(self._free) > self._most or self.nbytes > self._most_bytes:
                self._taken(next(iter(self._free)))

    def _taken(self, key: Hashable) -> Pooled | None:
        with self._turn:
            found = self._free.pop(key, None)
            self.nbytes -= 0 if found is None else found.nbytes
        return found
