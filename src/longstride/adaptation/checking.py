"""Stage 4: on lines never trained on, is every output greedy's own, and how many tokens does a step commit?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from longstride.adaptation.options import FEWEST_SENTENCES, SENTENCES, AdaptOptions
from longstride.bench.exactness import agreement, outputs_of
from longstride.bench.record_parts import Counts, ModelTag, Origin
from longstride.bench.records import Exactness
from longstride.bench.traced_pass import Progress, batches_of, count, no_progress
from longstride.bench.workload import Workload
from longstride.contract import Decoder, Limits, Source, Trace
from longstride.translator import Translator
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.exactness import SameShapeGreedy, margins

RACE_SECONDS = 60
"""The time that our own decoders may take in the race, about, if the number of sentences is not given"""


def held_out_workload(
    translator: Translator, lines: Sequence[str], name: str, progress: Progress = no_progress
) -> Workload:
    """Lines as ids; where no person's translations are known, the model's own greedy outputs stand for references."""
    sources = [ids for ids in translator.encode(list(lines), warn=lambda said: None) if len(ids) > 1]
    decoder, limits = translator.decoder("greedy")
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    texts = [""] * len(sources)
    for first in range(0, len(order), 32):
        progress("decoding held-out lines", first, len(order))
        group = order[first : first + 32]
        decoded = decoder.decode(Source.of([sources[place] for place in group]), limits)
        for place, text in zip(group, translator.text(decoded.tokens), strict=True):
            texts[place] = text
    return Workload.of(
        name,
        sources,
        texts,
        lambda ids: translator.text([ids])[0],
        eos=translator.folder.special.eos,
        own_endings=translator.source_tokenizer.complete,
    )


def raced(translator: Translator, lines: Sequence[str], options: AdaptOptions) -> Sequence[str]:
    """Return the first lines: the number that is asked for, or as many as our own decoders can race with in time."""
    if options.sentences:
        return lines[: options.sentences]
    decoder, limits = translator.decoder("greedy")
    first = [Source.of([ids]) for ids in translator.encode(list(lines[:FEWEST_SENTENCES]), warn=lambda said: None)]
    for _ in range(2):  # the first time, programs are captured for each width
        begun = time.perf_counter()
        for one in first:
            decoder.decode(one, limits)
        each = (time.perf_counter() - begun) / len(first)
    runs = 4 * options.passes * len(options.batch_sizes)  # greedy search and drafts, in closed and in open batches
    return lines[: min(SENTENCES, max(FEWEST_SENTENCES, int(RACE_SECONDS / max(runs * each, 1e-9))))]


def check(
    translator: Translator,
    workload: Workload,
    policy: DraftPolicy,
    batch_sizes: Sequence[int],
    origin: Origin,
    tag: ModelTag,
    progress: Progress = no_progress,
    pair: str = "",
) -> list[Exactness]:
    """Per batch size, drafting against greedy search by the same steps, id by id, and against steps of one token."""
    passes = 3 * len(batch_sizes)
    shown = (partial(_one_of, progress, number, passes) for number in range(passes))
    greedy, _ = translator.decoder("greedy")
    block = int(translator.decoder("draft-verify")[0].options.k)  # type: ignore[attr-defined]
    records = []
    sentences = range(workload.size)
    for size in batch_sizes:
        # Where drafts do not pay they are lossless all the same.
        nodes = policy.nodes(size)
        k = block if nodes else policy.length(size, block) or block
        how = {"k": k, **({"tree": nodes} if nodes else {})}
        decoder, limits = translator.decoder("draft-verify", **how, lengths=None)

        def margin(
            rows: Source, prefixes: Sequence[Sequence[int]], by: Decoder = decoder, limits: Limits = limits
        ) -> list[float]:
            return margins(by, rows, prefixes, limits)

        twin = SameShapeGreedy(decoder)
        found, counts = _traced(decoder, limits, workload, size, next(shown))
        same = outputs_of(twin, limits, workload, sentences, size, next(shown))
        narrow = outputs_of(greedy, limits, workload, sentences, size, next(shown))
        records.append(
            Exactness(
                origin=origin,
                candidate=" ".join(["draft-verify", *(f"{name}={value}" for name, value in how.items())]),
                decoder=decoder.signature,
                model=tag,
                workload=workload.tag,
                batch_size=size,
                same_shape=agreement(found, same, twin.signature, workload, margin),
                width_one=agreement(found, narrow, greedy.signature, workload, margin),
                device=str(translator.runner.device),
                precision=translator.runner.precision,
                runtime=translator.runner.name,
                limits=limits,
                options=how,
                notes={"counts": _counted(counts), **({"pair": pair} if pair else {})},
            )
        )
    return records


def _one_of(progress: Progress, number: int, passes: int, stage: str, done: int, total: int) -> None:
    """Tells how much one pass over the lines has done, as a part of all: then the time left is that of all."""
    progress("comparing with greedy search", number * total + done, passes * total)


def _traced(
    decoder: Decoder, limits: Limits, workload: Workload, batch_size: int, progress: Progress
) -> tuple[dict[int, tuple[int, ...]], Counts]:
    """Outputs by place in the workload, and what their traces add up to."""
    found: dict[int, tuple[int, ...]] = {}
    traces: list[Trace] = []
    calls = 0
    for batch in batches_of(workload, range(workload.size), batch_size):
        progress(f"decoding by {decoder.signature}", len(found), workload.size)
        decoded = decoder.decode(workload.source(batch), limits, trace=True)
        found.update(zip(batch, map(tuple, decoded.tokens), strict=True))
        traces += decoded.traces or []
        calls += decoded.calls
    return found, count(traces, list(found.values()), calls)


def _counted(counts: Counts) -> dict[str, Any]:
    """What the card tells of a drafter: tokens an iteration, and how often each drafted token stood."""
    return {
        "tokens_per_iteration": round(counts.tokens_per_iteration or 0.0, 3),
        "iterations": counts.iterations,
        "tokens": counts.tokens,
        "accepted_at": list(counts.accepted_at),
        "reached_at": list(counts.reached_at),
    }
