"""Decoding a test set for its quality: outputs, ids, counts; how probable the references are. Prints progress alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from longstride.bench.assessment import count
from longstride.bench.records import Counts
from longstride.cli.console import Bar, bar, warn
from longstride.contract import EOS, Decoded, Likelihood
from longstride.tasks.likelihood import Likelihoods, likelihoods
from longstride.translator import Translator


@dataclass(frozen=True)
class Decoding:
    """One decoder's outputs for a test set."""

    texts: list[str]
    ids: list[tuple[int, ...]]
    """without EOS; of an empty line, none"""
    counts: Counts | None
    seconds: float
    """wall-clock of tokenizing and decoding, loading excluded"""


def decode(
    translator: Translator, decoder: str | None, options: dict[str, Any], lines: Sequence[str], batch: int, name: str
) -> Decoding:
    """Decode all lines with traces; `name` says in warnings which file they are from."""
    begun = time.perf_counter()
    with bar("decoding", sum(1 for line in lines if line.strip())) as shown:
        watch = _Watch(shown)
        done = translator.translate(
            list(lines),
            decoder,
            batch=batch,
            trace=True,
            watch=watch,
            warn=lambda said: warn(f"{name}, {said}"),
            **options,
        )
    seconds = time.perf_counter() - begun
    found = [one for one in done if one.trace is not None]
    counts = None
    if found:
        traces = [one.trace for one in found if one.trace is not None]
        counts = count(traces, [one.tokens for one in found], watch.calls)
    return Decoding([one.text for one in done], [one.tokens for one in done], counts, seconds)


class _Watch:
    """Adds up model calls and shows how many lines are done."""

    def __init__(self, shown: Bar) -> None:
        self._shown = shown
        self._lines = 0
        self.calls = 0

    def __call__(self, decoded: Decoded) -> None:
        self._lines += len(decoded.hypotheses)
        self.calls += decoded.calls
        self._shown.to(self._lines)


def reference_likelihoods(
    translator: Translator, pairs: Sequence[tuple[str, str]], name: str, room: int | None = None
) -> Likelihoods | None:
    """Of all references that are not empty; none where there is none, or the model cannot score given outputs.

    References of more than `room` tokens, EOS not counted, are cut (default: the model's limit); `name` is their file.
    """
    model = translator.likelihood()
    full = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    return None if model is None or not full else score_pairs(translator, model, full, name, room)


def score_pairs(
    translator: Translator,
    model: Likelihood,
    pairs: Sequence[tuple[str, str]],
    name: str,
    room: int | None = None,
) -> Likelihoods:
    """What the model makes of these sources and targets; `name` says in warnings where they are from."""
    sources = translator.encode([source for source, _ in pairs], warn=lambda message: None)
    targets = translator.target_tokenizer.encode_many([target for _, target in pairs])
    room = translator.longest - 1 if room is None else room
    cut = sum(len(target) > room for target in targets)
    if cut:
        warn(f"{name}: {cut} references were cut at the model's limit of {room} tokens.")
    ids = [(source, [*target[:room], EOS]) for source, target in zip(sources, targets, strict=True)]
    with bar("reading references", None) as shown:
        return likelihoods(model, ids, shown.to)
