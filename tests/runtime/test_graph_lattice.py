"""The lattice decoder's graphs: eager numbers in fp32, and in int8 outputs that do not depend on the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import Limits, Runner, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice import programs, scoring
from longstride.systems.lattice.candidates import Candidates
from longstride.systems.lattice.counts_decoder import CountsDecoder
from longstride.systems.lattice.decoder import LatticeDecoder, with_tables
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.pipeline import LatticeOptions
from longstride.systems.lattice.tables import CountOptions
from tests.lattice.models import FakeSource, tiny_scorer
from tests.lattice.test_candidates import made
from tests.lattice.test_counts import EXAMPLE, VOCABULARY
from tests.models import random_source
from tests.runtime.graphs import BOTH, Graphs

MODELS = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["post", "pre"]),
        "positions": st.sampled_from(["sinusoidal", "learned"]),
        "tie": st.sampled_from(["all", "none"]),
        "decoder_layers": st.integers(1, 2),
    }
)
ORDERS, SHARES = st.sampled_from([2, 3]), st.sampled_from(["vocabulary", "candidates"])
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def refuse(message: str) -> None:
    raise AssertionError(message)


def close(mine: Tensor | None, theirs: Tensor | None) -> None:
    if mine is None or theirs is None:
        assert mine is theirs
    else:
        torch.testing.assert_close(mine, theirs, **CLOSE)


def decoder(model: Scorer, runner: Runner, **options: Any) -> LatticeDecoder:
    chosen = LatticeOptions(**{"candidates": 4, **options})
    source = None if chosen.construction == "model" else FakeSource(missing=0.1)
    return LatticeDecoder(model, source, LengthRegression(1.0, 0.4, 0.8), runner, chosen)


@BOTH
@settings(max_examples=20)
@given(
    seed=st.integers(0, 999),
    rows=st.integers(1, 3),
    columns=st.integers(2, 6),
    shape=MODELS,
    order=ORDERS,
    normalise=SHARES,
    at_once=st.booleans(),
)
def test_the_programs_give_the_eager_numbers(
    graphs: Graphs, seed: int, rows: int, columns: int, shape: dict[str, Any], order: int, normalise: Any, at_once: bool
) -> None:
    """Columns with missing candidates, too; with logits of all slots together, and of two at a time."""
    model = tiny_scorer(seed, torch.float32, **shape)
    source = random_source(rows, 7, seed=seed)
    candidates: Candidates = FakeSource(missing=0.3).candidates(source.ids, source.lengths, columns, 3)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "MAX_LOGITS_CPU", 1 << 22 if at_once else 1)
        for runner in (EagerRunner(), graphs("fp32", 1, tell=refuse)):
            encoded = runner.call(programs.encode(model), source.ids, source.lengths, True)
            scores = runner.call(programs.score(model, order, normalise), encoded, candidates.ids)
            found.append((encoded, scores, runner.call(programs.unigrams(model), encoded, columns)))
    theirs, mine = found
    width = theirs[0].keys.shape[3]
    close(mine[0].keys[:, :, :, :width], theirs[0].keys)
    close(mine[0].values[:, :, :, :width], theirs[0].values)
    assert torch.equal(mine[0].visible[:, :width], theirs[0].visible)
    assert not mine[0].visible[:, width:].any()
    for name in ("first", "edges", "triples"):
        close(getattr(mine[1], name), getattr(theirs[1], name))
    close(mine[2], theirs[2])


@BOTH
@pytest.mark.parametrize("normalise", ["vocabulary", "candidates"])
def test_a_lattice_of_two_columns_has_no_triples(graphs: Graphs, normalise: Any) -> None:
    model, source = tiny_scorer(1, torch.float32), random_source(2, 3)
    mine, theirs = (
        decoder(model, runner, order=3, normalise=normalise).decode(source, Limits(max_length=1))
        for runner in (graphs("fp32", 1, tell=refuse), EagerRunner())
    )
    assert mine.tokens == theirs.tokens
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-3)


@BOTH
@settings(max_examples=12)
@given(
    seed=st.integers(0, 999),
    shape=MODELS,
    order=ORDERS,
    normalise=SHARES,
    construction=st.sampled_from(["tables", "model"]),
    capacity=st.integers(1, 3),
    limits=st.sampled_from([Limits(), Limits(max_length=1), Limits(min_length=3, banned=(1, 7, 8, 9))]),
    options=st.sampled_from([{}, {"n_best": 2}, {"length_prior": 0.5}, {"length_window": 0}, {"kept": 2}]),
)
def test_in_fp32_the_output_is_the_eager_one(
    graphs: Graphs,
    seed: int,
    shape: dict[str, Any],
    order: int,
    normalise: Any,
    construction: Any,
    capacity: int,
    limits: Limits,
    options: dict[str, Any],
) -> None:
    model, source = tiny_scorer(seed, torch.float32, **shape), random_source(3, 6, seed=seed)
    options = {"order": order, "normalise": normalise, "construction": construction, **options}
    mine, theirs = (
        decoder(model, runner, **options).decode(source, limits, capacity, trace=True)
        for runner in (graphs("fp32", 1, tell=refuse), EagerRunner())
    )
    assert mine.tokens == theirs.tokens
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-3)
    assert mine.traces == theirs.traces


@BOTH
@settings(max_examples=10)
@given(
    seed=st.integers(0, 999),
    shape=MODELS,
    order=ORDERS,
    normalise=SHARES,
    construction=st.sampled_from(["tables", "model"]),
    candidates=st.sampled_from([3, 4]),
)
def test_in_int8_a_batch_gives_what_its_rows_give(
    graphs: Graphs, seed: int, shape: dict[str, Any], order: int, normalise: Any, construction: Any, candidates: int
) -> None:
    """To the bit: scores are equal, not close."""
    model, source = tiny_scorer(seed, torch.float32, **shape), random_source(4, 20, seed=seed)
    options = {"order": order, "normalise": normalise, "construction": construction, "candidates": candidates}
    searching = decoder(model, graphs("int8", 1, tell=refuse), **options)
    together = searching.decode(source)
    for row in range(source.rows):
        sentence = source.ids[row, : int(source.lengths[row])].tolist()  # in a rectangle of its own
        assert searching.decode(Source.of([sentence])).hypotheses[0] == together.hypotheses[row]


@BOTH
def test_tables_and_searches_are_left_to_pytorch_without_a_word(graphs: Graphs) -> None:
    """They read no weights: nothing is lost, and nothing to be told."""
    tables, source = made(EXAMPLE, CountOptions(reach=2)), random_source(3, 5)
    model = tiny_scorer(1, torch.float32, vocabulary=VOCABULARY)
    for options in (LatticeOptions(candidates=3), LatticeOptions(candidates=3, search="scan", construction="shared")):
        mine, theirs = (
            with_tables(model, tables, runner, options).decode(source)
            for runner in (graphs("fp32", 1, tell=refuse), EagerRunner())
        )
        assert mine.tokens == theirs.tokens
    runner = graphs("int8", 1, tell=refuse)
    assert (
        CountsDecoder(tables, runner).decode(source).tokens
        == CountsDecoder(tables, EagerRunner()).decode(source).tokens
    )
    assert not runner.graphs
