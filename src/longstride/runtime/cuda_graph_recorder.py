"""Recordings of CUDA work: a run is captured as one graph, which is launched as a whole from then on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
    """Captures on a stream of its own. All graphs share one pool of memory, since no two ever run at once.

    Sharing is safe because nothing passes from one graph to another but through `state`, which lies elsewhere, and
    because results are held as long as their graph is.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        # A pool that no graph uses may not be used again: this one always does.
        self._counter = torch.zeros(1, device=device).add_(1)
        self._anchor = self._capture(lambda: self._counter.add_(1))[0]

    def warm_up(self, function: Callable[[], Any]) -> None:
        """Where it will be captured."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                function()
        current.wait_stream(self._stream)

    def record(self, function: Callable[[], Any], state: Sequence[Tensor]) -> Recorded:
        """Capture; other threads may go on using the device."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(self._device)
        graph, result = self._capture(function)
        return Recorded(partial(self._launch, graph), result, max(0, torch.cuda.memory_reserved(self._device) - before))

    def _capture(self, function: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        current = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            try:
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    result = function()
            finally:
                torch.cuda.set_stream(current)  # where capturing fails, PyTorch leaves its own current
        return graph, result

    def _launch(self, graph: torch.cuda.CUDAGraph) -> None:
        with torch.cuda.device(self._device):
            graph.replay()
