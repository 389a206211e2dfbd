"""From a model's logits to the best continuations of every row: one function for all beams, and model calls that end in
it, so that backends which build graphs never hand a whole vocabulary of logits out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import EOS, Feeds, Program

Best = tuple[Tensor, Tensor, Tensor]
"""Ids and log-probabilities of the best words [..., kept], best first, and the log-probability of EOS [...]"""


def best_words(logits: Tensor, no_words: Tensor, count: int, eos: int = EOS) -> Best:
    """By logits [..., vocabulary]; ids `no_words` [n] are left out, EOS among them."""
    return ops.likeliest(logits, no_words, min(count, logits.shape[-1]), eos)


def best_allowed_words(
    logits: Tensor, no_words: Tensor, count: int, eos: int, allowed: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same without what a row's prefix forbids, EOS too: `allowed` makes that -inf in log-probabilities
    [rows, 1, vocabulary], which are those of logits of this shape. Last comes EOS's own, forbidden or not."""
    shares = logits.log_softmax(dim=-1, dtype=ops.wide(logits))
    anyway = shares[..., eos].clone()
    shares = allowed(shares)
    end = shares[..., eos].clone()
    words, ids = shares.index_fill_(-1, no_words, float("-inf")).topk(min(count, shares.shape[-1]), dim=-1)
    return ids, words, end, anyway


def averaged(logits: Sequence[Tensor]) -> Tensor:
    """[..., vocabulary] the logarithm of the models' mean probability, which serves as logits"""
    if len(logits) == 1:
        return logits[0]
    every = torch.stack([one.log_softmax(dim=-1, dtype=ops.wide(one)) for one in logits])
    return every.logsumexp(dim=0).sub_(math.log(len(logits)))


def with_best_words(extend: Program, vocabulary: int, count: int, eos: int = EOS) -> Program:
    """(no_words [n], what `extend` takes) -> the best words by its logits [rows, step, vocabulary]"""
    kept = min(count, vocabulary)

    def function(no_words: Tensor, *arguments: Any) -> Best:
        found = extend.function(*arguments)
        return best_words(found[0] if isinstance(found, tuple) else found, no_words, kept, eos)

    spec = extend.graph
    if spec is None:
        return Program(f"{extend.name} candidates", function)

    def feeds(no_words: Tensor, *arguments: Any) -> Feeds:
        given = spec.feeds(*arguments)
        return replace(given, inputs={**given.inputs, "no_words": no_words})

    def record(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        made = dict(spec.record(builder, {name: value for name, value in given.items() if name != "no_words"}))
        tracer = ops.Tracer(builder)
        logits = tracer.value(made.pop("logits"), torch.float32, [None, None, vocabulary])
        found = best_words(logits, tracer.value(given["no_words"], torch.int64, [None]), kept, eos)  # type: ignore[arg-type]
        return made | {name: value.handle for name, value in zip(NAMES, found, strict=True)}  # type: ignore[attr-defined]

    words = ("rows", "step", kept)
    outputs = dict(zip(NAMES, ((torch.int64, words), (torch.float32, words), (torch.float32, words[:2])), strict=True))
    graph = replace(
        spec,
        feeds=feeds,
        inputs={**spec.inputs, "no_words": (torch.int64, ("forbidden",))},
        outputs=outputs,
        record=record,
        result=lambda found, feeds: tuple(found[name] for name in NAMES),
        settings=(*spec.settings, "candidates", kept, eos),
    )
    return Program(f"{extend.name} candidates", function, graph)


NAMES = ("words", "word_scores", "end")
"""What a graph gives."""
