"""Where Triton's kernels are run in tests: on a CUDA device, or in Triton's interpreter where there is none."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from longstride.contract import Program
from longstride.ops.cuda.self_test import CASES, Case
from longstride.ops.cuda.table import HEADS, NAMES, inference_table
from longstride.ops.kernels import KernelTable, kernels_of
from longstride.runtime.eager import EagerRunner

T = TypeVar("T")


def where() -> torch.device:
    """The device to try them on; the test is skipped where there is none."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1")
    _quicken()
    return torch.device("cpu")


def few(values: Iterable[T], most: int = 1) -> list[T]:
    """All of a test's parameters on a GPU; the first of them in the interpreter, which is slow."""
    return list(values) if torch.cuda.is_available() else list(values)[:most]


def case_of(name: str) -> Case:
    """One kernel's comparison; in the interpreter not slot by slot, since the order of its sums is numpy's own."""
    return CASES[name] if torch.cuda.is_available() else replace(CASES[name], slots={})


QUICK = tuple(NAMES) if torch.cuda.is_available() else tuple(name for name in NAMES if name != "product")
"""All kernels for whole models; in the interpreter without products, which take most of its time."""


@cache
def _quicken() -> None:
    """Let Triton's interpreter put its functions into the language once a launch, not once a function that is called:
    half of its time."""
    from triton import language
    from triton.runtime import interpreter

    both = SimpleNamespace(__globals__={"tl": language, "core": language.core})
    patch = interpreter._patch_lang
    interpreter._patch_lang = lambda _: patch(both)
    interpreter.InterpretedFunction.__call__ = lambda self, *given, **named: self.rewrite()(*given, **named)


def table_for(device: torch.device, names: Collection[str] = tuple(NAMES), overlap: int = 0) -> KernelTable:
    """These kernels, on such a device."""
    found = inference_table(torch.float32, names, device=device.type, overlap=overlap)
    assert found is not None
    return found


class KernelRunner(EagerRunner):
    """An eager runner whose operations are carried out by these kernels."""

    def __init__(self, device: torch.device, precision: Any = "fp32", names: Collection[str] = tuple(NAMES)) -> None:
        super().__init__(device, precision)
        self.kernels = inference_table(self.dtype, names, device=device.type)

    def uses(self, kernel: str, head: int | None = None) -> bool:
        """Whether it is one of them."""
        return self.kernels is not None and kernel in self.kernels.names and (head is None or head in HEADS)

    def call(self, program: Program, *arguments: Any) -> Any:
        """Run it with them."""
        with kernels_of(self.kernels):
            return super().call(program, *arguments)


def attended(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """In float64: queries, keys, values [rows, heads, slots, head], visible broadcasting -> [rows, queries, width]"""
    scores = queries.double() @ keys.double().transpose(2, 3) * queries.shape[-1] ** -0.5
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    mixed: Tensor = weights @ values.double()
    return mixed.transpose(1, 2).flatten(2)
