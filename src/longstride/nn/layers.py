"""Encoder and decoder layers, pre- or post-norm. `compile_unit` marks what a trainer may compile once and reuse."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from longstride import ops
from longstride.nn.attention import CrossAttention, Linear, SelfAttention
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.options import TransformerOptions
from longstride.ops import Asked, AttentionBias


class Norm(nn.Module):
    """Layer norm or, without a bias, division by the root mean square: no mean is taken away, and nothing is added."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(options.width))
        self.bias = nn.Parameter(torch.zeros(options.width)) if options.norm_type == "layer" else None
        self.eps = options.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]"""
        return ops.norm(x, self.weight, self.bias, self.eps)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them; gated, a third whose product is multiplied by it."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        width, hidden = options.width, options.feed_forward
        self.gated = options.gated
        self.up = Linear(width, 2 * hidden if self.gated else hidden, bias=options.bias)
        self.down = Linear(hidden, width, bias=options.bias)
        self.activation = options.activation
        self.dropout = nn.Dropout(options.activation_dropout)
        for linear in (self.up, self.down):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]"""
        if self.gated:
            gate, value = self.up(x).chunk(2, dim=-1)
            hidden = ops.ACTIVATIONS[self.activation](gate) * value
        else:
            hidden = ops.linear(x, self.up.weight, self.up.bias, self.activation)
        return self.down(self.dropout(hidden))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """The norm and dropout around one block: ``norm(x + block(x))`` (post) or ``x + block(norm(x))`` (pre)."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.pre = options.norm == "pre"
        self.norm = Norm(options)
        self.dropout = nn.Dropout(options.dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What the block reads."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, block: Tensor) -> Tensor:
        """The sum, with what the block made of it."""
        if self.pre:
            return x + self.dropout(block)  # type: ignore[no-any-return]
        norm, dropout = self.norm, self.dropout.p if self.training else 0.0
        return ops.add_norm(x, block, norm.weight, norm.bias, norm.eps, dropout)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    compile_unit = True

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.attention = SelfAttention(options)
        self.attention_residual = Residual(options)
        self.feed_forward = FeedForward(options)
        self.feed_forward_residual = Residual(options)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x [rows, length, width]; mask [rows, 1, 1, length], None where nothing is padded, or what is added to scores
        [rows, heads, length, length]"""
        block = self.attention(self.attention_residual.enter(x), mask, causal=False)
        x = self.attention_residual.leave(x, block)
        block = self.feed_forward(self.feed_forward_residual.enter(x))
        return self.feed_forward_residual.leave(x, block)


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward."""

    compile_unit = True

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.attention = SelfAttention(options)
        self.attention_residual = Residual(options)
        self.cross = CrossAttention(options)
        self.cross_residual = Residual(options)
        self.feed_forward = FeedForward(options)
        self.feed_forward_residual = Residual(options)

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, memory_mask: Tensor | None, causal: bool
    ) -> Tensor:
        """All slots at once: x [rows, length, width], memory [rows, source, width]."""
        block = self.attention(self.attention_residual.enter(x), mask, causal=causal)
        x = self.attention_residual.leave(x, block)
        keys, values = self.cross.project_memory(memory)
        return self._rest(x, keys, values, memory_mask)

    def extend(
        self,
        x: Tensor,
        layer: int,
        cache: Cache,
        slots: Tensor,
        bias: AttentionBias,
        memory_keys: Tensor,
        memory_values: Tensor,
        memory_mask: Tensor,
        asked: Asked = None,
    ) -> Tensor:
        """New slots only, x [rows, step, width], the past from the cache; hidden states of the `asked` alone."""
        block = self.attention.extend(self.attention_residual.enter(x), layer, cache, slots, bias, asked)
        x = x if asked is None else x[:, asked[0] : asked[1]]
        x = self.attention_residual.leave(x, block)
        return self._rest(x, memory_keys, memory_values, memory_mask)

    def _rest(self, x: Tensor, memory_keys: Tensor, memory_values: Tensor, memory_mask: Tensor | None) -> Tensor:
        block = self.cross(self.cross_residual.enter(x), memory_keys, memory_values, memory_mask)
        x = self.cross_residual.leave(x, block)
        block = self.feed_forward(self.feed_forward_residual.enter(x))
        return self.feed_forward_residual.leave(x, block)


def extend_all(
    layers: Sequence[DecoderLayer],
    x: Tensor,
    cache: Cache,
    slots: Tensor,
    bias: AttentionBias,
    memory: EncoderState,
    also: Tensor | None = None,
    asked: Asked = None,
) -> Tensor:
    """New slots through a stack of layers, x [rows, step, width], each with its own part of cache and memory.

    `also`, like x, is added to what every layer but the first reads. What leaves the last layer are the slots that are
    `asked` for, or all.
    """
    memory_mask = memory.mask
    for number, layer in enumerate(layers):
        if also is not None and number > 0:
            x = x + also
        source = memory.keys[number], memory.values[number], memory_mask
        x = layer.extend(x, number, cache, slots, bias, *source, asked if number + 1 == len(layers) else None)
    return x
