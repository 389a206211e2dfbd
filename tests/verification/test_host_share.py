"""What the host does beside captured steps: nothing of PyTorch's where it can be helped, and nothing twice."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, PAD, Limits, Source
from longstride.runtime.eager import EagerRunner
from longstride.verification.arrivals import Arrivals
from longstride.verification.drafting import NoDraft
from longstride.verification.outputs import Outputs
from longstride.verification.pacing import Pace
from longstride.verification.session import Kind, Kinds
from tests.decoding.test_greedy import LIMITS
from tests.models import tiny_model
from tests.runtime.test_cuda_graph import decoder_of, taped

PROBE = Path(__file__).parents[2] / "benchmarks" / "host_probe.py"
EAGER = EagerRunner(precision="fp64")


@pytest.fixture(scope="module")
def probe() -> Any:
    spec = importlib.util.spec_from_file_location("host_probe", PROBE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["greedy", "blockwise", "draft-verify", "copy-verify"])
@pytest.mark.parametrize("ahead", [False, True])
def test_between_two_launches_pytorch_is_asked_for_nothing(probe, name, ahead):
    """But for a copy to where the host looks, in which a CUDA device's numbers come in any case."""
    of_sentence, of_iteration = probe.Bench(name, ahead, others=1).calls()
    assert of_iteration == ({"copy_": 1.0} if ahead else {})
    assert {call for call in of_sentence if call not in probe.VIEWS} <= {"copy_"}


@pytest.mark.parametrize("name", ["blockwise adaptive", "draft-verify adaptive"])
@pytest.mark.parametrize("rows", [1, 4])
def test_where_blocks_follow_the_clock_it_is_asked_once_a_batch(probe, name, rows, monkeypatch):
    """And the rest goes as with fixed blocks."""
    bench = probe.Bench(name, others=1, rows=rows)
    asked: list[int] = []
    choose = Pace.choose
    monkeypatch.setattr(Pace, "choose", lambda self: asked.append(1) or choose(self))
    for _ in range(20):
        bench.decode(probe.LONG)
    assert len(asked) == 20
    assert bench.calls() == probe.Bench(name.partition(" ")[0], others=1, rows=rows).calls()


@pytest.mark.parametrize("name", ["greedy", "blockwise", "draft-verify", "copy-verify"])
def test_what_sessions_have_in_common_is_made_once(name, monkeypatch):
    runner, _ = taped()
    decoder = decoder_of(name, runner, 1)
    made: list[Limits] = []
    make = decoder._kind
    monkeypatch.setattr(decoder, "_kind", lambda limits: made.append(limits) or make(limits))
    for max_length in (9, 9, 12, 9, 12):
        decoder.decode(Source.of([[5, 6, EOS]]), Limits(max_length=max_length))
    assert made == [Limits(max_length=9), Limits(max_length=12)]


def test_kinds_are_few_however_many_limits_there_are():
    model, kinds = tiny_model(1), Kinds()
    for round_ in range(3):
        for max_length in range(1, 2 * kinds.most):
            kind = kinds.of(Limits(max_length=max_length), lambda limits: Kind(model, EAGER, NoDraft(), limits))
            assert kind.limits.max_length == max_length, round_
            assert len(kinds._made) <= kinds.most


def test_arrivals_forget_who_came_before():
    arrivals = Arrivals(3, 5, EAGER)
    arrivals.send(Source.of([[5, 6, 7, 8, EOS], [9, EOS], [5, 5, EOS]]), [2, 0, 1], [4, 5, 6])
    arrivals.send(Source.of([[7, EOS], [EOS]]), [1, 2], [7, 8])
    assert arrivals.ids.tolist() == [[7, EOS, PAD, PAD, PAD], [EOS, PAD, PAD, PAD, PAD], [PAD] * 5]
    assert arrivals.lengths.tolist() == [2, 1, 1]
    assert arrivals.rows.tolist()[:2] == [1, 2]
    assert arrivals.tickets.tolist()[:2] == [7, 8]


def test_all_of_a_source_is_itself():
    source = Source.of([[5, EOS], [6, 7, EOS]])
    assert source.slice(0, 2) is source
    assert source.slice(0, 9) is source
    part = source.slice(1, 2)
    assert torch.equal(part.ids, source.ids[1:])
    assert torch.equal(part.lengths, source.lengths[1:])
    assert source.slice(2, 2).rows == 0


@pytest.mark.parametrize("columns", [7, 5000], ids=["seen with every look", "fetched at the end"])
def test_a_table_of_one_row_begins_anew_as_others_do(columns):
    """All at once instead of number by number; what it said of its last iteration is forgotten as well."""
    one, two = (Outputs(rows, columns, torch.device("cpu")) for rows in (1, 2))
    for outputs in (one, two):
        for tensor in (outputs.whole, outputs.length, outputs.newest, outputs.log_probability, outputs.start):
            tensor.fill_(9)
        outputs.done.fill_(True)
        outputs.open(torch.tensor([0]))
    for name in ("whole", "length", "newest", "done", "log_probability", "start"):
        assert torch.equal(getattr(one, name)[0], getattr(two, name)[0]), name
    assert two.length[1] == 9


@settings(max_examples=20, deadline=None)
@given(limits=LIMITS, ratio=st.floats(0, 3), lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_how_long_outputs_may_be_is_looked_up(limits, ratio, lengths):
    limits = replace(limits, max_ratio=ratio)
    session = Kind(tiny_model(1), EAGER, NoDraft(), limits).start(len(lengths), 30)
    session.admit(Source.of([[*[5] * (length - 1), EOS] for length in lengths]))
    assert session.table.longest.tolist() == limits.longest_outputs(torch.tensor(lengths)).tolist()
