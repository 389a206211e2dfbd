"""Sessions whose last sentences go on in smaller tables: outputs are those of tables that keep their size, whoever
drafts, whichever runner, and whoever is given up or comes late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Decoder, Limits, Runner, Session, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.verification import draining
from longstride.verification.batch_state import BatchState
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.refilled_session import RefilledSession
from longstride.verification.session import VerificationSession
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source
from tests.runtime.graphs import BOTH
from tests.runtime.test_cuda_graph import EAGER, KINDS, TREES, decoder_of, same, taped
from tests.runtime.test_graph_exact import refuse

RULES = ("exact", "exact", "top:2", "distance:1")
RAGGED = Limits(max_length=40, max_ratio=3.0, max_extra=0)
"""Outputs are as ragged as sources are: tiny models hardly ever end by themselves."""


LONG = Limits(max_length=30, max_ratio=100.0, max_extra=30, min_length=30)


def ragged(rows: int) -> Source:
    """Sources that grow, and a last one that is by far the longest."""
    return Source.of(
        [[*random.Random(row).choices(range(4, 11), k=1 + row // 3), EOS] for row in range(rows - 1)]
        + [[5] * 9 + [EOS]]
    )


@contextmanager
def moving(worth: int = 0, fewer: int = 2) -> Iterator[list[tuple[int, int]]]:
    """Rows move as soon as they can; from how many to how many they did."""
    moves: list[tuple[int, int]] = []
    resume = BatchState.resume

    def told(self: Any, other: Any, here: list[int], *rest: Any) -> None:
        moves.append((len(other.ticket), len(self.ticket)))
        resume(self, other, here, *rest)

    with (
        patch.multiple(draining, WORTH=worth, FEWER=fewer, LEAST_LEFT=0, CATCH_UP=0),
        patch.object(BatchState, "resume", told),
    ):
        yield moves


def staying() -> Any:
    """Rows stay where they are."""
    return patch.object(draining.Drain, "width", lambda *_: None)


def with_policy(decoder: Decoder, policy: str) -> Decoder:
    """The same decoder, whose drafts hang on the number of rows."""
    if not isinstance(decoder, DraftVerify | Blockwise):
        return decoder
    return decoder.with_options(replace(decoder.options, lengths=DraftPolicy.from_text(policy)))  # type: ignore[type-var,arg-type]


@settings(max_examples=4)
@given(
    kind=st.sampled_from((*KINDS, *TREES)),
    recorded=st.booleans(),
    seed=st.integers(0, 10_000),
    rows=st.integers(2, 9),
    capacity=st.integers(2, 6),
    limits=LIMITS,
    rule=st.sampled_from(RULES),
)
def test_outputs_and_traces_are_those_of_tables_that_keep_their_size(
    kind, recorded, seed, rows, capacity, limits, rule
):
    runner: Runner = taped()[0] if recorded else EAGER
    ours, theirs = (decoder_of(kind, one, seed, rule) for one in (runner, EAGER))
    for number in range(2):  # the second finds tables that were used
        source = random_source(rows, 9, seed=seed + number)
        with staying():
            expected = theirs.decode(source, limits, capacity, trace=True)
        with moving():
            same(ours.decode(source, limits, capacity, trace=True), expected)


@settings(max_examples=3)
@given(
    kind=st.sampled_from([kind for kind in (*KINDS, *TREES) if kind.startswith(("draft", "blockwise"))]),
    policy=st.sampled_from(["1:3,2:0", "1:2,2:3,4:0", "1:0,3:2", "1:7tree,2:2,5:0", "1:2,3:5tree"]),
    recorded=st.booleans(),
    seed=st.integers(0, 10_000),
    rows=st.integers(3, 9),
    capacity=st.integers(3, 6),
    limits=LIMITS,
)
def test_few_rows_are_drafted_as_so_few_are(kind, policy, recorded, seed, rows, capacity, limits):
    runner: Runner = taped()[0] if recorded else EAGER
    linked = "tree" not in policy or kind in ("blockwise linked", "draft-verify linked", *TREES)
    ours = with_policy(decoder_of(kind, runner, seed), policy if linked else "1:3,2:0")
    source = random_source(rows, 9, seed=seed)
    with staying():
        expected = decoder_of("greedy", EAGER, seed).decode(source, limits, capacity)
    with moving():
        same(ours.decode(source, limits, capacity), expected, traces=False)


def come_and_go(decoder: Decoder, session: Session, seed: int, limits: Limits, expected: list[list[int]]) -> None:
    """Sentences that come at random, in the end only after it was said that none would; some are given up."""
    count, chance = len(expected), random.Random(seed)
    source = random_source(count, 8, seed=seed)
    tickets: list[int] = []
    gone: set[int] = set()
    found: dict[int, list[int]] = {}
    while len(found) + len(gone) < count:
        some = min(session.free, count - len(tickets), chance.randint(0, 4))
        if some or len(found) + len(gone) == len(tickets):
            tickets += session.admit(source.slice(len(tickets), len(tickets) + max(1, some)))
        for ticket in tickets:
            if ticket not in found and ticket not in gone and chance.random() < 0.05:
                session.cancel(ticket)
                gone.add(ticket)
        step = session.advance()
        assert not gone & set(step.ticket[step.active].tolist())
        taken = session.take_finished()
        found |= {one.ticket: one.hypotheses[0].tokens for one in taken}
        if chance.random() < 0.6:
            session.settle()
    session.close()
    assert tickets == list(range(count))
    assert found == {ticket: expected[row] for row, ticket in enumerate(tickets) if ticket in found}


@settings(max_examples=3)
@given(
    kind=st.sampled_from((*KINDS, *TREES)),
    recorded=st.booleans(),
    refilled=st.booleans(),
    seed=st.integers(0, 10_000),
    capacity=st.integers(2, 6),
)
def test_whoever_comes_late_is_decoded_all_the_same(kind, recorded, refilled, seed, capacity):
    runner: Runner = taped()[0] if recorded else EAGER
    decoder, limits = decoder_of(kind, runner, seed), Limits(max_length=10)
    for number in (seed, seed + 1):
        with staying():
            expected = decoder_of(kind, EAGER, seed).decode(random_source(10, 8, seed=number), limits).tokens
        with moving():
            start = decoder.start_refilled if refilled else decoder.start
            come_and_go(decoder, start(capacity, limits, 8), number, limits, expected)


@pytest.mark.parametrize("refilled", [False, True])
def test_a_table_that_is_there_is_taken_and_a_new_one_only_when_it_is_worth_it(refilled: bool) -> None:
    runner, recorder = taped()
    decoder = decoder_of("draft-verify", runner, 7)
    source = ragged(9 if refilled else 8)

    def decoded(worth: int) -> list[tuple[int, int]]:
        with moving(worth, fewer=8) as moves:
            decoder.decode(source, RAGGED, 8)
        return moves

    assert decoded(1 << 20) == []
    recorded = recorder.recorded
    assert decoded(0) == [(8, 1)]  # one row is an eighth
    assert recorder.recorded == recorded + 1
    assert decoded(1 << 20)[-1][1] == 1  # it is there now
    assert recorder.recorded == recorded + 1


def test_little_that_may_remain_is_not_moved():
    decoder = decoder_of("greedy", EAGER, 3)
    with moving() as moves, patch.object(draining, "LEAST_LEFT", 28):
        decoder.decode(ragged(8), RAGGED)
        assert not moves
    with moving() as moves, patch.object(draining, "LEAST_LEFT", 3):
        decoder.decode(ragged(8), RAGGED)
        assert moves


@pytest.mark.parametrize(("kind", "policy"), [("draft-verify", "1:3,8:0"), ("draft-verify tree", "1:7tree,8:0")])
def test_rows_wait_before_a_drafter_has_to_catch_up(kind: str, policy: str) -> None:
    """Nobody knows whether they last as long as that takes; where tables draft alike there is nothing to wait for."""

    def left(waited: int, policy: str) -> list[int]:
        """After how many iterations rows went elsewhere."""
        decoder, found = with_policy(decoder_of(kind, EAGER, 3), policy), []
        with moving() as moves, patch.object(draining, "CATCH_UP", waited):
            session = decoder.start(8, RAGGED, 10)
            session.admit(ragged(8))
            for number in range(40):
                session.advance()
                session.take_finished()
                session.settle()
                found += [number] * (len(moves) - len(found))
        return found

    at_once = left(0, policy)
    assert left(5, policy)[0] == at_once[0] + 5
    assert left(100, policy) == []
    drafted = policy.split(",")[0]
    assert left(100, drafted) == left(0, drafted) != []


@settings(max_examples=12)
@given(
    refilled=st.booleans(),
    waited=st.integers(1, 4),
    late=st.lists(st.integers(1, 6), max_size=3).map(lambda gaps: list(accumulate(gaps, initial=0))),
)
def test_rows_wait_anew_whenever_sentences_come(refilled, waited, late):
    runner: Runner = taped()[0] if refilled else EAGER
    decoder = with_policy(decoder_of("draft-verify", runner, 3), "1:3,8:0")
    with moving() as moves, patch.object(draining, "CATCH_UP", waited):
        session = (decoder.start_refilled if refilled else decoder.start)(8, LONG, 6)
        assert isinstance(session, RefilledSession) == refilled
        admitted = -1
        for number in range(late[-1] + waited + 8):
            if number in late:
                session.admit(random_source(1, 6, seed=number))
                admitted = number
            before = len(moves)
            session.advance()
            session.take_finished()
            session.settle()
            fewer = [rows for rows in moves[before:] if rows[1] < rows[0]]
            assert not fewer or number - admitted >= waited
    assert moves[-1][1] < moves[-1][0]


def test_rows_stay_where_bits_hang_on_how_many_there_are():
    runner = EagerRunner(precision="fp32")
    with moving() as moves:
        decoder_of("greedy", runner, 3).decode(ragged(8), RAGGED)
    assert not moves


@pytest.mark.parametrize("kind", ["greedy", "draft-verify", "draft-verify tree", "blockwise"])
@BOTH
def test_graphs_go_on_in_smaller_tables(kind: str, graphs: Any) -> None:
    """By each backend that builds graphs, in 32 bits; those whose bits hang on shapes keep their tables."""
    runner = graphs("fp32", 1, tell=refuse)
    with staying():
        expected = decoder_of(kind, runner, 5).decode(ragged(8), RAGGED, 8, trace=True)
    with moving() as moves:
        found = decoder_of(kind, runner, 5).decode(ragged(8), RAGGED, 8, trace=True)
        assert found.tokens == expected.tokens
        assert found.traces == expected.traces
    assert bool(moves) == runner.moves_rows


def test_a_session_that_was_moved_has_room_for_as_many_as_before():
    decoder = decoder_of("greedy", EAGER, 2)
    limits = Limits(max_length=60, max_ratio=0, max_extra=60, min_length=60)
    with moving() as moves:
        session = decoder.start(8, limits, 6)
        assert isinstance(session, VerificationSession)
        session.admit(random_source(3, 6, seed=1))
        session.advance()
        session.settle()
        assert moves == [(8, 3)]
        assert session.free == 5
        session.admit(random_source(5, 6, seed=2))
        assert moves == [(8, 3), (3, 8)]
        with pytest.raises(ValueError, match="expected 1 empty slots, found 0"):
            session.admit(random_source(1, 6, seed=3))


def test_a_queue_that_was_left_is_used_again():
    runner, recorder = taped()
    decoder, source = decoder_of("greedy", runner, 4), ragged(9)
    expected = decoder_of("greedy", EAGER, 4).decode(source, RAGGED).tokens
    recorded = []
    with moving() as moves:
        for _ in range(2):
            assert decoder.decode(source, RAGGED, 4).tokens == expected
            recorded.append((len(moves), recorder.recorded))
        assert isinstance(decoder.start_refilled(4, RAGGED, 6), RefilledSession)
    assert recorded[0][0] > 0
    assert recorded == [recorded[0], (2 * recorded[0][0], recorded[0][1])]


@settings(max_examples=6)
@given(
    kind=st.sampled_from([kind for kind in (*KINDS, *TREES) if kind != "greedy"]),
    recorded=st.booleans(),
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 7),
    capacity=st.integers(1, 4),
    patience=st.integers(0, 5),
    limits=LIMITS,
)
def test_rows_whose_drafts_bring_too_little_go_on_without(kind, recorded, seed, rows, capacity, patience, limits):
    runner: Runner = taped()[0] if recorded else EAGER
    source = random_source(rows, 9, seed=seed)
    expected = decoder_of("greedy", EAGER, seed).decode(source, limits, capacity)
    with moving(), patch.multiple(draining, PATIENCE=patience, LEAST_GAIN=99.0):
        same(decoder_of(kind, runner, seed).decode(source, limits, capacity), expected, traces=False)


@pytest.mark.parametrize("accept", ["exact", "top:2"])
def test_an_output_that_loops_is_not_drafted_to_its_end(accept: str) -> None:
    source = random_source(1, 6, seed=5)
    decoder = decoder_of("draft-verify", EAGER, 5, accept)
    with patch.object(draining, "PATIENCE", 8):
        found = decoder.decode(source, LONG, 1, trace=True)
    whole = decoder.decode(source, LONG, 1, trace=True)
    iterations = whole.traces[0].iterations
    assert iterations > 9  # or this shows nothing
    assert len(whole.tokens[0]) < draining.LEAST_GAIN * iterations
    drafted = [step for step in found.traces[0].events if step.drafted]
    assert found.tokens == whole.tokens
    assert (len(drafted) < iterations) == (accept == "exact")  # else outputs hang on drafts


def test_what_idle_rows_cost_is_remembered_from_text_to_text() -> None:
    runner, source = taped()[0], ragged(8)
    model = decoder_of("greedy", runner, 7)._model  # type: ignore[attr-defined]
    with moving(worth=60, fewer=4) as moves:
        for _ in range(4):  # a decoder each, as `translate` makes them
            before = len(moves)
            found = Greedy(model, runner).decode(source, RAGGED, 8)
        assert moves, "one text alone would never have paid for it"
        assert before > 0
    assert found.tokens == decoder_of("greedy", EAGER, 7).decode(source, RAGGED, 8).tokens
