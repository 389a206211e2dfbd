"""Beam search with drafts puts out what beam search does, whoever drafts, by no more model calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import EOS, Limits, Source
from longstride.engine.pool import PoolKey
from longstride.runtime.eager import EagerRunner
from longstride.search.drafted import DraftedBeamTable
from longstride.search.options import BeamOptions
from longstride.search.session import BeamSession, Sentences
from longstride.systems.autoregressive.decoder import Beam
from longstride.systems.draft_verify.beam_decoder import DraftBeam, DraftBeamOptions
from longstride.verification.drafting import Drafter, Proposal, View
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model

RUNNER = EagerRunner(precision="fp64")
SEARCHES = st.builds(
    lambda width, n_best, penalty, strength, early, forced: BeamOptions(
        width,
        penalty,
        strength,
        min(n_best, width),
        early if penalty == "hf" else False,
        forced if penalty == "hf" else False,
    ),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(["gnmt", "average", "none", "hf"]),
    st.sampled_from([-0.5, 0.0, 0.6, 1.5]),
    st.sampled_from([True, False, "never"]),
    st.booleans(),
)


class MadeUpDrafter(Drafter):
    """Proposes by a seed and by what is committed: anything, or what the beam will want, or nothing."""

    observes = False

    def __init__(self, seed: int, nodes: int, tree: bool, wanted: list[list[list[int]]] | None = None) -> None:
        self.block, self.trees, self._seed, self._tree, self._wanted = nodes, tree, seed, tree, wanted

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> dict[int, Any]:
        return {}

    def admit(self, state: Any, rows: Tensor, source: Source, memory: Any) -> None:
        for row, ids, length in zip(rows.tolist(), source.ids.tolist(), source.lengths.tolist(), strict=True):
            state[row] = tuple(ids[:length])

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        ids, parents = torch.zeros(2, len(view.length), block, dtype=torch.int64)
        count = torch.zeros_like(view.length)
        for row, length in enumerate(view.length.tolist()):
            prefix = view.tokens[row, :length].tolist()
            chance = torch.Generator().manual_seed(hash((self._seed, row, *prefix)) % 2**31)
            count[row] = int(torch.randint(0, block + 1, (1,), generator=chance))
            ids[row] = torch.randint(0, 11, (block,), generator=chance)
            parents[row] = (torch.rand(block, generator=chance) * (torch.arange(block) + 1)).long()
            if self._wanted is not None:
                made = list(dict.fromkeys(self._paths(state.get(row), prefix)))[:block]
                for place, path in enumerate(made):
                    ids[row, place] = path[-1]
                    parents[row, place] = 0 if len(path) == 1 else 1 + made.index(path[:-1])
                count[row] = len(made)
        return Proposal(ids, count, parents if self._tree else None)

    def _paths(self, source: Any, prefix: list[int]) -> list[tuple[int, ...]]:
        """What follows in outputs that begin so, parents first."""
        assert self._wanted is not None
        known = [row for row in self._wanted if row[0] == list(source or ())]
        after = [one[len(prefix) :] for _, *outputs in known for one in outputs if one[: len(prefix)] == prefix]
        return sorted(
            {tuple(one[:end]) for one in after for end in range(1, len(one) + 1)}, key=lambda one: (len(one), one)
        )


def decoded(model, drafter, options, source, limits, capacity):
    """By a table of its own, and the model calls beside the encoder's."""
    search = options.search(limits, model.special.eos)
    key = PoolKey.of(RUNNER, ("made up", drafter), capacity, source.longest, model.options.longest)

    def make(capacity: int, longest_source: int) -> DraftedBeamTable:
        columns = limits.longest_output(longest_source) + 1
        return DraftedBeamTable(model, drafter, RUNNER, search, limits, capacity, longest_source, columns)

    class Made(Beam):
        def start(self, capacity, limits, longest_source):
            return BeamSession(key, make, options.n_best, 1, Sentences, model.special.eos)

    return Made([model], RUNNER, options).decode(source, limits, capacity=capacity, trace=True)


def assert_equal(found, expected):
    assert [[h.tokens for h in row] for row in found.hypotheses] == [
        [h.tokens for h in row] for row in expected.hypotheses
    ]
    for one, other in zip(found.hypotheses, expected.hypotheses, strict=True):
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-9)
        assert [h.log_probability for h in one] == pytest.approx([h.log_probability for h in other], abs=1e-9)
    for trace, row in zip(found.traces, expected.hypotheses, strict=True):
        assert trace.replay() == row[0].tokens


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    capacity=st.integers(1, 3),
    options=SEARCHES,
    limits=LIMITS,
    sharpness=st.sampled_from([0.5, 1.5, 3.0]),
    nodes=st.integers(1, 9),
    tree=st.booleans(),
    forced=st.sampled_from([None, 7]),
)
def test_equals_the_beam_whatever_is_drafted(seed, rows, capacity, options, limits, sharpness, nodes, tree, forced):
    from dataclasses import replace

    model = tiny_model(seed, sharpness=sharpness)
    source = random_source(rows, 5, seed=seed)
    limits = replace(limits, forced_first=forced if forced not in limits.banned else None)
    expected = Beam([model], RUNNER, options).decode(source, limits, capacity=capacity)
    found = decoded(model, MadeUpDrafter(seed, nodes, tree), options, source, limits, capacity)
    assert_equal(found, expected)
    assert found.calls <= expected.calls


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 3), sharpness=st.sampled_from([1.5, 3.0]))
def test_good_drafts_save_calls(seed, width, sharpness):
    """Of all that the hypotheses of one sentence go through, drafts of which are large enough."""
    model = tiny_model(seed, sharpness=sharpness)
    source, limits = random_source(1, 5, seed=seed), Limits(max_length=4)
    words = [one for one in range(11) if one not in (EOS,)]
    every = [[a, b] for a in words for b in words]
    drafter = MadeUpDrafter(seed, 11 * 11, True, [[source.ids[0].tolist(), *every]])
    # Behind the first token all outputs begin otherwise: the first call reads all prefixes of two tokens.
    options = BeamOptions(width)
    expected = Beam([model], RUNNER, options).decode(source, limits)
    found = decoded(model, drafter, options, source, limits, 1)
    assert_equal(found, expected)
    steps = expected.calls - 1
    assert found.calls - 1 <= 1 + max(0, steps - 3)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=KINDS,
    rows=st.integers(1, 3),
    capacity=st.integers(1, 3),
    width=st.integers(1, 4),
    limits=LIMITS,
    nodes=st.integers(1, 7),
)
def test_a_drafter_changes_nothing(seed, kind, rows, capacity, width, limits, nodes):
    model, drafter = tiny_model(seed, sharpness=1.5), tiny_drafter(seed, **kind)
    source = random_source(rows, 5, seed=seed)
    expected = Beam([model], RUNNER, BeamOptions(width)).decode(source, limits, capacity=capacity)
    decoder = DraftBeam(model, drafter, RUNNER, DraftBeamOptions(width, tree=nodes))
    assert_equal(decoder.decode(source, limits, capacity=capacity, trace=True), expected)
