"""Tiny random one-pass models, and what they say worked out slot by slot and length by length."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from longstride.contract import DEFAULT_IDS, EOS, MASK, Limits
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.non_autoregressive.decoder import NonAutoregressive, NonAutoregressiveOptions
from longstride.systems.non_autoregressive.model import OnePass, OnePassOptions
from tests.models import seeded, tiny_options


def tiny_one_pass(seed: int = 0, dtype: torch.dtype = torch.float64, **changes: object) -> OnePass:
    """Random, with everything told apart: words, places, lengths and sources."""
    settings = {**vars(tiny_options()), "length": LengthRegression(1.2, 0.7, 1.5), **changes}
    with seeded(seed):
        model = OnePass(OnePassOptions(**settings))  # type: ignore[arg-type]
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(0, 0.5)
    return model.to(dtype).eval().requires_grad_(False)


def decoder(model: OnePass, **options: object) -> NonAutoregressive:
    return NonAutoregressive(model, EagerRunner("cpu", "fp64"), NonAutoregressiveOptions(**options))  # type: ignore[arg-type]


def slow_canvas(model: OnePass, source: list[int], length: int, columns: int | None = None) -> Tensor:
    """[slots, vocabulary] log-probabilities of one canvas alone, its slots put together one by one.

    With more `columns` than its length, of slots beyond it too, each of which looks at the canvas alone.
    """
    columns = columns or length
    memory = model.encode(torch.tensor([source]), None)
    table = model.target_embedding if model.source_embedding is None else model.source_embedding
    words = table(torch.tensor(source))
    slots = []
    for t in range(columns):
        place = min(t * (len(source) - 1) / max(length - 1, 1), len(source) - 1)
        read = model.target_embedding.weight[MASK]
        if model.options.copy == "uniform":
            read = read + words[math.floor(place + 0.5)]
        if model.options.copy == "soft":
            near = [math.exp(-abs(place - s) / model.options.copy_spread) for s in range(len(source))]
            read = read + sum(weight / sum(near) * words[s] for s, weight in enumerate(near))
        slots.append(read * model.scale + model.target_positions(torch.tensor(t)))
    found = []
    for t in range(columns):
        extra = [] if t < length else [slots[t]]
        x = torch.stack([*slots[:length], *extra])[None]
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        mask[:, length:] = False
        for layer in model.decoder.layers:
            x = layer(x, memory, mask[None, None], None, False)
        found.append(model.logits(model.decoder.norm(x))[0, min(t, length)])
    return torch.stack(found).log_softmax(-1)


def slow_fill(
    model: OnePass, source: list[int], lengths: range, weight: float = 1.0, banned: tuple[int, ...] = ()
) -> tuple[list[int], float, float]:
    """The best output over these lengths, EOS counted: words, score, log-probability; one canvas after another."""
    best: tuple[float, float, list[int]] | None = None
    line = model.options.length
    for length in lengths:
        scores = slow_canvas(model, source, length)
        total, words = 0.0, []
        for t in range(length - 1):
            allowed = [
                (float(scores[t, word]), word)
                for word in range(model.options.vocabulary)
                if word not in (*DEFAULT_IDS.never_generated, EOS, *banned)
            ]
            score, word = max(allowed)
            total += score
            words.append(word)
        total += float(scores[length - 1, EOS])
        expected = max(1.0, line.slope * (len(source) - 1) + line.intercept)
        odds = 0.0 if line.spread is None else -(((length - 1 - expected) / max(line.spread, 0.25)) ** 2) / 2
        ranked = ((total + weight * odds) / length, total, words)
        if best is None or ranked[0] > best[0]:
            best = ranked
    assert best is not None
    return best[2], best[0], best[1]


def window(model: OnePass, source: list[int], spread: int, limits: Limits | None = None) -> range:
    """The lengths to be tried, EOS counted."""
    limits = limits or Limits()
    line = model.options.length
    words = len(source) - 1
    predicted = round(max(1.0, line.slope * words + line.intercept)) + 1
    most = min(max(int(words * limits.max_ratio) + limits.max_extra, 1, limits.min_length), limits.max_length) + 1
    most = min(most, model.options.longest)
    least = min(max(2, limits.min_length + 1), most)
    centre = min(max(predicted, least), most)
    return range(max(centre - spread, least), min(centre + spread, most) + 1)
