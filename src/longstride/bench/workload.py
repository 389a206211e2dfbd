"""What decoders are measured on: source ids in order, references, a way back to text, and sentences to warm up on.

Knows no decoder and no tokenizer: text is made from ids by a function that is handed in.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from numpy.typing import NDArray

from longstride.bench.record_parts import WorkloadTag
from longstride.contract import EOS, InputError, OptionError, Source
from longstride.tasks.score import Figures, Metric
from longstride.tasks.translation import translation_metrics

Sentence = tuple[int, ...]

ALTERED = 16


@dataclass(frozen=True)
class Workload:
    """A named, hashed test set. Build it with :meth:`of`."""

    name: str
    sources: tuple[Sentence, ...]
    """each ends in EOS"""
    references: tuple[str, ...]
    detokenize: Callable[[list[int]], str]
    warmup: tuple[Sentence, ...]
    """none of these is among the sources"""
    metrics: tuple[Metric, ...] = field(default_factory=translation_metrics)
    """the first is the one that tables and plots lead with"""
    whole: bool = False
    """metrics know each sentence by its place, as GLEU does, and are never asked about some sentences alone"""
    eos: int = EOS
    """what sources end in"""
    own_endings: bool = False
    """sources are as another library's tokenizer makes them: EOS may stand elsewhere, as before a language"""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError(f"Workload {self.name!r}: expected at least one sentence, found none.")
        if len(self.sources) != len(self.references):
            raise InputError(
                f"Workload {self.name!r}: expected one reference per source sentence, "
                f"found {len(self.sources)} sources and {len(self.references)} references."
            )
        for number, sentence in enumerate(self.sources, start=1):
            if self.own_endings and sentence:
                continue
            if not sentence or sentence[-1] != self.eos or self.eos in sentence[:-1]:
                raise InputError(
                    f"Workload {self.name!r}: expected source sentence {number} to end in EOS and hold no other, "
                    f"found {list(sentence[-8:])} at its end."
                )
        if not self.metrics:
            raise OptionError(f"Workload {self.name!r}: expected at least one metric, found none.")

    @staticmethod
    def of(
        name: str,
        sources: Sequence[Sequence[int]],
        references: Sequence[str],
        detokenize: Callable[[list[int]], str],
        warmup: Sequence[Sequence[int]] = (),
        metrics: Sequence[Metric] | None = None,
        whole: bool = False,
        eos: int = EOS,
        own_endings: bool = False,
    ) -> Workload:
        """A workload that warms up on `warmup` (less what is also measured) and on altered sentences of all lengths.

        The altered ones are as long as the measured ones, shortest and longest included, so that whatever is prepared
        per shape (captured graphs, buckets) stands before the clock runs.
        """
        measured = tuple(tuple(sentence) for sentence in sources)
        known = set(measured)
        others = [tuple(sentence) for sentence in warmup]
        chosen = [sentence for sentence in [*others, *_altered(measured)] if sentence not in known]
        return Workload(
            name,
            measured,
            tuple(references),
            detokenize,
            tuple(chosen),
            translation_metrics(references) if metrics is None else tuple(metrics),
            whole,
            eos,
            own_endings,
        )

    @property
    def size(self) -> int:
        """How many sentences are measured."""
        return len(self.sources)

    @property
    def data_hash(self) -> str:
        """SHA-256 over source ids and references: two workloads with the same hash measure the same."""
        digest = hashlib.sha256()
        for sentence, reference in zip(self.sources, self.references, strict=True):
            digest.update(" ".join(map(str, sentence)).encode() + b"\n" + reference.encode() + b"\n")
        return digest.hexdigest()

    @property
    def tag(self) -> WorkloadTag:
        """As records name it."""
        return WorkloadTag(self.name, self.data_hash, self.size)

    def source(self, sentences: Iterable[int]) -> Source:
        """Sentences at these places, to be decoded together."""
        numbers = list(sentences)
        return Source.of([self.sources[number] for number in numbers], numbers=numbers)

    def sample(self, count: int, seed: int = 0) -> tuple[int, ...]:
        """Which sentences a fixed sample holds, in order: a seed and a size always name the same ones."""
        if count < 1:
            raise OptionError(f"A sample expects 1 or more sentences, found {count}.")
        if count >= self.size:
            return tuple(range(self.size))
        return tuple(sorted(random.Random(seed).sample(range(self.size), count)))

    def metrics_on(self, indices: Sequence[int]) -> tuple[Metric, ...]:
        """The metrics for outputs of these sentences alone."""
        if not self.whole or list(indices) == list(range(self.size)):
            return self.metrics
        return tuple(Within(metric, self.size, tuple(indices)) for metric in self.metrics)


class Within(Metric):
    """A metric that knows each sentence by its place, asked about some of them."""

    def __init__(self, metric: Metric, size: int, indices: Sequence[int]) -> None:
        self.name = metric.name
        self._metric = metric
        self._size = size
        self._indices = list(indices)

    @property
    def signature(self) -> str:
        """The metric's own."""
        return self._metric.signature

    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Figures:
        """[sentences, figures] of these sentences, each in its own place."""
        texts, expected = [""] * self._size, [""] * self._size
        for place, index in enumerate(self._indices):
            texts[index], expected[index] = outputs[place], references[place]
        return self._metric.statistics(texts, expected)[self._indices]

    def value(self, summed: NDArray[Any]) -> float:
        """The metric's own."""
        return self._metric.value(summed)


def _altered(sources: Sequence[Sentence]) -> list[Sentence]:
    """Sentences with two words in each other's place, evenly spread over the lengths there are.

    Nothing else is changed: who learns from texts what pays, as adaptive blocks do, learns it here from what is like
    the texts to come. (Where all words stand in any order, drafts are right half as often.)
    """
    by_length = sorted(sources, key=len)
    last = len(by_length) - 1
    places = sorted({round(step * last / (ALTERED - 1)) for step in range(ALTERED)} if by_length else ())
    return [_swapped(by_length[place]) for place in places]


def _swapped(sentence: Sentence) -> Sentence:
    """With its first two neighbours swapped that are not the same word."""
    for place, (one, other) in enumerate(pairwise(sentence[:-1])):
        if one != other:
            return (*sentence[:place], other, one, *sentence[place + 2 :])
    return sentence
