"""What the recorder of CUDA work promises around a capture, without a device: PyTorch's part is played by a fake that
fails as PyTorch does. And with a device, the same for real."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longstride.runtime.cuda_graph_recorder import CudaRecorder, no_collection


class InvalidatedError(RuntimeError):
    """Something was done that no capture survives."""


class FakeCuda:
    """Captures by just running. One that was invalidated leaves its pool under way, for ever or until told."""

    def __init__(self, can_be_told: bool) -> None:
        self.pools = 0
        self.under_way: set[int] = set()
        self.collecting: list[bool] = []  # whether automatic collection was on, at each capture
        self.streams: list[str] = ["mine"]
        self.can_be_told = can_be_told

    def new_pool(self) -> int:
        self.pools += 1
        return self.pools

    @contextmanager
    def graph(self, graph: Any, pool: int, stream: str, capture_error_mode: str) -> Iterator[None]:
        self.streams.append(stream)
        if pool in self.under_way:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        self.under_way.add(pool)
        self.collecting.append(gc.isenabled())
        try:
            yield
        except InvalidatedError:
            raise  # the stream stays current, the pool under way
        except Exception:
            self.under_way.discard(pool)
            self.streams.pop()
            raise
        self.under_way.discard(pool)
        self.streams.pop()

    def end(self, device: int, pool: int) -> None:
        if not self.can_be_told:
            raise AttributeError("no such function")
        if pool not in self.under_way:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.under_way.discard(pool)


@pytest.fixture(params=[True, False], ids=["ended", "left"])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda(request.param)
    replaced = {
        "Stream": lambda device, priority: "side",
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": fake.graph,
        "graph_pool_handle": fake.new_pool,
        "current_stream": lambda device: fake.streams[-1],
        "set_stream": lambda stream: fake.streams.__setitem__(slice(None), [stream]),
        "device": lambda device: nullcontext(),
        "synchronize": lambda device: None,
        "empty_cache": lambda: None,
        "memory_reserved": lambda device: 0,
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", fake.end, raising=False)
    return fake


def fail(error: Exception) -> Any:
    def function() -> None:
        assert not gc.isenabled()
        raise error

    return function


def test_nothing_is_collected_while_capturing(cuda):
    """A collection may destroy an old graph, which no capture survives."""
    recorder = CudaRecorder(torch.device("cpu"))
    assert recorder.record(gc.isenabled, []).result is False
    assert gc.isenabled()
    assert cuda.collecting == [False, False]  # the pool's anchor was captured too


@pytest.mark.parametrize("error", [InvalidatedError("operation not permitted"), ValueError("a mistake of its own")])
def test_a_capture_that_fails_leaves_nothing_behind(cuda, error):
    recorder = CudaRecorder(torch.device("cpu"))
    for _ in range(2):
        with pytest.raises(type(error)):
            recorder.record(fail(error), [])
        assert gc.isenabled()
        assert cuda.streams == ["mine"]
        assert recorder.record(lambda: 7, []).result == 7
    must_leave = isinstance(error, InvalidatedError) and not cuda.can_be_told
    assert cuda.pools == (3 if must_leave else 1)  # memory is shared as long as it can be


def test_collection_that_was_off_stays_off():
    gc.disable()
    try:
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(ValueError, match="anything"), no_collection():
        raise ValueError("anything")
    assert gc.isenabled()


# --- real graphs -----------------------------------------------------------------------------------------------------

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


class Ring:
    """Holds a graph and itself: gone when it is collected, and not before."""

    def __init__(self, held: Any) -> None:
        self.held, self.itself = held, self


@pytest.mark.gpu
@needs_gpu
def test_old_graphs_that_nobody_holds_do_not_spoil_a_capture():
    recorder = CudaRecorder(torch.device("cuda", 0))
    state = torch.zeros(4, device="cuda:0")
    Ring(recorder.record(lambda: state.add_(1), [state]))

    def with_much_rubbish() -> torch.Tensor:
        for _ in range(3 * gc.get_threshold()[0]):
            Ring(None)  # would set a collection off
        return state * 2

    recorded = recorder.record(with_much_rubbish, [state])
    gc.collect()
    state.fill_(3)
    recorded.replay()
    assert recorded.result.tolist() == [6, 6, 6, 6]


@pytest.mark.gpu
@needs_gpu
def test_failed_captures_do_not_spoil_later_ones():
    recorder = CudaRecorder(torch.device("cuda", 0))
    state = torch.ones(4, device="cuda:0")
    first = recorder.record(lambda: state * 5, [state])
    for _ in range(3):
        with pytest.raises(RuntimeError):
            recorder.record(lambda: state * float(state.sum()), [state])
        torch.rand(2, device="cuda:0")  # random numbers are no longer drawn for a graph
    later = recorder.record(lambda: state + 1, [state])
    first.replay()
    later.replay()
    assert (first.result.tolist(), later.result.tolist()) == ([5.0] * 4, [2.0] * 4)
