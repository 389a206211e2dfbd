"""Cut sentences into groups that decode well together. Knows lengths only.

A decoder's table has one width for all its slots, so sentences of like length belong together; a group should fill the
table at least once, or its slots stand idle; and memory is slots times tokens, so long sentences get fewer slots. The
longest come first: if memory does not suffice, it shows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longstride.distillation.options import DistillOptions

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
