"""Names of a run's candidates, shortened for tables and plots: who is who stays plain, records stay as they are."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from longstride.bench.comparison import BenchRun, shared_start
from longstride.bench.plots import plots
from longstride.bench.record_parts import Against, ModelTag
from longstride.bench.records import Latency
from longstride.bench.sources import run_table
from longstride.tasks.bootstrap import Comparison

from .conftest import make_latency

NAMES = st.lists(st.text("ab-", min_size=1, max_size=6), min_size=1, max_size=5)


@given(NAMES)
def test_what_is_left_out_is_shared_by_all_and_leaves_them_apart(names: list[str]) -> None:
    start = shared_start(names)
    assert start == "" or start.endswith("-")
    left = {name: name.removeprefix(start) for name in names}
    assert all(name == start + rest and rest for name, rest in left.items())
    assert len(set(left.values())) == len(set(names))


@given(st.lists(st.text("abc", min_size=1, max_size=3), min_size=2, max_size=5, unique=True))
def test_all_that_is_shared_is_left_out(names: list[str]) -> None:
    assert shared_start(f"en-de-{name}" for name in names) == "en-de-"


def candidate(model: str, decoder: str, role: str = "candidate", order: int = 0) -> Latency:
    made = make_latency(f"{model} {decoder}", role=role, order=order)
    found = Comparison("BLEU", "x", 25.31, 25.0, -0.31, -0.52, -0.004, 0.03, 1000, 1)
    return dataclasses.replace(
        made, model=ModelTag(model, "ab"), against=(Against("en-de-verifier greedy", 60, found),)
    )


def several() -> BenchRun:
    return BenchRun(
        (
            candidate("en-de-verifier", "greedy", "baseline"),
            candidate("en-de-drafter-2", "draft-verify", order=1),
            candidate("en-de-drafter", "draft-verify accept=top:3,gap:1", order=2),
        )
    )


def test_tables_and_plots_have_short_names_and_records_whole_ones() -> None:
    run = several()
    latency, summary = run_table("latency", run) or "", run_table("summary", run) or ""
    for table in (latency, summary):
        for words in ("| verifier greedy ", "| drafter-2 draft-verify ", "| drafter draft-verify accept=top:3,gap:1 "):
            assert words in table
        assert "The models' names begin with `en-de-`, left out here." in table
        assert table.count("en-de-") == 1
        assert "| model " not in table, "the names tell"
    assert " × verifier greedy |" in latency
    assert " BLEU − verifier greedy |" in latency
    assert " over verifier greedy |" in summary
    assert "en-de-" not in (run_table("work", run) or "")
    assert run_table("acceptance", run) is None
    assert {one.title for one in plots(run)} == {
        "BLEU against speed-up over verifier greedy",
        "Latency against source length",
        "Speed-up over verifier greedy, sentence by sentence",
    }
    assert run == several()
    assert run.shortened().shortened() == run.shortened()
    assert [one.latencies_us for one in run.shortened().records] == [one.latencies_us for one in run.records]


def test_one_model_and_peers_keep_their_names() -> None:
    alone = BenchRun((make_latency("greedy", role="baseline"), make_latency("ctranslate2 int8 greedy", order=1)))
    assert alone.shortened() == alone
    peer = dataclasses.replace(make_latency("hf fp16 greedy", order=3), model=ModelTag("en-de-verifier", "ab"))
    names = [one.candidate for one in BenchRun((*several().records, peer)).shortened().records]
    assert names == [
        "verifier greedy", "drafter-2 draft-verify", "drafter draft-verify accept=top:3,gap:1", "hf fp16 greedy",
    ]  # fmt: skip
    twin = dataclasses.replace(make_latency("verifier greedy", order=3), model=ModelTag("other", "ab"))
    both = BenchRun((*several().records, twin))
    assert both.shortened() == both, "no two may be called alike"
