"""Greedy search is the verification loop with no draft: it must equal its slow twin, whoever stands beside a row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from longstride.contract import DTYPES, Limits, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from tests.decoding import oracles
from tests.models import random_source, tiny_model

LIMITS = st.builds(
    Limits,
    max_length=st.integers(3, 12),
    max_ratio=st.sampled_from([0.5, 1.0, 2.0]),
    max_extra=st.integers(0, 6),
    min_length=st.integers(0, 3),
    banned=st.sampled_from([(), (7,), (5, 9)]),
)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    capacity=st.integers(1, 5),
    limits=LIMITS,
    norm=st.sampled_from(["post", "pre"]),
    positions=st.sampled_from(["sinusoidal", "learned"]),
)
def test_equals_the_cacheless_twin(seed, rows, capacity, limits, norm, positions):
    model = tiny_model(seed, norm=norm, positions=positions)
    source = random_source(rows, 6, seed=seed)
    decoded = Greedy(model, EagerRunner(precision="fp64")).decode(source, limits, capacity=capacity, trace=True)
    for row in range(rows):
        ids = source.ids[row, : source.lengths[row]].tolist()
        tokens, score = oracles.greedy(model, ids, limits)
        assert decoded.tokens[row] == tokens
        assert decoded.scores[row] == pytest.approx(score, abs=1e-9)
        assert decoded.traces[row].replay() == tokens
        assert decoded.traces[row].iterations == len(tokens) + 1


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), rows=st.integers(2, 9))
def test_a_batch_equals_its_rows_one_by_one(seed, rows):
    decoder = Greedy(tiny_model(seed), EagerRunner(precision="fp64"))
    source, limits = random_source(rows, 8, seed=seed), Limits(max_ratio=1, max_extra=4)
    together = decoder.decode(source, limits).tokens
    alone = [Source.of([source.ids[row, : source.lengths[row]].tolist()]) for row in range(rows)]
    assert together == [decoder.decode(one, limits).tokens[0] for one in alone]


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # some CPUs have no bf16 products and say so once
@pytest.mark.parametrize("precision", sorted(DTYPES))
@pytest.mark.parametrize("seed", range(3))
def test_a_row_does_not_depend_on_its_place(precision, seed):
    """At a fixed shape, bit for bit, at every precision: the score is a float of many bits, so it is compared too.
    Where products themselves know places, to many digits."""
    runner = EagerRunner(precision=precision)
    decoder = Greedy(runner.place(tiny_model(seed, torch.float32, width=32, feed_forward=64)), runner)
    source = random_source(8, 7, seed=seed)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
    longest = source.longest
    shuffled = Source(source.ids[order], source.lengths[order])
    assert shuffled.longest == longest
    limits = Limits(max_ratio=1, max_extra=4)
    straight, mixed = decoder.decode(source, limits), decoder.decode(shuffled, limits)
    same = products_know_no_place(DTYPES[precision])
    for place, row in enumerate(order.tolist()):
        if same:
            assert mixed.hypotheses[place] == straight.hypotheses[row]
        assert mixed.tokens[place] == straight.tokens[row]
        assert mixed.scores[place] == pytest.approx(straight.scores[row], rel=1e-5)


def products_know_no_place(dtype: torch.dtype) -> bool:
    """Whether PyTorch sums a row's products in the same order wherever the row stands; on AMD's processors MKL does
    not, in fp32 and fp64."""
    generator = torch.Generator().manual_seed(0)
    for rows in range(2, 17):
        x, weight = (torch.randn(size, 32, generator=generator).to(dtype) for size in (rows, 64))
        if not torch.equal(F.linear(x.flip(0), weight), F.linear(x, weight).flip(0)):
            return False
    return True


def test_slots_are_given_to_the_next_sentence():
    decoder = Greedy(tiny_model(3), EagerRunner(precision="fp64"))
    source = random_source(13, 6, seed=3)
    limits = Limits(max_ratio=1, max_extra=4)
    wide = decoder.decode(source, limits)
    narrow = decoder.decode(source, limits, capacity=2)
    assert narrow.tokens == wide.tokens
    assert narrow.iterations > wide.iterations


def test_left_over_values_are_never_seen():
    """A slot used for a long sentence and then for a short one must not remember the first."""
    decoder = Greedy(tiny_model(5), EagerRunner(precision="fp64"))
    long = random_source(1, 9, seed=11)
    short = Source.of([[6, 3]])
    session = decoder.start(1, Limits(), 9)
    outputs = []
    for source in (long, short):
        session.admit(source)
        while not (finished := session.take_finished()):
            session.advance()
        outputs.append(finished[0].hypotheses[0].tokens)
    assert outputs[1] == decoder.decode(short).tokens[0]
