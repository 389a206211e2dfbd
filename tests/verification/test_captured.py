"""Captured iterations with our own kernels between model calls: on a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from longstride.contract import Limits
from longstride.ops.cuda import self_test
from longstride.runtime.cuda_graph import CudaGraphRunner
from tests.models import random_source
from tests.runtime.test_cuda_graph import KINDS, TREES, decoder_of, taped


def outputs(kind: str, rule: str, precision: Any) -> list[Any]:
    runner = CudaGraphRunner("cuda:0", precision)
    decoder = decoder_of(kind, runner, 3, rule)
    found = []
    for seed in range(4):
        decoded = decoder.decode(random_source(1 + seed, 6, seed=seed), Limits(max_length=12), trace=True)
        found.append((decoded.tokens, decoded.traces))
    return found


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "rule", "precision"),
    [
        *((kind, rule, "fp16") for kind in KINDS for rule in ("exact", "top:3,gap:1.0")),
        *((kind, "exact", "fp32") for kind in TREES),  # of near equals, which hang on rounding, a tree may hold either
        *(("draft-verify", "top:3,gap:1.0", precision) for precision in ("fp32", "bf16")),
    ],
)
def test_captured_with_our_kernels_is_captured_without(kind, rule, precision, monkeypatch):
    """Choices, ranks and gaps are compared as logits, so that no sum's last bit decides: step by step the same."""
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    assert CudaGraphRunner("cuda:0", precision).fuses
    ours = outputs(kind, rule, precision)
    monkeypatch.setattr(CudaGraphRunner, "fuses", False)
    assert outputs(kind, rule, precision) == ours


def test_without_a_cuda_device_tensor_code_is_what_there_is():
    runner, _ = taped()
    assert not runner.fuses


def test_where_the_quick_check_fails_there_are_none(monkeypatch):
    runner, _ = taped()
    runner.device, runner.precision = torch.device("cuda", 0), "fp16"
    for said in ("", "its ranks differ from PyTorch's own"):
        monkeypatch.setattr(self_test, "unsupported_reason", lambda device, dtype, said=said: said)
        assert runner.fuses is not bool(said)
