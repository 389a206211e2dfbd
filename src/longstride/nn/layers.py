"""Encoder and decoder layers, pre- or post-norm. `compile_unit` marks what a trainer may compile once and reuse."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.nn import fused_training
from longstride.nn.attention import CrossAttention, SelfAttention
from longstride.nn.cache import Cache, Memory
from longstride.nn.decode_product import StepLinear, product
from longstride.nn.fused import Fusible, Kernel, add_norm, linear_relu
from longstride.nn.options import TransformerOptions
from longstride.ops import Asked, Bias

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class LayerNorm(nn.LayerNorm):
    """Layer norm that keeps the type of its input.

    Autocast would hand on float32 and so double what every residual sum reads and writes; the statistics are taken in
    float32 inside the kernel either way.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]"""
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class RMSNorm(nn.Module):
    """Division by the root mean square, and a factor for each place: no mean is taken away, and nothing is added."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.normalized_shape, self.eps = (width,), eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]"""
        with torch.autocast(x.device.type, enabled=False):
            return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def make_norm(options: TransformerOptions) -> LayerNorm | RMSNorm:
    """The norm that the options name."""
    if options.norm_type == "rms":
        return RMSNorm(options.width, options.norm_eps)
    return LayerNorm(options.width, options.norm_eps)


class FeedForward(nn.Module, Fusible):
    """Two linear layers with an activation between them; gated, a third whose product is multiplied by it."""

    own = False
    """the activation as part of the first product: see :meth:`use`"""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        width, hidden = options.width, options.feed_forward
        self.gated = options.gated
        self.up = StepLinear(width, 2 * hidden if self.gated else hidden, bias=options.bias)
        self.down = StepLinear(hidden, width, bias=options.bias)
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
            return self.down(self.dropout(ACTIVATIONS[self.activation](gate) * value))  # type: ignore[no-any-return]
        if self.activation == "relu" and self.up.serves(x):
            return self.down(product(x, self.up, relu=True))  # type: ignore[no-any-return]
        if self.own:
            return self.down(linear_relu(x, self.up))  # type: ignore[no-any-return]
        return self.down(self.dropout(ACTIVATIONS[self.activation](self.up(x))))  # type: ignore[no-any-return]

    def kernels(self) -> list[Kernel]:
        """Of ReLU alone, since what a product does for GELU is an approximation of it; small sizes gain nothing."""
        sizes = (self.up.in_features, self.up.out_features)
        plain = self.activation == "relu" and not self.gated and self.up.bias is not None
        fits = plain and not any(size % 64 for size in sizes)
        return [Kernel("relu", sizes)] if fits else []

    def use(self, names: Collection[str]) -> None:
        """Use it, if it is among these."""
        self.own = "relu" in names


class Residual(nn.Module, Fusible):
    """The norm and dropout around one block: ``norm(x + block(x))`` (post) or ``x + block(norm(x))`` (pre)."""

    own = False
    """sum and norm by one kernel of our own: see :meth:`use`"""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.pre = options.norm == "pre"
        self.norm = make_norm(options)
        self.dropout = nn.Dropout(options.dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What the block reads."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, block: Tensor) -> Tensor:
        """The sum, with what the block made of it."""
        if self.own and isinstance(self.norm, LayerNorm):
            return add_norm(x, block, self.norm)
        by_kernel = self.training and not self.pre and fused_training.serves(x, block)
        if by_kernel and isinstance(self.norm, LayerNorm):
            weight, bias = self.norm.weight, self.norm.bias
            return fused_training.add_norm(x, block, weight, bias, self.dropout.p, self.norm.eps)
        x = x + self.dropout(block)
        return x if self.pre else self.norm(x)

    def kernels(self) -> list[Kernel]:
        """Of the sum and its norm, where it has one."""
        return (
            []
            if self.pre or not isinstance(self.norm, LayerNorm)
            else [Kernel("norm", tuple(self.norm.normalized_shape))]
        )

    def use(self, names: Collection[str]) -> None:
        """Use it, if it is among these."""
        self.own = "norm" in names


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
        bias: Bias,
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
    bias: Bias,
    memory: Memory,
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
