"""A source's attention to itself by a kernel of our own: what it gives, and who is served.

It runs on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1.
"""

from __future__ import annotations

import pytest
import torch

from longstride import ops
from longstride.nn.layers import SelfAttention
from longstride.nn.options import TransformerOptions
from longstride.ops.cuda.table import LONGEST_SOURCE as LONGEST
from longstride.ops.kernels import kernels_of
from tests.models import random_source, tiny_model
from tests.nn.running_kernels import table_for, where


def attended(packed: torch.Tensor, heads: int, mask: torch.Tensor | None) -> torch.Tensor:
    """By the kernel."""
    table = table_for(packed.device, ["source-self"])
    assert table.find("self_attention", packed, heads, mask) is not None
    with kernels_of(table):
        return ops.self_attention(packed, heads, mask)


def attention(width: int, heads: int, device: torch.device) -> SelfAttention:
    torch.manual_seed(width)
    options = TransformerOptions(vocabulary=5, width=width, heads=heads, attention_dropout=0.1)
    return SelfAttention(options).to(device).eval().requires_grad_(False)


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [[1], [5, 16, 17], [70, 33]])
@pytest.mark.parametrize("padded", [False, True])
def test_it_is_attention(lengths, padded):
    device = where()
    layer = attention(32, 2, device)
    longest = max(lengths)
    x = torch.randn(len(lengths), longest, 32, generator=torch.Generator().manual_seed(0)).to(device)
    visible = (torch.arange(longest) < torch.tensor(lengths)[:, None]).to(device)
    mask = visible[:, None, None] if padded else None
    with torch.inference_mode():
        expected = layer(x, mask, causal=False)
        with kernels_of(table_for(device, ["source-self"])):
            found = layer(x, mask, causal=False)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
def test_a_row_depends_neither_on_others_nor_on_padding():
    device = where()
    packed = torch.randn(3, 40, 96, generator=torch.Generator().manual_seed(0)).to(device)
    lengths = torch.tensor([40, 3, 18])
    visible = (torch.arange(40) < lengths[:, None]).to(device)
    packed[..., 32:].masked_fill_(~visible[..., None], float("nan"))  # keys and values that nobody sees
    found = attended(packed, 2, visible[:, None, None])
    for row, length in enumerate(lengths.tolist()):
        alone = attended(packed[row : row + 1, :length], 2, None)
        assert torch.equal(alone[0], found[row, :length])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("length", [1, 64, 65])
def test_further_tiles_of_padding_change_no_bit(length, dtype):
    """Tiles have 64 keys; also where a mask hides nothing, bits are those without one."""
    device = where()
    packed = torch.randn(1, LONGEST, 48, generator=torch.Generator().manual_seed(length)).to(device, dtype)
    alone = attended(packed[:, :length], 1, None)
    for padded in (length, 64, 80, LONGEST):
        if padded >= length:
            visible = (torch.arange(padded) < length)[None].to(device)
            some = packed[:, :padded].clone()
            some[:, length:, 16:] = float("nan")
            assert torch.equal(attended(some, 1, visible[:, None, None])[:, :length], alone)


@pytest.mark.gpu
def test_who_sees_nothing_gets_zeros():
    device = where()
    packed = torch.randn(2, 70, 48, generator=torch.Generator().manual_seed(0)).to(device)
    visible = torch.zeros(2, 70, dtype=torch.bool, device=device)
    visible[1, 66] = True  # in the second tile alone
    found = attended(packed, 1, visible[:, None, None])
    assert (found[0] == 0).all()
    torch.testing.assert_close(found[1], packed[1, 66, 32:].expand(70, 16))


@pytest.mark.gpu
def test_an_encoder_with_it_gives_what_it_gave():
    device = where()
    model = tiny_model(4, width=32, heads=2).float().to(device)
    source = random_source(3, 9, seed=2)
    visible = (torch.arange(source.longest) < source.lengths[:, None]).to(device)
    with torch.inference_mode():
        expected = model.encode(source.ids.to(device), visible)
        with kernels_of(table_for(device, ["source-self"])):
            found = model.encode(source.ids.to(device), visible)
    torch.testing.assert_close(found[visible], expected[visible], atol=1e-4, rtol=1e-4)


def test_who_is_served():
    table, visible = table_for(torch.device("cpu")), torch.ones(2, 5, dtype=torch.bool)

    def served(packed: torch.Tensor, mask: torch.Tensor | None, *more: object) -> bool:
        return table.find("self_attention", packed, 1, mask, *more) is not None

    packed = torch.zeros(2, 5, 48)
    assert served(packed, None)
    assert served(packed, visible[:, None, None])
    assert not served(packed, torch.ones(2, 1, 5, 5, dtype=torch.bool))  # each query has its own
    assert not served(packed, torch.zeros(2, 1, 1, 5))
    assert not served(packed, visible[:1, None, None])
    assert not served(packed, None, True)  # causal
    assert not served(packed, None, False, 0.1)  # dropout
    assert not served(packed, None, False, 0.0, 1.0)  # scores that are not scaled
    assert not served(torch.zeros(1, LONGEST + 1, 48), None)
    assert served(torch.zeros(1, LONGEST, 48), None)
