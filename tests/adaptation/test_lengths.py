"""The stage that times lengths of drafts: through `translate`, within its time, no slower than greedy search."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride import Translator
from longstride.adaptation import lengths
from longstride.adaptation.lengths import HOPELESS, NONE, candidates, choose, spread, table_of, without_trees
from longstride.model_folder import ModelFolder
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.refilled_session import RefilledSession
from tests.decoding.test_draft_verify import write_drafted
from tests.runtime.test_cuda_graph import taped

BLOCK = 10
ROWS = (1, 8, 32, 128)
EVERY = candidates(BLOCK)


class Clocked:
    """A translator that takes as long as it is told to, by rows and drafts, in milliseconds a line."""

    def __init__(self, cost: Any, steady: int | None = None, captured: float = 0.3) -> None:
        self.now, self._cost, self._captured = 0.0, cost, captured
        self.runner = SimpleNamespace(steady_slots=steady, round_up=lambda rows: rows)
        self.runs: list[tuple[int, str, int]] = []

    def decoder(self, name: str) -> Any:
        return SimpleNamespace(options=SimpleNamespace(k=BLOCK)), None

    def translate(self, lines: list[str], decoder: str, *, batch: int, lengths: str, warn: Any) -> None:
        assert decoder == "draft-verify"
        drafts = lengths.removeprefix("1:")
        if (batch, drafts) not in [run[:2] for run in self.runs]:
            self.now += self._captured
        self.runs.append((batch, drafts, len(lines)))
        self.now += len(lines) * self._cost(batch, drafts, len(self.runs)) / 1000

    def choose(self, seconds: float = 40.0, rows: tuple[int, ...] = ROWS, lines: int = 300) -> dict[str, Any]:
        given = [f"line {number}" for number in range(lines)]
        with patch.object(lengths, "perf_counter", lambda: self.now):
            return choose(self, given, rows, lambda *_: None, seconds)  # type: ignore[arg-type]


def drafts_of(table: str, rows: int) -> str:
    policy = DraftPolicy.from_text(table)
    return f"{policy.nodes(rows)}tree" if policy.nodes(rows) else str(policy.length(rows, BLOCK))


COSTS = st.fixed_dictionaries(
    {rows: st.fixed_dictionaries({drafts: st.floats(0.2, 3.0) for drafts in EVERY[1:]}) for rows in ROWS}
)
GREEDY = {1: 4.63, 8: 0.774, 32: 0.371, 128: 0.209}
"""Milliseconds a line on an H200."""


@settings(max_examples=50)
@given(costs=COSTS, noise=st.randoms(use_true_random=False))
def test_the_choice_is_close_to_the_best_fixed_draft_and_no_slower_than_greedy_search(costs, noise):
    """At every number of rows that was timed; readings are off by a few per cent, some by a factor."""
    for rows in ROWS[1:]:  # what was far behind with fewer rows stays behind
        fewer = costs[ROWS[ROWS.index(rows) - 1]]
        costs[rows] |= {drafts: max(taken, fewer[drafts]) for drafts, taken in costs[rows].items()}

    def true(rows: int, drafts: str) -> float:
        return GREEDY[rows] * (1.0 if drafts == NONE else costs[rows][drafts])

    def cost(rows: int, drafts: str, run: int) -> float:
        off = noise.uniform(0.995, 1.005)
        return true(rows, drafts) * off

    clocked = Clocked(cost)
    found = clocked.choose()
    assert clocked.now <= 40.0
    for rows in ROWS:
        chosen = true(rows, drafts_of(found["lengths"], rows))
        assert chosen <= true(rows, NONE)
        assert chosen <= 1.1 * min(true(rows, drafts) for drafts in EVERY)
    assert drafts_of(found["lengths"], 129) == NONE


def test_one_reading_in_five_may_be_anything():
    best = {1: "15tree", 8: "7", 32: NONE, 128: NONE}

    def cost(rows: int, drafts: str, run: int) -> float:
        spoilt = 3.0 if run % 5 == 0 else 1.0
        return GREEDY[rows] * spoilt * (0.6 if drafts == best[rows] else 1.0 if drafts == NONE else 1.1)

    assert Clocked(cost).choose(100.0)["lengths"] == "1:15tree,2:7,9:0"


@settings(max_examples=30)
@given(
    seconds=st.floats(1.0, 60.0),
    pace=st.floats(0.01, 100.0),
    captured=st.floats(0.0, 2.0),
    lines=st.integers(1, 2000),
)
def test_it_takes_its_time_and_no_more(seconds, pace, captured, lines):
    """But for what runs when it ends, and a second run of each draft that was begun with."""
    clocked = Clocked(lambda rows, drafts, run: pace * (1 if drafts == NONE else 0.9), captured=captured)
    found = clocked.choose(seconds, lines=lines)
    longest = max(pace * count / 1000 for _, _, count in clocked.runs)
    assert clocked.now <= seconds + 7 * longest + captured * (1 + len(EVERY))
    DraftPolicy.from_text(found["lengths"])
    for (rows, drafts), runs in Counter(run[:2] for run in clocked.runs).items():
        timed = runs - (2 if drafts == NONE else 1)
        assert timed >= 2 or drafts == NONE, "nothing is chosen by one run alone"
        assert runs == 1 or str(rows) in found["milliseconds"] or drafts == NONE


@pytest.mark.parametrize("each", [500.0, 100.0, 20.0])
def test_a_draft_that_pays_is_found_in_a_short_time_too(each):
    """Ten seconds are a minute's; greedy search of a large model takes half a second a line on a processor."""
    clocked = Clocked(lambda rows, drafts, run: each * (1 if drafts == NONE or rows > 1 else 0.5), captured=0.0)
    found = clocked.choose(10.0)["lengths"]
    assert drafts_of(found, 1) != NONE
    assert drafts_of(found, 8) == NONE


def test_rows_are_refilled_and_shown_evenly():
    clocked = Clocked(lambda rows, drafts, run: GREEDY[rows])
    clocked.choose()
    assert {rows for rows, _, _ in clocked.runs} == {*ROWS}
    assert all(count >= 2 * rows for rows, _, count in clocked.runs)
    assert spread(["a", "b", "c"], 6) == ["a", "a", "b", "b", "c", "c"]
    assert spread(["a", "b", "c", "d"], 2) == ["a", "c"]


def test_drafts_are_left_out_by_evidence_alone():
    """A tree that loses by a hair with one row is tried with more; what is far behind is not."""

    def cost(rows: int, drafts: str, run: int) -> float:
        if rows == 1:
            return {"10": 0.5, "15tree": 0.505, NONE: 1.0, "2": HOPELESS * 1.1}.get(drafts, 1.1)
        return 0.6 if drafts == "15tree" else 1.0

    clocked = Clocked(cost)
    assert clocked.choose()["lengths"] == "1:10,2:15tree,129:0"
    tried = {rows: {drafts for count, drafts, _ in clocked.runs if count == rows} for rows in ROWS}
    assert tried == {1: {*EVERY}, 8: {*EVERY} - {"2"}, 32: {*EVERY} - {"2"}, 128: {*EVERY} - {"2"}}
    hopeless = Clocked(lambda rows, drafts, run: 1.0 if drafts == NONE else 1.5 * rows)
    assert hopeless.choose()["lengths"] == "1:0"
    assert {rows for rows, _, _ in hopeless.runs} == {1}


def test_drafts_that_a_step_has_no_room_for_are_cut_and_timed_once():
    """128 rows of 12 slots are 1,536; longer trees would be cut to the same."""
    clocked = Clocked(lambda rows, drafts, run: 0.5 if drafts.endswith("1tree") else 1.0, steady=1536)
    assert clocked.choose()["lengths"] == "1:31tree,33:11tree,129:0"
    assert {drafts for rows, drafts, _ in clocked.runs if rows == 128} == {*EVERY[:5], "7tree", "11tree"}


def test_a_choice_holds_for_fewer_rows_and_nothing_is_drafted_beyond_the_last():
    times = {8: {"0": 1.0, "5": 0.7}, 1: {"0": 1.0, "15tree": 0.5}, 32: {"0": 1.0, "5": 0.99}}
    assert str(table_of(times)) == "1:15tree,2:5,9:0"
    assert str(table_of({1: {"0": 1.0, "5": 0.5}, 8: {"0": 1.0, "5": 0.5}})) == "1:5,9:0"
    assert str(table_of({8: {"0": 1.0, "5": 0.5}})) == "1:5,9:0"
    assert str(table_of({})) == "1:0"


def test_where_trees_are_not_exact_chains_are_chosen_by_the_same_times():
    milliseconds = {"1": {"0": 2.0, "5": 1.5, "15tree": 1.0}, "8": {"0": 1.0, "5": 1.1, "15tree": 0.9}}
    found = {"lengths": "1:15tree,9:0", "milliseconds": milliseconds, "seconds": 1.0}
    assert without_trees(found, 10) == {**found, "lengths": "1:5,2:0"}
    assert without_trees({"lengths": "1:31tree,2:3", "milliseconds": {}}, 10)["lengths"] == "1:10,2:3"


def test_what_is_timed_is_what_translate_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are refilled from a queue, as on a GPU, and draft what was asked for."""
    translator = Translator(ModelFolder(write_drafted(tmp_path / "model", link=3)), taped()[0])
    seen: set[tuple[int, int]] = set()
    begin = RefilledSession.__init__

    def told(self: Any, plan: Any, block: int, capacity: int, *rest: Any) -> None:
        seen.add((capacity, block))
        begin(self, plan, block, capacity, *rest)

    monkeypatch.setattr(RefilledSession, "__init__", told)
    monkeypatch.setattr(lengths, "candidates", lambda block: [NONE, str(block // 2), "7tree"])
    for name, value in (("RUN", 0.0), ("FEWEST_LINES", 1), ("MOST_LINES", 1), ("TURNS", 1)):
        monkeypatch.setattr(lengths, name, value)
    found = choose(translator, ["a b c", "d e f g", "h"], [2], lambda *_: None, 1e9)
    assert seen == {(2, 0), (2, 2), (2, 7)}
    assert [*found["milliseconds"]["2"]] == ["0", "2", "7tree"]
