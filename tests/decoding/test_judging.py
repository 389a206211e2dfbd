"""Judging at once is accepting and then committing."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.verification.acceptance import Reading, Rule, accept, commit, judge
from longstride.verification.drafting import Proposal


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    block=st.integers(0, 6),
    rule=st.sampled_from(["exact", "top:2", "top:3,gap:1.0", "distance:1"]),
    least=st.integers(1, 3),
)
def test_both_ways_give_the_same(seed, rows, block, rule, least):
    generator = torch.Generator().manual_seed(seed)
    draft = torch.randint(3, 6, (rows, block), generator=generator)  # EOS is among them
    top = torch.randint(3, 6, (rows, block + 1), generator=generator)
    count = torch.randint(0, block + 1, (rows,), generator=generator)
    of_draft = -torch.rand(rows, block, generator=generator) * 3
    of_draft[torch.rand(rows, block, generator=generator) < 0.1] = -torch.inf
    exact = rule == "exact" and least == 1
    reading = Reading(
        top,
        -torch.rand(rows, block + 1, generator=generator),
        torch.rand(rows, block + 1, generator=generator),
        None if exact else of_draft,
        None if exact else torch.randint(0, 5, (rows, block), generator=generator),
    )
    proposal, wanted = Proposal(draft, count), Rule.from_text(rule)
    found = judge(wanted, least, proposal, reading)
    expected = commit(proposal, reading, accept(wanted, least, proposal, reading))
    for name in ("accepted", "committed", "ended", "newest"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    for row, committed in enumerate(expected.committed.tolist()):
        assert torch.equal(found.ids[row, :committed], expected.ids[row, :committed])
        assert torch.equal(found.log_probability[row, :committed], expected.log_probability[row, :committed])
