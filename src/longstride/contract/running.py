"""What a system declares and a runtime carries out.

A program is a function of tensors with fixed shapes; the state it may write in place (caches) is among its arguments. A
runner carries programs out: eagerly, or from copies it compiled or captured, or from a graph it built itself where the
program comes with a spec of one. Runners know no system.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from longstride.contract.errors import OptionError

M = TypeVar("M", bound=nn.Module)
R = TypeVar("R")

Precision = Literal["fp64", "fp32", "fp16", "bf16", "int8"]

DTYPES: dict[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int8": torch.float32,  # products alone are in integers, inside the runner
}

Dimension = str | int
Shape = tuple[Dimension, ...]


@dataclass(frozen=True)
class Feeds:
    """The arguments of one call, as a graph takes them."""

    inputs: Mapping[str, Tensor]
    """by name; read alone"""
    state: Mapping[str, Tensor] = field(default_factory=dict)
    """by name; read, and written in place"""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """dimensions that no input has, by name"""


@dataclass(frozen=True)
class GraphSpec:
    """What runners that build graphs have to know of a program beside its function.

    Shapes are tuples of numbers and of names, which stand for whatever a call brings. `record` gets a graph builder
    (longstride.ops.graph_builder) and handles of all inputs and states by name; it gives those of all outputs, and of
    every state the new one under the state's own name: it is the program's function, run on values
    (longstride.ops.trace). What is `layered` has layers for its first dimension; the graph sees a list, one for
    each layer.
    """

    modules: tuple[nn.Module, ...]
    """whose weights it reads: with the program's name and the settings they tell one graph from another"""
    feeds: Callable[..., Feeds]
    """(what the program's function takes) -> what the graph takes"""
    inputs: Mapping[str, tuple[torch.dtype, Shape]]
    state: Mapping[str, tuple[torch.dtype, Shape]]
    outputs: Mapping[str, tuple[torch.dtype, Shape]]
    record: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]
    """(builder, values) -> values"""
    result: Callable[[Mapping[str, Tensor], Feeds], Any]
    """(outputs by name, what went in) -> what the program's function gives"""
    layered: frozenset[str] = frozenset()
    settings: tuple[Hashable, ...] = ()


@dataclass(frozen=True)
class Program:
    """A named function of tensors (or tuples and dataclasses of tensors) over a module's weights."""

    name: str
    function: Callable[..., Any]
    graph: GraphSpec | None = None
    """names, types and shapes for runners that build graphs; None: it always runs eagerly"""
    weightless: bool = False
    """it reads no weights (a look-up, a search): tensor code that runners which build graphs leave to PyTorch"""

    @property
    def identity(self) -> Hashable:
        """What tells it from others: programs of equal identity compute the same."""
        spec = self.graph
        return (self.name, self.function if spec is None else (spec.modules, spec.settings))


class Pooled(Protocol):
    """A table of a session's, which a runner may keep for the next session."""

    @property
    def recordings(self) -> int:
        """How many recordings it holds."""

    @property
    def nbytes(self) -> int:
        """What its tensors take."""


K = TypeVar("K", bound=Pooled)


class Runner:
    """Carries out programs on one device in one precision.

    Some runners record what a session does between two looks at its results, and repeat the recording. For their sake
    a session keeps all that changes in tensors that never move (a table), is handed tables to use again, and lets the
    runner choose among few shapes. For all others these are no-ops.
    """

    name: str
    device: torch.device
    precision: Precision
    records = False
    """Whether :meth:`record` records"""
    shape_invariant = False
    """Whether a row's bits depend on that row alone, so that a call need not hold more rows than there are"""
    binds = False
    """Whether :meth:`bound` saves anything, so that whole iterations should be one program"""

    @property
    def steady_slots(self) -> int | None:
        """Slots of a step, rows times tokens, up to which a slot's numbers depend on nothing but that slot, where more
        of them are computed otherwise than fewer; None: nothing is known to change."""
        return None

    @property
    def moves_rows(self) -> bool:
        """Whether a sentence may go on in a table of another size: no output hangs on how many rows there are."""
        return self.shape_invariant or self.precision == "fp64"

    @property
    def fuses(self) -> bool:
        """Whether kernels of our own do what lies between two model calls: where steps are captured, launching many
        small ones is what is left to save."""
        return False

    @property
    def dtype(self) -> torch.dtype:
        """The type that weights and activations have."""
        return DTYPES[self.precision]

    def describe(self) -> str:
        """How programs are carried out, in one phrase for a person."""
        return f"{self.name} on {self.device}, {self.precision}"

    @property
    def plain(self) -> Runner:
        """Who carries out programs that have no graph, as likelihoods: it does, unless all it can do is graphs."""
        return self

    def uses(self, kernel: str, head: int | None = None) -> bool:
        """Whether operations are carried out by the kernel of this name, for attention heads of this width."""
        return False

    def report(self) -> str:
        """What carrying out has cost beside the work itself, in one sentence for a person; empty where it has not."""
        return ""

    def tell_once(self, told: str) -> None:
        """Let a person know something, the first time."""

    def place(self, module: M) -> M:
        """Bring a module's weights to this runner's device and precision, ready for inference."""
        return module.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)

    @torch.inference_mode()
    def call(self, program: Program, *arguments: Any) -> Any:
        """Run a program without tracking gradients: here, as it is."""
        return program.function(*arguments)

    def bound(self, program: Program, *arguments: Any) -> Callable[[], Any]:
        """The same call again and again, its tensors where they are now: what these hold is read anew each time.

        What a call gives, the next one may write over. For those who call often enough to mind what a call costs.
        """
        return partial(self.call, program, *arguments)

    # --- for sessions whose work can be recorded ---------------------------------------------------------------------

    def record(self, name: str, function: Callable[[], R], state: Sequence[Tensor]) -> Callable[[], R]:
        """A function that does again what this one does, perhaps from a recording.

        The function reads and writes tensors that stay where they are; those it writes are all in `state`. It never
        looks at a value on the host, and what it does depends on nothing but tensors. What it gives is tensors, which
        the next call may write over.
        """
        return function

    def beside(self) -> AbstractContextManager[Any]:
        """What is asked for within may be carried out while what is asked for without is: each in its own order.

        Recordings that are made within are repeated within. Here nothing runs beside anything.
        """
        return nullcontext()

    def join(self) -> None:
        """What is asked for from now on, beside or not, comes after all that was asked for until now."""

    def round_up(self, size: int, least: int = 1) -> int:
        """The size to make a table for, so that `size` sentences or tokens fit: few sizes mean few recordings."""
        return size

    def acquire(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """A table that nobody uses: one that was given back, or a new one. Tables of a family differ in shape alone."""
        return make()

    def ready(self, family: Hashable, shape: Hashable) -> bool:
        """Whether such a table could be had without recording anything for it first."""
        return not self.records

    def release(self, family: Hashable, shape: Hashable, table: Pooled) -> None:
        """A table that is no longer used, all its places empty."""

    def forget(self, modules: Sequence[nn.Module]) -> None:
        """Release graphs of these modules, and all free tables."""

    def send(self, host: Tensor, device: Tensor) -> None:
        """Copy a tensor on the host into one on the device, without waiting for it."""
        if self.device.type == "cuda":
            host = host.pin_memory()
        device.copy_(host, non_blocking=True)

    def fetch(self, *tensors: Tensor) -> list[Tensor]:
        """The same on the host; waits for the device once."""
        if self.device.type != "cuda":
            return list(tensors)
        copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        torch.cuda.current_stream(self.device).synchronize()
        return copies


# --- what decoding takes in memory, estimated before anything is made, against what the machine has -------------------

GIB = 1 << 30
SMALL = GIB // 4
"""Less than this is not worth asking the machine."""
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Need:
    """What a decoder's table takes on a device, by the sentences side by side and by one of the decoder's options."""

    bytes: Callable[[int, int], int]
    """(sentences, size) -> at least so many; grows with both"""
    device: torch.device
    option: str = ""
    """the option that `size` is; empty: none of them matters"""
    size: int = 1

    def check(self, decoder: str, sentences: int) -> None:
        """Refuse what there is no room for, and say what fits."""
        needed = self.bytes(sentences, self.size)
        if needed <= SMALL:
            return
        there = available(self.device)
        if there is None or needed <= there:
            return
        asked = f"{self.option} {self.size} for {sentences} sentences" if self.option else f"{sentences} sentences"
        fitting = []
        if self.option and (size := _most(lambda n: self.bytes(sentences, n), self.size, there)):
            fitting.append(f"{self.option} {size}")
        if rows := _most(lambda n: self.bytes(n, self.size), sentences, there):
            fitting.append(f"a batch of {rows}")
        remedy = f"{' or '.join(fitting)} would fit" if fitting else "not even one sentence would fit"
        raise OptionError(
            f"{decoder}: {asked} side by side would take about {_size(needed)} of memory, and {_size(there)} are "
            f"there; {remedy}."
        )


def available(device: torch.device) -> int | None:
    """Bytes that this process can have: those that are free and those it holds, which it may use anew; None: unknown"""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + torch.cuda.memory_reserved(device)
    try:
        facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        limits = [1024 * int(facts["MemAvailable"].split()[0]) + held]
    except (OSError, KeyError, ValueError):
        return None
    for path in CGROUP_LIMITS:
        try:
            limits.append(int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(limits)


def _most(taken: Callable[[int], int], asked: int, there: int) -> int:
    """The largest number up to what was asked that fits; 0: none does."""
    fits, too_many = 0, asked + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if taken(middle) <= there:
            fits = middle
        else:
            too_many = middle
    return fits


def _size(count: int) -> str:
    return f"{count / GIB:,.1f} GiB"
