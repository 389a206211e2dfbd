"""Decode one shard: text to ids, groups of like length, ids to text, each output judged. Knows no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from longstride.contract import Source
from longstride.distillation.degenerate import Reason, why_degenerate
from longstride.distillation.grouping import grouped
from longstride.distillation.options import DistillOptions
from longstride.distillation.teacher import Teacher


@dataclass(frozen=True)
class DecodedShard:
    """What a teacher made of some lines: one output per line, and which of them are degenerate."""

    lines: list[str]
    degenerate: dict[int, Reason]
    """row within the shard -> why"""
    tokens: int
    """target tokens in all, EOS not counted"""


def decode_shard(
    teacher: Teacher,
    lines: Sequence[str],
    options: DistillOptions,
    seed: int,
    advanced: Callable[[int], None] = lambda rows: None,
) -> DecodedShard:
    """One output per line, in order; `advanced` is told how many lines each group finished."""
    sources, eos = teacher.encode(lines), teacher.special.eos
    degenerate: dict[int, Reason] = {}
    rows: list[int] = []  # those that are decoded at all
    for row, (line, ids) in enumerate(zip(lines, sources, strict=True)):
        if not line.strip() or not ids:
            degenerate[row] = "empty source"
            continue
        if len(ids) + 1 > options.longest_source:
            degenerate[row] = "source too long"
            if not options.keep_all:
                continue
            sources[row] = ids[: options.longest_source - 1]
        rows.append(row)
    advanced(len(lines) - len(rows))

    outputs: list[list[int]] = [[] for _ in lines]
    lengths = torch.tensor([len(sources[row]) + 1 for row in rows], dtype=torch.int64)
    limits = teacher.limits.longest_outputs(lengths).tolist()
    on_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = [torch.cuda.current_device()] if on_cuda else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        for group in grouped(lengths.tolist(), limits, options):
            source = Source.of([[*sources[rows[index]], eos] for index in group.rows], longest=group.width)
            found = teacher.decoder.decode(source, teacher.limits, capacity=group.capacity)
            for index, tokens in zip(group.rows, found.tokens, strict=True):
                outputs[rows[index]] = tokens
            advanced(len(group.rows))

    for row, limit in zip(rows, limits, strict=True):
        reason = why_degenerate(sources[row], outputs[row], limit, options.rules)
        if reason is not None:
            degenerate.setdefault(row, reason)
    texts = [_one_line(text) for text in teacher.decode(outputs)]
    return DecodedShard(texts, dict(sorted(degenerate.items())), sum(map(len, outputs)))


def _one_line(text: str) -> str:
    # Vocabularies with single bytes in them can spell a line break; a corpus file cannot hold one inside a line.
    return text.replace("\n", " ").replace("\r", " ")
