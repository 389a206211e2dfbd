import dataclasses
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from longstride.bench.comparison import (
    BenchRun,
    bench_runs,
    groups_of_one_precision,
    paired_times,
    quality_groups,
    slug,
    speed_up,
)
from longstride.bench.notes import sample_notes
from longstride.bench.record_files import from_line, to_line
from longstride.bench.record_parts import Against, Counts, Preparation, WorkloadTag
from longstride.bench.records import Distillation, Quality, Record, Training
from longstride.bench.sources import list_table, run_table, settings_table
from longstride.tasks.bootstrap import Comparison
from longstride.tasks.score import Score

from .conftest import make_latency, make_origin, make_quality, table_rows

BLEU = Score("BLEU", 25.5, "tok:13a")


def bench_run(batch_size: int = 1) -> BenchRun:
    records = [
        make_latency("greedy", 1.0, 25.31, "baseline", 0, batch_size=batch_size),
        make_latency("beam-5", 0.4, 25.9, "baseline", 1, batch_size=batch_size),
        make_latency("fast", 3.0, 25.0, "candidate", 2, batch_size=batch_size),
        make_latency("peer", 0.3, 25.3, "candidate", 3, batch_size=batch_size, sample=tuple(range(0, 60, 4))),
    ]
    found = Comparison("BLEU", "x", 25.31, 25.0, -0.31, -0.52, -0.004, 0.03, 1000, 1)
    records[0] = dataclasses.replace(records[0], against=(Against("beam-5", 60, found),))
    records[2] = dataclasses.replace(records[2], against=(Against("beam-5", 60, found), Against("greedy", 60, found)))
    (only,) = bench_runs(records)
    return only


def table_of(name: str, run: BenchRun) -> str:
    return run_table(name, run) or ""


def list_of(name: str, records: Sequence[Record]) -> str:
    return list_table(name, records) or ""


def cells(table: str, row: str) -> list[str]:
    (found,) = [cells for cells in table_rows(table) if cells[0] == row]
    return found


def test_speed_ups_are_over_both_baselines_of_the_run() -> None:
    table = table_of("latency", bench_run())
    heading = cells(table, "decoder")
    row = dict(zip(heading, cells(table, "fast"), strict=True))
    ratio = speed_up(bench_run().records[2], bench_run().records[0])
    assert ratio is not None
    assert row["× greedy"] == f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    assert row["× beam-5"].startswith(f"{speed_up(bench_run().records[2], bench_run().records[1]).value:.2f} ")  # type: ignore[union-attr]
    assert "BLEU − beam-5" not in row, "differences are from the first baseline"
    assert row["BLEU − greedy"] == "−0.31 (−0.52 to 0.00)"
    assert dict(zip(heading, cells(table, "greedy"), strict=True))["× greedy"] == "1.00 (1.00 to 1.00)"


def test_the_notes_say_what_a_fair_reader_asks() -> None:
    told = table_of("latency", bench_run())
    for words in (
        "60 sentences",
        "3 passes",
        "fp16",
        "tok:13a",
        "Fast Device",
        "commit 0123456789",
        "† peer: on a fixed",
    ):
        assert words in told
    assert "uncommitted" not in told
    assert "In brackets: 95 % intervals" in told
    assert "In brackets" not in table_of("summary", bench_run()), "there are none"
    dirty = dataclasses.replace(bench_run().records[0], origin=dataclasses.replace(make_origin(), dirty=True))
    assert "uncommitted" in table_of("latency", BenchRun((dirty,)))


def test_rendering_again_gives_the_same_bytes() -> None:
    again = BenchRun(tuple(from_line(to_line(record)) for record in bench_run().records))  # type: ignore[misc]
    for name in ("latency", "work", "summary", "acceptance"):
        assert run_table(name, bench_run()) == run_table(name, again)


def test_batches_show_throughput_and_no_percentiles() -> None:
    table = table_of("latency", bench_run(batch_size=8))
    assert "tokens/s" in table
    assert "p99" not in table
    assert "8 at a time" in table
    assert cells(table, "peer †")[-2:] == ["·", "·"], "batches of a sample are other batches"


def test_work_shows_counts_agreement_and_memory() -> None:
    table = table_of("work", bench_run())
    row = dict(zip(cells(table, "decoder"), cells(table, "fast"), strict=True))
    counts = bench_run().records[2].counts
    assert counts is not None
    assert row["tokens/iteration"] == f"{counts.tokens / counts.iterations:.2f}"
    assert row["differ from greedy"] == "3 of 60"
    assert row["memory, MiB"] == "1,152 (+128)"
    assert row["repetition, %"] == "0.18"


def test_work_shows_what_had_to_be_waited_for_where_records_say() -> None:
    assert "warm-up" not in table_of("work", bench_run()).lower(), "older records do not"
    greedy, beam, fast, peer = bench_run().records
    prepared = [
        dataclasses.replace(greedy, preparation=Preparation(12.34, 9.87, 14, 3 * 2**20, 2**20)),
        dataclasses.replace(beam, preparation=Preparation(3.21, 0.0, 0, 0, 0)),
        dataclasses.replace(fast, preparation=Preparation(0.5)),
        peer,
    ]
    table = table_of("work", BenchRun(tuple(prepared)))
    columns = ["warm-up, s", "capturing, s", "graphs", "graphs and tables, MiB"]
    places = [cells(table, "decoder").index(column) for column in columns]
    assert [[cells(table, name)[place] for place in places] for name in ("greedy", "beam-5", "fast", "peer †")] == [
        ["12.3", "9.9", "14", "4"],
        ["3.2", "0.0", "0", "0"],
        ["0.5", "·", "·", "·"],
        ["·", "·", "·", "·"],
    ]
    assert "Warm-up: 16 sentences before the clock ran. Capturing, graphs and what they hold: what it added" in table
    eager = table_of("work", BenchRun(tuple(prepared[2:])))
    assert "warm-up, s" in eager
    assert "apturing" not in eager


def test_acceptance_by_place_in_the_block() -> None:
    counts = Counts(10, 10, 20, 21, 30, 12, (10, 10, 10), (10, 8, 4), (8, 4), ())
    drafting = dataclasses.replace(bench_run().records[2], counts=counts)
    table = run_table("acceptance", BenchRun((bench_run().records[0], drafting)))
    assert table is not None
    assert cells(table, "fast") == ["fast", "30", "40.0%", "0.80", "0.50", "0.00"]
    assert run_table("acceptance", BenchRun(bench_run().records[:1])) is None


def test_pairs_are_of_the_same_sentences() -> None:
    greedy, _, _, peer = bench_run().records
    pairs = paired_times(peer, greedy)
    assert len(pairs) == 15
    assert pairs[1][0] == sum(readings[4] for readings in greedy.latencies_us) / 3


def test_the_latest_run_stands_for_an_experiment() -> None:
    early, late = make_origin(run="a", date="2024-01-01"), make_origin(run="b", date="2024-02-01")
    other = make_origin("another experiment", run="c", date="2023-01-01")
    records = [make_latency("greedy", origin=origin, order=0) for origin in (late, early, other)]
    assert [one.origin.run for one in bench_runs(records)] == ["c", "b"]


def test_races_have_names_for_files() -> None:
    assert bench_run().name == "decoders-en-de-test-fast-device-batch-1"
    assert slug("A/b  C_ß×1") == "a-b-c-1"


def test_quality_table_keeps_the_latest_of_each() -> None:
    tag = WorkloadTag("valid", "cd", 2000)
    counts = Counts(4000, 6000, 8000, 10000)

    def one(name: str, value: float, date: str, order: int = 0) -> Quality:
        more = {"order": order, "counts": counts, "paper": "k=8: 24.9"}
        return make_quality(name, "d", value, "m", date=date, workload=tag, **more)

    (group,) = quality_groups(
        [one("b", 1.0, "2024-01-01", 1), one("b", 2.0, "2024-02-01", 1), one("a", 3.0, "2023-01-01")]
    )
    table = settings_table(group)
    assert [record.candidate for record in group] == ["a", "b"]
    row = dict(zip(cells(table, "decoder"), cells(table, "b"), strict=True))
    assert (row["BLEU"], row["iterations"], row["tokens/iteration"], row["paper"]) == (
        "2.00",
        "2.00",
        "2.00",
        "k=8: 24.9",
    )


RUNS = st.tuples(
    st.sampled_from(["e", "f"]), st.sampled_from(["test", "valid"]), st.sampled_from(["greedy", "beam"]),
    st.sampled_from(["m", "n"]), st.sampled_from(["fp32", "int8"]), st.integers(1, 9),
)  # fmt: skip


@given(st.lists(RUNS, unique=True))
def test_only_the_same_of_the_same_precision_is_a_repeat(runs: list[tuple[str, str, str, str, str, int]]) -> None:
    """Per experiment, test set, candidate, model and precision the latest, and nothing else."""
    records = [
        make_quality(
            *(name, "d", 25.0, model, experiment, f"2024-01-0{day}", WorkloadTag(set, "cd", 9)),
            precision=precision,
        )
        for experiment, set, name, model, precision, day in runs
    ]
    found = [one for group in quality_groups(records) for one in group]
    kept = {(one.origin.experiment, one.workload.name, one.candidate, one.model.name, one.precision) for one in found}
    assert kept == {run[:5] for run in runs}
    assert len(found) == len(kept)
    for one in found:
        place = (one.origin.experiment, one.workload.name, one.candidate, one.model.name, one.precision)
        assert one.origin.date.endswith(str(max(run[5] for run in runs if run[:5] == place)))
    alone = [{one.precision for one in group} for group in groups_of_one_precision(records)]
    assert all(len(precisions) == 1 for precisions in alone)
    assert sum(map(len, groups_of_one_precision(records))) == len(found)
    places = [(group[0].origin.experiment, group[0].workload.name) for group in groups_of_one_precision(records)]
    assert len(set(places)) == len(places), "each has a name of its own"


def test_training_and_distillation_tables() -> None:
    training = [
        Training(make_origin(date=date), "teacher", "r.yaml", 52_000_000, 10_000, minutes, 530_000.0, (BLEU,))
        for date, minutes in (("2024-01-02", 6.5), ("2024-01-01", 9.0))
    ]
    table = list_of("training", training)
    row = dict(zip(cells(table, "run"), cells(table, "teacher"), strict=True))
    assert (row["minutes"], row["target tokens/s"], row["BLEU, valid"]) == ("6.5", "530,000", "25.50")
    assert "paper" not in row, "a column without anything to say is left out"
    distilled = Distillation(make_origin(), "train", "teacher", "beam|width:5", 600_000, 5.0, "ef" * 32)
    table = list_of("distillation", [distilled])
    assert "2,000" in table, "sentences per second"
    assert "`beam\\|width:5`" in table
    assert list_of("distillation", [distilled, distilled]) == table
    rest = dataclasses.replace(distilled, decoded=150_000, notes={"gpu": "shared"})
    table = list_of("distillation", [rest])
    assert "500 ‡" in table, "what an earlier run decoded took none of this one's time"
    assert "‡ beside other runs" in table
    assert "‡" not in list_of("training", training)
    assert "6.5 ‡" in list_of("training", [dataclasses.replace(training[0], notes={"gpu": "shared"})])


def test_what_was_measured_alike_shares_one_note() -> None:
    one, other = ("a", 200, 1), ("b", 200, 1)
    assert sample_notes([one, other]) == [
        "† all: on a fixed sample of 200 sentences, 1 pass; ratios to them are over those."
    ]
    assert sample_notes([one, ("whole", None, 3), other]) == [
        "† a, b: on a fixed sample of 200 sentences, 1 pass; ratios to them are over those."
    ]
    assert [note[:5] for note in sample_notes([one, ("b", 200, 2)])] == ["† a: ", "† b: "]
