"""How long drafts are: by a table that is given, or measured once."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.adaptation.options import AdaptOptions
from longstride.contract import Limits, OptionError
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.verification import draft_policy
from longstride.verification import session as decoders
from longstride.verification.acceptance import Rule
from longstride.verification.draft_policy import DraftPolicy, LengthFile, best_of, candidates, timed
from longstride.verification.draining import Drain
from tests.decoding.test_blockwise import random_heads
from tests.models import random_source, tiny_model


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured, however few sentences there are."""
    monkeypatch.setattr(decoders, "TIMES", -1)


TABLES = st.dictionaries(st.integers(1, 200), st.integers(0, 20), min_size=1, max_size=5)


@given(table=TABLES, rows=st.integers(1, 300), most=st.integers(1, 12))
def test_the_entry_of_the_most_rows_that_are_there_counts(table, rows, most):
    policy = DraftPolicy.from_text(",".join(f"{least}:{length}" for least, length in table.items()))
    reached = [least for least in table if least <= rows]
    assert policy.length(rows, most) == (min(table[max(reached)], most) if reached else most)
    assert DraftPolicy.from_text(str(policy)) == policy
    assert policy.knows(rows) == (rows in table)
    assert policy.with_length(rows, 3).length(rows, most) == min(3, most)


@given(table=TABLES, trees=st.sets(st.integers(1, 200)), rows=st.integers(1, 300))
def test_entries_may_be_trees(table, trees, rows):
    texts = [f"{least}:{length}{'tree' if least in trees else ''}" for least, length in table.items()]
    policy = DraftPolicy.from_text(",".join(texts))
    reached = max((least for least in table if least <= rows), default=None)
    assert policy.nodes(rows) == (table[reached] if reached in trees else 0)
    assert DraftPolicy.from_text(str(policy)) == policy
    assert policy.with_length(rows, 3, tree=True).nodes(rows) == 3
    assert policy.with_length(rows, 3).nodes(rows) == 0


def test_a_table_chooses_between_chains_and_trees():
    model, heads, runner = tiny_model(3, sharpness=2.0), random_heads(3, 4), EagerRunner(precision="fp64")
    source, limits = random_source(4, 6, seed=3), Limits(max_length=12)
    decoder = Blockwise(model, heads, runner, BlockwiseOptions(lengths=DraftPolicy.from_text("1:7tree,3:2,4:0")))
    greedy = Greedy(model, runner).decode(source, limits)
    for rows, drafted in ((1, 7), (2, 7), (3, 2), (4, 0)):
        found = decoder.decode(source.slice(0, rows), limits, trace=True)
        assert found.tokens == greedy.tokens[:rows]
        assert found.traces is not None
        assert max(event.drafted for trace in found.traces for event in trace.events) == drafted


def test_trees_are_for_decoders_that_draft_them():
    with pytest.raises(
        OptionError, match="lengths expects chains for copy-verify, which drafts no trees, found 1:8tree"
    ):
        CopyVerify(tiny_model(0), EagerRunner(), CopyVerifyOptions(lengths=DraftPolicy.from_text("1:8tree")))


def test_chains_that_are_longer_than_a_block_are_refused():
    model, heads, runner = tiny_model(3), random_heads(3, 4), EagerRunner()
    for text in ("1:3", "1:9tree,2:3"):
        Blockwise(model, heads, runner, BlockwiseOptions(lengths=DraftPolicy.from_text(text)))
    told = "lengths expects chains of at most 3 tokens for blockwise, found 1:0,2:4"
    with pytest.raises(OptionError, match=told):
        Blockwise(model, heads, runner, BlockwiseOptions(lengths=DraftPolicy.from_text("2:4,1:0")))
    with pytest.raises(OptionError, match=r"lengths expects chains of at most block \(4\) tokens, found 1:5"):
        AdaptOptions(block=4, lengths=DraftPolicy.from_text("1:5"))


@pytest.mark.parametrize(
    "text", ["", "1", "1:2:3", "a:1", "0:3", "1:-1", "1:2,1:3", "1:2,", "1:tree", "tree:1", "1:2bush"]
)
def test_what_is_no_table_is_refused(text):
    with pytest.raises(OptionError, match=r"expected ROWS:TOKENS"):
        DraftPolicy.from_text(text)


@given(seconds=st.lists(st.integers(1, 100), min_size=3, max_size=3))
def test_the_fastest_wins_and_of_near_equals_the_shortest(seconds):
    clock = [0.0]
    lengths = candidates(10)
    assert lengths == [0, 5, 10]
    cost = dict(zip(lengths, seconds, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft_policy, "perf_counter", lambda: clock[0])

        def run(length: int) -> None:
            clock[0] += cost[length]

        best = best_of(timed(lengths, run))
    assert cost[best] * (1 - draft_policy.MARGIN) <= min(seconds) * (1 + 1e-9) or cost[best] == min(seconds)
    assert all(cost[best] <= cost[shorter] for shorter in lengths if shorter < best)


@pytest.mark.parametrize("chosen", [0, 1, 3])
def test_it_is_measured_once_for_so_many_rows_and_outputs_stay_the_same(chosen, monkeypatch):
    runner = EagerRunner(precision="fp64")
    model = runner.place(tiny_model(3, sharpness=2.0))
    heads = runner.place(random_heads(3, 4))
    decoder = Blockwise(model, heads, runner, BlockwiseOptions(adaptive=True))
    asked: list[list[int]] = []

    def pick(lengths, run):
        asked.append(list(lengths))
        for length in lengths:
            run(length)
        return {chosen: 1.0}

    monkeypatch.setattr(decoders, "timed", pick)
    source = random_source(4, 6, seed=3)
    greedy = Greedy(model, runner).decode(source).tokens
    for rows in (2, 2, 4, 2, 4):
        if rows == 2:  # what was measured stays with the model
            decoder = Blockwise(model, heads, runner, BlockwiseOptions(adaptive=True))
        decoded = decoder.decode(source, capacity=rows, trace=True)
        assert decoded.tokens == greedy
        assert max(event.drafted for trace in decoded.traces for event in trace.events) <= chosen
    assert asked == [[0, 1, 3], [0, 1, 3]]


@settings(max_examples=10)
@given(batches=st.lists(st.integers(1, 8), max_size=6), lossy=st.booleans())
def test_measuring_takes_no_longer_than_decoding(batches, lossy):
    """Three lengths are tried three times: as many batches are decoded by then. Outputs never change on the way."""
    runner = EagerRunner(precision="fp64")
    model = runner.place(tiny_model(3, sharpness=2.0))
    options = BlockwiseOptions(adaptive=True, accept=Rule.from_text("top:2" if lossy else "exact"))
    decoder = Blockwise(model, runner.place(random_heads(3, 4)), runner, options)
    asked: list[list[int]] = []
    with (
        patch.object(decoders, "TIMES", draft_policy.TIMES),
        patch.object(decoders, "timed", lambda lengths, run: asked.append(lengths) or {1: 1.0}),
    ):
        for number, some in enumerate(batches):
            decoder.decode(random_source(2 * some, 4, seed=1), Limits(max_length=2), capacity=2)
            assert bool(asked) == (lossy or sum(batches[: number + 1]) >= 3 * (1 + draft_policy.TIMES))


def test_a_table_that_is_given_says_how_much_is_drafted():
    runner = EagerRunner(precision="fp64")
    model = runner.place(tiny_model(3, sharpness=2.0))
    options = BlockwiseOptions(lengths=DraftPolicy.from_text("1:3,2:1,4:0"))
    decoder = Blockwise(model, runner.place(random_heads(3, 4)), runner, options)
    source = random_source(4, 6, seed=3)
    for rows, most in ((1, 3), (2, 1), (3, 1), (4, 0)):
        with patch.object(Drain, "width", lambda *_: None):  # else few rows that are left are drafted as so few are
            decoded = decoder.decode(source, Limits(min_length=6), capacity=rows, trace=True)
        assert max(event.drafted for trace in decoded.traces for event in trace.events) == most


def test_an_interrupted_measurement_is_forgotten(monkeypatch):
    runner = EagerRunner(precision="fp64")
    model = runner.place(tiny_model(3, sharpness=2.0))
    decoder = Blockwise(model, runner.place(random_heads(3, 4)), runner, BlockwiseOptions(adaptive=True))

    def interrupted(lengths, run):
        run(lengths[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(decoders, "timed", interrupted)
    source = random_source(2, 6, seed=3)
    with pytest.raises(KeyboardInterrupt):
        decoder.decode(source)
    monkeypatch.setattr(decoders, "timed", lambda lengths, run: {lengths[-1]: 1.0})
    decoded = decoder.decode(source, trace=True)
    assert max(event.drafted for trace in decoded.traces for event in trace.events) == 3


# --- kept on disk ----------------------------------------------------------------------------------------------------

ABOUT = {"device": "a processor", "version": "1"}


def adaptive(file: Path, about: dict[str, str] = ABOUT) -> Blockwise:
    """A decoder as the next process makes it, of a model that nothing was measured of."""
    runner = EagerRunner(precision="fp64")
    model = runner.place(tiny_model(3, sharpness=2.0))
    decoder = Blockwise(model, runner.place(random_heads(3, 4)), runner, BlockwiseOptions(adaptive=True))
    decoder.keep_lengths(LengthFile(file, about))
    return decoder


def test_the_next_start_reads_what_was_measured(tmp_path, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(decoders, "timed", lambda lengths, run: asked.append(len(lengths)) or {1: 1.0})
    file, source = tmp_path / "cache" / "lengths.json", random_source(4, 6, seed=3)
    for rows, times in ((2, 1), (2, 1), (4, 2), (2, 2)):
        decoded = adaptive(file).decode(source, capacity=rows, trace=True)
        assert len(asked) == times
        assert max(event.drafted for trace in decoded.traces for event in trace.events) <= 1
    adaptive(file).decode(source, Limits(max_length=3), capacity=2)  # other limits are measured for themselves
    assert adaptive(file).start(2, Limits(), 6)._block == 1  # as a server starts one
    adaptive(file, {**ABOUT, "device": "another"}).decode(source, capacity=2)
    assert len(asked) == 4


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"format": 1}', b'{"format": 2, "about": {}, "lengths": {}}', "lengths", "table"],
)
def test_a_damaged_file_is_measured_anew(tmp_path, monkeypatch, content):
    asked: list[int] = []
    monkeypatch.setattr(decoders, "timed", lambda lengths, run: asked.append(len(lengths)) or {1: 1.0})
    file, source = tmp_path / "lengths.json", random_source(2, 6, seed=3)
    if content == "lengths":
        content = json.dumps({"format": 1, "about": ABOUT, "lengths": [1]}).encode()
    elif content == "table":
        content = json.dumps({"format": 1, "about": ABOUT, "lengths": {"a": "b"}}).encode()
    file.write_bytes(content)
    for _ in range(2):
        adaptive(file).decode(source)
    assert len(asked) == 1


def test_what_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    monkeypatch.setattr(decoders, "timed", lambda lengths, run: {1: 1.0})
    (tmp_path / "a file").touch()
    adaptive(tmp_path / "a file" / "lengths.json").decode(random_source(2, 6, seed=3))
    adaptive(tmp_path).decode(random_source(2, 6, seed=3))  # a folder stands in its place
