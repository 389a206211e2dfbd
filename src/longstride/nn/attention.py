"""Multi-head attention, over what is given at once (training) and over a cache that grows (decoding)."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from longstride import ops
from longstride.nn import decode_attention, short_attention, source_attention
from longstride.nn.cache import Cache
from longstride.nn.decode_product import StepLinear
from longstride.nn.fused import Fusible, Kernel
from longstride.nn.options import TransformerOptions
from longstride.ops import Asked, Bias, Causal
from longstride.ops.attention import read_cache, write_cache


def _projection(options: TransformerOptions, *heads: int) -> StepLinear:
    """A linear layer of projections on so many heads each, drawn as the papers' code does (Xavier, gain 1/√2)."""
    sizes = [count * options.head_width for count in heads]
    linear = StepLinear(options.width, sum(sizes), bias=options.bias)
    with torch.no_grad():
        for block in torch.split(linear.weight, sizes):
            nn.init.xavier_uniform_(block, gain=2**-0.5)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def _output(options: TransformerOptions) -> StepLinear:
    linear = StepLinear(options.heads * options.head_width, options.width, bias=options.bias)
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def _fits_kernels(options: TransformerOptions) -> bool:
    """Whether attention is of the kind that kernels of our own are written for."""
    plain = options.scale_attention and options.positions != "relative"
    alike = options.key_value_heads in (None, options.heads) and options.heads * options.head_width == options.width
    return plain and alike and options.head_width in decode_attention.HEADS


class SelfAttention(nn.Module, Fusible):
    """Attention of a sequence over itself; one product makes queries, keys and values."""

    own_steps = False
    """causal steps by a kernel of our own, which writes the cache too: see :meth:`use`"""
    own_lines = False
    """causal steps of rows whose past lies in other rows likewise"""
    own_masks = False
    """other steps likewise"""
    own_sources = False
    """what sees all but padding, outside of steps, likewise"""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.shared = options.heads // (options.key_value_heads or options.heads)
        self.dropout = options.attention_dropout
        self.scale = None if options.scale_attention else 1.0
        self.fits = _fits_kernels(options)
        self.qkv = _projection(options, self.heads, self.heads // self.shared, self.heads // self.shared)
        self.out = _output(options)

    def packed(self, x: Tensor) -> Tensor:
        """[rows, length, width] -> queries, keys and values of all heads side by side"""
        made: Tensor = self.qkv(x)
        return made if self.shared == 1 else ops.repeat_heads(made, self.heads, self.shared)

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """`mask` is boolean and broadcasts to [rows, heads, length, length]; with `causal` it must be None."""
        packed = self.packed(x)
        length, head = x.shape[1], packed.shape[2] // 3 // self.heads
        if self.training and self.fits and short_attention.serves(packed, head, length, length, mask):
            return self.out(short_attention.self_attention(packed, self.heads, mask, causal, self.dropout))  # type: ignore[no-any-return]
        if self.own_sources and not causal and source_attention.serves(packed, mask):
            return self.out(source_attention.attended(packed, self.heads, mask))  # type: ignore[no-any-return]
        dropout = self.dropout if self.training else 0.0
        return self.out(ops.self_attention(packed, self.heads, mask, causal, dropout, self.scale))  # type: ignore[no-any-return]

    def extend(self, x: Tensor, layer: int, cache: Cache, slots: Tensor, bias: Bias, asked: Asked = None) -> Tensor:
        """New slots [rows, step] of a cache's layer, x [rows, step, width]; who sees whom, the bias says.

        All are written; what is made are those that are `asked` for, first and end, or all.
        """
        packed = self.packed(x)
        keys, values = cache.keys[layer], cache.values[layer]
        if isinstance(bias, Causal) and (self.own_steps if cache.lines is None else self.own_lines):
            mixed = decode_attention.extend(packed, slots, keys, values, cache.lines)
            mixed = mixed if asked is None else mixed[:, asked[0] : asked[1]]
        elif self.own_masks:
            write_cache(packed, keys, values, slots)
            added = (bias.added if isinstance(bias, Causal) else bias)[..., : keys.shape[2]]
            keys, values = read_cache(keys, values, slots, added.shape[-1], cache.lines)
            queries = packed.chunk(3, dim=-1)[0]
            if asked is not None:
                queries, added = queries[:, asked[0] : asked[1]], added[:, :, asked[0] : asked[1]]
            mixed = decode_attention.read(queries, keys, values, added, each=True)
        else:
            mixed = ops.cached_attention(packed, keys, values, slots, bias, self.heads, cache.lines, asked, self.scale)
        return self.out(mixed)  # type: ignore[no-any-return]

    def kernels(self) -> list[Kernel]:
        """Of steps, causal ones and those with another mask, and of sources."""
        head = self.out.in_features // self.heads
        names = ("step", "lines", "mask", "source-self")
        return [Kernel(name, (head,)) for name in names] if self.fits else []

    def use(self, names: Collection[str]) -> None:
        """Use these."""
        self.own_steps, self.own_masks, self.own_lines = "step" in names, "mask" in names, "lines" in names
        self.own_sources = "source-self" in names


class CrossAttention(nn.Module, Fusible):
    """Attention of target slots over an encoded source.

    Several rows may read one source (the hypotheses of a beam): rows of one source lie side by side and are read as one
    longer row, so that keys and values are neither computed nor stored more than once.
    """

    own = False
    """steps by a kernel of our own: see :meth:`use`"""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.shared = options.heads // (options.key_value_heads or options.heads)
        self.dropout = options.attention_dropout
        self.scale = None if options.scale_attention else 1.0
        self.fits = _fits_kernels(options)
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
        sources, _, source, head = keys.shape
        queries, width = self.q(x), self.heads * head
        side_by_side = queries if sources == rows else queries.reshape(sources, rows // sources * length, width)
        if (
            self.training
            and self.fits
            and short_attention.serves(side_by_side, head, side_by_side.shape[1], source, mask)
        ):
            mixed = short_attention.cross_attention(side_by_side, keys, values, mask, self.dropout)
            return self.out(mixed.view(rows, length, width))  # type: ignore[no-any-return]
        if self.own and mask is not None and mask.dtype == x.dtype:
            mixed = decode_attention.read(side_by_side, keys, values, mask, each=False)
            return self.out(mixed.view(rows, length, width))  # type: ignore[no-any-return]
        dropout = self.dropout if self.training else 0.0
        mixed = ops.attention(side_by_side, keys, values, mask, self.heads, dropout, self.scale)
        return self.out(mixed if sources == rows else mixed.view(rows, length, width))  # type: ignore[no-any-return]

    def kernels(self) -> list[Kernel]:
        """Of steps."""
        return [Kernel("source", (self.out.in_features // self.heads,))] if self.fits else []

    def use(self, names: Collection[str]) -> None:
        """Use it, if it is among these."""
        self.own = "source" in names
