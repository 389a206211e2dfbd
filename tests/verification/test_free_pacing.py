"""Blocks that follow the clock where nothing is recorded: greedy steps and nothing beside them where no draft pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits, Source
from longstride.nn.cache import EncoderState
from longstride.systems.draft_verify.drafter import ModelDrafter
from longstride.verification import free_pacing
from longstride.verification.free_pacing import FreePacing
from longstride.verification.paced import Terms
from longstride.verification.session import VerificationSession
from longstride.verification.table import Table
from longstride.verification.thrift import Thrift
from longstride.verification.unread import Unread
from tests.models import random_source
from tests.runtime.test_cuda_graph import EAGER, KINDS, decoder_of, same
from tests.verification.test_pacing import CHEAP, DEAR, Clock

DRAFTING = KINDS[1:]


class Watch:
    """A clock that goes on when a table iterates, and what it was asked for."""

    def __init__(self, patch: pytest.MonkeyPatch, cost: Callable[[int], float]) -> None:
        self.blocks: list[int] = []
        self.read = 0
        clock, iterate, admit = Clock(), Table.iterate, ModelDrafter.admit

        def iterated(table: Table, block: int, window: int) -> Any:
            clock.now += cost(block)
            self.blocks.append(block)
            return iterate(table, block, window)

        def admitted(drafter: ModelDrafter, *given: Any) -> None:
            self.read += 1
            admit(drafter, *given)

        patch.setattr(free_pacing, "clock", clock)
        patch.setattr(Table, "iterate", iterated)
        patch.setattr(ModelDrafter, "admit", admitted)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("kind", DRAFTING)
def test_where_drafts_do_not_pay_steps_are_greedy_searchs(kind, rows, monkeypatch):
    watch = Watch(monkeypatch, DEAR)
    decoder = decoder_of(kind, EAGER, 3, adaptive=True)
    for seed in range(4):
        decoder.decode(random_source(rows, 14, seed=seed), Limits(max_length=12))
    tried = len(watch.blocks) - watch.blocks.count(0)
    assert 0 < tried < 12
    watch.blocks.clear()
    watch.read = 0
    for seed in range(4, 10):
        decoder.decode(random_source(rows, 14, seed=seed), Limits(max_length=12))
    assert set(watch.blocks) == {0}
    assert watch.read == 0  # no sentence was encoded for a drafter that is not asked


@pytest.mark.parametrize("rows", [1, 4])
def test_a_drafter_that_is_not_asked_has_no_room_either(rows, monkeypatch):
    Watch(monkeypatch, DEAR)
    decoder = decoder_of("draft-verify", EAGER, 3, adaptive=True)
    source = random_source(rows, 14, seed=1)
    for _ in range(4):
        decoder.decode(source, Limits(max_length=12))
    session = decoder.start(rows, Limits(max_length=12), source.longest)
    session.admit(source)
    session.advance()
    table = session.table
    small = table.nbytes
    assert "state" not in vars(table)
    assert table.unread
    table.iterate(2, 3)
    assert not table.unread
    assert table.nbytes > small


@pytest.mark.parametrize("kind", ["blockwise", "draft-verify"])
def test_where_drafts_cost_little_there_are_drafts(kind, monkeypatch):
    watch = Watch(monkeypatch, CHEAP)
    decoder = decoder_of(kind, EAGER, 3, adaptive=True)
    for seed in range(8):
        decoder.decode(random_source(1, 14, seed=seed), Limits(max_length=24))
    assert sum(block > 0 for block in watch.blocks) > 0.5 * len(watch.blocks)


@settings(max_examples=12, deadline=None)
@given(
    kind=st.sampled_from(DRAFTING),
    seed=st.integers(0, 10_000),
    batches=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([6, 30])), min_size=2, max_size=4),
    costs=st.lists(st.floats(0.1, 9.0), min_size=5, max_size=5),
)
def test_whatever_the_clock_says_the_output_stays(kind, seed, batches, costs):
    """Drafters come in late and stay out, rows come while others are half done."""
    ours, theirs = decoder_of(kind, EAGER, seed, adaptive=True), decoder_of(kind, EAGER, seed)
    calls = iter(range(10**9))
    with pytest.MonkeyPatch.context() as patch:
        Watch(patch, lambda block: costs[(block + next(calls)) % 5])
        for number, (rows, capacity, longest) in enumerate(batches):
            source = random_source(rows, longest, seed=seed + number)
            found = ours.decode(source, Limits(max_length=16), capacity)
            same(found, theirs.decode(source, Limits(max_length=16), capacity), traces=False)


@pytest.mark.parametrize("capacity", [1, 3])
def test_a_drafter_that_comes_in_late_drafts_as_if_it_had_been_there(capacity):
    """Not only is the output the same: so is every draft, once it has caught up."""
    source = random_source(capacity, 9, seed=2)
    sessions = []
    for adaptive in (False, True):
        session = decoder_of("draft-verify", EAGER, 2, adaptive=adaptive).start(capacity, Limits(), source.longest)
        assert isinstance(session, VerificationSession)
        session.admit(source)
        sessions.append(session)
    early, late = (session.table for session in sessions)
    for table in (early, late):
        table.iterate(0, 1)
        table.iterate(0, 1)
    assert late.unread
    assert not early.unread
    expected, found = (table.iterate(2, 3) for table in (early, late))
    assert torch.equal(expected.draft, found.draft)
    assert torch.equal(expected.ids, found.ids)


def test_sessions_of_a_decoder_share_what_they_find_out():
    decoder = decoder_of("blockwise", EAGER, 5, adaptive=True)
    thrifts = []
    for rows in (1, 1, 2):
        session = decoder.start(rows, Limits(), 6)
        assert isinstance(session, VerificationSession)
        assert isinstance(session._pacing, FreePacing)
        thrifts.append(session._pacing._thrift)
    assert thrifts[0] is thrifts[1] is thrifts[2]


# --- what one session asks and tells ---------------------------------------------------------------------------------


class Fake:
    """A table that records nothing."""

    recorded = False
    recordings = 0
    blocks: set[int] = set()  # noqa: RUF012 (never written)

    def __init__(self, clock: Clock, unread: bool = False) -> None:
        self.unread, self._clock = unread, clock

    def knows(self, block: int, window: int) -> bool:
        return True

    def forget(self, block: int) -> None:
        raise AssertionError("there is nothing to forget")

    def read_along(self) -> None:
        self._clock.now += 1e3
        self.unread = False


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(free_pacing, "clock", found)
    return found


def joined(table: Fake, rows: int, terms: Terms) -> FreePacing:
    return FreePacing(Thrift(4), table, rows, terms)


def observed(paced: FreePacing) -> list[tuple[int, float | None]]:
    """(block, seconds) of what it tells from now on."""
    told: list[tuple[int, float | None]] = []
    observe = paced._thrift.observe

    def noted(choice: Any, rows: int, stood: Any, seconds: float | None) -> None:
        told.append((choice.block, seconds))
        observe(choice, rows, stood, seconds)

    paced._thrift.observe = noted  # type: ignore[method-assign]
    return told


def iterate(clock: Clock, paced: FreePacing, times: int, missed: int = 1) -> list[int]:
    asked = []
    for _ in range(times):
        block = paced.choose(missed)
        paced.begin(block, 1)
        clock.now += CHEAP(block)
        paced.end([block])
        asked.append(block)
    return asked


def test_what_is_built_or_read_first_is_not_timed(clock):
    table = Fake(clock, unread=True)
    paced = joined(table, 8, Terms(waits=False, window=7))
    told = observed(paced)
    asked = iterate(clock, paced, 12)
    assert asked[:4] == [0, 0, 0, 4]
    firsts = [told[asked.index(block)] for block in set(asked)]
    assert all(seconds is None for _, seconds in firsts)
    timed = [(block, seconds) for block, seconds in told if seconds is not None]
    assert len(timed) == len(told) - len(firsts)
    for block, seconds in timed:
        assert seconds == pytest.approx(CHEAP(block))


def test_a_step_that_waits_for_an_encoder_is_not_timed(clock):
    for waits in (False, True):
        paced = joined(Fake(clock), 8, Terms(waits=waits))
        iterate(clock, paced, 1)
        told = observed(paced)
        paced.encode(all_new=True)
        iterate(clock, paced, 2)
        assert [seconds is None for _, seconds in told] == [waits, False]


def test_heads_that_saw_nothing_are_shown_the_newest_tokens_in_a_narrow_step(clock):
    paced = joined(Fake(clock), 1, Terms(waits=False, learns=True))
    told = observed(paced)
    asked = iterate(clock, paced, 12)
    first = asked.index(1)
    assert asked[:first] == [0] * first
    assert asked[first + 1] == 4
    assert len(told) == len(asked) - 1  # what it did not see is not its fault
    paced.encode(all_new=True)
    assert iterate(clock, paced, 2) == [1, 4]


def test_a_drafter_that_has_missed_too_much_is_not_asked(clock):
    paced = joined(Fake(clock), 1, Terms(waits=False, window=7))
    iterate(clock, paced, 30)
    assert iterate(clock, paced, 3, missed=8) == [0, 0, 0]
    assert iterate(clock, paced, 1, missed=7) == [4]


def test_a_table_of_one_row_binds_before_it_is_timed(clock, monkeypatch):
    table = Fake(clock)
    monkeypatch.setattr(table, "knows", lambda block, window: False)
    for rows in (1, 8):
        paced = joined(table, rows, Terms(waits=False))
        iterate(clock, paced, 1)
        told = observed(paced)
        iterate(clock, paced, 1)
        assert [seconds is None for _, seconds in told] == [rows == 1]


# --- what a drafter has not read -------------------------------------------------------------------------------------


def memory_of(rows: int) -> EncoderState:
    return EncoderState.empty(1, rows, 1, 3, 2, torch.zeros(1))


def put(unread: Unread, *rows: int) -> Source:
    source = Source.of([[7, 8, 3] for _ in rows])
    unread.put(torch.tensor(rows), source, memory_of(len(rows)))
    return source


def test_sentences_wait_in_their_order_and_those_that_were_replaced_do_not():
    unread = Unread(4)
    assert not unread
    put(unread, 0, 1)
    put(unread, 2)
    put(unread, 1, 2)  # row 0 still waits, row 2 does not
    done = torch.tensor([False, False, False, True])
    assert [one.rows.tolist() for one in unread.take(done)] == [[0, 1], [1, 2]]
    assert not unread
    assert unread.take(done) == []


def test_sentences_that_are_done_are_never_read():
    unread = Unread(4)
    put(unread, 0, 1)
    put(unread, 2, 3)
    done = torch.tensor([True, True, False, True])
    assert [one.rows.tolist() for one in unread.take(done)] == [[2, 3]]


def test_what_waits_is_not_written_over():
    unread = Unread(4)
    rows, source = torch.tensor([0, 1]), Source.of([[7, 3], [8, 3]])
    unread.put(rows, source, memory_of(2))
    rows += 1
    source.ids.zero_()
    source.lengths.zero_()
    (found,) = unread.take(torch.zeros(4, dtype=torch.bool))
    assert found.rows.tolist() == [0, 1]
    assert found.source.ids.tolist() == [[7, 3], [8, 3]]
    assert found.source.lengths.tolist() == [2, 2]
