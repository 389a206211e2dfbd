"""Drafts of linked drafters: ONNX Runtime proposes what eager steps do, and limits are the verifier's alone."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify import programs as drafting
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_programs import same


@BOTH
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), kind=KINDS)
def test_a_chain_is_followed_as_eagerly(graphs: Graphs, seed: int, rows: int, kind: dict[str, Any]) -> None:
    verifier = tiny_model(seed, torch.float32, encoder_layers=2)
    drafter = tiny_drafter(seed, torch.float32, **{**kind, "link": 3})
    source = random_source(rows, 7, seed=seed)
    columns, window, block = 24, 4, 3
    encode_source = drafting.encode_source(drafter, verifier, False)
    memory, mask_slots = encode_source.function(source.ids, source.lengths, None, columns)
    cache = drafter.new_cache(rows, columns + drafter.options.block)
    generator = torch.Generator().manual_seed(seed)
    cache.keys.normal_(generator=generator)
    cache.values.normal_(generator=generator)
    tokens = torch.randint(5, 11, (rows, columns - 1), generator=generator)
    length = torch.randint(0, 18, (rows,), generator=generator)
    kept = (cache.keys, cache.values)
    same(
        graphs,
        drafting.follow(drafter),
        tokens,
        length,
        window,
        block,
        mask_slots,
        cache,
        memory,
        states=kept,
        read=length,
    )


@BOTH
@settings(max_examples=8, deadline=None)
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
