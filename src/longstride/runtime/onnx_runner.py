"""The CPU runner: graphs of our own drawing in ONNX Runtime, in fp32 or int8. Needs the packages onnxruntime and onnx.

A program that comes with a drawing is built into a graph when it is first called, and carried out by it from then on:
one graph for all shapes, and one more for steps of width one. A program without a drawing, or one
whose graph ONNX Runtime refuses, runs eagerly in fp32; the person is told once. Knows no system.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable
from typing import Any

import onnxruntime
import torch

from longstride.contract import Drawing, Feeds, OptionError, Precision, Program, Runner
from longstride.contract.running import K, Kept, M
from longstride.runtime.onnx_graph import OnnxGraph
from longstride.runtime.onnx_means import PLAIN, means_of
from longstride.runtime.onnx_pen import OnnxPen
from longstride.runtime.onnx_tables import KeptTables
from longstride.runtime.onnx_trial import rows_are_independent
from longstride.runtime.processor import Processor, this_processor

Tell = Callable[[str], None]


class OnnxRunner(Runner):
    """Carries programs out by ONNX Runtime on the processor."""

    name = "onnx"
    binds = True

    def __init__(
        self,
        precision: Precision = "fp32",
        threads: int | None = None,
        tell: Tell | None = None,
        processor: Processor | None = None,
    ) -> None:
        if precision not in ("fp32", "int8"):
            raise OptionError(f"precision expects fp32 or int8 with the runtime onnx, found {precision!r}.")
        if threads is not None and threads < 1:
            raise OptionError(f"threads expects 1 or more, found {threads}.")
        self.device = torch.device("cpu")
        self.precision = precision
        self.threads = threads or available_cores()
        self.processor = processor or this_processor()
        self._tell = tell or _warn
        self.graphs: dict[Hashable, OnnxGraph | None] = {}
        """built so far, by program, modules, settings and whether for steps of width one; None: it cannot be built"""
        self._tables = KeptTables()
        self._told: set[str] = set()

    def describe(self) -> str:
        """``ONNX Runtime 1.31.1, int8 on 2 threads of aarch64 with int8 dot products (asimddp); ...``"""
        processor = self.processor.describe() if self.precision == "int8" else self.processor.machine
        return f"ONNX Runtime {onnxruntime.__version__}, {self.precision} on {self.threads} threads of {processor}"

    def place(self, module: M) -> M:
        """Bring weights here, in fp32: graphs quantize for themselves."""
        return module.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)

    def call(self, program: Program, *arguments: Any) -> Any:
        """By its graph, or eagerly where it has none."""
        if torch.is_inference_mode_enabled():  # entering it once more takes as long as a product
            return self._call(program, *arguments)
        with torch.inference_mode():
            return self._call(program, *arguments)

    def _call(self, program: Program, *arguments: Any) -> Any:
        drawing = program.drawing
        if drawing is None:
            if not program.weightless:
                self._say_once(program.name, "it has no drawing")
            return program.function(*arguments)
        feeds = drawing.feeds(*arguments)
        key = (program.name, drawing.modules, drawing.settings, lone := is_lone(feeds))
        try:
            graph = self.graphs[key] if key in self.graphs else self._build(key, program.name, drawing, lone)
            found = None if graph is None else graph(feeds)
        except Exception as error:  # whatever ONNX Runtime or protobuf refuses: the eager way is always there
            self._refused(key, program.name, error)
            found = None
        return program.function(*arguments) if found is None else drawing.result(found, feeds)

    def bound(self, program: Program, *arguments: Any) -> Callable[[], Any]:
        """By a binding of its own to the tensors' memory: a call is then little more than the graph's own work."""
        again, drawing = super().bound(program, *arguments), program.drawing
        if drawing is None:
            return again
        with torch.inference_mode():
            feeds = drawing.feeds(*arguments)
            if not stays(feeds, drawing.feeds(*arguments)):
                return again
            key = (program.name, drawing.modules, drawing.settings, lone := is_lone(feeds))
            try:
                graph = self.graphs[key] if key in self.graphs else self._build(key, program.name, drawing, lone)
                laid = None if graph is None else graph.bound(feeds)
            except Exception as error:
                self._refused(key, program.name, error)
                laid = None
            if laid is None:
                return again
            run, outputs = laid
            result = drawing.result(outputs, feeds)

        def call() -> Any:
            if self.graphs[key] is None:
                return again()
            try:
                run()
            except Exception as error:
                self._refused(key, program.name, error)
                return again()
            return result

        return call

    def borrow(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """A table that an earlier session has left, with all that was bound in it."""
        return self._tables.borrow(family, shape, make)

    def give_back(self, family: Hashable, shape: Hashable, table: Kept) -> None:
        """Keep a table for the next session of the same kind and shape."""
        self._tables.give_back(family, shape, table)

    def _refused(self, key: Hashable, name: str, error: Exception) -> None:
        self.graphs[key] = None
        self._say_once(name, str(error).splitlines()[0])

    def _build(self, key: Hashable, name: str, drawing: Drawing, lone: bool) -> OnnxGraph:
        int8, narrow, means = self.precision == "int8", self.processor.saturates, means_of(self.processor)
        tried = int8 and rows_are_independent(means, narrow)
        pen = OnnxPen(int8, lone, narrow, means if tried else PLAIN)
        graph = OnnxGraph(drawing, pen.model(name, drawing).SerializeToString(), self.threads)
        self.graphs[key] = graph
        return graph

    def _say_once(self, name: str, why: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._tell(f"The runtime onnx carries the program {name!r} out eagerly in fp32: {why}.")


def is_lone(feeds: Feeds) -> bool:
    """Whether this is a step (it reads ids [rows, step] and keeps a state) of width one."""
    ids = feeds.inputs.get("ids")
    return bool(feeds.state) and ids is not None and ids.shape[1] == 1


def stays(feeds: Feeds, later: Feeds) -> bool:
    """Whether a graph is fed its arguments' own memory: what is worked out of them lies elsewhere each time."""
    before, after = ({**of.inputs, **of.state} for of in (feeds, later))
    return all(before[name].data_ptr() == after[name].data_ptr() for name in before)


def available_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
