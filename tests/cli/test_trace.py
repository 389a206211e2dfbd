"""How outputs came about, told to people and to programs; copy-verify and correction through the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from longstride.cli import translate
from longstride.cli.tracing import cells_of, sentence_rows, summary_lines
from longstride.contract import EOS, Event, Trace
from tests.cli.conftest import Run

WORDS = {EOS: "</s>", 5: "He", 6: "go", 7: "went", 8: "to", 9: "school", 10: "."}
LINES = b"a b c\n\nt s r q p\nb b b\n"


def pieces(ids: Sequence[int]) -> list[str]:
    return [WORDS[id] for id in ids]


def event(start: int, ids: list[int], draft: list[int], accepted: int) -> Event:
    return Event(tuple(range(start, start + len(ids))), tuple(ids), len(draft), accepted, True, tuple(draft))


PARTED = event(0, [5, 7], [5, 6, 8, 9, 10, EOS], 1)
ALONE = event(2, [8], [], 0)
ENDED = event(3, [9, 10, EOS], [9, 10, EOS], 3)
TRACE = Trace((PARTED, ALONE, ENDED))


def shown(trace: Trace, width: int = 100, coloured: bool = False) -> list[str]:
    return [row.plain for row in sentence_rows(trace, pieces, width, coloured)]


def test_a_sentence_is_told_as_the_papers_print_it():
    assert shown(TRACE) == [
        "       1  drafted   He go   to school . </s>",
        "          verified  He went",
        "                       ^^^^",
        "       2  written   to",
        "       3  drafted   school . </s>",
        "          verified  school . </s>",
    ]


def test_the_page_on_tracing_shows_just_this():
    page = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text()
    assert "\n".join(shown(TRACE)) in page
    assert (
        summary_lines([TRACE], [[]], 0)[0]
        .removeprefix("1 sentence: ")
        .startswith("3 iterations, 2.00 tokens each; 4 of 9 drafted tokens stood")
    )


def test_colours_say_what_the_mark_says():
    rows = list(sentence_rows(Trace((PARTED,)), pieces, 100, coloured=True))
    assert len(rows) == 2
    drafted, verified = (
        {row.plain[span.start : span.end].strip(): str(span.style) for span in row.spans} for row in rows
    )
    assert (drafted["He"], drafted["go"], drafted["to"], drafted["</s>"]) == ("green", "bold red", "dim", "dim")
    assert (verified["He"], verified["went"]) == ("bold green", "bold")


def test_iterations_without_a_draft_are_put_together():
    greedy = Trace(tuple(event(place, [id], [], 0) for place, id in enumerate((5, 7, 8, EOS))))
    assert shown(greedy) == ["     1-4  written   He | went | to | </s>"]


def test_places_are_named_where_they_are_not_in_order():
    both_ends = Event((0, 5), (5, 10), 0, 0, True)
    assert shown(Trace((both_ends,))) == ["       1  written   He@0 .@5"]


def test_nothing_parts_where_all_stood_or_the_end_was_in_the_draft():
    whole = event(0, [5, 7, 8], [5, 7], 2)
    ended = event(0, [5, EOS], [5, EOS, 9, 9], 2)
    assert not any(cell.parted for one in (whole, ended) for cell in cells_of(one, pieces))
    assert shown(Trace((whole,))) == ["       1  drafted   He went", "          verified  He went to"]


TREE = Event((0, 1), (5, 7), 7, 1, True, (5, 6, 8, 8, EOS, 9, 10), (0, 1, 2, 0, 3, 1, 5))
"""He { go to </s> . | school }, to: what follows an end is nothing."""


def test_of_a_tree_the_branch_that_stood_is_told_and_the_others_beside_it():
    assert TREE.branch == (0, 1, 2, 4, 6)
    assert shown(Trace((TREE,))) == [
        "       1  drafted   He go   to </s>",
        "          verified  He went",
        "                       ^^^^",
        "          beside    1 to | 2 school",
    ]
    other = replace(TREE, ids=(5, 9, 10), positions=(0, 1, 2), accepted=2)
    assert shown(Trace((other,))) == [
        "       1  drafted   He school",
        "          verified  He school .",
        "          beside    2 go to </s> | 1 to",
    ]
    branching = replace(other, draft=(5, 6, 8, 9, EOS, 9, 10), parents=(0, 1, 2, 2, 3, 1, 6))
    assert shown(Trace((branching,)))[-1] == "          beside    2 go to </s> | 3 (go) school"
    assert all(len(row) <= 42 for row in shown(Trace((other,)), width=42))
    assert summary_lines([Trace((TREE, other))], [[]], 0)[-1].split() == ["stood", "100%", "50%"]


def test_the_page_on_tracing_shows_a_tree_so():
    page = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text()
    assert "\n".join(shown(Trace((TREE,)))) in page


def test_what_is_drafted_behind_an_end_is_neither_shown_nor_counted():
    ended = event(0, [5, EOS], [5, EOS, 9, 9], 2)
    assert shown(Trace((ended,))) == ["       1  drafted   He </s>", "          verified  He </s>"]
    assert summary_lines([Trace((ended,))], [[5]], 0)[-1].split() == ["stood", "100%", "100%"]


def test_long_blocks_are_broken_and_stay_below_each_other():
    long = event(0, [5, 7] * 12, [5, 7] * 12, 24)
    rows = shown(Trace((long,)), width=60)
    assert len(rows) > 2
    assert all(len(row) <= 60 for row in rows)
    assert [row[20:] for row in rows[::2]] == [row[20:] for row in rows[1::2]]
    assert sum("1  drafted" in row for row in rows) == 1


def test_wide_characters_keep_columns():
    wide = {5: "日本", 6: "a", 7: "b", 8: "c"}
    rows = list(
        sentence_rows(Trace((event(0, [6, 8], [5, 7], 0),)), lambda ids: [wide[id] for id in ids], 100, coloured=True)
    )
    assert [row.plain[20:] for row in rows] == ["日本 b", "a    c"]


def test_what_traces_add_up_to():
    told = summary_lines([TRACE], [[5, 7, 8, 9, 10]], 4)
    assert told[0] == (
        "1 sentence: 3 iterations, 2.00 tokens each; 4 of 9 drafted tokens stood; "
        "6 tokens with the ends, 4 model calls; mean accepted block 2.50"
    )
    assert told[-1].split() == ["stood", "100%", "50%", "100%"]
    assert len(summary_lines([Trace((ALONE,))], [[8]], 2)) == 1


def test_showing_leaves_the_translations_alone(run: Run, model: Path) -> None:
    how = ["translate", "-m", model, "--runtime", "eager", "--decoder", "copy-verify", "--set", "k=3"]
    silent, told = run(*how, stdin=LINES), run(*how, "--show-trace", stdin=LINES)
    assert told.code == 0
    assert told.out == silent.out
    assert silent.err == ""
    assert [int(line.split()[0]) for line in told.err.splitlines() if re.match(r" +\d+  [abt]( |$)", line)] == [1, 3, 4]
    assert "\x1b" not in told.err
    assert "3 sentences: " in told.err
    assert " model calls" in told.err
    assert "by its place in the block" in told.err


@pytest.mark.parametrize("decoder", ["greedy", "beam"])
def test_decoders_without_drafts_can_be_shown_too(run: Run, model: Path, decoder: str) -> None:
    ran = run("translate", "-m", model, "--decoder", decoder, "--show-trace", stdin=LINES)
    assert ran.code == 0
    assert "written" in ran.err
    assert "drafted" not in ran.err


def test_nothing_to_show_is_nothing_shown(run: Run, model: Path) -> None:
    assert run("translate", "-m", model, "--runtime", "eager", "--show-trace", stdin=b"\n").err == ""


def test_a_terminal_gets_colours(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(stderr=True, force_terminal=True, color_system="standard", no_color=False, width=90)
    monkeypatch.setattr(translate, "err", console)
    ran = run("translate", "-m", model, "--decoder", "copy-verify", "--show-trace", stdin=b"a b c d\n")
    assert "\x1b[1;31m" in ran.err or "\x1b[32m" in ran.err
    assert "^" not in ran.err


def test_the_file_tells_drafts_in_pieces(run: Run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    how = ["translate", "-m", model, "--decoder", "copy-verify", "--set", "k=2"]
    assert run(*how, "--trace", file, "--show-trace", stdin=LINES).code == 0
    first = json.loads(file.read_text().splitlines()[0])["trace"]["steps"][0]
    assert first["draft_pieces"] == ["a", "b"]
    assert first["drafted"] == 2
    assert len(first["pieces"]) == len(first["ids"])


def test_copy_verify_says_what_greedy_says(run: Run, model: Path) -> None:
    greedy = run("translate", "-m", model, "--decoder", "greedy", "--precision", "fp64", stdin=LINES)
    for k in ("1", "4", "30"):
        ran = run(
            "translate", "-m", model, "--decoder", "copy-verify", "--set", f"k={k}", "--precision", "fp64", stdin=LINES
        )
        assert (ran.code, ran.out) == (0, greedy.out)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("k=0", "copy-verify: k expects a whole number from 1 to 1024, found 0."),
        ("k=many", "k expects a whole number from 1 to 1024, found 'many'."),
        ("accept=nearly", "accept: expected exact, top:B, top:B,gap:T or distance:E, found 'nearly'."),
        ("accept=top:0", "top expects a whole number from 1 to 1000000, found 0."),
        ("accept=top:3,gap:-1", "gap expects a number of 0 or more, found -1.0."),
        ("min_block=0", "min_block expects a whole number from 1 to 1025, found 0."),
        ("min_block=18", "min_block expects 1 to k + 1 (17), found 18."),
        ("adaptive=perhaps", "'adaptive' expects bool, found 'perhaps'."),
        ("suffix=0", "suffix expects a whole number from 1 to 1024, found 0."),
        (
            "width=3",
            "The decoder copy-verify has no option 'width' (the decoders beam, draft-beam, interleaved have width: --d",
        ),
    ],
)
def test_bad_options_are_told_in_one_sentence(run: Run, model: Path, setting: str, told: str) -> None:
    assert told in run("translate", "-m", model, "--decoder", "copy-verify", "--set", setting, stdin=LINES).error


def test_decoders_tells_of_copy_verify_though_the_folder_does_not(run: Run, model: Path) -> None:
    assert "copy-verify: the source as the draft" in run("decoders", "-m", model).out
    assert "min_block" in run("decoders", "copy-verify", "-m", model).out


def test_corrections_are_scored_against_all_references(run: Run, model: Path, tmp_path: Path) -> None:
    for name, text in (("src", "a x b c\nd e\n"), ("one", "a b c d\nd e\n"), ("two", "a b b c\nd e f\n")):
        (tmp_path / name).write_text(text)
    both = ["-r", tmp_path / "one", "-r", tmp_path / "two"]
    how = ["evaluate", "-m", model, "-s", tmp_path / "src", "--device", "cpu", "--decoder", "copy-verify"]
    ran = run(*how, "--task", "correction", *both, "--against", tmp_path / "one", "--record", tmp_path / "record")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert [score["name"] for score in found["scores"]][:3] == ["GLEU", "GLEU (source)", "changed"]
    assert "references:2" in found["scores"][0]["signature"]
    assert [one["metric"] for one in found["against"]["comparisons"]] == ["GLEU"]
    assert "Record appended" in ran.err
    assert "expects one --reference, found 2" in run(*how, *both).error
    assert (
        "--task expects translation, correction, summarization or super-resolution, found 'poetry'"
        in run(*how, *both, "--task", "poetry").error
    )
    short = tmp_path / "short"
    short.write_text("a\n")
    assert "found 2 in" in run(*how, "--task", "correction", *both, "-r", short).error
