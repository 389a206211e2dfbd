"""The encoder-decoder Transformer that all systems share: tokens, positions and masks, but no way of generating."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.nn import masks
from longstride.nn.cache import Cache, Memory
from longstride.nn.fused import Fusible, Kernel, embed
from longstride.nn.layers import DecoderLayer, EncoderLayer, LayerNorm, extend_all
from longstride.nn.losses import TokenLoss
from longstride.nn.options import TransformerOptions
from longstride.nn.positions import make_positions
from longstride.ops import additive, aligned


class Stack(nn.Module):
    """Layers one above the other, with a closing norm where norms come first."""

    def __init__(self, layers: list[nn.Module], options: TransformerOptions) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = LayerNorm(options.width) if options.norm == "pre" else nn.Identity()


class Transformer(nn.Module, Fusible):
    """Encoder, decoder and embeddings.

    A decoder's input slot s holds the token before the one it predicts; slot 0 holds START. Right-padded targets need
    no mask of their own: a causal slot never sees what comes after it.
    """

    own = False
    """what the first layer of the encoder or of a step reads by one kernel of our own: see :meth:`use`"""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.options = options
        source_vocabulary = options.source_vocabulary or options.vocabulary
        # What is tied is one module under one name, so that a state holds every weight once.
        self.target_embedding = _embedding(options.vocabulary, options.width)
        self.source_embedding = None if options.tie == "all" else _embedding(source_vocabulary, options.width)
        self.output_embedding = _embedding(options.vocabulary, options.width) if options.tie == "none" else None
        self.source_positions = make_positions(options.positions, options.width, options.longest)
        self.target_positions = make_positions(options.positions, options.width, options.longest)
        self.encoder = Stack([EncoderLayer(options) for _ in range(options.encoder_layers)], options)
        self.decoder = Stack([DecoderLayer(options) for _ in range(options.decoder_layers)], options)
        self.dropout = nn.Dropout(options.dropout)
        self.token_loss = TokenLoss()
        self.scale = math.sqrt(options.width) if options.scale_embeddings else 1.0

    # --- all at once -------------------------------------------------------------------------------------------------

    def embed_source(self, ids: Tensor) -> Tensor:
        """[rows, source] -> [rows, source, width]"""
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        if self.own and ids.shape[1] <= self.options.longest:
            return embed(ids, None, table.weight, self.scale, self.source_positions.rows, self.options.longest - 1)[0]
        positions = ops.arange(ids.shape[1], ids)
        return self.dropout(_lowered(table(ids) * self.scale + self.source_positions(positions)))  # type: ignore[no-any-return]

    def embed_target(self, ids: Tensor, positions: Tensor) -> Tensor:
        """[rows, target] ids and positions (broadcastable) -> [rows, target, width]"""
        embedded = torch.add(self.target_positions(positions), self.target_embedding(ids), alpha=self.scale)
        return self.dropout(_lowered(embedded))  # type: ignore[no-any-return]

    def encode(self, ids: Tensor, visible: Tensor | None) -> Tensor:
        """[rows, source] ids, [rows, source] bool (None: nothing is padded) -> memory [rows, source, width]"""
        mask = None if visible is None else visible[:, None, None, :]
        x = self.embed_source(ids)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        return self.encoder.norm(x)  # type: ignore[no-any-return]

    def decode(
        self,
        ids: Tensor,
        memory: Tensor,
        visible: Tensor | None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Hidden states of all target slots, [rows, target, width].

        `mask` (boolean, broadcasting to [rows, heads, target, target]) replaces the causal one; `positions` (integers,
        broadcasting to [rows, target]) replace 0, 1, 2, ...
        """
        if positions is None:
            positions = ops.arange(ids.shape[1], ids)
        memory_mask = None if visible is None else visible[:, None, None, :]
        x = self.embed_target(ids, positions)
        for layer in self.decoder.layers:
            x = layer(x, memory, mask, memory_mask, mask is None)
        return self.decoder.norm(x)  # type: ignore[no-any-return]

    @property
    def output_weight(self) -> Tensor:
        """[vocabulary, width] the output projection"""
        return (self.target_embedding if self.output_embedding is None else self.output_embedding).weight

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., vocabulary]"""
        return F.linear(hidden, self.output_weight)

    def decoder_layers(self) -> list[DecoderLayer]:
        """The decoder's layers, with their type known."""
        return [layer for layer in self.decoder.layers if isinstance(layer, DecoderLayer)]

    # --- step by step ------------------------------------------------------------------------------------------------

    def new_cache(self, rows: int, longest: int) -> Cache:
        """An empty self-attention cache for `rows` rows of `longest` slots."""
        o = self.options
        longest = aligned(longest)
        return Cache.empty(o.decoder_layers, rows, o.heads, longest, o.head_width, self.target_embedding.weight)

    def new_memory(self, rows: int, source: int) -> Memory:
        """Room for the memory of `rows` sources of at most `source` tokens."""
        o = self.options
        source = aligned(source)
        return Memory.empty(o.decoder_layers, rows, o.heads, source, o.head_width, self.target_embedding.weight)

    def table_bytes(self, rows: int, columns: int, sources: int, source: int) -> int:
        """What a cache of `rows` rows and the memory of `sources` sources take."""
        slots: int = rows * aligned(columns) + sources * aligned(source)
        return 2 * self.options.decoder_layers * self.options.width * slots * self.target_embedding.weight.itemsize

    def remember(self, ids: Tensor, lengths: Tensor) -> Memory:
        """Encode sources and project them once for every decoder layer."""
        visible = masks.real(lengths, ids.shape[1])
        memory = self.encode(ids, visible)
        keys, values = self.project(memory)
        return Memory(keys, values, visible, memory)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, source, width] -> keys and values of every decoder layer [layers, rows, heads, source, head]"""
        return ops.project_layers(memory, [layer.cross.kv for layer in self.decoder_layers()], self.options.heads)

    def extend(
        self,
        ids: Tensor,
        start: Tensor,
        cache: Cache,
        memory: Memory,
        rule: masks.Rule = masks.causal,
        positions: Tensor | None = None,
        span: int | None = None,
    ) -> Tensor:
        """Run new slots of every row, each from its own start, and keep their keys and values.

        ids [rows, step] go to slots start, start+1, ... ([rows]); slots before a row's start must have been written.
        Only the first `span` slots of the cache are looked at (default: all). -> hidden [rows, step, width]
        """
        if self.own and positions is None:
            last = self.options.longest - 1
            table = self.target_embedding.weight
            x, slots = embed(ids, start, table, self.scale, self.target_positions.rows, last)
        else:
            x, slots = self._embed_step(ids, start, positions)
        span = cache.longest if span is None else span
        if rule is masks.causal:
            mask = cache.causal(slots, span)
        else:
            mask = additive(rule(slots, ops.arange(span, ids))[:, None], memory.keys)
        x = extend_all(self.decoder_layers(), x, cache, slots, mask, memory)
        return self.decoder.norm(x)  # type: ignore[no-any-return]

    def _embed_step(self, ids: Tensor, start: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the first layer reads, [rows, step, width], and the slots [rows, step]."""
        slots = ops.slots_from(start, ids.shape[1])
        if positions is None:
            # A draft may run past the last position there is: no such token is ever committed.
            positions = slots.clamp(max=self.options.longest - 1)
        return self.embed_target(ids, positions), slots

    # --- kernels of our own ------------------------------------------------------------------------------------------

    def kernels(self) -> list[Kernel]:
        """Of the beginning of encoder and steps."""
        return [Kernel("embed", (self.options.width,))]

    def use(self, names: Collection[str]) -> None:
        """Use it, if it is among these."""
        self.own = "embed" in names


def _lowered(x: Tensor) -> Tensor:
    """Under autocast, the type that products have: so that the residual stream has it from the start."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _embedding(vocabulary: int, width: int) -> nn.Embedding:
    embedding = nn.Embedding(vocabulary, width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    return embedding
