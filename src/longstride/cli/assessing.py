"""Decoding a test set for its quality: outputs, ids, counts; perplexity of the references. Prints progress alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from longstride.bench.assessment import count
from longstride.bench.records import Counts
from longstride.cli.console import Bar, bar, warn
from longstride.contract import Decoded
from longstride.registry import OBJECTIVES
from longstride.systems.autoregressive.objective import AutoregressiveObjectiveOptions
from longstride.tasks.perplexity import perplexity
from longstride.tasks.score import Score
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus
from longstride.translator import Translator

AUTOREGRESSIVE = "autoregressive"
PERPLEXITY_TOKENS = 8192
"""Target tokens scored at once: bounded memory, whatever --batch says."""


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


def reference_perplexity(translator: Translator, pairs: Sequence[tuple[str, str]], reference: str) -> Score | None:
    """Of the references, empty lines aside; none for a model that cannot score token after token."""
    scoring = [name for name in OBJECTIVES[AUTOREGRESSIVE].decoders if name in translator.decoders]
    full = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    if not scoring or not full:
        return None
    model = translator.parts_of(scoring[0])["model"]
    objective = OBJECTIVES[AUTOREGRESSIVE].build(AutoregressiveObjectiveOptions(label_smoothing=0.0))
    sources = translator.encode([source for source, _ in full], warn=lambda message: None)
    targets = translator.target_tokenizer.encode_many([target for _, target in full])
    room = translator.longest - 1
    cut = sum(len(target) > room for target in targets)
    if cut:
        warn(f"{reference}: {cut} references were cut at the model's limit of {room} tokens for perplexity.")
    corpus = BinarizedCorpus.from_pairs(zip(sources, [target[:room] for target in targets], strict=True))
    tokens = max(PERPLEXITY_TOKENS, translator.longest)
    batches = TokenBatches(corpus, BatchOptions(tokens=tokens, shuffle=False))
    with bar("reading references", batches.batches_in(0)) as shown:
        return perplexity(
            model,
            objective,
            batches,
            translator.runner.device,
            translator.target_tokenizer.sha256,
            lambda done, total: shown.to(done),
        )
