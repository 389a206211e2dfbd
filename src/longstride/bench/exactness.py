"""Is a decoder's output greedy's own? Ids of both over a whole test set, and how near a tie was where they part.

Sees decoders through the contract alone: which greedy to compare with, and how to read a margin, are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from longstride.bench.record_parts import Agreement, Mismatch
from longstride.bench.traced_pass import Progress, batches_of, no_progress
from longstride.bench.workload import Workload
from longstride.contract import EOS, Decoder, Limits, Source

Ids = tuple[int, ...]
Margins = Callable[[Source, Sequence[Sequence[int]]], list[float]]
"""(sources, prefixes) -> per row, best less second-best log-probability after the prefix"""

MOST_MISMATCHES = 200
"""So many differences are told one by one; all are counted."""

CERTAIN = 1e9
"""An infinite margin, where only one token could stand: JSON has no word for it."""


def outputs_of(
    decoder: Decoder,
    limits: Limits,
    workload: Workload,
    sentences: Sequence[int],
    batch_size: int,
    progress: Progress = no_progress,
) -> dict[int, Ids]:
    """Ids by place in the workload. The same sentences and batch size always make tables of the same shapes."""
    found: dict[int, Ids] = {}
    for batch in batches_of(workload, sentences, batch_size):
        progress(f"decoding by {decoder.signature}", len(found), len(sentences))
        decoded = decoder.decode(workload.source(batch), limits)
        found.update(zip(batch, map(tuple, decoded.tokens), strict=True))
    progress(f"decoding by {decoder.signature}", len(found), len(sentences))
    return found


def agreement(
    found: Mapping[int, Ids], expected: Mapping[int, Ids], reference: str, workload: Workload, margins: Margins
) -> Agreement:
    """Compare two decoders' outputs for the same sentences, id by id."""
    differing = [sentence for sentence in sorted(found) if found[sentence] != expected[sentence]]
    told = differing[:MOST_MISMATCHES]
    eos = workload.eos
    positions = [first_difference(found[sentence], expected[sentence], eos) for sentence in told]
    prefixes = [found[sentence][:position] for sentence, position in zip(told, positions, strict=True)]
    read = margins(workload.source(told), prefixes) if told else []
    mismatches = tuple(
        Mismatch(
            sentence,
            position,
            (*found[sentence], eos)[position],
            (*expected[sentence], eos)[position],
            min(margin, CERTAIN),
        )
        for sentence, position, margin in zip(told, positions, read, strict=True)
    )
    return Agreement(reference, len(found), len(differing), mismatches)


def first_difference(ours: Sequence[int], theirs: Sequence[int], eos: int = EOS) -> int:
    """The first position at which two different outputs differ, the end of a sentence counted as a token."""
    pairs = zip((*ours, eos), (*theirs, eos), strict=False)
    return next(place for place, (one, other) in enumerate(pairs) if one != other)
