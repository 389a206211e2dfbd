"""The pages of results: topics in a reader's order, links that lead somewhere, machines told once."""

from __future__ import annotations

import csv
import dataclasses
import os
import re

from hypothesis import given
from hypothesis import strategies as st

from longstride.bench.comparison import BenchRun
from longstride.bench.findings import findings
from longstride.bench.notes import listed, origin_note
from longstride.bench.page import PAPERS, _anchor, drawings, results_pages, sections
from longstride.bench.plots import plots
from longstride.bench.record_parts import Agreement, Equality, ModelTag, Origin, Stage
from longstride.bench.records import Contrastive, Distillation, Exactness, Profile, Quality, Record, Training
from longstride.bench.sources import page as page_of
from longstride.bench.table import Column, comma_separated, markdown
from longstride.tasks.contrastive import Cell

from .conftest import TEST, make_latency, make_origin
from .test_draft_tables import blockwise, drafted
from .test_parallel_tables import interleaved, lattice, transformer
from .test_tables import BLEU, bench_run

TAG = ModelTag("m")


def everything() -> list[Record]:
    return [
        Distillation(make_origin(), "train", "teacher", "beam|width:5", 600_000, 5.0, "ef" * 32),
        Training(make_origin(), "teacher", "r.yaml", 52_000_000, 10, 6.5, 5e5, (BLEU,)),
        Exactness(
            make_origin(), "blockwise", "blockwise|k:8", TAG, TEST, 8, Agreement("g", 9, 0), Agreement("g", 9, 0)
        ),
        Profile(make_origin(), "greedy", "greedy", TAG, TEST, 1, 1, (9,), 9, (Stage("verify", 3, 5),)),
        Contrastive(make_origin(), "greedy", TAG, TEST, "pairs", (Cell("all", 1, 9, 8),)),
        *(lattice("en-de-lattice", k, 3, 24.0 + k / 100) for k in (1, 16, 64)),
        transformer("en-de-kd", 4, 25.0, 30.5, "distilled"),
        interleaved("en-de-ib-kd", 2, 1, 4, 24.6, 15.0, "distilled"),
        *(drafted("d", 25, 25.0, 5.0, accept=accept) for accept in ("exact", "top:3,gap:1.0", "top:3,gap:2.0")),
        *(dataclasses.replace(one, origin=make_origin("heads")) for one in (blockwise("a", 4, 25.0, 2.0),)),
        *(dataclasses.replace(blockwise(m, 8, 25.0, 2.0), origin=make_origin("heads")) for m in ("a", "b")),
        *bench_run().records,
        *bench_run(8).records,
    ]


def test_topics_stand_in_a_readers_order() -> None:
    pages = results_pages(everything())
    topics = ["comparisons", *PAPERS, "profiles", "exactness", "settings", "training", "distillation"]
    assert [name for name in pages if name.endswith(".md")] == ["results.md", *(f"results/{one}.md" for one in topics)]
    for name in topics:
        assert pages[f"results/{name}.md"].startswith(f"# {page_of(name).title}\n\n{page_of(name).introduction}\n")
        assert f"- [{page_of(name).title}](results/{name}.md). " in pages["results.md"]
    heads = pages["results/blockwise.md"]
    assert heads.index("## heads: blockwise parallel") < heads.index("## heads: chance that a drafted token stands")
    assert list(results_pages([])) == ["results.md"]
    assert results_pages([])["results.md"].count("\n") < 6


def test_links_lead_to_pages_tables_and_headings() -> None:
    pages = results_pages(everything())
    figures = {f"figures/{plot.name}.svg" for plot in drawings(everything())}
    led = set()
    for name, text in pages.items():
        for link in re.findall(r"\]\(([^)]*)\)", text) if name.endswith(".md") else ():
            place, _, heading = os.path.normpath(os.path.join(os.path.dirname(name), link)).partition("#")
            assert place in pages or place in figures, link
            assert not heading or heading in map(_anchor, re.findall(r"^## (.*)$", pages[place], re.MULTILINE)), link
            led.add(place)
    assert {name for name in pages if name != "results.md"} | figures == led


def test_every_table_stands_on_a_page_or_in_a_file() -> None:
    pages = results_pages(everything())
    texts, files = ("".join(text for name, text in pages.items() if name.endswith(end)) for end in (".md", ".csv"))
    for name, text in sections(everything(), "../").items():
        if not (name.startswith(("summary/", "work/", "acceptance/")) and name.endswith("batch-8")):
            assert text in texts or name.startswith("figure/") or comma_separated(text) in files, name


def test_all_settings_that_were_scored_are_listed() -> None:
    pages = results_pages(everything())
    told = re.findall(r"\[(\d+) settings?\]", pages["results/settings.md"])
    assert sum(map(int, told)) == sum(isinstance(one, Quality) for one in everything())


def test_comma_separated_values_are_those_of_the_table() -> None:
    columns = [Column("a, b", ["1", "two | three"], False), Column("c", ["4.00", "·"])]
    text = comma_separated(markdown(columns) + "\nWhat it is.\n")
    assert list(csv.reader(text.splitlines())) == [["a, b", "c"], ["1", "4.00"], ["two | three", "·"], ["What it is."]]


def test_findings_are_the_fastest_and_the_fastest_that_is_the_same() -> None:
    same = Equality("greedy", 60, 0)
    baseline = make_latency("greedy", role="baseline")
    speeds = {"lossless": (2, same), "slower": (1, same), "other": (3, dataclasses.replace(same, differing=1))}
    records = [baseline]
    for order, (name, (speed, equality)) in enumerate(speeds.items()):
        times = tuple(tuple(time / speed for time in one) for one in baseline.latencies_us)
        records.append(
            dataclasses.replace(
                baseline, candidate=name, role="candidate", order=order, equality=equality, latencies_us=times
            )
        )
    (row,) = [
        line for line in findings([BenchRun(tuple(records))], lambda run: "there")[1].splitlines() if "(there)" in line
    ]
    *_, best_same, best = [cell.strip() for cell in row.strip("|").split("|")]
    assert best_same.startswith("2.00×: lossless: ")
    assert best.startswith("3.00×: other: ")
    assert findings([], lambda run: "there") == []


def at(threads: int, commit: str, date: str, dirty: bool = False, device: str = "Fast Device") -> Origin:
    made = make_origin(date=date)
    machine = dataclasses.replace(made.machine, threads=threads, device=device)
    return dataclasses.replace(made, commit=commit, dirty=dirty, machine=machine)


def test_a_machine_is_told_once() -> None:
    origins = [
        at(16, "b" * 40, "2024-05-02"), at(2, "a" * 40, "2024-05-01"), at(2, "a" * 40, "2024-05-01"),
        at(2, "c" * 40, "2024-05-02", dirty=True),
    ]  # fmt: skip
    assert origin_note(origins) == (
        "Fast Device (Some CPU), 2 and 16 CPU threads, PyTorch 2.13.0, Longstride 0.1.0, "
        "commits aaaaaaaaaa, bbbbbbbbbb and cccccccccc with uncommitted changes, 2024-05-01 and 2024-05-02."
    )
    assert origin_note(origins[:1]).count("commit bbbbbbbbbb, 2024-05-02.") == 1
    assert "commit unknown," in origin_note([at(2, "", "2024-05-01")])


@given(
    st.lists(
        st.builds(
            at,
            st.sampled_from([2, 16]),
            st.sampled_from(["a" * 12, "b" * 12]),
            st.sampled_from(["2024-05-01", "2024-05-02", "2024-05-03"]),
            st.booleans(),
            st.sampled_from(["Fast Device", "Slow Device"]),
        ),
        min_size=1,
    )
)
def test_every_origin_is_told_whatever_the_order(origins: list[Origin]) -> None:
    note = origin_note(origins)
    for device in ("Fast Device", "Slow Device"):
        mine = [one for one in origins if one.machine.device == device]
        assert note.count(device) == bool(mine)
        for one in mine:
            assert one.commit[:10] in note
            assert str(one.machine.threads) in note


def test_words_are_listed() -> None:
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_scores_of_the_same_sample_can_be_compared() -> None:
    few = tuple(range(0, 60, 4))
    greedy, fast = make_latency("greedy", role="baseline", sample=few), make_latency("fast", order=1, sample=few)
    whole = make_latency("whole", order=2)
    assert plots(BenchRun((greedy, fast, whole)))[0].name.endswith("-quality")
    assert plots(BenchRun((greedy, whole)))[0].name.endswith("-lengths")
