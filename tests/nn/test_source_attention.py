"""A source's attention to itself by a kernel of our own: what it gives, and who is served.

It runs on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1.
"""

from __future__ import annotations

import pytest
import torch

from longstride.nn import fused_trials
from longstride.nn.attention import SelfAttention
from longstride.nn.fused import Kernel
from longstride.nn.options import TransformerOptions
from longstride.nn.source_attention import LONGEST, attended, serves
from tests.models import random_source, tiny_model
from tests.nn.running_kernels import where

loops = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")


def attention(width: int, heads: int, device: torch.device) -> SelfAttention:
    torch.manual_seed(width)
    options = TransformerOptions(vocabulary=5, width=width, heads=heads, attention_dropout=0.1)
    return SelfAttention(options).to(device).eval().requires_grad_(False)


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("head", [16, 64])
def test_the_trial_finds_nothing(head):
    apart = fused_trials.trial(Kernel("source-self", (head,)), where(loops=True), torch.float32)
    assert apart <= fused_trials.TOLERANCE[torch.float32]


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [[1], [5, 16, 17], [70, 33]])
@pytest.mark.parametrize("padded", [False, True])
def test_it_is_attention(lengths, padded):
    device = where(loops=True)
    layer = attention(32, 2, device)
    longest = max(lengths)
    x = torch.randn(len(lengths), longest, 32, generator=torch.Generator().manual_seed(0)).to(device)
    visible = (torch.arange(longest) < torch.tensor(lengths)[:, None]).to(device)
    mask = visible[:, None, None] if padded else None
    with torch.inference_mode():
        expected = layer(x, mask, causal=False)
        layer.use(["source-self"])
        torch.testing.assert_close(layer(x, mask, causal=False), expected, atol=1e-5, rtol=1e-5)


@loops
@pytest.mark.gpu
def test_a_row_depends_neither_on_others_nor_on_padding():
    device = where(loops=True)
    packed = torch.randn(3, 40, 96, generator=torch.Generator().manual_seed(0)).to(device)
    lengths = torch.tensor([40, 3, 18])
    visible = (torch.arange(40) < lengths[:, None]).to(device)
    packed[..., 32:].masked_fill_(~visible[..., None], float("nan"))  # keys and values that nobody sees
    found = attended(packed, 2, visible[:, None, None])
    for row, length in enumerate(lengths.tolist()):
        alone = attended(packed[row : row + 1, :length], 2, None)
        assert torch.equal(alone[0], found[row, :length])


@loops
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("length", [1, 64, 65])
def test_further_tiles_of_padding_change_no_bit(length, dtype):
    """Tiles have 64 keys; also where a mask hides nothing, bits are those without one."""
    device = where(loops=True)
    packed = torch.randn(1, LONGEST, 48, generator=torch.Generator().manual_seed(length)).to(device, dtype)
    alone = attended(packed[:, :length], 1, None)
    for padded in (length, 64, 80, LONGEST):
        if padded >= length:
            visible = (torch.arange(padded) < length)[None].to(device)
            some = packed[:, :padded].clone()
            some[:, length:, 16:] = float("nan")
            assert torch.equal(attended(some, 1, visible[:, None, None])[:, :length], alone)


@loops
@pytest.mark.gpu
def test_who_sees_nothing_gets_zeros():
    device = where(loops=True)
    packed = torch.randn(2, 70, 48, generator=torch.Generator().manual_seed(0)).to(device)
    visible = torch.zeros(2, 70, dtype=torch.bool, device=device)
    visible[1, 66] = True  # in the second tile alone
    found = attended(packed, 1, visible[:, None, None])
    assert (found[0] == 0).all()
    torch.testing.assert_close(found[1], packed[1, 66, 32:].expand(70, 16))


@loops
@pytest.mark.gpu
def test_an_encoder_with_it_gives_what_it_gave():
    device = where(loops=True)
    model = tiny_model(4, width=32, heads=2).float().to(device)
    source = random_source(3, 9, seed=2)
    visible = (torch.arange(source.longest) < source.lengths[:, None]).to(device)
    with torch.inference_mode():
        expected = model.encode(source.ids.to(device), visible)
        for part in model.modules():
            if isinstance(part, SelfAttention):
                part.use(["source-self"])
        found = model.encode(source.ids.to(device), visible)
    torch.testing.assert_close(found[visible], expected[visible], atol=1e-4, rtol=1e-4)


def test_who_is_served():
    packed, visible = torch.zeros(2, 5, 48), torch.ones(2, 5, dtype=torch.bool)
    assert serves(packed, None)
    assert serves(packed, visible[:, None, None])
    assert not serves(packed, torch.ones(2, 1, 5, 5, dtype=torch.bool))  # each query has its own
    assert not serves(packed, torch.zeros(2, 1, 1, 5))
    assert not serves(packed, visible[:1, None, None])
    assert not serves(torch.zeros(1, LONGEST + 1, 48), None)
    assert serves(torch.zeros(1, LONGEST, 48), None)


def test_what_is_causal_or_has_masks_of_its_own_goes_as_before():
    """Nobody here has Triton to call it."""
    layer = attention(32, 2, torch.device("cpu"))
    x = torch.randn(2, 6, 32)
    mask = torch.ones(6, 6, dtype=torch.bool).tril().expand(2, 1, 6, 6)
    expected = layer(x, None, causal=True)
    layer.use(["source-self"])
    assert torch.equal(layer(x, None, causal=True), expected)
    torch.testing.assert_close(layer(x, mask, causal=False), expected)
