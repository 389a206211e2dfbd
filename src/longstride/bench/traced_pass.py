"""One untimed, traced pass of a candidate: its outputs, what the traces add up to, its quality, its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longstride.bench.candidate import Candidate
from longstride.bench.machine import host_probe
from longstride.bench.record_parts import Against, BatchKind, Counts, Equality, MemoryUse
from longstride.bench.workload import Workload
from longstride.contract import Trace
from longstride.contract.decoding import refilled_groups
from longstride.tasks.bootstrap import compare_statistics
from longstride.tasks.score import Figures, Score, word_repetition

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is, and how much there is."""

NAMED_DIFFERENCES = 20


def no_progress(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Traced:
    """What one traced pass of one candidate found. Sentences are places in the workload, outputs in their order."""

    sentences: tuple[int, ...]
    outputs: tuple[tuple[int, ...], ...]
    iterations: tuple[int, ...]
    counts: Counts | None
    scores: tuple[Score, ...]
    statistics: Figures
    """of the workload's first metric: [sentences, figures]"""
    memory: MemoryUse


def measured_sentences(candidate: Candidate, workload: Workload) -> tuple[int, ...]:
    """The places in the workload of the sentences this candidate decodes."""
    return tuple(range(workload.size)) if candidate.sample is None else workload.sample(candidate.sample)


def batches_of(
    workload: Workload, sentences: Sequence[int], batch_size: int, kind: BatchKind = "closed"
) -> list[list[int]]:
    """Sentences in order for batch size 1; for larger ones sorted by source length, so that little is padding. For
    open batches, what one session decodes."""
    if kind == "open":
        groups = refilled_groups([len(workload.sources[sentence]) for sentence in sentences], batch_size)
        return [[sentences[place] for place in group] for group in groups]
    if batch_size == 1:
        return [[sentence] for sentence in sentences]
    by_length = sorted(sentences, key=lambda sentence: (len(workload.sources[sentence]), sentence))
    return [by_length[first : first + batch_size] for first in range(0, len(by_length), batch_size)]


def traced_pass(
    candidate: Candidate,
    workload: Workload,
    sentences: Sequence[int],
    batch_size: int,
    progress: Progress = no_progress,
    kind: BatchKind = "closed",
) -> Traced:
    """Decode the sentences once with traces."""
    host = host_probe()
    probes = [probe for probe in (host, candidate.memory) if probe is not None]
    candidate.synchronize()
    for probe in probes:
        probe.reset()
    host_held = host.held()
    device_held = candidate.memory.held() if candidate.memory else None
    outputs: dict[int, tuple[int, ...]] = {}
    traces: dict[int, Trace] = {}
    calls = done = 0
    for batch in batches_of(workload, sentences, batch_size, kind):
        progress(f"tracing {candidate.name}", done, len(sentences))
        decoded = candidate.decoder.decode(workload.source(batch), candidate.limits, batch_size, trace=True)
        outputs.update(zip(batch, map(tuple, decoded.tokens), strict=True))
        if decoded.traces is not None:
            traces.update(zip(batch, decoded.traces, strict=True))
        calls += decoded.calls
        done += len(batch)
    candidate.synchronize()
    progress(f"tracing {candidate.name}", done, len(sentences))
    memory = MemoryUse(device_held, candidate.memory.peak() if candidate.memory else None, host_held, host.peak())
    in_order = tuple(outputs[sentence] for sentence in sentences)
    complete = len(traces) == len(sentences)
    scores, statistics = _score(workload, sentences, in_order)
    return Traced(
        tuple(sentences),
        in_order,
        tuple(traces[sentence].iterations for sentence in sentences) if complete else (),
        count(list(traces.values()), in_order, calls) if complete else None,
        scores,
        statistics,
        memory,
    )


def count(traces: Sequence[Trace], outputs: Sequence[Sequence[int]], calls: int) -> Counts:
    """Add up traces of one sentence each."""
    events = [event for trace in traces for event in trace.events]
    committed = [number for trace in traces for number in trace.committed_per_step]
    verified = [number for event, number in zip(events, committed, strict=True) if event.drafted]
    return Counts(
        iterations=len(events),
        calls=calls,
        tokens=sum(len(output) for output in outputs),
        tokens_with_eos=sum(committed),
        drafted=sum(event.drafted for event in events),
        accepted=sum(event.accepted for event in events),
        drafted_at=_at_least([event.drafted for event in events]),
        reached_at=_at_least([min(event.drafted, event.accepted + 1) for event in events]),
        accepted_at=_at_least([event.accepted for event in events]),
        committed=tuple(committed.count(number) for number in range(max(committed, default=-1) + 1)),
        verified=len(verified),
        verified_tokens=sum(verified),
    )


def _at_least(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(sum(number >= place for number in numbers) for place in range(1, max(numbers, default=0) + 1))


def _score(
    workload: Workload, sentences: Sequence[int], outputs: Sequence[Sequence[int]]
) -> tuple[tuple[Score, ...], Figures]:
    texts = [workload.detokenize(list(output)) for output in outputs]
    references = [workload.references[sentence] for sentence in sentences]
    leading, *others = workload.metrics_on(sentences)
    statistics = leading.statistics(texts, references)
    scores = [Score(leading.name, leading.value(statistics.sum(axis=0)), leading.signature)]
    scores += [metric.score(texts, references) for metric in others]
    return (*scores, word_repetition(texts)), statistics


def equality(traced: Traced, reference: Traced, name: str) -> Equality:
    """Compare ids with those of the candidate `name`, over the sentences both decoded."""
    expected = dict(zip(reference.sentences, reference.outputs, strict=True))
    both = [
        (place, output) for place, output in zip(traced.sentences, traced.outputs, strict=True) if place in expected
    ]
    differing = [place for place, output in both if output != expected[place]]
    return Equality(name, len(both), len(differing), tuple(differing[:NAMED_DIFFERENCES]))


def comparisons(
    candidate: Candidate, line_up: Sequence[Candidate], found: dict[str, Traced], workload: Workload
) -> tuple[Against, ...]:
    """The candidate's quality against every other baseline's, over the sentences that both decoded."""
    mine, compared = found[candidate.name], []
    for other in line_up:
        if other.role != "baseline" or other.name == candidate.name:
            continue
        rows = {place: row for row, place in enumerate(found[other.name].sentences)}
        both = [(row, rows[place]) for row, place in enumerate(mine.sentences) if place in rows]
        if both:
            ours, theirs = [row for row, _ in both], [row for _, row in both]
            statistics = found[other.name].statistics[theirs], mine.statistics[ours]
            compared.append(Against(other.name, len(both), compare_statistics(workload.metrics[0], *statistics)))
    return tuple(compared)
