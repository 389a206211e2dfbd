"""Attention: of a sequence to itself, of queries to an encoded source, and of new slots to a cache that they enter.

What a graph adds to the definitions are borders: keys end at a multiple of :data:`ALIGNMENT`, hidden beyond what is
there. Up to a border what is hidden adds exactly nothing, so that a row's numbers depend neither on how long its
neighbours are nor on how wide a step is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.ops.graph_builder import HIDDEN
from longstride.ops.indexing import arange, start_of
from longstride.ops.kernels import operation
from longstride.ops.size import Length, Size
from longstride.ops.trace import BOOLEAN, FLOAT, Tracer, Value, lifted, tracer_of

ALIGNMENT = 16
"""Attention kernels want masks whose rows are so many elements long, and pad others anew in every layer."""


def split_heads(flat: Tensor, heads: int) -> Tensor:
    """[rows, length, width] -> [rows, heads, length, head]"""
    rows, length, width = flat.shape
    return flat.view(rows, length, heads, width // heads).transpose(1, 2)


def join_heads(split: Tensor) -> Tensor:
    """[rows, heads, length, head] -> [rows, length, width]"""
    rows, heads, length, head = split.shape
    return split.transpose(1, 2).reshape(rows, length, heads * head)


def aligned(length: Any) -> Any:
    """A length rounded up to the next border."""
    return (length + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def to_border(x: Tensor, axis: int, filler: float = 0.0) -> Tensor:
    """Zeros, or False, up to the next border of a dimension that attention goes over; a graph alone needs them"""
    tracer = tracer_of(x)
    if tracer is None:
        return x
    length = x.size(axis)
    missing = tracer.once(("missing", id(length)), lambda: aligned(length) - length, length)
    return F.pad(x, (*([0, 0] * (x.dim() - 1 - axis % x.dim())), 0, missing), value=filler)


MaskRule = Callable[[Tensor, Tensor], Tensor]
"""(query slots [rows, width], key slots [span]) -> visible [rows, width, span]; fixed when a program is built."""


def causal(query_slots: Tensor, key_slots: Tensor) -> Tensor:
    """A slot sees itself and everything before it."""
    return key_slots <= query_slots[..., None]


@dataclass(frozen=True)
class TreeRule:
    """A slot sees what is before its step and, of the step, itself and its ancestors."""

    start: Tensor
    """[rows] the first of the step's slots"""
    above: Tensor
    """[rows, step, step] bool: whether the second slot is the first one or an ancestor of it"""
    paths: Tensor | None = None
    """[rows, step, 1 + step] as :func:`longstride.ops.draft_tree.tree_paths` gives them; a graph needs none"""

    def __call__(self, slots: Tensor, seen: Tensor) -> Tensor:
        """[rows, step, seen] which slots of the cache [seen] each slot may look at"""
        step = self.above.shape[1]
        behind = seen - self.start[:, None]  # [rows, seen] the step's slot that lies there
        index = behind.clamp(min=0, max=step - 1)[:, None].expand(-1, step, -1)
        own = self.above.long().gather(2, index) > 0
        inside = (behind >= 0) & (behind < step)
        return (behind < 0)[:, None] | (own & inside[:, None])


def real(lengths: Tensor, longest: int) -> Tensor:
    """[rows] lengths -> [rows, longest]: True on real tokens.

    The first column is always visible: a softmax over nothing is not a number, and an empty slot of a table must not
    produce one.
    """
    return arange(longest, lengths) < lengths[:, None].clamp(min=1)


def additive(visible: Tensor, like: Tensor) -> Tensor:
    """Booleans -> 0 where visible, -inf elsewhere (in a graph: very low), in the type of `like`: what attention adds"""
    tracer = tracer_of(visible)
    if tracer is not None:
        value = lifted(tracer, visible)
        return tracer.value(tracer.builder.additive(value.handle), FLOAT, value.sizes)  # type: ignore[return-value]
    return torch.zeros(visible.shape, dtype=like.dtype, device=like.device).masked_fill_(~visible, float("-inf"))


def avoid_planned_attention() -> None:
    """Keep cuDNN's attention out of PyTorch's choice, for this process.

    It builds a plan for every new shape, 0.3 s each on an H200, and an epoch has some 500 shapes: a run's first pass
    over its data lost minutes to it. Without it no shape costs anything, but PyTorch's other kernels are slower.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


# --- all at once -----------------------------------------------------------------------------------------------------


@operation
def self_attention(
    packed: Tensor,
    heads: int,
    mask: Tensor | None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Every slot of packed queries, keys and values [rows, length, 3 * width] over all -> [rows, length, width]

    `mask` is boolean, or added to scores, and broadcasts to [rows, heads, length, length]; with `causal` it must be
    None. Scores are multiplied by `scale` (default: one over the square root of a head's width).
    """
    tracer = tracer_of(packed)
    if tracer is not None:
        assert mask is not None, "a graph attends to what is said to be visible"
        return _traced_self_attention(tracer, packed, heads, mask, scale)  # type: ignore[return-value]
    queries, keys, values = (split_heads(part, heads) for part in packed.chunk(3, dim=-1))
    mixed = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
    )
    return join_heads(mixed)


def _traced_self_attention(tracer: Tracer, packed: Any, heads: int, mask: Any, scale: float | None) -> Value:
    length = packed.size(1)
    queries, keys, values = packed.chunk(3, -1)
    queries = _scaled(queries, heads, scale)
    wide_keys: Any = to_border(keys, 1)
    wide_values: Any = to_border(values, 1)

    def bias() -> Value:
        wide = additive(to_border(mask, 3), packed) if mask.dtype == BOOLEAN else to_border(mask, 3, HIDDEN)
        return broadcast_queries(wide, length)  # type: ignore[arg-type]

    added = tracer.once(("self", id(mask), id(length)), bias, mask, length)
    return tracer.value(
        tracer.builder.attend(queries.handle, wide_keys.handle, wide_values.handle, added.handle, heads),
        FLOAT,
        queries.sizes,
    )


@operation
def attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    heads: int,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """queries [rows, length, width] over keys and values [rows, heads, seen, head] -> [rows, length, width]

    `mask` [rows, 1, length or 1, seen] is boolean, or added to the scores.
    """
    tracer = tracer_of(queries)
    if tracer is None:
        mixed = F.scaled_dot_product_attention(
            split_heads(queries, heads), keys, values, attn_mask=mask, dropout_p=dropout, scale=scale
        )
        return join_heads(mixed)
    q, k, v, seen = (lifted(tracer, one) for one in (queries, keys, values, mask))
    length, q = q.size(1), _scaled(q, heads, scale)

    def bias() -> Value:
        wide = additive(seen, q) if seen.dtype == BOOLEAN else seen  # type: ignore[arg-type]
        return broadcast_queries(wide, length)  # type: ignore[arg-type]

    added = tracer.once(("bias", id(mask), id(length)), bias, mask, length)
    return tracer.value(tracer.builder.attend(q.handle, k.handle, v.handle, added.handle, heads), FLOAT, q.sizes)  # type: ignore[return-value]


def _scaled(queries: Any, heads: int, scale: float | None) -> Any:
    """Queries [rows, length, width] for an attention that divides scores by the square root of a head's width"""
    if scale is None:
        return queries
    return queries * (scale * math.sqrt(queries.sizes[-1] // heads))


def broadcast_queries(bias: Value, length: Length) -> Value:
    """[rows, 1, 1, seen] -> [rows, 1, length, seen]; one that says it for each query stays as it is"""
    return bias.expand(-1, -1, length, -1) if bias.sizes[2] == 1 and length != 1 else bias


# --- over a cache ----------------------------------------------------------------------------------------------------


class Causal:
    """The bias of slots [rows, step] that see themselves and what is before them; made once for all layers."""

    # A graph works it out from the slots instead of looking it up.
    derived = True

    def __init__(self, slots: Tensor, table: Callable[[], Tensor]) -> None:
        """table() [longest, span] says what is added for each slot"""
        self.slots, self.table = slots, table
        self._added: Tensor | None = None

    @property
    def added(self) -> Tensor:
        """[rows, 1, step, span] what attention adds to scores"""
        if self._added is None:
            self._added = F.embedding(self.slots, self.table())[:, None]
        return self._added

    def visible(self, keys: Any) -> Any:
        """[rows, step, keys] whether each slot sees the slots keys [keys] of the cache, for a graph"""
        return keys <= self.slots[..., None]


class BlockCausal(Causal):
    """The bias of slots that see all of their own step, and what is before it."""

    derived = False


class TreeCausal(Causal):
    """The bias of slots that see what is before their step and their own ancestors in it."""

    derived = False

    def __init__(self, slots: Tensor, table: Callable[[], Tensor], paths: Tensor | None) -> None:
        """table() [rows, 1, step, span] says what is added; paths as in :class:`TreeRule`"""
        super().__init__(slots, table)
        self.paths = paths

    @property
    def added(self) -> Tensor:
        """[rows, 1, step, span] what attention adds to scores"""
        if self._added is None:
            self._added = self.table()
        return self._added


Asked = tuple[Length, Length] | None
"""Slots of a step, first and end, whose hidden states somebody reads; None: all"""

AttentionBias = Tensor | Causal
"""Who sees whom in a step: what attention adds to scores [rows, 1, step, span], or the rule that it follows from."""


@operation
def cached_attention(
    packed: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    bias: AttentionBias,
    heads: int,
    indirection: Tensor | None = None,
    asked: Asked = None,
    scale: float | None = None,
) -> Tensor:
    """New slots, each row's side by side: write their keys and values into the cache, then attend to it.

    packed [rows, step, 3 * width] holds queries, keys and values; keys and values [rows, heads, longest, head] are
    written at slots [rows, step]. The bias is over the first `span` slots; what lies behind the step's own is hidden
    whatever it says. `indirection` [rows, longest] names the row in which each slot of a row's past lies, if that is
    not its own. All slots are written; what is made are those that are `asked` for, first and end, or all.
    -> [rows, step, width]
    """
    tracer = tracer_of(packed)
    if tracer is not None:
        assert indirection is None, "graphs have no rows whose past lies in others"
        return _traced_cached_attention(tracer, packed, keys, values, slots, bias, heads, asked, scale)  # type: ignore[return-value]
    queries = write_cache(packed, keys, values, slots)
    added = bias_over(bias, keys.shape[2])
    keys, values = read_cache(keys, values, slots, added.shape[-1], indirection)
    if asked is not None:
        queries, added = queries[:, :, asked[0] : asked[1]], added[:, :, asked[0] : asked[1]]
    return join_heads(F.scaled_dot_product_attention(queries, keys, values, attn_mask=added, scale=scale))


def bias_over(bias: AttentionBias, longest: int) -> Tensor:
    """[rows, 1, step, span] what is added to scores, over no more slots than there are"""
    return (bias if isinstance(bias, Tensor) else bias.added)[..., :longest]


def write_cache(packed: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
    """The first half of :func:`cached_attention`; the queries [rows, heads, step, head]"""
    rows, step, _ = packed.shape
    _, heads, _, head = keys.shape
    queries, *new = packed.view(rows, step, 3, heads, head).permute(2, 0, 3, 1, 4).unbind()
    index = slots[:, None, :, None].expand_as(queries)
    for buffer, fresh in zip((keys, values), new, strict=True):
        buffer.scatter_(2, index, fresh)
    return queries


def read_cache(
    keys: Tensor, values: Tensor, slots: Tensor, span: int, indirection: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Keys and values of the first `span` slots [rows, heads, span, head] after a step wrote slots [rows, step].

    Pasts that lie in other rows are brought together, in every layer anew; kernels of our own read them there.
    """
    keys, values = keys[:, :, :span], values[:, :, :span]
    if indirection is None:
        return keys, values
    own = torch.arange(keys.shape[0], device=slots.device)[:, None]
    slot = torch.arange(span, device=slots.device)
    row = torch.where(slot >= slots[:, :1], own, indirection[:, :span].long())[:, None]
    head = torch.arange(keys.shape[1], device=slots.device)[None, :, None]
    return keys[row, head, slot], values[row, head, slot]


def span(slots: Tensor, longest: Any) -> Any:
    """How many slots of a cache of `longest` a step looks at: all, or in a graph as few as its rows have come to"""
    tracer = tracer_of(slots)
    return longest if tracer is None else used_slots(slots)  # type: ignore[arg-type]


def used_slots(slots: Value) -> Size:
    """How many slots of a cache a step at these slots looks at: up to the border behind the furthest of them"""
    tracer, builder = slots.tracer, slots.tracer.builder

    def make() -> Size:
        start = start_of(slots)
        furthest = Size(builder, lambda: builder.node("ReduceMax", start.handle, builder.integers(0), keepdims=1))
        return aligned(furthest + slots.size(1))  # type: ignore[no-any-return]

    return tracer.once(("used", id(slots)), make, slots)  # type: ignore[no-any-return]


def _traced_cached_attention(
    tracer: Tracer,
    packed: Any,
    keys: Any,
    values: Any,
    slots: Any,
    bias: Any,
    heads: int,
    asked: Asked,
    scale: float | None,
) -> Value:
    builder = tracer.builder
    queries, *new = packed.chunk(3, -1)
    queries = _scaled(queries, heads, scale)
    start = start_of(slots)
    for buffer, fresh in zip((keys, values), new, strict=True):
        buffer.handle = builder.write(buffer.handle, builder.split_heads(fresh.handle, heads), start.handle)
    used = used_slots(slots)

    def seen() -> Any:
        if isinstance(bias, Causal) and bias.derived:
            return additive(bias.visible(arange(used, slots)), packed)[:, None]
        return (bias.added if isinstance(bias, Causal) else bias)[:, :, :, :used]

    added = tracer.once(("seen", id(bias), id(slots)), seen, bias, slots)
    if asked is not None:
        queries, added = queries[:, asked[0] : asked[1]], added[:, :, asked[0] : asked[1]]
    read = keys[:, :, :used].handle, values[:, :, :used].handle
    return tracer.value(builder.attend(queries.handle, *read, added.handle, heads), FLOAT, queries.sizes)


# --- an encoded source -----------------------------------------------------------------------------------------------


def repeat_heads(packed: Tensor, heads: int, shared: int) -> Tensor:
    """Queries [rows, length, heads * head] beside keys and values of fewer heads, each for `shared` heads of queries ->
    as many of each, [rows, length, 3 * heads * head]"""
    few = heads // shared
    rows, length, width = packed.shape
    head = width // (heads + 2 * few)
    split = packed.view(rows, length, heads + 2 * few, head)
    wide = split[:, :, heads:, None].expand(-1, -1, -1, shared, -1).reshape(rows, length, 2 * heads, head)
    return torch.cat([split[:, :, :heads], wide], dim=2).flatten(2)


def project_layers(
    states: Tensor, projections: Sequence[nn.Linear], heads: int, shared: int = 1
) -> tuple[Tensor, Tensor]:
    """Keys and values of every decoder layer, [layers, rows, heads, source, head] each, of an encoder's states

    states [rows, source, width]; each layer's projection makes keys and values side by side, of as many heads or of
    fewer that are `shared`. A graph makes one product of all of them.
    """
    few = heads // shared
    tracer = tracer_of(states)
    if tracer is None:
        pairs = [[split_heads(part, few) for part in one(states).chunk(2, dim=-1)] for one in projections]
        both = torch.stack([keys for keys, _ in pairs]), torch.stack([values for _, values in pairs])
        return both if shared == 1 else (both[0].repeat_interleave(shared, 2), both[1].repeat_interleave(shared, 2))
    rows, source, _ = states.shape
    weights: list[Tensor] = [one.weight for one in projections]
    biases: list[Tensor] = [one.bias for one in projections if one.bias is not None]
    flat = F.linear(states, torch.cat(weights), torch.cat(biases) if biases else None)
    split = flat.view(rows, source, len(projections), 2, few, -1).permute(3, 2, 0, 4, 1, 5)
    keys, values = (part.squeeze(0) for part in split.chunk(2, dim=0))
    if shared == 1:
        return keys, values
    shape = (len(projections), rows, heads, source, keys.shape[-1])
    wide = (part[:, :, :, None].expand(-1, -1, -1, shared, -1, -1).reshape(*shape) for part in (keys, values))
    return tuple(wide)  # type: ignore[return-value]
