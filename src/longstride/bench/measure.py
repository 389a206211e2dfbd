"""The protocol of measurement: who decodes what when, and which clock is read where.

All candidates stand side by side in one process and take turns sentence by sentence, so that machine noise falls on all
alike; who goes first rotates, and the direction of the round turns, so that nobody always runs in the same wake. The
clock runs from ids on the host to ids on the host, the device synchronised before each reading: encoders, drafting,
verification and search count, tokenization does not. What is done once, such as capturing or compiling steps, falls
into the warm-up, whose time is told apart. Quality, counts and memory come from one more pass, which is traced and not
timed. Nothing is handed out before a batch size is wholly measured: interrupting leaves no half records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from longstride.bench.candidate import Candidate, check_candidates
from longstride.bench.record_parts import BatchKind, Origin, Preparation
from longstride.bench.records import Latency
from longstride.bench.traced_pass import (
    Progress,
    Traced,
    batches_of,
    comparisons,
    equality,
    measured_sentences,
    no_progress,
    traced_pass,
)
from longstride.bench.workload import Workload
from longstride.contract import OptionError, Source, option
from longstride.contract.options import Options

Clock = Callable[[], int]
"""Nanoseconds that only ever grow."""

WARMUP_BATCHES = 8


@dataclass(frozen=True)
class Protocol(Options):
    """How a run measures."""

    passes: int = option(3, "How often the whole workload is timed.", least=1, most=10**6)
    batch_sizes: tuple[int, ...] = option(
        (1,), "Sentences decoded together; 1 is latency, more is throughput.", least=1, most=10**6
    )
    reference: str | None = option(None, "Candidate whose ids the others' are compared with.")
    batch_kind: BatchKind = option(
        "closed",
        "Closed batches are decoded to their end; in open ones, as in translate, sentences take the places of those "
        "that are done.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.batch_sizes:
            raise OptionError("batch_sizes expects at least one number, found none.")


@dataclass
class _Timed:
    """One candidate while a batch size is measured."""

    candidate: Candidate
    sentences: tuple[int, ...]
    batches: list[list[int]]
    sources: list[Source]
    passes: int
    capacity: int
    """sentences side by side"""
    kind: BatchKind
    readings: list[list[int]] = field(default_factory=list)
    outputs: dict[int, list[int]] = field(default_factory=dict)
    unstable: set[int] = field(default_factory=set)


def measure(
    workload: Workload,
    candidates: Sequence[Candidate],
    protocol: Protocol,
    origin: Origin,
    progress: Progress = no_progress,
    clock: Clock = time.perf_counter_ns,
) -> Iterator[list[Latency]]:
    """Per batch size, when it is wholly measured, one record per candidate."""
    check_candidates(candidates, protocol.reference)
    for batch_size in protocol.batch_sizes:
        yield _measure_batch_size(workload, candidates, protocol, origin, batch_size, progress, clock)


def _measure_batch_size(
    workload: Workload,
    candidates: Sequence[Candidate],
    protocol: Protocol,
    origin: Origin,
    batch_size: int,
    progress: Progress,
    clock: Clock,
) -> list[Latency]:
    kind = protocol.batch_kind
    line_up = [_prepare(candidate, workload, protocol, batch_size) for candidate in candidates]
    warmup = warmup_batches(workload, batch_size)
    prepared = {
        one.candidate.name: _warm_up(one, [*warmup, *_of_shapes(one, workload)], progress, clock) for one in line_up
    }
    _time(line_up, batch_size, progress, clock)
    found = {
        one.candidate.name: traced_pass(one.candidate, workload, one.sentences, batch_size, progress, kind)
        for one in line_up
    }
    decoded = sum(source.rows for source in warmup)
    records = [
        _record(order, one, line_up, found, workload, protocol, origin, batch_size) for order, one in enumerate(line_up)
    ]
    return [replace(record, warmup=decoded, preparation=prepared[record.candidate]) for record in records]


def _prepare(candidate: Candidate, workload: Workload, protocol: Protocol, batch_size: int) -> _Timed:
    sentences = measured_sentences(candidate, workload)
    batches = batches_of(workload, sentences, batch_size, protocol.batch_kind)
    sources = [workload.source(batch) for batch in batches]
    passes = min(candidate.passes or protocol.passes, protocol.passes)
    return _Timed(candidate, sentences, batches, sources, passes, batch_size, protocol.batch_kind)


def warmup_batches(workload: Workload, batch_size: int) -> list[Source]:
    """The warm-up sentences by length, each repeated as often as it takes to fill batches of every length.

    None is larger than the largest that is measured.
    """
    by_length = sorted(workload.warmup, key=len)
    if not by_length:
        return []
    batch_size = max(1, min(batch_size, len(workload.sources)))
    wanted = min(WARMUP_BATCHES, len(by_length)) * batch_size
    repeats = max(1, -(-wanted // len(by_length)))
    filled = [sentence for sentence in by_length for _ in range(repeats)]
    return [Source.of(filled[first : first + batch_size]) for first in range(0, len(filled), batch_size)]


def _of_shapes(one: _Timed, workload: Workload) -> list[Source]:
    """For who captures steps, warm-up sentences in batches of every shape that will be timed: what a shape's first
    batch waits for is no part of decoding it."""
    if one.candidate.captured is None or not workload.warmup:
        return []
    if one.kind == "open":  # shapes go by the lengths of sentences, too
        return [Source.of(_as_long(workload.warmup, source.lengths.tolist())) for source in one.sources]
    shapes = {tuple(source.ids.shape): None for source in one.sources}
    given = [list(sentence) for sentence in workload.warmup]
    return [Source.of([_cut(given[row % len(given)], width) for row in range(rows)], width) for rows, width in shapes]


def _as_long(sentences: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[int]]:
    """Sentences of these lengths, made of the tokens of others, which end as those do."""
    made = []
    for place, length in enumerate(lengths):
        *tokens, end = sentences[place % len(sentences)]
        made.append([*((tokens or [end]) * length)[: length - 1], end])
    return made


def _cut(sentence: list[int], width: int) -> list[int]:
    """At most so many tokens, its last one among them."""
    return sentence if len(sentence) <= width else [*sentence[: width - 1], sentence[-1]]


def _warm_up(timed: _Timed, warmup: Sequence[Source], progress: Progress, clock: Clock) -> Preparation:
    """Decode the warm-up sentences; what that took and what was captured."""
    one = timed.candidate
    before = one.captured() if one.captured else None
    one.synchronize()
    begun = clock()
    for done, source in enumerate(warmup):
        progress(f"warming up {one.name}", done, len(warmup))
        one.decoder.decode(source, one.limits, timed.capacity)
    one.synchronize()
    seconds = round((clock() - begun) / 1e9, 6)
    progress(f"warming up {one.name}", len(warmup), len(warmup))
    if one.captured is None or before is None:
        return Preparation(seconds)
    after = one.captured()
    return Preparation(
        seconds,
        round(after.seconds - before.seconds, 6),
        after.graphs - before.graphs,
        # Tables that nobody uses may be given up for new ones.
        max(0, after.graph_bytes - before.graph_bytes),
        max(0, after.table_bytes - before.table_bytes),
    )


def _time(line_up: Sequence[_Timed], batch_size: int, progress: Progress, clock: Clock) -> None:
    """Fill in every candidate's readings and outputs."""
    # A candidate with a sample sits out the others' batches: turns go by the batch's place in the workload.
    turns = _turns(line_up)
    passes = max(one.passes for one in line_up)
    for number in range(passes):
        for one in line_up:
            if number < one.passes:
                one.readings.append([])
        for place, turn in enumerate(turns):
            progress(f"pass {number + 1} of {passes}, batch size {batch_size}", place, len(turns))
            taking_part = [(one, batch) for one, batch in turn if number < one.passes]
            for member in order_of_turn(len(taking_part), number + place):
                one, batch = taking_part[member]
                _read(one, batch, clock)
        progress(f"pass {number + 1} of {passes}, batch size {batch_size}", len(turns), len(turns))


def _turns(line_up: Sequence[_Timed]) -> list[list[tuple[_Timed, int]]]:
    """Who decodes which of its batches at each turn, in an order that keeps every candidate's batches in order."""
    turns: dict[int, list[tuple[_Timed, int]]] = {}
    for one in line_up:
        for batch, sentences in enumerate(one.batches):
            alone = one.capacity == 1 and one.kind == "closed"
            turns.setdefault(sentences[0] if alone else batch, []).append((one, batch))
    return [turns[place] for place in sorted(turns)]


def order_of_turn(candidates: int, turn: int) -> list[int]:
    """Who goes first rotates with every turn; the direction turns with every full round."""
    if not candidates:
        return []
    rounds, first = divmod(turn, candidates)
    step = -1 if rounds % 2 else 1
    return [(first + step * place) % candidates for place in range(candidates)]


def _read(one: _Timed, batch: int, clock: Clock) -> None:
    candidate = one.candidate
    candidate.synchronize()
    begun = clock()
    tokens = candidate.decoder.decode(one.sources[batch], candidate.limits, one.capacity).tokens
    candidate.synchronize()
    ended = clock()
    one.readings[-1].append(max(1, round((ended - begun) / 1000)))
    for sentence, output in zip(one.batches[batch], tokens, strict=True):
        if one.outputs.setdefault(sentence, output) != output:
            one.unstable.add(sentence)


def _record(
    order: int,
    one: _Timed,
    line_up: Sequence[_Timed],
    found: dict[str, Traced],
    workload: Workload,
    protocol: Protocol,
    origin: Origin,
    batch_size: int,
) -> Latency:
    candidate, mine = one.candidate, found[one.candidate.name]
    traced = dict(zip(mine.sentences, mine.outputs, strict=True))
    unstable = one.unstable | {place for place, output in one.outputs.items() if tuple(output) != traced[place]}
    reference = protocol.reference if protocol.reference in found else None
    return Latency(
        origin=origin,
        candidate=candidate.name,
        role=candidate.role,
        order=order,
        decoder=candidate.decoder.signature,
        device=candidate.device,
        precision=candidate.precision,
        runtime=candidate.runtime,
        model=candidate.model,
        limits=candidate.limits,
        workload=workload.tag,
        batch_size=batch_size,
        latencies_us=tuple(tuple(readings) for readings in one.readings),
        source_lengths=tuple(len(workload.sources[sentence]) for sentence in one.sentences),
        output_lengths=tuple(len(output) for output in mine.outputs),
        scores=mine.scores,
        sentences=None if candidate.sample is None else one.sentences,
        batches=() if batch_size == 1 and one.kind == "closed" else tuple(len(batch) for batch in one.batches),
        batch_kind=one.kind,
        iterations=mine.iterations,
        counts=mine.counts,
        memory=mine.memory,
        equality=equality(mine, found[reference], reference) if reference else None,
        against=comparisons(candidate, [other.candidate for other in line_up], found, workload),
        unstable=len(unstable),
        options=dict(candidate.options),
        notes=dict(candidate.notes),
    )
