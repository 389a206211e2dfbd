"""Which outputs of a teacher are no translations: pure functions of token ids. Knows no text and no decoder.

A student learns what it is shown. Beam search now and then returns nothing, runs into the length limit or goes round in
circles; a few such pairs in a thousand teach a student the same. What the source itself repeats is not held against an
output: a row of dashes is rightly translated as a row of dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from longstride.contract import option
from longstride.contract.options import Options

Reason = Literal[
    "empty source", "source too long", "empty output", "length limit", "repeated token", "loop", "length ratio"
]


@dataclass(frozen=True)
class Rules(Options):
    """When an output counts as degenerate."""

    max_run: int = option(
        7, "A token may stand this many times in a row, or as often as in the source.", least=1, most=10**6
    )
    max_period: int = option(
        8, "Groups of up to this many tokens are looked at for going round in circles.", least=1, most=1000
    )
    max_loops: int = option(
        3, "A group of tokens may come this many times in a row, or as often as in the source.", least=1, most=10**6
    )
    max_ratio: float = option(
        3.0, "Neither side may be more than this many times as long as the other, after slack.", least=1, most=10**6
    )
    slack: int = option(6, "Tokens added to both sides before their lengths are compared.", least=0, most=10**6)


def why_degenerate(source: Sequence[int], output: Sequence[int], limit: int, rules: Rules) -> Reason | None:
    """The first rule that an output breaks, or None. Ids without EOS; `limit` is the most tokens it could have."""
    if not output:
        return "empty output" if source else None
    if len(output) >= limit:
        return "length limit"
    # Whatever repeats has few distinct tokens for its length; nearly all outputs are let through by this count alone.
    repeats = len(output) - len(set(output))
    if repeats >= rules.max_run:
        run = longest_run(output)
        if run > rules.max_run and run > longest_run(source):
            return "repeated token"
    if repeats >= 2 * rules.max_loops:
        for period in range(2, rules.max_period + 1):
            loops = longest_loop(output, period)
            if loops > rules.max_loops and loops > longest_loop(source, period):
                return "loop"
    longer, shorter = max(len(source), len(output)), min(len(source), len(output))
    if longer + rules.slack > rules.max_ratio * (shorter + rules.slack):
        return "length ratio"
    return None


def longest_run(tokens: Sequence[int]) -> int:
    """How often a token comes at most in direct succession."""
    return longest_loop(tokens, 1)


def longest_loop(tokens: Sequence[int], period: int) -> int:
    """How often a group of `period` tokens, not all alike unless `period` is 1, comes at most in direct succession."""
    if len(tokens) < period:
        return 0
    best = 0
    matched = 0  # tokens up to here that equal the one a period before: a run of n * period of them is n + 1 groups
    for index in range(period, len(tokens)):
        matched = matched + 1 if tokens[index] == tokens[index - period] else 0
        if matched // period > best:
            group = tokens[index - period + 1 : index + 1]
            if period == 1 or any(token != group[0] for token in group):
                best = matched // period
    return best + 1
