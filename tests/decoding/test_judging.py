"""Judging is accepting token by token, and then committing up to the first EOS."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS
from longstride.verification.acceptance import LogitSummary, Rule, judge
from longstride.verification.drafting import Proposal


def stands(rule: Rule, reading: LogitSummary, token: int, row: int, slot: int) -> bool:
    top = int(reading.top[row, slot])
    if rule.kind == "exact":
        return token == top
    logit = float(reading.draft_logit[row, slot])
    if logit == -math.inf:
        return False
    if rule.kind == "distance":
        return token == top if EOS in (token, top) else abs(token - top) <= rule.distance
    close = reading.top_logit[row, slot] - reading.draft_logit[row, slot] <= rule.gap
    return bool(reading.draft_rank[row, slot] < rule.top) and bool(close)


def slow(
    rule: Rule, least: int, reading: LogitSummary, draft: list[int], count: int, row: int
) -> tuple[int, list[int]]:
    """How many drafted tokens stand, and all that is committed."""
    accepted = 0
    while accepted < count and stands(rule, reading, draft[accepted], row, accepted):
        accepted += 1
    possible = 0
    while least > 1 and possible < count and float(reading.draft_logit[row, possible]) > -math.inf:
        possible += 1
    accepted = max(accepted, min(possible, least - 1))
    ids = [*draft[:accepted], int(reading.top[row, accepted])]
    ids = ids[: ids.index(EOS) + 1] if EOS in ids else ids
    return min(accepted, len(ids)), ids


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    block=st.integers(0, 6),
    rule=st.sampled_from(["exact", "top:2", "top:3,gap:1.0", "distance:1"]),
    least=st.integers(1, 3),
)
def test_a_verdict_is_what_going_token_by_token_gives(seed, rows, block, rule, least):
    generator = torch.Generator().manual_seed(seed)
    draft = torch.randint(3, 6, (rows, block), generator=generator)  # EOS is among them
    top = torch.randint(3, 6, (rows, block + 1), generator=generator)
    count = torch.randint(0, block + 1, (rows,), generator=generator)
    of_draft = -torch.rand(rows, block, generator=generator) * 3
    of_draft[torch.rand(rows, block, generator=generator) < 0.1] = -torch.inf
    exact = rule == "exact" and least == 1
    reading = LogitSummary(
        top,
        -torch.rand(rows, block + 1, generator=generator),
        None,
        None if exact else of_draft,
        None if exact else torch.randint(0, 5, (rows, block), generator=generator),
    )
    proposal, wanted = Proposal(draft, count), Rule.from_text(rule)
    found = judge(wanted, least, proposal, reading)
    for row in range(rows):
        accepted, ids = slow(wanted, least, reading, draft[row].tolist(), int(count[row]), row)
        assert found.accepted[row] == accepted
        assert found.committed[row] == len(ids)
        assert found.newest[row] == ids[-1]
        assert found.ids[row, : len(ids)].tolist() == ids
