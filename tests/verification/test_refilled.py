"""Rows that are refilled on the device from sentences encoded ahead: outputs are those of each sentence alone, whoever
comes when, however many are encoded together and however late the host looks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Decoder, Limits
from longstride.engine.outputs import Outputs
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.verification import queue
from longstride.verification.refilled_session import RefilledSession
from tests.decoding.drafters import tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model
from tests.runtime.test_cuda_graph import EAGER, KINDS, decoder_of, same, taped


@contextmanager
def ahead(group: int, reports: int) -> Iterator[None]:
    """So many sentences are encoded together, and so many reports are on their way at once."""
    with patch.multiple(queue, LEAST=group, MOST=group, REPORTS=reports):
        yield


@settings(max_examples=6)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    rows=st.integers(2, 14),
    capacity=st.integers(1, 5),
    group=st.integers(1, 5),
    reports=st.integers(1, 3),
    narrowest=st.sampled_from((1, 4, 32)),
    limits=LIMITS,
    least=st.integers(1, 2),
)
def test_outputs_and_traces_are_those_of_closed_batches(
    kind, seed, rows, capacity, group, reports, narrowest, limits, least
):
    runner, _ = taped()
    ours, theirs = (decoder_of(kind, one, seed, least=least) for one in (runner, EAGER))
    for number in range(2):  # the second finds a table that was used
        source = random_source(rows, 9, seed=seed + number)
        order = list(range(rows))
        random.Random(seed + number).shuffle(order)
        expected = theirs.decode(source.select(order), limits, trace=True)
        told: dict[int, Any] = {}
        with ahead(group, reports), patch.object(queue, "NARROWEST", narrowest):
            found = ours.decode(source.select(order), limits, capacity, trace=True, tell=told.update)
        same(found, expected)
        assert [told[row] for row in range(rows)] == found.hypotheses
        assert found.traces is not None
        assert found.iterations >= max(trace.iterations for trace in found.traces)
    if capacity < rows:
        assert isinstance(ours.start_refilled(capacity, limits, 9), RefilledSession)


def test_an_iteration_that_nobody_needed_is_not_counted():
    """With as many rows as sentences less one, the table advances as often as the slowest needs, and no more."""
    runner, _ = taped()
    decoder = decoder_of("greedy", runner, 3)
    source, limits = random_source(5, 6, seed=3), Limits(max_length=12)
    found = decoder.decode(source, limits, 1, trace=True)
    assert found.traces is not None
    assert found.iterations == sum(trace.iterations for trace in found.traces)
    assert found.calls == found.iterations + 1  # all were encoded together


def given_up(decoder: Decoder, seed: int, capacity: int, limits: Limits) -> None:
    """Twelve sentences through a few rows; some are given up while they wait, in a row, or when done."""
    source, chance = random_source(12, 6, seed=seed), random.Random(seed)
    expected = decoder.decode(source, limits).tokens
    session = decoder.start_refilled(capacity, limits, source.longest)
    tickets: list[int] = []
    gone: set[int] = set()
    found: dict[int, list[int]] = {}
    while len(found) + len(gone) < 12:
        count = min(session.free, 12 - len(tickets))
        if count:
            tickets += session.admit(source.slice(len(tickets), len(tickets) + count))
        for moment in range(2):
            for ticket in tickets:
                if ticket not in found and ticket not in gone and chance.random() < 0.15:
                    session.cancel(ticket)
                    gone.add(ticket)
            if moment == 0:
                step = session.advance()
                assert not gone & set(step.ticket[step.active].tolist())
        if len(tickets) == 12 and chance.random() < 0.5:
            session.settle()
        taken = session.take_finished()
        assert not gone & {one.ticket for one in taken}
        found |= {one.ticket: one.hypotheses[0].tokens for one in taken}
    with pytest.raises(ValueError, match="expected a sentence that is being decoded"):
        session.cancel(tickets[0])
    session.close()
    assert found == {ticket: expected[row] for row, ticket in enumerate(tickets) if ticket in found}


@settings(max_examples=4)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10_000), capacity=st.integers(1, 4), group=st.integers(1, 4))
def test_others_go_on_as_if_nothing_had_been(kind, seed, capacity, group):
    runner, _ = taped()
    decoder = decoder_of(kind, runner, seed)
    with ahead(group, 2):
        for number in (seed, seed + 1):
            given_up(decoder, number, capacity, Limits(max_length=10))


def test_a_queue_with_sentences_in_it_is_nobody_elses():
    """Even if all were given up: the device has not come to them yet."""
    runner, _ = taped()
    ours, theirs = (decoder_of("greedy", one, 3) for one in (runner, EAGER))
    source, limits = random_source(6, 4, seed=3), Limits(max_length=5)
    with ahead(2, 2):
        session = ours.start_refilled(1, limits, source.longest)
        for ticket in session.admit(source.slice(0, session.free)):
            session.cancel(ticket)
        session.close()
        same(ours.decode(source, limits, 1, trace=True), theirs.decode(source, limits, trace=True))


def test_more_sentences_than_there_are_places_for_are_refused():
    runner, _ = taped()
    with ahead(2, 2):
        session = decoder_of("greedy", runner, 1).start_refilled(2, Limits(), 6)
        assert session.free == 4
        with pytest.raises(ValueError, match="expected 4 sentences at most, found 5"):
            session.admit(random_source(5, 6))


@settings(max_examples=50)
@given(
    done=st.lists(st.booleans(), min_size=1, max_size=9),
    taken=st.integers(0, 20),
    waiting=st.integers(0, 6),
    given_up=st.sets(st.integers(0, 5)),
)
def test_idle_rows_take_the_next_sentences_in_their_order(done, taken, waiting, given_up):
    rows = Outputs(len(done), 4, torch.device("cpu")).rows
    rows.done.copy_(torch.tensor(done))
    rows.length.fill_(3)
    tickets = torch.tensor([-1 if place in given_up else 100 + place for place in range(6)] + [-7])
    held = torch.full((len(done),), 50)
    layers = torch.zeros(2, len(done), 3), torch.arange(7.0)[:, None].expand(2, 7, 3).contiguous()
    counts = torch.tensor([taken]), torch.tensor([taken + waiting])
    queue.refill([(held, tickets, 0), (*layers, 1)], rows, *counts, tickets, 6, 2)
    number, expected = taken, []
    for idle in done:
        takes = idle and number < taken + waiting
        place = number % 6 if takes else None
        number += takes
        expected.append((place, takes))
    assert counts[0].item() == number
    for row, (place, takes) in enumerate(expected):
        assert held[row].item() == (tickets[place].item() if takes else 50)
        assert layers[0][:, row].unique().tolist() == [float(place) if takes else 0.0]
        assert rows.length[row].item() == (0 if takes else 3)
        assert rows.done[row].item() == (place in given_up if takes else done[row])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize(("taken", "added"), [(0, 0), (3, 5), (9, 16)])
@torch.inference_mode()
def test_kernels_refill_rows_as_tensor_code_does(taken: int, added: int) -> None:
    device, found = torch.device("cuda"), []
    for by_kernel in (True, False):
        generator = torch.Generator().manual_seed(taken)
        rows = Outputs(7, 12, device, torch.zeros(7, 3, dtype=torch.int64, device=device)[:, 0]).rows
        numbers = [tensor for tensor in (rows.length, rows.newest, rows.start) if tensor is not None]
        for tensor in numbers:
            tensor.copy_(torch.randint(1, 9, (7,), generator=generator))
        rows.done.copy_(torch.rand(7, generator=generator) < 0.6)
        rows.log_probability.copy_(torch.randn(7, generator=generator))
        moved = []
        for first, last, dim in (((2,), (3, 8), 1), ((), (5000,), 0), ((), (), 0)):
            there, here = (torch.randint(-1, 9, (*first, n, *last), generator=generator).to(device) for n in (7, 9))
            moved.append((there, here, dim))
        counts = (torch.tensor([taken], device=device), torch.tensor([added], device=device))
        run = queue.kernel_of(moved) if by_kernel else partial(queue.refill, moved)
        run(rows, *counts, moved[2][1], 8, 2)
        found.append([*counts, *numbers, rows.done, rows.log_probability, *(there for there, _, _ in moved)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("capacity", [1, 3])
def test_trees_are_drafted_for_refilled_rows_too(capacity: int) -> None:
    runner, _ = taped()
    source, limits = random_source(9, 8, seed=capacity), Limits(max_length=12)
    model, drafter = tiny_model(4, sharpness=1.5), tiny_drafter(4, link=3)
    options = DraftVerifyOptions(tree=6)
    found = [
        DraftVerify(one.place(model), one.place(drafter), one, options).decode(source, limits, rows, trace=True)
        for one, rows in ((runner, capacity), (EAGER, None))
    ]
    same(*found)
