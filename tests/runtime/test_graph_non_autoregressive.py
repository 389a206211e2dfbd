"""The one-pass decoder's graphs: eager numbers in fp32, and in int8 outputs that do not depend on the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import Limits, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.non_autoregressive import filling, programs
from longstride.systems.non_autoregressive.decoder import NonAutoregressive, NonAutoregressiveOptions
from tests.decoding.one_pass import tiny_one_pass
from tests.models import random_source
from tests.runtime.graphs import BOTH, Graphs

MODELS = st.fixed_dictionaries(
    {
        "copy": st.sampled_from(["none", "uniform", "soft"]),
        "norm": st.sampled_from(["post", "pre"]),
        "tie": st.sampled_from(["all", "none"]),
        "decoder_layers": st.integers(1, 2),
    }
)


def refuse(message: str) -> None:
    raise AssertionError(message)


@BOTH
@settings(max_examples=15)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), tried=st.integers(1, 3), shape=MODELS, at_once=st.booleans())
def test_the_programs_give_the_eager_numbers(
    graphs: Graphs, seed: int, rows: int, tried: int, shape: dict[str, Any], at_once: bool
) -> None:
    """With logits of all slots together, and of two at a time."""
    model = tiny_one_pass(seed, torch.float32, **shape)
    source = random_source(rows, 7, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 13, (rows, tried), generator=generator)
    odds = torch.zeros(rows, tried, dtype=torch.float64)
    banned = torch.zeros(11, dtype=torch.bool).index_fill(0, torch.tensor([0, 2, 3, 4, 7]), True)
    found: list[tuple[Any, Tensor]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filling, "MAX_LOGITS_CPU", 1 << 22 if at_once else 1)
        for runner in (EagerRunner(), graphs("fp32", 1, tell=refuse)):
            encoded = runner.call(programs.encode(model), source.ids, source.lengths, True)
            found.append((encoded, runner.call(programs.fill(model), banned, 2, encoded, lengths, odds, 12)))
    theirs, mine = found
    torch.testing.assert_close(mine[0].memory, theirs[0].memory, rtol=1e-4, atol=1e-4)
    assert torch.equal(mine[0].visible, theirs[0].visible)
    assert torch.equal(mine[1][..., 3:], theirs[1][..., 3:])
    assert torch.equal(mine[1][..., 0], theirs[1][..., 0])
    figures = [one[1].view(torch.float64)[..., 1:3] for one in (mine, theirs)]
    torch.testing.assert_close(*figures, rtol=1e-4, atol=1e-3)


@BOTH
@settings(max_examples=10)
@given(
    seed=st.integers(0, 999),
    shape=MODELS,
    capacity=st.integers(1, 3),
    limits=st.sampled_from([Limits(), Limits(max_length=4), Limits(min_length=3, banned=(5, 8))]),
    options=st.sampled_from([{}, {"length_window": 0}, {"dedup": 2}]),
)
def test_in_fp32_the_output_is_the_eager_one(
    graphs: Graphs, seed: int, shape: dict[str, Any], capacity: int, limits: Limits, options: dict[str, Any]
) -> None:
    model, source = tiny_one_pass(seed, torch.float32, **shape), random_source(3, 8, seed=seed)
    chosen = NonAutoregressiveOptions(**options)
    mine, theirs = (
        NonAutoregressive(model, runner, chosen).decode(source, limits, capacity, trace=True)
        for runner in (graphs("fp32", 1, tell=refuse), EagerRunner())
    )
    assert mine.tokens == theirs.tokens
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-3)
    assert mine.traces == theirs.traces


@BOTH
@settings(max_examples=10)
@given(seed=st.integers(0, 999), shape=MODELS)
def test_in_int8_a_batch_gives_what_its_rows_give(graphs: Graphs, seed: int, shape: dict[str, Any]) -> None:
    """To the bit: scores are equal, not close."""
    model, source = tiny_one_pass(seed, torch.float32, **shape), random_source(4, 24, seed=seed)
    decoder = NonAutoregressive(model, graphs("int8", 1, tell=refuse))
    together = decoder.decode(source)
    for row in range(source.rows):
        sentence = source.ids[row, : int(source.lengths[row])].tolist()  # in a rectangle of its own
        assert decoder.decode(Source.of([sentence])).hypotheses[0] == together.hypotheses[row]


@BOTH
def test_other_limits_need_no_other_graph(graphs: Graphs) -> None:
    model, source = tiny_one_pass(1, torch.float32), random_source(2, 5)
    runner = graphs("fp32", 1, tell=refuse)
    for banned in ((), (5,), (6, 7)):
        decoded = NonAutoregressive(model, runner).decode(source, Limits(banned=banned))
        assert not {*banned} & {token for tokens in decoded.tokens for token in tokens}
    assert len(runner.graphs) == 2
