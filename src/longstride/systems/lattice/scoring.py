"""All edges of a lattice in one pass: P(word | the candidate before it, position, source), for all candidates at once.

A word in column t, given the word before it, is what the second slot of a segment predicts: START in slot t - 1, the
word before in slot t. The START slots do not see the words, so there is one of them per column, not one per candidate;
the words' slots see themselves and one START slot each. So the head runs as layers of streams:

    stream 0   [columns]           START in every slot: P(word | position, source), and the score of column 0
    stream 1   [columns, K]        each candidate of the column before: edges
    stream 2   [columns, K, K]     each pair of candidates of the two columns before: triples

A stream's slots attend to their own keys and to those of the streams before, by a softmax over two or three scores, and
to the source, whose keys and values exist once per sentence. Probabilities are those of the whole vocabulary, gathered
at the candidates of the next column; logits exist a portion at a time. The alternative, a softmax over the candidates
alone, needs no projection on the vocabulary at all.

Pure functions of tensors and weights; knows nothing of lengths, forbidden edges or search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import EOS, PAD, START
from longstride.nn import masks
from longstride.nn.layers import DecoderLayer
from longstride.systems.lattice.model import Scorer

Normalise = Literal["vocabulary", "candidates"]

AT_ONCE = 1 << 27
"""Logits that exist at once."""


@dataclass(frozen=True)
class Encoded:
    """Sources as the head reads them."""

    keys: Tensor
    """[layers, rows, heads, source, head]"""
    values: Tensor
    """[layers, rows, heads, source, head]"""
    visible: Tensor | None
    """[rows, source] bool; None where nothing is padded"""

    @property
    def rows(self) -> int:
        """How many sentences there are."""
        return self.keys.shape[1]

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
    visible = masks.real(lengths, ids.shape[1]) if padded else None
    memory = model.encode(ids, visible)
    projected = [layer.cross.project_memory(memory) for layer in model.decoder_layers()]
    return Encoded(torch.stack([keys for keys, _ in projected]), torch.stack([v for _, v in projected]), visible)


def unigrams(model: Scorer, encoded: Encoded, columns: int) -> Tensor:
    """Logits of P(word | position, source), [rows, columns, vocabulary]: the head as a one-pass model."""
    start, _ = _start_stream(model, encoded, columns)
    return model.logits(start)


def score_edges(model: Scorer, encoded: Encoded, words: Tensor, normalise: Normalise = "vocabulary") -> Scores:
    """Scores of all edges between the candidates `words` [rows, columns, K]; PAD where there are fewer."""
    following = _with_end(words)
    start, context = _start_stream(model, encoded, words.shape[1])
    first = _log_probabilities(model, start[:, :1, None], following[:, :1], normalise)[:, 0, 0]
    hidden, _ = _word_stream(model, encoded, words, context)
    return Scores(first, _log_probabilities(model, hidden, following[:, 1:], normalise))


def score_triples(model: Scorer, encoded: Encoded, words: Tensor, normalise: Normalise = "vocabulary") -> Scores:
    """The same for words given the two before; column 1 has but one before."""
    following = _with_end(words)
    start, start_context = _start_stream(model, encoded, words.shape[1])
    first = _log_probabilities(model, start[:, :1, None], following[:, :1], normalise)[:, 0, 0]
    hidden, word_context = _word_stream(model, encoded, words, start_context)
    edges = _log_probabilities(model, hidden[:, :1], following[:, 1:2], normalise)
    rows, columns, k = words.shape
    if columns < 3:
        return Scores(first, edges, edges.new_zeros(rows, 0, k, k, k + 1))
    pairs = _pair_stream(model, encoded, words, start_context, word_context)
    triples = _log_probabilities(model, pairs.flatten(2, 3), following[:, 2:], normalise)
    return Scores(first, edges, triples.view(rows, columns - 2, k, k, k + 1))


# --- streams ---------------------------------------------------------------------------------------------------------

Context = tuple[Tensor, Tensor]
"""Keys and values of a stream in one layer, each [rows, columns, ..., heads, head]."""


def _start_stream(model: Scorer, encoded: Encoded, columns: int) -> tuple[Tensor, list[Context]]:
    """START in slots 0, 1, ...: hidden [rows, columns, width], and what later streams attend to."""
    slots = torch.arange(columns, device=encoded.keys.device)
    ids = torch.full_like(slots, START)
    x = model.embed_target(ids, slots).expand(encoded.rows, -1, -1)
    return _run(model, encoded, x, [])


def _word_stream(model: Scorer, encoded: Encoded, words: Tensor, start: list[Context]) -> tuple[Tensor, list[Context]]:
    """The candidates of columns 0, 1, ... in the slots after them: hidden [rows, columns - 1, K, width]."""
    columns = words.shape[1]
    slots = torch.arange(1, columns, device=words.device)[:, None]
    x = model.embed_target(words[:, :-1], slots)
    # The word in slot t sees START in slot t - 1.
    seen = [[(keys[:, :-1, None], values[:, :-1, None])] for keys, values in start]
    return _run(model, encoded, x, seen)


def _pair_stream(model: Scorer, encoded: Encoded, words: Tensor, start: list[Context], single: list[Context]) -> Tensor:
    """Pairs of candidates of neighbouring columns: hidden [rows, columns - 2, K (earlier), K (later), width]."""
    k, columns = words.shape[2], words.shape[1]
    slots = torch.arange(2, columns, device=words.device)[:, None, None]
    later = words[:, 1:-1, None, :].expand(-1, -1, k, -1)
    x = model.embed_target(later, slots)
    # The word in slot t sees the word in slot t - 1, which is a single stream's, and START in slot t - 2.
    seen = [
        [
            (start_keys[:, :-2, None, None], start_values[:, :-2, None, None]),
            (keys[:, :-1, :, None], values[:, :-1, :, None]),
        ]
        for (start_keys, start_values), (keys, values) in zip(start, single, strict=True)
    ]
    return _run(model, encoded, x, seen)[0]


def _run(model: Scorer, encoded: Encoded, x: Tensor, seen: Sequence[Sequence[Context]]) -> tuple[Tensor, list[Context]]:
    """Take slots [rows, ..., width] through the head; each attends to itself and, per layer, to what it has `seen`."""
    mask = None if encoded.visible is None else encoded.visible[:, None, None, :]
    contexts = []
    for number, layer in enumerate(model.decoder_layers()):
        own, mixed = _attend(layer, x, seen[number] if seen else [])
        contexts.append(own)
        x = layer.attention_residual.leave(x, layer.attention.out(mixed))
        flat = layer.cross_residual.enter(x).flatten(1, -2)
        block = layer.cross(flat, encoded.keys[number], encoded.values[number], mask)
        x = layer.cross_residual.leave(x, block.view(x.shape))
        x = layer.feed_forward_residual.leave(x, layer.feed_forward(layer.feed_forward_residual.enter(x)))
    return model.decoder.norm(x), contexts


def _attend(layer: DecoderLayer, x: Tensor, seen: Sequence[Context]) -> tuple[Context, Tensor]:
    """A slot's own keys and values, and what it sees [rows, ..., width]: a softmax over so few is done by hand."""
    projected = layer.attention.qkv(layer.attention_residual.enter(x))
    heads = layer.attention.heads
    queries, keys, values = (part.unflatten(-1, (heads, -1)) for part in projected.chunk(3, dim=-1))
    visible = [*seen, (keys, values)]
    if len(visible) == 1:
        return (keys, values), values.flatten(-2)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    scores = torch.stack([(queries * k).sum(dim=-1, dtype=wide) for k, _ in visible], dim=-1)
    weights = (scores * queries.shape[-1] ** -0.5).softmax(dim=-1).to(x.dtype)
    mixed = weights[..., :1] * visible[0][1]
    for number, (_, seen_values) in enumerate(visible[1:], start=1):
        mixed = mixed + weights[..., number : number + 1] * seen_values
    return (keys, values), mixed.flatten(-2)


# --- from hidden states to scores ------------------------------------------------------------------------------------


def _with_end(words: Tensor) -> Tensor:
    """[rows, columns, K] -> [rows, columns, K + 1]: EOS stands last in every column."""
    return F.pad(words, (0, 1), value=EOS)


def _log_probabilities(model: Scorer, hidden: Tensor, following: Tensor, normalise: Normalise) -> Tensor:
    """hidden [rows, columns, before, width], following [rows, columns, after] -> [rows, columns, before, after]"""
    rows, columns, before, width = hidden.shape
    after = following.shape[2]
    states, ids = hidden.reshape(-1, before, width), following.reshape(-1, after)
    wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    if normalise == "candidates":
        logits = torch.bmm(states, model.output_weight[ids].transpose(1, 2)).to(wide)
        logits = logits.masked_fill((ids == PAD)[:, None, :], float("-inf"))
        return logits.log_softmax(dim=-1).view(rows, columns, before, after)
    portion = max(1, AT_ONCE // (before * model.options.vocabulary))
    found = [
        model.logits(states[start : start + portion])
        .log_softmax(dim=-1, dtype=wide)
        .gather(-1, ids[start : start + portion, None, :].expand(-1, before, -1))
        for start in range(0, len(states), portion)
    ]
    together = torch.cat(found) if found else states.new_zeros((0, before, after), dtype=wide)
    return together.view(rows, columns, before, after)
