"""Products of few slots by a kernel of our own, against plain arithmetic; bits that must not depend on their number.

On a CUDA device in fp16, or in Triton's interpreter (TRITON_INTERPRET=1) in fp32.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from longstride import ops
from longstride.ops.cuda.self_test import TOLERANCE, compare
from longstride.ops.cuda.table import FEW_SLOTS, MANY_SLOTS, MULTIPLE
from longstride.ops.kernels import kernels_of
from longstride.systems.blockwise.model import Heads, HeadsOptions
from tests.nn.running_kernels import case_of, few, table_for, where


def product(x: torch.Tensor, linear: nn.Linear, relu: bool = False) -> torch.Tensor:
    """By the kernel."""
    with kernels_of(table_for(x.device, ["product"])):
        return ops.linear(x, linear.weight, linear.bias, "relu" if relu else None)


@pytest.fixture
def device() -> torch.device:
    return where()


@pytest.fixture
def dtype(device: torch.device) -> torch.dtype:
    return torch.float16 if device.type == "cuda" else torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize("inputs", few([128, 64, 192, 512, 2048]))
@pytest.mark.parametrize("name", few(["product, ReLU", "product", "product, sum"]))
def test_any_number_of_inputs(name, inputs, device, dtype):
    assert compare(case_of(name), table_for(device), device, dtype, inputs) <= TOLERANCE[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", few([(2, 9), (1, 1), (4, 16)], 2))
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


@pytest.mark.gpu
def test_tiles_that_are_not_asked_for_at_once_are_read_too(device, dtype, monkeypatch):
    """Of a wide product all the weight may be too much at a time; bits are those of one that asks for all."""
    from longstride.ops.cuda import step_linear as kernels

    linear = nn.Linear(384, 64, device=device, dtype=dtype).requires_grad_(False)
    x = torch.randn(3, 384, device=device, dtype=dtype)
    monkeypatch.setattr(kernels, "SHORT", replace(kernels.SHORT, share=16))
    at_once = product(x, linear)
    monkeypatch.setattr(kernels, "_AHEAD", 1)
    assert torch.equal(product(x, linear), at_once)


@pytest.mark.gpu
@pytest.mark.parametrize("inputs", few([576, 512, 2048]))
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


@pytest.mark.gpu
@pytest.mark.parametrize("inputs", few([192, 64, 512, 576, 2048], 2))
def test_bits_do_not_depend_on_the_kernel_or_on_what_its_programs_have(inputs, device, dtype):
    """Of many slots programs have more rows and more outputs each; a slot's numbers are those that it has alone."""
    from longstride.ops.cuda import step_linear, wide_linear

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(70 if device.type == "cpu" else 500, inputs, generator=generator).to(device, dtype)
    weight = torch.randn(192, inputs, generator=generator).to(device, dtype) * inputs**-0.5
    bias = torch.randn(192, generator=generator).to(device, dtype)
    added = torch.randn(len(x), 192, generator=generator).to(device, dtype)
    expected = step_linear.product(x, weight, bias, True, added=added)
    for tile in wide_linear.TILES:
        found = wide_linear.product(x, weight, bias, True, added, tile)
        if device.type == "cpu":  # the interpreter multiplies by a library, whose bits depend on shapes
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        else:
            assert torch.equal(found, expected)


@pytest.mark.parametrize("rows", [1, 16, 17, 64, 65, 128, 1536])
@pytest.mark.parametrize("outputs", [64, 512, 2048, 16_000])
def test_stripes_are_whole(rows, outputs):
    pytest.importorskip("triton")
    from longstride.ops.cuda.wide_linear import tile_of

    assert MULTIPLE % tile_of(rows, outputs).outputs == 0


@pytest.mark.parametrize("inputs", [*range(64, 4097, 64), 8192])
def test_warps_share_all_inputs(inputs):
    pytest.importorskip("triton")
    from longstride.ops.cuda.step_linear import walk_of

    walk = walk_of(inputs)
    warps, share = walk.split(inputs)
    assert inputs % (warps * share) == 0
    assert share >= 16
    assert share & (share - 1) == 0
    assert MULTIPLE % walk.outputs == 0


def test_tiles_are_those_that_were_timed():
    pytest.importorskip("triton")
    from longstride.ops.cuda.step_linear import walk_of

    assert walk_of(512).split(512) == (4, 128)
    assert walk_of(2048).split(2048) == (8, 128)


@pytest.mark.gpu
def test_prediction_heads_by_it_are_as_they_were(device, dtype):
    heads = Heads(HeadsOptions(k=3, width=64, feed_forward=64)).to(device, dtype).eval().requires_grad_(False)
    nn.init.normal_(heads.down.weight, std=0.1)
    hidden = torch.randn(2, 64, device=device, dtype=dtype)
    plain = heads.ahead(hidden, 3)
    with kernels_of(table_for(device, ["product"])):
        found = heads.ahead(hidden, 3)
    torch.testing.assert_close(found, plain, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_it_is_for_few_slots_and_whole_multiples_alone():
    table, weight, bias = table_for(torch.device("cpu")), torch.zeros(128, 64), torch.zeros(128)

    def chosen(slots: int, weight: torch.Tensor, *more: object, dtype: torch.dtype = torch.float32) -> str | None:
        kernel = table.find("linear", torch.zeros(1, slots, weight.shape[1], dtype=dtype), weight, *more)
        return kernel and kernel.name

    assert [chosen(slots, weight, bias) for slots in (1, FEW_SLOTS, FEW_SLOTS + 1)] == ["product", "product", None]
    assert chosen(MANY_SLOTS, weight, bias, dtype=torch.float16) == "product"
    assert chosen(MANY_SLOTS + 1, weight, bias, dtype=torch.bfloat16) is None
    assert chosen(1, weight) == "product"  # without a bias
    assert chosen(1, weight, bias, "relu") == "product"
    assert chosen(FEW_SLOTS + 1, weight, bias, "relu") == "relu"  # the library's, with the activation at its end
    assert chosen(FEW_SLOTS + 1, weight, None, "relu") is None
    assert chosen(1, weight, bias, "gelu") is None
    assert chosen(1, torch.zeros(128, 60), bias) is None
    assert chosen(1, torch.zeros(120, 64), bias) is None
