"""Recordings of CUDA work: a run is captured as one graph, which is launched as a whole from then on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

WARM_UPS = 2
"""Runs before the one that is captured: libraries set themselves up in the first, and may not while capturing."""


@dataclass(frozen=True)
class Recorded:
    """A recording."""

    replay: Callable[[], None]
    result: Any
    """what the function gave; every replay writes it anew, in the same memory"""
    nbytes: int
    """memory that was taken for it"""


class Recorder(Protocol):
    """Whoever can record a run and repeat it."""

    def warm_up(self, function: Callable[[], Any]) -> None:
        """Run it for real, as often as recording it wants."""

    def record(self, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded:
        """Record a run, which changes nothing; of what others made, it writes `state` alone."""


class CudaRecorder:
    """Captures on a stream of its own. All graphs share one pool of memory, since no two of them ever run at once: what
    runs beside them has a recorder of its own, and so no memory in common, a library's workspace included.

    Sharing is safe because nothing passes from one graph to another but through `state`, which lies elsewhere, and
    because results are held as long as their graph is.
    """

    def __init__(self, device: torch.device, priority: int = 0) -> None:
        """`priority` is of the kernels in its graphs: the lower, the sooner."""
        self._device = device
        self.stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
        """where it captures"""
        self._counter = torch.zeros(1, device=device).add_(1)
        self._failed: list[torch.cuda.CUDAGraph] = []
        self._take_pool()

    def warm_up(self, function: Callable[[], Any]) -> None:
        """Where it will be captured."""
        current = torch.cuda.current_stream(self._device)
        self.stream.wait_stream(current)
        with torch.cuda.device(self._device), torch.cuda.stream(self.stream):
            for _ in range(WARM_UPS):
                function()
        current.wait_stream(self.stream)

    def record(self, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded:
        """Capture; other threads may go on using the device. One that fails leaves nothing behind for later ones."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(self._device)
        graph = torch.cuda.CUDAGraph()
        try:
            result = self._capture(graph, function)
        except Exception:
            self._mend(graph)
            raise
        # A graph knows its device by itself, and runs on whichever of its streams is current.
        return Recorded(graph.replay, result, max(0, torch.cuda.memory_reserved(self._device) - before))

    def _capture(self, graph: torch.cuda.CUDAGraph, function: Callable[[], Any]) -> Any:
        current = torch.cuda.current_stream(self._device)
        try:
            with (
                torch.cuda.device(self._device),
                no_collection(),
                torch.cuda.graph(graph, pool=self._pool, stream=self.stream, capture_error_mode="thread_local"),
            ):
                return function()
        finally:
            torch.cuda.set_stream(current)  # where capturing fails, PyTorch leaves its own current

    def _take_pool(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._drop_anchor()

    def _drop_anchor(self) -> None:
        """A graph that always uses the pool: one that no graph uses may not be used again."""
        anchor = torch.cuda.CUDAGraph()
        self._capture(anchor, lambda: self._counter.add_(1))
        self._anchor = anchor

    def _mend(self, failed: torch.cuda.CUDAGraph) -> None:
        """After a capture that failed, for which PyTorch may take the pool to be still in use: free it, or leave it.

        A small capture says whether the pool can be used, and what else was left in the middle (the generator of random
        numbers) is brought to its end by it.
        """
        self._failed.append(failed)  # whoever allocates may still ask it whether this is its stream
        with suppress(Exception):  # it was ended as it should be; or this PyTorch has no such function
            torch._C._cuda_endAllocateToPool(self._device.index or 0, self._pool)
        try:
            self._drop_anchor()
        except Exception:
            with suppress(Exception):  # the next capture then fails by itself, and says why
                self._take_pool()


@contextmanager
def no_collection() -> Iterator[None]:
    """No automatic garbage collection: one that finds an old graph destroys it, which spoils a capture under way."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
