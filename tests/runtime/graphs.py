"""Runners that build graphs, for tests that all of them have to pass."""

from __future__ import annotations

import importlib.util

import pytest

from longstride.runtime.graph_runner import GraphRunner
from longstride.runtime.native.runner import NativeRunner
from tests.runtime.native.harness import missing

Graphs = type[GraphRunner]

WHY_NOT_NATIVE = missing("int8")
HAS_ONNX = all(importlib.util.find_spec(package) for package in ("onnx", "onnxruntime"))

if HAS_ONNX:
    from longstride.runtime.onnx_runner import OnnxRunner

    FIRST: Graphs = OnnxRunner
else:
    FIRST = NativeRunner

BOTH = pytest.mark.parametrize(
    "graphs",
    [
        pytest.param(FIRST, id="onnx", marks=pytest.mark.skipif(not HAS_ONNX, reason="onnx is not installed")),
        pytest.param(
            NativeRunner, id="native", marks=pytest.mark.skipif(bool(WHY_NOT_NATIVE), reason=WHY_NOT_NATIVE or "none")
        ),
    ],
)
"""Gives a test `graphs`, a class of runner: graphs(precision, threads, tell)."""
