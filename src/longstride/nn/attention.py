"""Multi-head attention, over what is given at once (training) and over a cache that grows (decoding)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from longstride import ops
from longstride.nn.cache import Cache
from longstride.nn.options import TransformerOptions
from longstride.ops import Asked, AttentionBias


class Linear(nn.Linear):
    """A linear layer, by the operation of that name."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        return ops.linear(x, self.weight, self.bias)


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
        self.qkv = _projection(options, self.heads, self.heads // self.shared, self.heads // self.shared)
        self.out = _output(options)

    def packed(self, x: Tensor) -> Tensor:
        """[rows, length, width] -> queries, keys and values of all heads side by side"""
        made: Tensor = self.qkv(x)
        return made if self.shared == 1 else ops.repeat_heads(made, self.heads, self.shared)

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """`mask` is boolean and broadcasts to [rows, heads, length, length]; with `causal` it must be None."""
        dropout = self.dropout if self.training else 0.0
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
