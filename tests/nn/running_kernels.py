"""Where Triton's kernels can be run: on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import pytest
import torch
from torch import Tensor

from longstride.contract import Program
from longstride.ops.cuda.table import HEADS, NAMES, inference_table
from longstride.ops.kernels import KernelTable, kernels_of
from longstride.runtime.eager import EagerRunner


def where() -> torch.device:
    """The device to try them on; the test is skipped where there is none."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1")
    return torch.device("cpu")


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
