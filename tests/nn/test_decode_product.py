"""Products of few slots by a kernel of our own, against plain arithmetic; bits that must not depend on their number.

On a CUDA device in fp16, or in Triton's interpreter (TRITON_INTERPRET=1) in fp32.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from longstride.nn.decode_product import FEW, MULTIPLE, StepLinear, product
from longstride.nn.fused import Kernel
from longstride.nn.fused_trials import TOLERANCE, trial
from longstride.systems.blockwise.model import Heads, HeadsOptions
from tests.nn.running_kernels import where

loops = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")


@pytest.fixture
def device() -> torch.device:
    return where(loops=True)


@pytest.fixture
def dtype(device: torch.device) -> torch.dtype:
    return torch.float16 if device.type == "cuda" else torch.float32


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(64, 64), (128, 64), (192, 128)])
def test_trials_pass(sizes, device, dtype):
    assert trial(Kernel("product", sizes), device, dtype) <= TOLERANCE[dtype]


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 9), (4, 16)])
def test_few_slots_by_a_weight(shape, bias, device, dtype):
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(64, 128, bias=bias, device=device, dtype=dtype).requires_grad_(False)
    x = torch.randn(*shape, 64, generator=generator).to(device, dtype)
    exact = nn.functional.linear(x.double(), linear.weight.double(), None if not bias else linear.bias.double())
    for relu in (False, True):
        found = product(x, linear, relu)
        assert found.shape == (*shape, 128)
        expected = exact.relu() if relu else exact
        torch.testing.assert_close(found.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@loops
@pytest.mark.gpu
def test_tiles_that_are_not_asked_for_at_once_are_read_too(device, dtype, monkeypatch):
    """Of a wide product all the weight may be too much at a time; bits are those of one that asks for all."""
    from longstride.nn import decode_product_kernels as kernels

    linear = nn.Linear(384, 64, device=device, dtype=dtype).requires_grad_(False)
    x = torch.randn(3, 384, device=device, dtype=dtype)
    monkeypatch.setattr(kernels, "SHORT", replace(kernels.SHORT, share=16))
    at_once = product(x, linear)
    monkeypatch.setattr(kernels, "_AHEAD", 1)
    assert torch.equal(product(x, linear), at_once)


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("inputs", [512, 576, 2048])
def test_bits_depend_on_neither_other_slots_nor_other_outputs(inputs, device, dtype):
    """One way over the weight for each number of inputs, of which there are two."""
    linear = nn.Linear(inputs, 64, device=device, dtype=dtype).requires_grad_(False)
    wider = nn.Linear(inputs, 128, device=device, dtype=dtype).requires_grad_(False)
    wider.weight[64:], wider.bias[64:] = linear.weight, linear.bias
    x = torch.randn(18, inputs, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    found = product(x, linear)
    torch.testing.assert_close(found, linear(x), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert torch.equal(product(x, wider)[:, 64:], found)
    for one in (0, 15, 16, 17):
        assert torch.equal(product(x[one : one + 1], linear)[0], found[one])


@pytest.mark.parametrize("inputs", [*range(64, 4097, 64), 8192])
def test_warps_share_all_inputs(inputs):
    pytest.importorskip("triton")
    from longstride.nn.decode_product_kernels import walk_of

    walk = walk_of(inputs)
    warps, share = walk.split(inputs)
    assert inputs % (warps * share) == 0
    assert share >= 16
    assert share & (share - 1) == 0
    assert MULTIPLE % walk.outputs == 0


def test_tiles_are_those_that_were_timed():
    pytest.importorskip("triton")
    from longstride.nn.decode_product_kernels import walk_of

    assert walk_of(512).split(512) == (4, 128)
    assert walk_of(2048).split(2048) == (8, 128)


@loops
@pytest.mark.gpu
def test_prediction_heads_by_it_are_as_they_were(device, dtype):
    heads = Heads(HeadsOptions(k=3, width=64, feed_forward=64)).to(device, dtype).eval().requires_grad_(False)
    nn.init.normal_(heads.down.weight, std=0.1)
    hidden = torch.randn(2, 64, device=device, dtype=dtype)
    plain = heads.ahead(hidden, 3)
    heads.up.use(["product"])
    torch.testing.assert_close(heads.ahead(hidden, 3), plain, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_a_layer_uses_it_for_few_slots_alone(monkeypatch):
    from longstride.nn import decode_product

    asked: list[int] = []

    def noted(x: torch.Tensor, linear: nn.Linear, relu: bool = False) -> torch.Tensor:
        asked.append(x.shape[0])
        return nn.functional.linear(x, linear.weight, linear.bias)

    monkeypatch.setattr(decode_product, "product", noted)
    linear = StepLinear(64, 64)
    for slots in (1, FEW, FEW + 1):
        assert linear(torch.randn(slots, 64)).shape == (slots, 64)
    assert asked == []
    linear.use(["product"])
    for slots in (1, FEW, FEW + 1):
        linear(torch.randn(slots, 64))
    assert asked == [1, FEW]
    assert [kernel.sizes for kernel in linear.kernels()] == [(64, 64)]
    assert StepLinear(60, 64).kernels() == []
