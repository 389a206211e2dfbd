"""The results page: parts in a reader's order, contents that lead somewhere, machines told once."""

from __future__ import annotations

import dataclasses
import re

from hypothesis import given
from hypothesis import strategies as st

from longstride.bench.comparison import BenchRun
from longstride.bench.notes import listed, origin_note
from longstride.bench.page import PAPERS, _anchor, results_page, sections
from longstride.bench.plots import plots
from longstride.bench.record_parts import Agreement, ModelTag, Origin, Stage
from longstride.bench.records import Contrastive, Distillation, Exactness, Profile, Quality, Record, Training
from longstride.bench.sources import page as page_of
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


def test_parts_stand_in_a_readers_order() -> None:
    page = results_page(everything())
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [
        *(
            "Comparisons",
            *(page_of(name).title for name in PAPERS),
            "Profiles",
            "Exactness",
            "Every setting that was scored",
        ),
        *("Training", "Distillation"),
    ]
    heads = page.index("### heads: blockwise parallel decoding")
    assert heads < page.index("### heads: chance that a drafted token stands") < page.index("## Draft and verify")
    assert results_page([]).count("\n") < 6


def test_the_contents_lead_to_every_heading_and_nowhere_else() -> None:
    page = results_page(everything())
    contents = page[: page.index("\n## ")]
    led = re.findall(r"\]\(#([^)]*)\)", contents)
    headings = re.findall(r"^###? (.*)$", page, re.MULTILINE)
    assert sorted(led) == sorted(_anchor(heading) for heading in headings)
    assert len(set(led)) == len(led)
    assert [line for line in contents.splitlines() if line.startswith("- [")][:2] == [
        "- [Comparisons](#comparisons)",
        "- [Throughput](#throughput)",
    ]
    where = "en-de test, batch size 1, Fast Device"
    assert f"  - decoders: [{where}](#decoders-en-de-test-batch-size-1-fast-device) · [" in contents


def test_lists_of_settings_are_folded_and_whole() -> None:
    page = results_page(everything())
    opened = re.findall(r"<details><summary>(\d+) settings?</summary>\n\n\|", page)
    assert sum(map(int, opened)) == sum(isinstance(one, Quality) for one in everything())
    assert page.count("\n\n</details>\n") == page.count("<details>") == len(opened)
    for name, text in sections(everything()).items():
        assert (text in page) is not name.startswith("summary/"), name


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
