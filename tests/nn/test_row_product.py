"""Products of a row or a few by a large weight, against plain arithmetic.

On a CUDA device in fp16, or in Triton's interpreter (TRITON_INTERPRET=1) in fp32.
"""

from __future__ import annotations

import pytest
import torch

from longstride import ops
from longstride.ops.cuda.self_test import CASES, TOLERANCE, compare
from longstride.ops.cuda.table import FEW_ROWS
from longstride.ops.kernels import kernels_of
from longstride.systems.blockwise.model import Heads, HeadsOptions
from tests.nn.running_kernels import few, table_for, where


@pytest.fixture
def device() -> torch.device:
    return where()


@pytest.fixture
def dtype(device: torch.device) -> torch.dtype:
    return torch.float16 if device.type == "cuda" else torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize("inputs", [64, 192, 4096, 6 * 1024])
def test_any_number_of_inputs(inputs, device, dtype):
    assert compare(CASES["product of rows"], table_for(device), device, dtype, inputs) <= TOLERANCE[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_added_is_added_to_every_part(rows, device, dtype):
    generator = torch.Generator().manual_seed(rows)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    x, weight, bias, added = random(rows, 128), random(3 * 10, 128) / 10, random(3 * 10), random(rows, 10)
    with kernels_of(table_for(device)):
        found = ops.row_product(x, weight, bias, added)
    exact = (x.double() @ weight.double().T + bias.double()).view(rows, 3, 10) + added.double()[:, None]
    torch.testing.assert_close(found.double(), exact, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("first", ["identity", "learned"])
@pytest.mark.parametrize("rows", few([2, FEW_ROWS + 1, 1], 2))
def test_heads_ahead_are_as_they_were(rows, first, device, dtype):
    heads = Heads(HeadsOptions(k=4, width=64, feed_forward=64, first=first)).to(device, dtype)
    heads.eval().requires_grad_(False)
    torch.nn.init.normal_(heads.down.weight, std=0.1)
    torch.nn.init.normal_(heads.down.bias, std=0.1)
    hidden = torch.randn(rows, 64, device=device, dtype=dtype)
    for k in (2, 4):
        plain, first_head = heads.ahead(hidden, k), heads.first(hidden)
        with kernels_of(table_for(device, ["product"])):
            found = heads.ahead(hidden, k), heads.first(hidden)
        torch.testing.assert_close(found[0], plain, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
        torch.testing.assert_close(found[1], first_head, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_it_is_asked_for_few_rows_alone():
    table = table_for(torch.device("cpu"))

    def served(rows: int, inputs: int) -> bool:
        weight, bias = torch.zeros(128, inputs), torch.zeros(128)
        return table.find("row_product", torch.zeros(rows, inputs), weight, bias, torch.zeros(rows, 64)) is not None

    assert served(FEW_ROWS, 64)
    assert not served(FEW_ROWS + 1, 64)
    assert not served(1, 65)
