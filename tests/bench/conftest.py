"""Stand-ins for the bench: a decoder that takes two tokens per iteration, a clock that is told what to say, records."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from longstride.bench.machine import Machine
from longstride.bench.record_parts import Counts, Equality, MemoryUse, ModelTag, Origin, WorkloadTag
from longstride.bench.records import Latency, Quality
from longstride.bench.workload import Workload
from longstride.contract import EOS, Decoder, Finished, Hypothesis, Limits, Session, Source, Step
from longstride.tasks.score import Score


class Strider(Decoder):
    """Copies the source, drafting two tokens and accepting both; `spoil` replaces the last token of long outputs."""

    name = "strider"

    def __init__(self, spoil: bool = False) -> None:
        self._spoil = spoil

    @property
    def signature(self) -> str:
        return f"strider|spoil:{self._spoil}"

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        return _Striding(capacity, self._spoil)


class _Striding(Session):
    def __init__(self, capacity: int, spoil: bool) -> None:
        self.capacity, self.calls, self._spoil = capacity, 0, spoil
        self._outputs: list[list[int]] = []
        self._written = 0

    @property
    def free(self) -> int:
        return self.capacity - len(self._outputs)

    def admit(self, source: Source) -> list[int]:
        self.calls += 1
        for row in range(source.rows):
            tokens = source.ids[row, : int(source.lengths[row])].tolist()
            if self._spoil and len(tokens) > 4:
                tokens[-2] = 99
            self._outputs.append(tokens)
        return list(range(len(self._outputs)))

    def advance(self) -> Step:
        self.calls += 1
        rows = self.capacity
        position = torch.arange(2)[None, :].repeat(rows, 1) + self._written
        ids = torch.zeros(rows, 2, dtype=torch.int64)
        written = torch.zeros(rows, 2, dtype=torch.bool)
        for row, tokens in enumerate(self._outputs):
            for column in range(2):
                if self._written + column < len(tokens):
                    ids[row, column] = tokens[self._written + column]
                    written[row, column] = True
        self._written += 2
        active = written.any(dim=1)
        accepted = written.sum(dim=1)
        return Step(torch.arange(rows), active, position, ids, written, torch.full((rows,), 2), accepted)

    def take_finished(self) -> list[Finished]:
        return [
            Finished(row, [Hypothesis(tokens[:-1], 0.0, 0.0)])
            for row, tokens in enumerate(self._outputs)
            if self._written - 2 < len(tokens) <= self._written
        ]

    def cancel(self, ticket: int) -> None:
        self._outputs[ticket] = []


class FakeClock:
    """Grows by a fixed number of nanoseconds with every reading."""

    def __init__(self, step: int = 5_000) -> None:
        self.now, self.step = 0, step

    def __call__(self) -> int:
        self.now += self.step
        return self.now


def detokenize(ids: list[int]) -> str:
    return " ".join(f"w{token}" for token in ids)


def make_workload(lengths: list[int]) -> Workload:
    rng = random.Random(0)
    sources = [[*(rng.randint(5, 60) for _ in range(length)), EOS] for length in lengths]
    return Workload.of("toy", sources, [detokenize(source[:-1]) for source in sources], detokenize)


@pytest.fixture
def workload() -> Workload:
    return make_workload([3, 1, 7, 5, 2, 4, 6, 9, 8, 3])


@pytest.fixture
def origin() -> Origin:
    return make_origin()


def make_origin(experiment: str = "decoders", run: str = "run-1", date: str = "2024-05-01T10:00:00Z") -> Origin:
    machine = Machine("Fast Device", "Some CPU", 2, "3.11.0", "2.13.0", "Linux")
    return Origin(experiment, run, date, "0123456789abcdef", False, "0.1.0", machine)


TEST = WorkloadTag("en-de test", "cd", 2000)


def make_latency(
    name: str, speed: float = 1.0, bleu: float = 25.0, role: str = "candidate", order: int = 0, sentences: int = 60,
    origin: Origin | None = None, batch_size: int = 1, sample: tuple[int, ...] | None = None, spread: float = 0.2,
) -> Latency:  # fmt: skip
    """A made-up record: three passes of latencies that grow with length and shrink with `speed`."""
    lengths_rng = random.Random(7)
    lengths = [lengths_rng.randint(3, 70) for _ in range(sentences)]
    rng = random.Random(hash_of(name))
    per_sentence = [(900 + 280 * length) / speed * rng.lognormvariate(0, spread) for length in lengths]
    chosen = list(range(sentences)) if sample is None else list(sample)
    lengths, per_sentence = [lengths[i] for i in chosen], [per_sentence[i] for i in chosen]
    batches: tuple[int, ...] = ()
    if batch_size > 1:
        batches = tuple(len(lengths[first : first + batch_size]) for first in range(0, len(lengths), batch_size))
        per_sentence = per_sentence[: len(batches)]
    outputs = [max(1, length - 1) for length in lengths]
    iterations = [max(1, round(length / speed)) for length in lengths]
    tokens = sum(outputs)
    return Latency(
        origin=origin or make_origin(),
        candidate=name,
        role=role,  # type: ignore[arg-type]
        order=order,
        decoder=f"{name}|fp16|v0.1.0",
        device="Fast Device",
        precision="fp16",
        runtime="cuda-graph",
        model=ModelTag("base", "ab" * 32),
        limits=Limits(),
        workload=WorkloadTag("en-de test", "cd" * 32, sentences),
        batch_size=batch_size,
        latencies_us=tuple(tuple(round(v * rng.uniform(0.98, 1.02)) for v in per_sentence) for _ in range(3)),
        source_lengths=tuple(lengths),
        output_lengths=tuple(outputs),
        scores=(
            Score("BLEU", bleu, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"),
            Score("chrF", bleu + 28, "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0"),
            Score("repetition", 0.18, "repetition|immediate|words|percent"),
        ),
        sentences=sample,
        batches=batches,
        iterations=tuple(iterations),
        counts=Counts(sum(iterations), sum(iterations) + len(lengths), tokens, tokens + len(lengths)),
        memory=MemoryUse(2**30, 2**30 + 2**27, 2**31, 2**31),
        equality=Equality("greedy", len(lengths), 0 if role == "baseline" else 3),
        warmup=16,
    )


def make_quality(
    candidate: str, decoder: str, bleu: float = 25.0, model: ModelTag | str = "base", experiment: str = "decoders",
    date: str = "2024-05-01T10:00:00Z", workload: WorkloadTag = TEST, scores: tuple[Score, ...] = (), **more: Any,
) -> Quality:  # fmt: skip
    """A made-up record: BLEU, and `scores` after it."""
    tag = model if isinstance(model, ModelTag) else ModelTag(model)
    told = (Score("BLEU", bleu, "tok:13a"), *scores)
    return Quality(make_origin(experiment, date=date), candidate, decoder, tag, workload, told, **more)


def table_rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table, headings first."""
    lines = [line for line in text.split("\n") if line.startswith("|")]
    heading, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [heading, *rows]


def hash_of(text: str) -> int:
    return sum((place + 1) * ord(letter) for place, letter in enumerate(text))
