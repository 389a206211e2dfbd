"""Encoder and decoder layers, pre- or post-norm. `compile_unit` marks what a trainer may compile once and reuse."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.nn import fused_training
from longstride.nn.attention import CrossAttention, SelfAttention, join_heads
from longstride.nn.cache import Cache
from longstride.nn.fused import add_norm
from longstride.nn.options import TransformerOptions

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class LayerNorm(nn.LayerNorm):
    """Layer norm that keeps the type of its input.

    Autocast would hand on float32 and so double what every residual sum reads and writes; the statistics are taken in
    float32 inside the kernel either way.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]"""
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, width: int, hidden: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        for linear in (self.up, self.down):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]"""
        return self.down(self.dropout(ACTIVATIONS[self.activation](self.up(x))))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """The norm and dropout around one block: ``norm(x + block(x))`` (post) or ``x + block(norm(x))`` (pre)."""

    fused = False
    """Sum and norm in one kernel: for inference alone, set by whoever has seen that it works (longstride.nn.fused)"""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.pre = options.norm == "pre"
        self.norm = LayerNorm(options.width)
        self.dropout = nn.Dropout(options.dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What the block reads."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, block: Tensor) -> Tensor:
        """The sum, with what the block made of it."""
        if self.fused and not self.pre:
            return add_norm(x, block, self.norm)
        if self.training and not self.pre and fused_training.serves(x, block):
            weight, bias = self.norm.weight, self.norm.bias
            return fused_training.add_norm(x, block, weight, bias, self.dropout.p, self.norm.eps)
        x = x + self.dropout(block)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    compile_unit = True

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.attention = SelfAttention(options.width, options.heads, options.attention_dropout)
        self.attention_residual = Residual(options)
        self.feed_forward = FeedForward(
            options.width, options.feed_forward, options.activation, options.activation_dropout
        )
        self.feed_forward_residual = Residual(options)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x [rows, length, width]; mask [rows, 1, 1, length] or None where nothing is padded."""
        block = self.attention(self.attention_residual.enter(x), mask, causal=False)
        x = self.attention_residual.leave(x, block)
        block = self.feed_forward(self.feed_forward_residual.enter(x))
        return self.feed_forward_residual.leave(x, block)


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward."""

    compile_unit = True

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.attention = SelfAttention(options.width, options.heads, options.attention_dropout)
        self.attention_residual = Residual(options)
        self.cross = CrossAttention(options.width, options.heads, options.attention_dropout)
        self.cross_residual = Residual(options)
        self.feed_forward = FeedForward(
            options.width, options.feed_forward, options.activation, options.activation_dropout
        )
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
        mask: Tensor,
        memory_keys: Tensor,
        memory_values: Tensor,
        memory_mask: Tensor,
    ) -> Tensor:
        """New slots only, x [rows, width of the step, width], the past from the cache; mask [rows, 1, step, span]."""
        packed = self.attention.qkv(self.attention_residual.enter(x)).unflatten(-1, (3, self.attention.heads, -1))
        queries, keys_values = packed[:, :, 0].transpose(1, 2), packed[:, :, 1:].permute(2, 0, 3, 1, 4)
        cache.write(layer, slots, keys_values)
        span = mask.shape[-1]
        mixed = F.scaled_dot_product_attention(
            queries, cache.keys[layer, :, :, :span], cache.values[layer, :, :, :span], attn_mask=mask
        )
        x = self.attention_residual.leave(x, self.attention.out(join_heads(mixed)))
        return self._rest(x, memory_keys, memory_values, memory_mask)

    def _rest(self, x: Tensor, memory_keys: Tensor, memory_values: Tensor, memory_mask: Tensor | None) -> Tensor:
        block = self.cross(self.cross_residual.enter(x), memory_keys, memory_values, memory_mask)
        x = self.cross_residual.leave(x, block)
        block = self.feed_forward(self.feed_forward_residual.enter(x))
        return self.feed_forward_residual.leave(x, block)
