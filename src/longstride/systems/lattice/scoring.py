"""All edges of a lattice in one pass: P(word | the candidate before it, position, source), for all candidates at once.

A word in column t, given the word before it, is what the second slot of a segment predicts: START in slot t - 1, the
word before in slot t. The START slots do not see the words, so there is one of them per column, not one per candidate;
the words' slots see themselves and one START slot each. So the head runs as layers of streams:

    stream 0   [columns]           START in every slot: P(word | position, source), and the score of column 0
    stream 1   [columns, K]        each candidate of the column before: edges
    stream 2   [columns, K, K]     each pair of candidates of the two columns before: triples

All streams go through a layer side by side, as one long row per sentence, and whatever stands in slot t predicts column
t. A stream's slots attend to their own keys and to those of the streams before, and to the source, whose keys and
values exist once per sentence. Probabilities are shares of the whole vocabulary, or of the column's candidates alone.

Pure functions of tensors and weights; knows nothing of lengths, forbidden edges or search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.nn.layers import DecoderLayer
from longstride.ops import additive
from longstride.systems.lattice import kernels
from longstride.systems.lattice.model import Scorer

Normalise = Literal["vocabulary", "candidates"]

MAX_LOGITS = 1 << 25
"""So many logits exist at once."""
MAX_LOGITS_CPU = 1 << 22
"""So many logits exist at once on a processor, whose caches they should fit into."""
MAX_NUMBERS = 1 << 25
"""The head's widest tensor may hold so many numbers where kernels score; more sentences go through it in portions."""


@dataclass(frozen=True)
class Encoded:
    """Sources as the head reads them."""

    keys: Tensor
    """[layers, rows, heads, source, head]"""
    values: Tensor
    """[layers, rows, heads, source, head]"""
    visible: Tensor | None
    """[rows, source] bool; None where nothing is padded"""

    def slice(self, first: int, last: int) -> Encoded:
        """The sentences `first` to `last` (exclusive)."""
        visible = None if self.visible is None else self.visible[first:last]
        return Encoded(self.keys[:, first:last], self.values[:, first:last], visible)


@dataclass(frozen=True)
class Scores:
    """Log-probabilities of words and, last, of EOS."""

    first: Tensor
    """[rows, K + 1] of column 0"""
    edges: Tensor
    """[rows, columns - 1, K, K + 1] from each candidate to the next column; with triples, into column 1 alone"""
    triples: Tensor | None = None
    """[rows, columns - 2, K, K, K + 1]"""


def encode(model: Scorer, ids: Tensor, lengths: Tensor, padded: bool) -> Encoded:
    """ids [rows, source], lengths [rows]; without padding attention needs no mask, which is faster."""
    visible = ops.real(lengths, ids.shape[1]) if padded else None
    memory = model.encode(ids, visible)
    keys, values = (ops.to_border(part, 3) for part in model.project(memory))
    return Encoded(keys, values, None if visible is None else ops.to_border(visible, 1))


def unigrams(model: Scorer, encoded: Encoded, columns: int) -> Tensor:
    """Logits of P(word | position, source), [rows, columns, vocabulary]: the head as a one-pass model."""
    streams = _Streams.empty(encoded.keys.shape[1], columns, encoded.keys, model.special.start)
    return model.logits(_hidden(model, encoded, streams))


def unigrams_of(model: Scorer, encoded: Encoded, words: Tensor) -> Tensor:
    """The same of the candidates `words` [rows, columns, K] alone; by a product with the whole vocabulary all the same,
    which natively in 8 bits is faster than looking up the candidates' rows and multiplying these."""
    return unigrams(model, encoded, words.shape[1]).gather(-1, words)


def place_scores(model: Scorer, source: Tensor, lengths: Tensor, columns: int) -> Tensor:
    """The same from source ids, for whoever has no encoder output: what a `ScoredCandidates` asks for."""
    return unigrams(model, encode(model, source, lengths, padded=True), columns)


def score_edges(
    model: Scorer, encoded: Encoded, words: Tensor, normalise: Normalise = "vocabulary", rest: Tensor | None = None
) -> Scores:
    """Scores of all edges between the candidates `words` [rows, columns, K]; PAD where there are fewer. Shares of a
    column's candidates are of the `rest` [rows, columns, more] too, which no edge leads to."""
    if ops.uses("edges") and normalise == "vocabulary" and fits_kernels(model):
        return _score_edges_by_kernels(model, encoded, words)
    start, edges = _scored(model, encoded, words, 2, normalise, rest)
    return Scores(start[:, 0], edges)


def fits_kernels(model: Scorer) -> bool:
    """Whether the kernels that score edges know such a head: our own ids, and what an ordinary Transformer has."""
    o = model.options
    ordinary = o.scale_attention and o.key_value_heads in (None, o.heads) and o.heads * o.head_width == o.width
    return kernels.know(model.special) and ordinary and not o.embedding_norm


def score_triples(
    model: Scorer, encoded: Encoded, words: Tensor, normalise: Normalise = "vocabulary", rest: Tensor | None = None
) -> Scores:
    """The same for words given the two before; column 1 has but one before."""
    start, edges, triples = _scored(model, encoded, words, 3, normalise, rest)
    return Scores(start[:, 0], edges[:, :1], triples)


# --- streams ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Streams:
    """What stands in which slot, stream after stream in one row per sentence."""

    ids: Tensor
    """[rows, slots of all streams]"""
    slots: Tensor
    """[slots of all streams] the position of each, which is the column it predicts"""
    shapes: list[tuple[ops.Length, ...]]
    """of each stream: (columns,), (columns - 1, K), (columns - 2, K, K)"""

    @staticmethod
    def empty(rows: ops.Length, columns: ops.Length, like: Tensor, start: int) -> _Streams:
        """START in every column, and nothing else."""
        return _Streams(ops.full((rows, columns), start, like), ops.arange(columns, like), [(columns,)])

    @staticmethod
    def of(words: Tensor, order: int, start: int) -> _Streams:
        """The first `order` streams of candidates [rows, columns, K]."""
        rows, columns, k = words.shape
        begun = _Streams.empty(rows, columns, words, start)
        ids, slots, shapes = [begun.ids], [begun.slots], list(begun.shapes)
        for number in range(1, order):
            left = max(0, columns - number) if isinstance(columns, int) else columns - number
            shape = (left, *([k] * number))
            # A slot's word is the one in the column before, whatever stood before that one.
            own = words[:, number - 1 : number - 1 + left].reshape(rows, left, *([1] * (number - 1)), k)
            ids.append(own.expand(rows, *shape).reshape(rows, -1))
            slots.append(begun.slots[number:, None].expand(left, math.prod(shape[1:])).reshape(-1))
            shapes.append(shape)
        return _Streams(torch.cat(ids, dim=1), torch.cat(slots), shapes)

    def split(self, flat: Tensor) -> list[Tensor]:
        """[rows, slots of all streams, ...] -> of each stream [rows, *shape, ...]"""
        parts = torch.split(flat, [math.prod(shape) for shape in self.shapes], dim=1)
        return [
            part.reshape(part.shape[0], *shape, *part.shape[2:]) for part, shape in zip(parts, self.shapes, strict=True)
        ]


def _hidden(model: Scorer, encoded: Encoded, streams: _Streams) -> Tensor:
    """All slots through the head: [rows, slots of all streams, width]"""
    # A lattice may run past the last position there is: no such word is ever kept.
    x = model.embed_target(streams.ids, streams.slots.clamp(max=model.options.longest - 1))
    return _through(model, encoded, x, lambda layer, x: _attended(layer, x, streams))


def _through(model: Scorer, encoded: Encoded, x: Tensor, attended: Callable[[DecoderLayer, Tensor], Tensor]) -> Tensor:
    """All slots [rows, slots, width] through the head's layers; what they see of each other, `attended` says."""
    mask = None if encoded.visible is None else encoded.visible[:, None, None, :]
    if mask is not None and ops.uses("source"):
        mask = additive(mask, encoded.keys)
    for number, layer in enumerate(model.decoder_layers()):
        x = layer.attention_residual.leave(x, layer.attention.out(attended(layer, x)))
        block = layer.cross(layer.cross_residual.enter(x), encoded.keys[number], encoded.values[number], mask)
        x = layer.cross_residual.leave(x, block)
        x = layer.feed_forward_residual.leave(x, layer.feed_forward(layer.feed_forward_residual.enter(x)))
    return model.closed(x)


def _attended(layer: DecoderLayer, x: Tensor, streams: _Streams) -> Tensor:
    """What each slot sees of its own segment, [rows, slots of all streams, width of all heads]: softmaxes over so few
    are done by hand."""
    heads, scale = layer.attention.heads, layer.attention.scale
    packed = layer.attention.packed(layer.attention_residual.enter(x)).chunk(3, dim=-1)
    queries, keys, values = (
        [part.view(*part.shape[:-1], heads, part.shape[-1] // heads) for part in streams.split(one)] for one in packed
    )
    found = [values[0]]  # START sees itself alone
    if len(queries) > 1:  # a word sees itself and the START in the slot before
        seen = [(part[0][:, :-1, None], part[1]) for part in (keys, values)]
        found.append(_of_two(queries[1], scale, *seen))
    if len(queries) > 2:
        # The word in slot t sees the word in slot t - 1, which is a single stream's, and START in slot t - 2.
        before = [(part[0][:, :-2, None, None], part[1][:, :-1, :, None], part[2]) for part in (keys, values)]
        found.append(_of_three(queries[2], scale, *before))
    rows, width = x.shape[0], packed[0].shape[-1]
    return torch.cat([part.reshape(rows, -1, width) for part in found], dim=1)


def _of_two(queries: Tensor, scale: float | None, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
    """Attention to two, all [..., heads, head]: a softmax over two scores is a sigmoid of their difference. Scores are
    multiplied by `scale` (None: 1/√head)."""
    score = (queries * (keys[1] - keys[0])).sum(dim=-1, keepdim=True, dtype=ops.wide(queries))
    weight = (score * (queries.shape[-1] ** -0.5 if scale is None else scale)).sigmoid().to(queries.dtype)
    return torch.lerp(values[0], values[1], weight)


def _of_three(queries: Tensor, scale: float | None, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
    """The same to three."""
    each = [(queries * key).sum(dim=-1, keepdim=True, dtype=ops.wide(queries)) for key in keys]
    scores = torch.cat(each, dim=-1) * (queries.shape[-1] ** -0.5 if scale is None else scale)
    weights = scores.softmax(dim=-1).to(queries.dtype).chunk(3, dim=-1)
    mixed: Tensor = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        mixed = mixed + weight * value
    return mixed


# --- from hidden states to scores ------------------------------------------------------------------------------------


def _scored(
    model: Scorer, encoded: Encoded, words: Tensor, order: int, normalise: Normalise, rest: Tensor | None
) -> list[Tensor]:
    """Of each stream [rows, *shape, K + 1]: log-probabilities of the words of the column it predicts, and of EOS; of
    streams before the last no more than the first column counts."""
    special = model.special
    streams = _Streams.of(words, order, special.start)
    hidden = _hidden(model, encoded, streams)
    following = F.pad(words, (0, 1), value=special.eos)
    if normalise == "vocabulary":
        return streams.split(_log_probabilities(model, hidden, following[:, streams.slots]))
    shared = following if rest is None else torch.cat([following, rest], dim=-1)  # the vocabulary of a column
    missing = shared == special.pad
    # Of all streams but the last the first column alone is asked for: further on a word has more before it.
    ends = [*range(1, order), None]
    found = [
        _among(model, part[:, : None if end is None else 1], shared[:, number:end], missing[:, number:end])
        for number, (part, end) in enumerate(zip(streams.split(hidden), ends, strict=True))
    ]
    return found if rest is None else [part[..., : following.shape[2]] for part in found]


def _score_edges_by_kernels(model: Scorer, encoded: Encoded, words: Tensor) -> Scores:
    """What :func:`score_edges` gives of shares of the vocabulary, by kernels between the products."""
    o = model.options
    rows, columns, k = words.shape
    slots = columns + (columns - 1) * k
    portion = _even(rows, max(1, MAX_NUMBERS // (slots * max(o.feed_forward, 3 * o.width))))
    # As large whatever the shape: captured passes of all shapes then find room for it in the same memory.
    logits = words.new_empty((max(1, MAX_LOGITS // o.vocabulary), o.vocabulary), dtype=encoded.keys.dtype)
    found = Scores(*kernels.room_for_shares(words))
    for begun in range(0, rows, portion):
        some = slice(begun, begun + portion)
        into = Scores(found.first[some], found.edges[some])
        _share_out(model, encoded.slice(some.start, some.stop), words[some], logits, into)
    return found


def _share_out(model: Scorer, encoded: Encoded, words: Tensor, logits: Tensor, into: Scores) -> None:
    """Some sentences through the head, and their slots' shares into scores; overwrites logits [at once, vocabulary]."""

    def attended(layer: DecoderLayer, x: Tensor) -> Tensor:
        packed = layer.attention.qkv(layer.attention_residual.enter(x))
        return kernels.attended_to_two(packed, words, layer.attention.heads)

    x = kernels.begun(words, model.target_embedding.weight, model.scale, model.target_positions.rows)
    states = _through(model, encoded, x, attended).flatten(0, 1)
    portion = _even(len(states), len(logits))
    for first in range(0, len(states), portion):
        some = states[first : first + portion]
        product = torch.mm(some, model.output_weight.t(), out=logits[: len(some)])
        kernels.shares(product, first, words, into.first, into.edges)


def _even(count: int, most: int) -> int:
    """How many to take at a time, `most` at most, so that the last portion is no smaller than it has to be."""
    return -(-count // -(-count // most))


def _log_probabilities(model: Scorer, hidden: Tensor, ids: Tensor) -> Tensor:
    """hidden [rows, slots, width], ids [rows, slots, after] -> [rows, slots, after], shares of the whole vocabulary"""
    wide = ops.wide(hidden)

    def shares(states: Tensor, wanted: Tensor) -> list[Tensor]:
        # One fused pass over the logits; a sum of exponentials alone would take PyTorch four.
        return [model.logits(states).log_softmax(dim=-1, dtype=wide).gather(-1, wanted)]

    portion = max(2, (MAX_LOGITS_CPU if hidden.device.type == "cpu" else MAX_LOGITS) // model.options.vocabulary)
    (found,) = ops.in_portions(shares, [hidden.flatten(0, 1), ids.flatten(0, 1)], portion, (wide,))
    return found.view(ids.shape)


def _among(model: Scorer, hidden: Tensor, ids: Tensor, missing: Tensor) -> Tensor:
    """hidden [rows, n, ..., width], ids and whether they are missing [rows, n, after] -> [rows, n, ..., after], shares
    of these words alone"""
    rows, columns, after = ids.shape
    states = hidden.reshape(rows * columns, math.prod(hidden.shape[2:-1]), hidden.shape[-1])
    logits = ops.listed(states, model.output_weight, ids.reshape(rows * columns, after)).to(ops.wide(hidden))
    logits = logits.masked_fill(missing.reshape(rows * columns, 1, after), float("-inf"))
    return logits.log_softmax(dim=-1).view(*hidden.shape[:-1], after)
