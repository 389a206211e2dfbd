"""What nobody should send, and what goes wrong in the midst: it is said, or stays what it is; nothing is made up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import Feeds, GraphSpec, Program
from longstride.runtime.graphs import HalfDoneError
from longstride.runtime.native.runner import NativeRunner
from longstride.runtime.native.weights import packed
from tests.runtime.native.harness import OperatorError, carry_out, needs_library, rows_of
from tests.runtime.native.small_graphs import graph_of, numbers, spec_of
from tests.runtime.native.test_product import linear

pytestmark = needs_library()


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("precision", [8, 32])
def test_a_row_with_what_is_no_number_does_not_look_sound(what: float, precision: int) -> None:
    """Whatever the panel, and its neighbours are as they were."""
    x, weight = rows_of([3, 24]), rows_of([70, 24], 1)
    sound = linear(x, weight, precision=precision)
    x[1, 5] = what
    found = linear(x, weight, precision=precision)
    np.testing.assert_array_equal(found[[0, 2]], sound[[0, 2]])
    assert not np.isfinite(found[1]).any()


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("precision", [8, 32])
@pytest.mark.parametrize("rows", [1, 2, 20])
def test_relu_keeps_nan_in_every_panel(rows: int, precision: int) -> None:
    bias = np.full(70, np.nan, np.float32)
    assert np.isnan(linear(rows_of([rows, 24]), rows_of([70, 24], 1), bias, precision, relu=True)).all()


@pytest.mark.usefixtures("variant")
@given(n=st.integers(2, 300), seed=st.integers(0, 1000), data=st.data())
def test_nan_is_never_the_largest(n: int, seed: int, data: st.DataObject) -> None:
    x = rows_of([1, n], seed)
    nowhere = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=n - 1))
    x[0, list(nowhere)] = np.nan
    assert carry_out("Best", x)[0].item() == np.nanargmax(x[0])


@pytest.mark.parametrize("start", [2**63 - 1, 2**63 - 2, -1, -(2**63)])
@pytest.mark.parametrize("name", ["Append", "Move", "Write"])
def test_places_that_no_state_has_are_refused(name: str, start: int) -> None:
    state, new, attributes = {
        "Append": (np.zeros((1, 4), np.float32), np.zeros((1, 2), np.float32), []),
        "Move": (np.zeros((1, 1, 4, 2), np.float32), np.zeros((1, 2), np.int64), []),
        "Write": (np.zeros((1, 1, 4, 2), np.float32), np.zeros((1, 2, 2), np.float32), [1]),
    }[name]
    with pytest.raises(OperatorError, match=f"{name} expects"):
        carry_out(name, state, new, np.array([start]), attributes=attributes)


def test_kinds_that_an_operator_does_not_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([1.5, 2.0, -3.0], dtype=torch.float64)
    for kind, attributes in (("Less", {}), ("Cast", {"to": 1})):
        given = {"x": x, "y": x + 1} if kind == "Less" else {"x": x}
        outputs = {"y": torch.empty(3, dtype=torch.bool if kind == "Less" else torch.float32)}
        spec = spec_of(lambda b, g, k=kind, a=attributes: {"y": b.node(k, *g.values(), **a)}, given, outputs)
        with pytest.raises(Exception, match=kind):
            graph_of(spec)(spec.feeds(given))


def test_a_matrix_without_inputs_is_refused() -> None:
    with pytest.raises(OperatorError, match="at least one input"):
        linear(np.zeros((3, 0), np.float32), np.zeros((5, 0), np.float32), np.arange(5, dtype=np.float32))


def test_a_step_that_fails_when_it_has_written_is_not_taken_twice() -> None:
    def eager(total: torch.Tensor, x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
        total += x.sum(1).double()
        return x.reshape(shape.tolist())

    spec = GraphSpec(
        modules=(),
        feeds=lambda total, x, shape: Feeds({"x": x, "shape": shape}, {"total": total}),
        inputs={"x": (torch.float32, ("rows", "n")), "shape": (torch.int64, ("k",))},
        state={"total": (torch.float64, ("rows",))},
        outputs={"y": (torch.float32, ("rows", "n"))},
        record=lambda builder, given: {
            "total": builder.accumulate(given["total"], given["x"]),
            "y": builder.node("Reshape", given["x"], given["shape"]),
        },
        result=lambda found, feeds: found["y"],
    )
    program, runner = Program("sum", eager, spec), NativeRunner("fp32", 1, tell=lambda told: None)
    total, x = torch.zeros(2, dtype=torch.float64), torch.ones(2, 4)
    with pytest.raises(HalfDoneError, match="in the midst of a step"):
        runner.call(program, total, x, torch.tensor([2, 1, 1, 1, 1, 1, 4]))  # more dimensions than the machine has
    assert total.tolist() == [4, 4]


def test_all_threads_round_as_their_caller_does() -> None:
    """Which of them does what is chance; whether the smallest numbers are zero must not be."""
    weight, x = numbers(512, 64) * 1e-20, numbers(1, 64, 64, seed=1) * 1e-19
    spec = spec_of(
        lambda builder, given: {"y": builder.linear(given["x"], weight)}, {"x": x}, {"y": numbers(1, 64, 512)}
    )
    graph = graph_of(spec, threads=2)
    graph(spec.feeds({"x": x}))  # the threads begin
    try:
        torch.set_flush_denormal(True)
        found = [graph(spec.feeds({"x": x}))["y"].view(torch.int32) for _ in range(50)]
        assert all(torch.equal(one, found[0]) for one in found)
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("what", ["call", "pack"])
def test_a_process_forked_in_the_midst_goes_on(what: str) -> None:
    weight, x = numbers(512, 512), numbers(1, 8, 512)
    spec = spec_of(
        lambda builder, given: {"y": builder.linear(given["x"], weight)}, {"x": x}, {"y": numbers(1, 8, 512)}
    )
    graph = graph_of(spec, threads=2)
    small, turns = weight[:32, :32], iter(range(10**9))  # on little PyTorch starts no threads, which a child has not
    work: dict[str, Callable[[], Any]] = {
        "call": lambda: graph(spec.feeds({"x": x})),
        "pack": lambda: packed(small + next(turns), None, 8),
    }
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            work[what]()

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if not child:
                work[what]()
                os._exit(0)
            assert _ends(child)
    finally:
        stop.set()
        thread.join()


def _ends(child: int, seconds: float = 20.0) -> bool:
    """Whether it does, well."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False
