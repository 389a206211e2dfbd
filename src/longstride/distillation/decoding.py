"""Decode one shard: text to ids, groups of like length, ids to text, each output judged. Knows no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from longstride.contract import DEFAULT_IDS, Decoder, Limits, Source, SpecialIds
from longstride.distillation.degenerate import Reason, why_degenerate
from longstride.distillation.options import DistillOptions

LINES = 2**31
"""More than a corpus has."""


@dataclass(frozen=True)
class Teacher:
    """A decoder over one model or an ensemble. Ids come from `encode` and go to `decode` without EOS."""

    decoder: Decoder
    encode: Callable[[Sequence[str]], list[list[int]]]
    decode: Callable[[Sequence[Sequence[int]]], list[str]]
    hashes: tuple[str, ...]
    """one per model of the ensemble: of all that decides its outputs (configuration and weights)"""
    vocabulary: str
    """the hash of the tokenizer, or of both where source and target have their own"""
    limits: Limits
    longest_source: int | None = None
    """the most source tokens (EOS counted) it can read, where it has such a limit"""
    special: SpecialIds = DEFAULT_IDS
    whole: bool = False
    """`encode` gives rows as the model reads them, their end included: nothing is appended"""

    @property
    def signature(self) -> str:
        """The decoder and all its options."""
        return self.decoder.signature


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
    first: int = 0,
) -> DecodedShard:
    """One output per line, in order; `advanced` is told how many lines each group finished; `first` is the number of
    the first line in the corpus."""
    sources, ending = teacher.encode(lines), [] if teacher.whole else [teacher.special.eos]
    degenerate: dict[int, Reason] = {}
    rows: list[int] = []  # those that are decoded at all
    for row, (line, ids) in enumerate(zip(lines, sources, strict=True)):
        if not line.strip() or not ids:
            degenerate[row] = "empty source"
            continue
        if len(ids) + len(ending) > options.longest_source:
            degenerate[row] = "source too long"
            if not options.keep_all:
                continue
            sources[row] = ids[: options.longest_source - len(ending)]
        rows.append(row)
    advanced(len(lines) - len(rows))

    outputs: list[list[int]] = [[] for _ in lines]
    lengths = torch.tensor([len(sources[row]) + len(ending) for row in rows], dtype=torch.int64)
    limits = teacher.limits.longest_outputs(lengths).tolist()
    on_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = [torch.cuda.current_device()] if on_cuda else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        for group in grouped(lengths.tolist(), limits, options):
            sentences = [[*sources[rows[index]], *ending] for index in group.rows]
            # What a line draws belongs to the line and the seed, whatever shard or group it is in.
            numbers = [options.seed * LINES + first + rows[index] for index in group.rows]
            source = Source.of(sentences, group.width, numbers)
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


_LIKE = 0.75
_SLACK = 4
"""A group may span lengths from this share of its longest, less a few tokens so that short ones are not cut up"""
_WIDTHS = 8
"""Widths are multiples of this, so that few different shapes occur"""


@dataclass(frozen=True)
class Group:
    """Sentences to be decoded by one call."""

    rows: tuple[int, ...]
    width: int
    """tokens that the longest source of the group may have, EOS counted"""
    capacity: int
    """how many sentences may stand side by side"""


def grouped(sources: Sequence[int], outputs: Sequence[int], options: DistillOptions) -> list[Group]:
    """Every row in exactly one group. `sources`: lengths with EOS; `outputs`: the longest output each row may have."""
    order = sorted(range(len(sources)), key=lambda row: (-sources[row], row))
    groups: list[Group] = []
    rows: list[int] = []
    width = slots = 0
    for row in order:
        if rows:
            full = len(rows) >= options.group_lines
            unlike = sources[row] < _LIKE * sources[rows[0]] - _SLACK and len(rows) >= slots
            if full or unlike:
                groups.append(Group(tuple(rows), width, min(slots, len(rows))))
                rows = []
        if not rows:
            # Never wider than any source may be: a model may have no positions beyond that.
            width = max(sources[row], min(-(-sources[row] // _WIDTHS) * _WIDTHS, options.longest_source))
            slots = _slots(width + outputs[row] + 1, options)
        rows.append(row)
    if rows:
        groups.append(Group(tuple(rows), width, min(slots, len(rows))))
    return groups


def _slots(tokens: int, options: DistillOptions) -> int:
    fitting = max(1, min(options.capacity, options.tokens // tokens))
    if fitting == options.capacity:
        return fitting
    return 1 << (fitting.bit_length() - 1)  # powers of two, for few shapes
