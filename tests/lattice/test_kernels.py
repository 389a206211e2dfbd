"""A lattice's kernels give what its tensor code gives, and are used where they fit.

Those of Triton run on a CUDA device, or in its interpreter where TRITON_INTERPRET is 1.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from longstride.contract import EOS, PAD, Limits, Source
from longstride.ops.cuda.self_test import TOLERANCE, random_of
from longstride.ops.kernels import kernels_of
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.systems.lattice import kernels, scoring
from longstride.systems.lattice.candidates import usable
from longstride.systems.lattice.decoder import LatticeDecoder, with_tables
from longstride.systems.lattice.inspection import stage_times
from longstride.systems.lattice.pipeline import LatticeOptions
from longstride.systems.lattice.tables import CountOptions
from tests.lattice import kernel_checks
from tests.lattice.models import tiny_scorer
from tests.lattice.test_candidates import made
from tests.lattice.test_counts import EXAMPLE, VOCABULARY
from tests.models import random_source
from tests.nn.running_kernels import KernelRunner, few, table_for, where

CUDA = torch.device("cuda", 0)
CHECKS = {
    "candidates": [kernel_checks.candidates, (40,), (3,)],
    "edges": [kernel_checks.edges, (16000, 512, 8), (300, 48, 3)],
    "paths": [kernel_checks.paths, (), ()],
}
"""By kernel: the comparison, the sizes of a real model and those for Triton's interpreter."""


def decoder(device: torch.device, own: bool, longest: int = 64, **options: Any) -> LatticeDecoder:
    """Of random weights, always the same."""
    model = tiny_scorer(3, torch.float32, vocabulary=VOCABULARY, longest=longest).to(device)
    tables = made(EXAMPLE, CountOptions(reach=2)).to(device)
    runner = KernelRunner(device, "fp32", tuple(CHECKS) if own else ())
    return with_tables(model, tables, runner, LatticeOptions(**{"candidates": 3, "length_window": 1, **options}))


# --- each against its twin -------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CHECKS)
def test_they_equal_tensor_code_on_a_gpu(name, dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    check, sizes, _ = CHECKS[name]
    with torch.inference_mode():
        assert check(random_of(CUDA, dtype), *sizes) <= TOLERANCE[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("name", CHECKS)
def test_they_equal_tensor_code(name):
    check, _, sizes = CHECKS[name]
    with torch.inference_mode():
        assert check(random_of(where(), torch.float32), *sizes) <= TOLERANCE[torch.float32]


@pytest.mark.gpu
@pytest.mark.parametrize("columns", few([1, 9, 2, 3], 2))
@pytest.mark.parametrize("k", [1, 4, 20])
@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("on_its_side", [False, True])
def test_the_best_path_is_the_twins_also_among_equals(columns, k, rounded, on_its_side):
    device = where()
    first, edges, words, window, ends = kernel_checks.random_lattice(4, max(2, columns), k, columns, rounded)
    if columns == 1:  # no sentence is so short, but nothing shall break
        window = type(window)(torch.ones(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64))
        edges, words, ends = edges[:, :0], words[:, :1], None if ends is None else ends[:, :1]
    there = None if ends is None else ends.to(device)
    lying = kernel_checks.on_its_side(edges.to(device)) if on_its_side else edges.to(device)
    found = kernels.best_paths(first.to(device), lying, words.to(device), window.to(device), there)
    assert torch.equal(found.cpu(), kernel_checks.searched(first, edges, words, window, ends))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.gpu
def test_a_path_is_inside_the_lattice_whatever_the_scores_are():
    device = where()
    first, edges, words, window, _ = kernel_checks.random_lattice(2, 5, 6, 0, False)
    window = window.to(device)
    for nothing in (float("nan"), float("-inf"), float("inf")):
        found = kernels.best_paths(
            torch.full_like(first, nothing).to(device),
            torch.full_like(edges, nothing).to(device),
            words.to(device),
            window,
            None,
        )
        assert ((found[..., 0] >= 1) & (found[..., 0] <= 5)).all()
        assert ((found[..., 3:] >= 0) & (found[..., 3:] < kernel_checks.WORDS)).all()


@pytest.mark.gpu
def test_words_do_not_depend_on_the_other_rows():
    device = where()
    tables = kernel_checks.random_tables(6, torch.Generator().manual_seed(1))
    tables = tables.to(device)
    source = torch.randint(5, 20, (3, 5), generator=torch.Generator().manual_seed(2)).to(device)
    lengths = torch.tensor([5, 2, 4], device=device)
    whole = tables.proposed(source, lengths, 6, 8, 1)
    for row in range(3):
        alone = tables.proposed(source[row : row + 1], lengths[row : row + 1], 6, 8, 1)
        assert torch.equal(alone.ids[0], whole.ids[row])
        assert torch.equal(alone.log_scores[0], whole.log_scores[row])
    expected = usable(tables.candidates(source, lengths, 6, 8), None, 1, PAD)
    assert torch.equal(whole.ids, expected.ids)
    torch.testing.assert_close(whole.log_scores, expected.log_scores)


@pytest.mark.gpu
@pytest.mark.parametrize("most", [1 << 27, 30 * VOCABULARY])
def test_edges_are_the_twins(monkeypatch, most):
    """Also where logits of all sentences would be too many at once."""
    device = where()
    model = tiny_scorer(1, torch.float32, vocabulary=VOCABULARY).to(device)
    source = random_source(3, 6, seed=4)
    words = torch.randint(5, VOCABULARY, (3, 4, 3), generator=torch.Generator().manual_seed(0)).to(device)
    with torch.inference_mode():
        encoded = scoring.encode(model, source.ids.to(device), source.lengths.to(device), True)
        expected = scoring.score_edges(model, encoded, words)
        monkeypatch.setattr(scoring, "MAX_LOGITS", most)
        monkeypatch.setattr(scoring, "MAX_NUMBERS", most)
        monkeypatch.setattr(scoring, "_scored", None)  # nobody asks the twin
        with kernels_of(table_for(device, ["edges"])):
            found = scoring.score_edges(model, encoded, words)
    torch.testing.assert_close(found.first, expected.first, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.edges, expected.edges, atol=1e-4, rtol=1e-4)


# --- together --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, Limits()),
        ({"candidates": 20, "length_window": 3, "length_prior": 0.5}, Limits(min_length=2)),
        ({"normalise": "candidates"}, Limits(banned=(1, 7, 8))),
        ({"n_best": 2}, Limits()),
        ({"order": 3}, Limits()),
        ({"search": "scan"}, Limits()),
        ({"construction": "model"}, Limits()),
        ({"construction": "shared"}, Limits()),
    ],
)
def test_decoders_with_them_give_what_others_give(options, limits):
    device = where()
    source = random_source(3, 7, seed=5)
    found = decoder(device, True, **options).decode(source, limits)
    expected = decoder(device, False, **options).decode(source, limits)
    assert found.tokens == expected.tokens
    assert found.scores == pytest.approx(expected.scores, abs=1e-3)
    assert [[one.log_probability for one in row] for row in found.hypotheses] == [
        pytest.approx([one.log_probability for one in row], abs=1e-3) for row in expected.hypotheses
    ]


@pytest.mark.gpu
def test_stages_are_timed_as_they_are_carried_out():
    device = where()
    ticks = iter(range(0, 100_000, 1000))
    times = stage_times(decoder(device, True), Source.of([[5, 6, 7, EOS]]), clock=lambda: next(ticks))
    assert times.score == times.search == 1.0
    expected = stage_times(decoder(device, False), Source.of([[5, 6, 7, EOS]]))
    assert times.output_length == expected.output_length


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{}, {"length_prior": 0.5}, {"candidates": 70}])
def test_graphs_with_them_on_a_gpu(options):
    source = random_source(5, 9, seed=1)
    runner = CudaGraphRunner("cuda:0", "fp32")
    model = runner.place(tiny_scorer(3, torch.float32, vocabulary=VOCABULARY))
    tables = runner.place(made(EXAMPLE, CountOptions(reach=2)))
    ours = with_tables(model, tables, runner, LatticeOptions(**{"candidates": 3, "length_window": 1, **options}))
    theirs = decoder(torch.device("cpu"), False, **options)
    for row in range(5):
        one = source.slice(row, row + 1)
        for _ in range(2):
            assert ours.decode(one).scores == pytest.approx(theirs.decode(one).scores, rel=1e-3)
    assert runner.statistics.recorded


# --- which are used --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"length_prior": 1.0, "normalise": "candidates"}, True),
        ({"candidates": 4}, False),
        ({"n_best": 2}, False),
        ({"order": 3}, False),
        ({"search": "scan"}, False),
    ],
)
def test_they_search_where_one_output_is_asked_for_and_two_words_decide(options, expected, monkeypatch):
    monkeypatch.setattr(kernels, "MAX_CANDIDATES", 3)
    device = torch.device("cpu")
    assert decoder(device, True, **options).pipeline(Limits()).fused is expected
    assert not decoder(device, False, **options).pipeline(Limits()).fused


def test_tables_support_lengths_that_were_counted():
    tables = made(EXAMPLE, CountOptions(reach=2))
    o = tables.options
    assert not tables.supports(1, 1)
    with kernels_of(table_for(torch.device("cpu"), ["candidates"])):
        assert tables.supports(o.longest_source, o.longest_target)
        assert not tables.supports(o.longest_source + 1, o.longest_target)
        assert not tables.supports(o.longest_source, o.longest_target + 1)
