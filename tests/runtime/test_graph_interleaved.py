"""The interleaved decoder's graph: eager numbers in fp32, and in int8 outputs that do not depend on the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.programs import extend, tie
from tests.decoding.interleaved import EVERY, LINKED, tiny_interleaved
from tests.models import random_source
from tests.runtime.graphs import BOTH, Graphs

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
variants = st.sampled_from(EVERY)


def refuse(message: str) -> None:
    raise AssertionError(message)


def tiny(seed: int, variant: dict[str, Any], **changes: Any) -> InterleavedModel:
    return tiny_interleaved(seed, variant, **changes).float()


def decoder(model: InterleavedModel, runner: Any, **options: Any) -> Interleaved:
    return Interleaved(model.model, model.interleaving, runner, InterleavedOptions(**options))


@BOTH
@settings(max_examples=20)
@given(seed=st.integers(0, 999), sources=st.integers(1, 2), beams=st.integers(1, 3), variant=variants)
def test_a_step_gives_the_eager_numbers(
    graphs: Graphs, seed: int, sources: int, beams: int, variant: dict[str, Any]
) -> None:
    """In every variant, at the beginning and later, and leaves the same behind in the cache."""
    model = tiny(seed, variant, sharpness=1.0)
    rows, step = sources * beams, model.options.step
    source = random_source(sources, 7, seed=seed)
    memory = model.model.encode_source(source.ids, source.lengths)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 11, (rows, step), generator=generator)
    start = torch.randint(0, 5, (rows,), generator=generator) * step
    layout = model.layout(48)
    found = []
    for runner in (EagerRunner(), graphs("fp32", 1, tell=refuse)):
        cache = model.model.new_cache(rows, 48)
        cache.keys.normal_(generator=torch.Generator().manual_seed(seed))
        cache.values.normal_(generator=torch.Generator().manual_seed(seed + 1))
        logits, factors = runner.call(extend(model), ids, start, cache, memory, layout, 48)
        assert (factors is not None) == bool(model.options.link)
        found.append((logits, cache.keys, cache.values, *(() if factors is None else (factors,))))
    for mine, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE)


@BOTH
@settings(max_examples=12)
@given(
    seed=st.integers(0, 999),
    capacity=st.integers(1, 3),
    variant=variants,
    options=st.sampled_from([{}, {"dedup": 2}, {"end": "paper"}, {"width": 3, "n_best": 2}]),
)
def test_in_fp32_the_output_is_the_eager_one(
    graphs: Graphs, seed: int, capacity: int, variant: dict[str, Any], options: dict[str, Any]
) -> None:
    model = tiny(seed, variant, ending=1.0)
    source, limits = random_source(3, 8, seed=seed), Limits(max_length=20)
    mine, theirs = (
        decoder(model, runner, **options).decode(source, limits, capacity)
        for runner in (graphs("fp32", 1, tell=refuse), EagerRunner())
    )
    assert mine.tokens == theirs.tokens
    assert mine.scores == pytest.approx(theirs.scores, abs=1e-3)
    assert mine.iterations == theirs.iterations


@BOTH
@settings(max_examples=12)
@given(seed=st.integers(0, 999), variant=variants, width=st.sampled_from([1, 3]))
def test_in_int8_a_batch_gives_what_its_rows_give(
    graphs: Graphs, seed: int, variant: dict[str, Any], width: int
) -> None:
    """To the bit: scores are equal, not close."""
    model = tiny(seed, variant, ending=1.0)
    source, limits = random_source(4, 20, seed=seed), Limits(max_length=20)
    searching = decoder(model, graphs("int8", 1, tell=refuse), width=width)
    together = searching.decode(source, limits)
    for row in range(source.rows):
        sentence = source.ids[row, : int(source.lengths[row])].tolist()  # in a rectangle of its own
        alone = searching.decode(Source.of([sentence]), limits)
        assert alone.hypotheses[0] == together.hypotheses[row]
    assert searching.decode(source, limits, capacity=2).hypotheses == together.hypotheses


@BOTH
@settings(max_examples=15)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), slots=st.integers(1, 4), alike=st.booleans())
def test_a_link_gives_the_eager_numbers(graphs: Graphs, seed: int, rows: int, slots: int, alike: bool) -> None:
    """For as many slots as words before them, as greedy search asks, and for one slot of all of them, as beams do."""
    link = tiny(seed, {"h": 1, "c": 2, "link": 3}).interleaving.link
    assert link is not None
    torch.manual_seed(seed)
    given = 1 if alike else slots
    logits, factors = torch.randn(rows, given, 11), torch.randn(rows, given, 3)
    previous = torch.randint(0, 11, (rows, slots))
    eager, drawn = (
        runner.call(tie(link), logits, factors, previous) for runner in (EagerRunner(), graphs("fp32", 1, tell=refuse))
    )
    torch.testing.assert_close(drawn, eager, **CLOSE)


@BOTH
@settings(max_examples=12)
@given(seed=st.integers(0, 999), variant=st.sampled_from(LINKED), width=st.sampled_from([1, 3]))
def test_linked_outputs_are_the_eager_ones_and_in_int8_those_of_every_row(
    graphs: Graphs, seed: int, variant: dict[str, Any], width: int
) -> None:
    model = tiny(seed, variant, ending=1.0)
    source, limits = random_source(3, 8, seed=seed), Limits(max_length=20)
    mine, theirs = (
        decoder(model, runner, width=width).decode(source, limits)
        for runner in (graphs("fp32", 1, tell=refuse), EagerRunner())
    )
    assert mine.tokens == theirs.tokens
    quantized = decoder(model, graphs("int8", 1, tell=refuse), width=width)
    assert quantized.decode(source, limits, capacity=1).hypotheses == quantized.decode(source, limits).hypotheses


@BOTH
def test_each_kind_of_call_is_one_graph(graphs: Graphs) -> None:
    model = tiny(1, {"h": 2, "c": 2})
    runner = graphs("fp32", 1, tell=refuse)
    for width in (1, 2):
        decoder(model, runner, width=width).decode(random_source(2, 5), Limits(max_length=8))
    assert len(runner.graphs) == 3  # the encoder's, the step's and one that ends in the best words
