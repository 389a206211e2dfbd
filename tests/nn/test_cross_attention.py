"""Where a decoder looked: shares of the source, the same for a sentence alone and beside others."""

from __future__ import annotations

import pytest
import torch

from longstride import ops
from longstride.nn.cross_attention import cross_attention
from tests.models import random_source, tiny_model


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_shares_of_real_tokens_whoever_is_beside(norm: str) -> None:
    model = tiny_model(norm=norm)
    source, target = random_source(4, 9, seed=1), random_source(4, 7, seed=2).ids
    visible = ops.real(source.lengths, source.ids.shape[1])
    with torch.inference_mode():
        found = cross_attention(model, target, model.encode(source.ids, visible), visible)
        assert torch.allclose(found.sum(-1), torch.ones(target.shape))
        assert (found[~visible[:, None].expand_as(found)] == 0).all()
        for row, length in enumerate(source.lengths.tolist()):
            alone = source.ids[row : row + 1, :length]
            seen = torch.ones_like(alone, dtype=torch.bool)
            one = cross_attention(model, target[row : row + 1], model.encode(alone, seen), seen)
            assert torch.allclose(one[0], found[row, :, :length], atol=1e-6)


def test_each_layer_is_asked_as_it_decodes() -> None:
    """Weights times values, projected, are what cross-attention gives: for one head and one layer both are known."""
    model = tiny_model(heads=1, decoder_layers=1)
    source, target = random_source(1, 6, seed=3), random_source(1, 5, seed=4).ids
    visible = ops.real(source.lengths, source.ids.shape[1])
    caught: list[tuple[torch.Tensor, torch.Tensor]] = []
    [layer] = model.decoder_layers()
    hook = layer.cross.register_forward_hook(lambda module, given, made: caught.append((given[2], made)))
    with torch.inference_mode():
        found = cross_attention(model, target, model.encode(source.ids, visible), visible)
        values, made = caught[0]
        assert torch.allclose(layer.cross.out(found.to(values.dtype) @ values[:, 0]), made, atol=1e-6)
    hook.remove()
