"""The encoder-decoder Transformer that all systems share: tokens, positions and masks, but no way of generating."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from longstride import ops
from longstride.contract import SpecialIds
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.layers import DecoderLayer, EncoderLayer, Norm, extend_all, lowered
from longstride.nn.losses import TokenLoss
from longstride.nn.options import TransformerOptions
from longstride.nn.positions import RelativeBias, make_positions
from longstride.ops import additive, aligned


class Stack(nn.Module):
    """Layers one above the other, with a closing norm where norms come first."""

    def __init__(self, layers: list[nn.Module], options: TransformerOptions) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = Norm(options) if options.norm == "pre" else nn.Identity()


class Transformer(nn.Module):
    """Encoder, decoder and embeddings.

    A decoder's input slot s holds the token before the one it predicts; slot 0 holds START. Right-padded targets need
    no mask of their own: a causal slot never sees what comes after it.
    """

    logits_bias: Tensor | None

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        self.options = options
        source_vocabulary = options.source_vocabulary or options.vocabulary
        # What is tied is one module under one name, so that a state holds every weight once.
        self.target_embedding = _embedding(options.vocabulary, options.width)
        self.source_embedding = None if options.tie == "all" else _embedding(source_vocabulary, options.width)
        self.output_embedding = _embedding(options.vocabulary, options.width) if options.tie == "none" else None
        places = options.positions, options.width, options.longest, options.sinusoid, options.position_offset
        pixels, scale = options.picture, options.picture_scale
        self.source_positions = make_positions(*places, (pixels // scale, scale))
        self.target_positions = make_positions(*places, (pixels, 1))
        self.source_embedding_norm, self.target_embedding_norm = (
            Norm(options) if options.embedding_norm else nn.Identity() for _ in range(2)
        )
        by_distance = options.positions == "relative"
        self.encoder_bias, self.decoder_bias = (
            _relative(*of_side) if by_distance else None for of_side in ((options.of_encoder, True), (options, False))
        )
        bias = torch.zeros(options.vocabulary) if options.logits_bias else None
        self.register_buffer("logits_bias", bias)  # it comes with a model, and is not trained
        self.encoder = Stack([EncoderLayer(options.of_encoder) for _ in range(options.encoder_layers)], options)
        self.decoder = Stack([DecoderLayer(options) for _ in range(options.decoder_layers)], options)
        self.dropout = nn.Dropout(options.dropout)
        self.token_loss = TokenLoss()
        self.scale = math.sqrt(options.width) if options.scale_embeddings else 1.0

    @property
    def special(self) -> SpecialIds:
        """Its special ids."""
        return self.options.special

    # --- all at once -------------------------------------------------------------------------------------------------

    def embed_source(self, ids: Tensor) -> Tensor:
        """[rows, source] -> [rows, source, width]"""
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        positions = self.source_positions.rows if self.encoder_bias is None else None
        embedded, _ = ops.embed(ids, None, table.weight, self.scale, positions, self.options.longest - 1)
        return self.dropout(self.source_embedding_norm(lowered(embedded)))  # type: ignore[no-any-return]

    def embed_target(self, ids: Tensor, positions: Tensor) -> Tensor:
        """[rows, target] ids and positions (broadcastable) -> [rows, target, width]"""
        embedded = self.target_embedding(ids)
        if self.decoder_bias is None:
            embedded = torch.add(self.target_positions(positions), embedded, alpha=self.scale)
        else:
            embedded = embedded * self.scale
        return self.dropout(self.target_embedding_norm(lowered(embedded)))  # type: ignore[no-any-return]

    def encode(self, ids: Tensor, visible: Tensor | None) -> Tensor:
        """[rows, source] ids, [rows, source] bool (None: nothing is padded) -> memory [rows, source, width]"""
        x = self.embed_source(ids)
        mask = self.source_mask(visible, x)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        return self.encoder.norm(x)  # type: ignore[no-any-return]

    def encode_for_training(self, ids: Tensor, visible: Tensor | None) -> Tensor:
        """:meth:`encode`; an encoder that is wholly frozen, with all that it reads, reads without dropout and keeps no
        gradients."""
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        read = (table, self.source_positions, self.source_embedding_norm, self.encoder_bias, self.encoder)
        if any(weight.requires_grad for module in read if module is not None for weight in module.parameters()):
            return self.encode(ids, visible)
        was = self.dropout.training
        self.encoder.eval()
        self.dropout.eval()
        with torch.no_grad():
            memory = self.encode(ids, visible)
        self.dropout.train(was)
        return memory

    def source_mask(self, visible: Tensor | None, x: Tensor) -> Tensor | None:
        """What the encoder's attention is told of sources x [rows, source, width], of which some are `visible`"""
        mask = None if visible is None else visible[:, None, None, :]
        if self.encoder_bias is None:
            return mask
        slots = ops.arange(x.shape[1], x)
        bias: Tensor = self.encoder_bias(slots[None], slots).to(x.dtype)
        return bias if mask is None else bias + additive(mask, x)

    def decode(
        self,
        ids: Tensor,
        memory: Tensor,
        visible: Tensor | None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Hidden states of all target slots, [rows, target, width].

        `mask` (boolean, broadcasting to [rows, heads, target, target]) replaces the causal one; `positions` ([target]
        integers) replace 0, 1, 2, ...
        """
        memory_mask = None if visible is None else visible[:, None, None, :]
        x, mask = self.embedded(ids, positions, mask)
        for layer in self.decoder.layers:
            x = layer(x, memory, mask, memory_mask, mask is None)
        return self.closed(x)

    def embedded(
        self, ids: Tensor, positions: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """What the first decoder layer reads [rows, target, width], and what all are told of who sees whom (None: the
        causal mask); arguments as :meth:`decode` has them."""
        if positions is None:
            positions = ops.arange(ids.shape[1], ids)
        x = self.embed_target(ids, positions)
        if self.decoder_bias is not None:
            seen = (positions <= positions[:, None])[None, None] if mask is None else mask
            if local := self.options.local_attention:
                seen = seen & ops.within_reach(positions, positions, local)
            mask = additive(seen, x) + self.decoder_bias(positions[None], positions).to(x.dtype)
        return x, mask

    @property
    def output_weight(self) -> Tensor:
        """[vocabulary, width] the output projection"""
        return (self.target_embedding if self.output_embedding is None else self.output_embedding).weight

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., vocabulary]"""
        return ops.linear(hidden, self.output_weight, self.logits_bias)

    def closed(self, x: Tensor) -> Tensor:
        """What leaves the last layer as hidden states, ready to be projected: [..., width] -> [..., width]"""
        hidden: Tensor = self.decoder.norm(x)
        return hidden * self.options.width**-0.5 if self.options.scale_logits else hidden

    def decoder_layers(self) -> list[DecoderLayer]:
        """The decoder's layers, with their type known."""
        return [layer for layer in self.decoder.layers if isinstance(layer, DecoderLayer)]

    # --- step by step ------------------------------------------------------------------------------------------------

    def new_cache(self, rows: int, longest: int) -> Cache:
        """An empty self-attention cache for `rows` rows of `longest` slots."""
        o = self.options
        longest = aligned(longest)
        return Cache.empty(o.decoder_layers, rows, o.heads, longest, o.head_width, self.target_embedding.weight)

    def new_memory(self, rows: int, source: int) -> EncoderState:
        """Room for the memory of `rows` sources of at most `source` tokens."""
        o = self.options
        source = aligned(source)
        return EncoderState.empty(o.decoder_layers, rows, o.heads, source, o.head_width, self.target_embedding.weight)

    def table_bytes(self, rows: int, columns: int, sources: int, source: int) -> int:
        """What a cache of `rows` rows and the memory of `sources` sources take."""
        o = self.options
        slots: int = rows * aligned(columns) + sources * aligned(source)
        return 2 * o.decoder_layers * o.heads * o.head_width * slots * self.target_embedding.weight.itemsize

    def encode_source(self, ids: Tensor, lengths: Tensor) -> EncoderState:
        """Encode sources and project them once for every decoder layer."""
        visible = ops.real(lengths, ids.shape[1])
        memory = self.encode(ids, visible)
        keys, values = self.project(memory)
        return EncoderState(keys, values, visible, memory)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, source, width] -> keys and values of every decoder layer [layers, rows, heads, source, head]"""
        o = self.options
        shared = o.heads // (o.key_value_heads or o.heads)
        return ops.project_layers(memory, [layer.cross.kv for layer in self.decoder_layers()], o.heads, shared)

    def extend(
        self,
        ids: Tensor,
        start: Tensor,
        cache: Cache,
        memory: EncoderState,
        rule: ops.MaskRule = ops.causal,
        depth: Tensor | None = None,
        span: int | None = None,
    ) -> Tensor:
        """Run new slots of every row, each from its own start, and keep their keys and values.

        ids [rows, step] go to slots start, start+1, ... ([rows]); slots before a row's start must have been written.
        Only the first `span` slots of the cache are looked at (default: all). Of slots that are no chain, positions lie
        `depth` [rows, step] behind a row's start. -> hidden [rows, step, width]
        """
        x, slots = self._embed_step(ids, start, depth)
        span = ops.span(slots, cache.longest if span is None else span)
        if rule is ops.causal and self.decoder_bias is None:
            mask = cache.causal(slots, span, self.options.local_attention)
        elif isinstance(rule, ops.TreeRule) and self.decoder_bias is None and not self.options.local_attention:
            tree = rule
            mask = ops.TreeCausal(slots, lambda: _visible(tree, slots, span, memory), rule.paths)
        else:
            mask = _visible(rule, slots, span, memory)
            places = (slots, every := ops.arange(span, ids))
            if depth is not None:
                positions = depth + start[:, None]
                places = (positions, _positions_of(every, start, positions))
            if local := self.options.local_attention:
                mask = mask + additive(ops.within_reach(*places, local)[:, None], memory.keys)
            if self.decoder_bias is not None:
                mask = mask + self.decoder_bias(*places).to(mask.dtype)
        return self.closed(extend_all(self.decoder_layers(), x, cache, slots, mask, memory))

    def _embed_step(self, ids: Tensor, start: Tensor, depth: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the first layer reads, [rows, step, width], and the slots [rows, step]."""
        table = self.target_positions.rows if self.decoder_bias is None else None
        last, tokens = self.options.longest - 1, self.target_embedding.weight
        embedded, slots = ops.embed(ids, start, tokens, self.scale, table, last, depth)
        return self.dropout(self.target_embedding_norm(lowered(embedded))), slots


def _visible(rule: ops.MaskRule, slots: Tensor, span: Any, memory: EncoderState) -> Tensor:
    """[rows, 1, step, span] what is added to the scores of the first `span` slots"""
    return additive(rule(slots, ops.arange(span, slots))[:, None], memory.keys)


def _positions_of(seen: Tensor, start: Tensor, positions: Tensor) -> Tensor:
    """[rows, 1, seen] the positions of slots of the cache [seen], where those from start [rows] on have `positions`
    [rows, step] of their own, and all before them that of their slot"""
    step = positions.shape[1]
    behind = seen - start[:, None]
    own = positions.gather(1, behind.clamp(min=0, max=step - 1))
    return torch.where((behind >= 0) & (behind < step), own, seen)[:, None]


def scale_by_depth(models: Iterable[nn.Module]) -> None:
    """Divide the drawn weights of each Transformer layer by the square root of its depth, from 1.

    Where norms come last, layers drawn alike let gradients shrink towards the bottom of the stack, and a decoder
    takes thousands of updates to look at the source at all. (Zhang, Titov and Sennrich, 2019, section 4.)
    """
    for transformer in (one for model in models for one in model.modules() if isinstance(one, Transformer)):
        for stack in (transformer.encoder, transformer.decoder):
            for depth, layer in enumerate(stack.layers, start=1):
                with torch.no_grad():
                    for linear in (one for one in layer.modules() if isinstance(one, nn.Linear)):
                        linear.weight.mul_(depth**-0.5)


def _relative(options: TransformerOptions, both: bool) -> RelativeBias:
    return RelativeBias(options.heads, options.relative_buckets, options.relative_distance, options.longest, both)


def _embedding(vocabulary: int, width: int) -> nn.Embedding:
    embedding = nn.Embedding(vocabulary, width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    return embedding
