"""Attention, feed-forward, and the encoder and decoder layers made of them, pre- or post-norm.

`compile_unit` marks what a trainer may compile once and reuse.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from longstride import ops
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.options import TransformerOptions
from longstride.ops import Asked, AttentionBias


class Linear(nn.Linear):
    """A linear layer, by the operation of that name."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        return ops.linear(x, self.weight, self.bias)


def lowered(x: Tensor) -> Tensor:
    """Under autocast, the type that products have: so that the residual stream has it from the start."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _projection(options: TransformerOptions, *heads: int) -> Linear:
    """A linear layer of projections on so many heads each, drawn as the papers' code does (Xavier, gain 1/√2)."""
    sizes = [count * options.head_width for count in heads]
    linear = Linear(options.width, sum(sizes), bias=options.bias)
    with torch.no_grad():
        for block in torch.split(linear.weight, sizes):
            nn.init.xavier_uniform_(block, gain=2**-0.5)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def _output(options: TransformerOptions) -> Linear:
    linear = Linear(options.heads * options.head_width, options.width, bias=options.bias)
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


class SelfAttention(nn.Module):
    """Attention of a sequence over itself; one product makes queries, keys and values."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.shared = options.heads // (options.key_value_heads or options.heads)
        self.dropout = options.attention_dropout
        self.scale = None if options.scale_attention else 1.0
        self.local = options.local_attention
        self.qkv = _projection(options, self.heads, self.heads // self.shared, self.heads // self.shared)
        self.out = _output(options)

    def packed(self, x: Tensor) -> Tensor:
        """[rows, length, width] -> queries, keys and values of all heads side by side"""
        made: Tensor = self.qkv(x)
        return made if self.shared == 1 else ops.repeat_heads(made, self.heads, self.shared)

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """`mask` is boolean and broadcasts to [rows, heads, length, length]; with `causal` it must be None."""
        dropout = self.dropout if self.training else 0.0
        if causal and self.local:
            return self.out(ops.local_self_attention(self.packed(x), self.heads, self.local, dropout, self.scale))  # type: ignore[no-any-return]
        mixed = ops.self_attention(self.packed(x), self.heads, mask, causal, dropout, self.scale)
        return self.out(mixed)  # type: ignore[no-any-return]

    def extend(
        self, x: Tensor, layer: int, cache: Cache, slots: Tensor, bias: AttentionBias, asked: Asked = None
    ) -> Tensor:
        """New slots [rows, step] of a cache's layer, x [rows, step, width]; who sees whom, the bias says.

        All are written; what is made are those that are `asked` for, first and end, or all.
        """
        packed, keys, values = self.packed(x), cache.keys[layer], cache.values[layer]
        mixed = ops.cached_attention(
            packed, keys, values, slots, bias, self.heads, cache.indirection, asked, self.scale
        )
        return self.out(mixed)  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Attention of target slots over an encoded source.

    Several rows may read one source (the hypotheses of a beam): rows of one source lie side by side and are read as one
    longer row, so that keys and values are neither computed nor stored more than once.
    """

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.shared = options.heads // (options.key_value_heads or options.heads)
        self.dropout = options.attention_dropout
        self.scale = None if options.scale_attention else 1.0
        self.q = _projection(options, self.heads)
        self.kv = _projection(options, self.heads // self.shared, self.heads // self.shared)
        self.out = _output(options)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[sources, source, width] -> keys, values [sources, heads, source, head]"""
        keys, values = ops.project_layers(memory, [self.kv], self.heads, self.shared)
        return keys[0], values[0]

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """x [rows, length, width]; rows is a multiple of the sources; mask [sources, 1, 1, source].

        The mask is boolean, or of x's own type and added to scores: so it is in steps.
        """
        rows, length, _ = x.shape
        sources, _, _, head = keys.shape
        queries, width = self.q(x), self.heads * head
        side_by_side = queries if sources == rows else queries.reshape(sources, rows // sources * length, width)
        dropout = self.dropout if self.training else 0.0
        mixed = ops.attention(side_by_side, keys, values, mask, self.heads, dropout, self.scale)
        return self.out(mixed if sources == rows else mixed.view(rows, length, width))  # type: ignore[no-any-return]


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
