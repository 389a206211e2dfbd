"""Drafts by graphs are what eager steps propose, whoever stood in a table before; limits are the verifier's alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Limits, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs


@BOTH
@settings(max_examples=8)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), limits=LIMITS, kind=KINDS)
def test_all_runtimes_draft_the_same_under_all_limits(
    graphs: Graphs, seed: int, rows: int, limits: Limits, kind: dict[str, Any]
) -> None:
    """Also those that a draft may break: outputs are greedy's, and what falls is the same everywhere."""
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    drafter = tiny_drafter(seed, torch.float32, **{**kind, "link": 3})
    source = random_source(rows, 6, seed=seed)
    found = []
    for runner in (EagerRunner(precision="fp32"), graphs("fp32", 1)):
        decoder = DraftVerify(model, drafter, runner, DraftVerifyOptions())
        decoded = decoder.decode(source, limits, trace=True)
        assert decoded.tokens == Greedy(model, runner).decode(source, limits).tokens
        assert decoded.traces is not None
        found.append([[(event.draft, event.ids) for event in trace.events] for trace in decoded.traces])
    assert found[0] == found[1]


@BOTH
@pytest.mark.parametrize("encoder", [{"encoder": "own"}, {"encoder": "partial", "shared_layers": 1}], ids=str)
def test_one_by_one_every_source_is_read_whole(graphs: Graphs, encoder: dict[str, Any]) -> None:
    """Sentences that share a table lie at one place, and a longer one ends further on than a short one before it."""
    model = tiny_model(5, torch.float32, sharpness=2.0, encoder_layers=2)
    drafter = tiny_drafter(5, torch.float32, verifier_width=16, **encoder)
    source = Source.of([[5, EOS], [*range(5, 11), *range(5, 11), EOS], [6, 7, EOS], [*range(10, 4, -1), EOS]])
    decoder = DraftVerify(model, drafter, graphs("fp32", 1))
    found = []
    for capacity in (1, source.rows):
        traces = decoder.decode(source, Limits(max_length=12), capacity=capacity, trace=True).traces
        assert traces is not None
        found.append([[(event.draft, event.ids) for event in trace.events] for trace in traces])
    assert found[0] == found[1]
