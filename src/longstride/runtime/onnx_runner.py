"""The CPU runner: graphs of our own spec in ONNX Runtime, in fp32 or int8. Needs the packages onnxruntime and onnx.

There is one graph for all shapes of a program, and one more for steps of width one. What runners of graphs share is in
graph_runner.py. Knows no system.
"""

from __future__ import annotations

from collections.abc import Hashable

from longstride.contract import Feeds, GraphSpec
from longstride.runtime.graph_runner import GraphRunner, available_cores
from longstride.runtime.libraries import silently
from longstride.runtime.onnx_builder import OnnxBuilder
from longstride.runtime.onnx_graph import OnnxGraph
from longstride.runtime.onnx_means import PLAIN, means_of
from longstride.runtime.onnx_trial import rows_are_independent

onnxruntime = silently("onnxruntime")

__all__ = ["OnnxRunner", "available_cores", "is_lone"]


class OnnxRunner(GraphRunner):
    """Carries programs out by ONNX Runtime."""

    name = "onnx"

    def describe(self) -> str:
        """``ONNX Runtime 1.31.1, int8 on 2 threads of aarch64 with int8 dot products (asimddp); ...``"""
        processor = self.processor.describe() if self.precision == "int8" else self.processor.machine
        return f"ONNX Runtime {onnxruntime.__version__}, {self.precision} on {self.threads} threads of {processor}"

    def variant(self, feeds: Feeds) -> Hashable:
        """Whether for steps of width one."""
        return is_lone(feeds)

    def build(self, name: str, spec: GraphSpec, variant: Hashable) -> OnnxGraph:
        """With the means that were tried on this processor."""
        int8, narrow, means = self.precision == "int8", self.processor.saturates, means_of(self.processor)
        tried = int8 and rows_are_independent(means, narrow)
        builder = OnnxBuilder(int8, bool(variant), narrow, means if tried else PLAIN)
        return OnnxGraph(spec, builder.model(name, spec).SerializeToString(), self.threads)


def is_lone(feeds: Feeds) -> bool:
    """Whether this is a step (it keeps a state, and reads ids [rows, step] or says how wide it is) of width one."""
    ids = feeds.inputs.get("ids")
    return bool(feeds.state) and (feeds.sizes.get("step") if ids is None else ids.shape[1]) == 1
