"""Products of a row or a few by a large weight, against plain arithmetic.

On a CUDA device in fp16, or in Triton's interpreter (TRITON_INTERPRET=1) in fp32.
"""

from __future__ import annotations

import pytest
import torch

from longstride.nn.fused_trials import TOLERANCE
from longstride.nn.fused_trials import trial as tried
from longstride.nn.row_product import FEW, RowLinear, row_product
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
@pytest.mark.parametrize("sizes", [(64, 64), (192, 128), (4096, 64), (6 * 1024, 64)])
def test_trials_pass(sizes, device, dtype):
    linear = RowLinear(*sizes)
    (kernel,) = linear.kernels()
    assert tried(kernel, device, dtype) <= TOLERANCE[dtype]


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_added_is_added_to_every_part(rows, device, dtype):
    generator = torch.Generator().manual_seed(rows)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    x, weight, bias, added = random(rows, 128), random(3 * 10, 128) / 10, random(3 * 10), random(rows, 10)
    found = row_product(x, weight, bias, added)
    exact = (x.double() @ weight.double().T + bias.double()).view(rows, 3, 10) + added.double()[:, None]
    torch.testing.assert_close(found.double(), exact, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("first", ["identity", "learned"])
@pytest.mark.parametrize("rows", [1, 2, FEW + 1])
def test_heads_ahead_are_as_they_were(rows, first, device, dtype):
    heads = Heads(HeadsOptions(k=4, width=64, feed_forward=64, first=first)).to(device, dtype)
    heads.eval().requires_grad_(False)
    torch.nn.init.normal_(heads.down.weight, std=0.1)
    torch.nn.init.normal_(heads.down.bias, std=0.1)
    hidden = torch.randn(rows, 64, device=device, dtype=dtype)
    for k in (2, 4):
        for part in (heads.up, heads.down):
            part.use([])
        plain, first = heads.ahead(hidden, k), heads.first(hidden)
        for part in (heads.up, heads.down):
            part.use(["product"])
        torch.testing.assert_close(heads.ahead(hidden, k), plain, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
        torch.testing.assert_close(heads.first(hidden), first, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_it_is_asked_for_few_rows_alone():
    linear = RowLinear(64, 64)
    assert not linear.serves(1)
    linear.use(["product"])
    assert linear.serves(FEW)
    assert not linear.serves(FEW + 1)
    assert RowLinear(65, 64).kernels() == RowLinear(64, 65).kernels() == []
