"""The demo: a screen of sentences and times, every decoder with --all, for people and for pipes."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import longstride
from longstride.cli import demo, demo_page
from longstride.contract import Event, InputError, Trace
from longstride.translator import Translation, Translator
from tests.cli.conftest import Run
from tests.family import DECODERS, write_family
from tests.folders import write_folder

BUNDLED = Path(longstride.__file__).parent / "bundled"
RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "bundled"
PAIRS = (("a b c", "a b c"), ("d e", "e d"), ("f f a b c d", "f"))


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every decoder there is, on random weights, with sentences of its own."""
    path = write_family(tmp_path_factory.mktemp("models") / "family")
    (path / demo.EXAMPLES).write_text("".join(f"{source}\t{reference}\n" for source, reference in PAIRS))
    return path


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is that runs the tests."""
    monkeypatch.setattr(demo, "ENOUGH", float("inf"))
    monkeypatch.setattr(demo, "PASSES", 1)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "plain")


def test_sentences_are_held_out_from_the_training_of_the_bundled_model() -> None:
    pairs = demo.examples(BUNDLED)
    assert len({source for source, _ in pairs}) == len(pairs) >= 5
    # family/mix.py leaves these out of the corpus
    assert (BUNDLED / demo.EXAMPLES).read_text() == (RECIPES / "en-de" / demo.EXAMPLES).read_text()


def test_one_screen_shows_the_best_of_the_exact_decoders_and_a_table(run: Run, family: Path) -> None:
    ran = run("demo", "-m", family)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    best = lines[0].removeprefix("By ").partition(".")[0]
    assert best in ("greedy", "blockwise", "draft-verify"), "whatever is the fastest here, it writes greedy's output"
    for source, _ in PAIRS:
        assert f"\n{source}\n  {best}: " in ran.out
    assert "step by step" not in ran.out
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["decoder", "sentence"])
    rows = [line.split() for line in lines[head + 1 : lines.index("", head)]]
    shown = {row[0] for row in rows if len(row) > 2 and row[0] != "No"}
    slower = [row for row in rows if row[:2] == ["No", "faster"]]
    left_out = " ".join(slower[0]).partition(": ")[2].removesuffix(" (--all shows them).").split(", ") if slower else []
    assert {*shown, *left_out} - {"CTranslate2,"} == set(DECODERS)
    assert "greedy" in shown
    assert max(len(line) for line in lines[head - 1 : head + 1 + len(rows)]) <= 120
    assert lines[-1].startswith(
        f"{best} wrote what greedy search writes" if best != "greedy" else "No decoder that writes"
    )


def test_every_sentence_is_shown_by_every_decoder_with_steps_and_times(run: Run, family: Path) -> None:
    ran = run("demo", "-m", family, "--all")
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out
    for source, reference in PAIRS:
        assert f"\n{source}\n" in ran.out
        assert f"\n  a person: {reference}\n" in ran.out
    for decoder in DECODERS:
        assert ran.out.count(f"\n  {decoder}: ") == len(PAIRS)
    assert ran.out.index("  greedy: ") < ran.out.index("  blockwise: ")
    assert ran.out.count(" tokens each, ") == len(DECODERS) * len(PAIRS)
    assert "1 iteration, " in ran.out, "a lattice is searched once"
    assert ran.out.count("same as greedy") >= 2 * len(PAIRS), "what verifies writes what greedy writes"
    # Some are shown step by step.
    for decoder in demo_page.TRACED:
        assert ran.out.count(f"\n{decoder}, step by step\n    1  a b c\n") == 1
    # A table tells time and agreement.
    lines = ran.out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:3] == ["decoder", "same", "shared"])
    rows = {line.split()[0]: line.split()[1:] for line in lines[head + 1 : head + 1 + len(DECODERS)]}
    assert set(rows) == set(DECODERS)
    assert rows["greedy"][:4] == ["3", "of", "3", "100"]
    assert rows["greedy"][-1] == "1.00"
    assert rows["draft-verify"][:4] == ["3", "of", "3", "100"]
    assert all(float(row[-2]) > 0 for row in rows.values())


def shown(decoder: str, *sentences: tuple[str, float]) -> list[demo_page.Shown]:
    return [
        demo_page.Shown(decoder, Translation(text, tokens=tuple(text.encode())), Trace(()), ms)
        for text, ms in sentences
    ]


def told(columns: demo_page.Columns, width: int) -> str:
    console = Console(file=StringIO(), width=width)
    translator = SimpleNamespace(text=lambda rows: [bytes(row).decode() for row in rows])
    pairs = [("one", "eins")] * len(next(iter(columns.values())))
    demo_page.show(console, translator, pairs, columns, everything=False)  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_says_who_gains_over_whom_and_the_headline_what_is_exact(width: int) -> None:
    columns = {
        "greedy": shown("greedy", ("a b", 10.0), ("c d", 30.0)),
        "draft-verify": shown("draft-verify", ("a b", 5.0), ("c d", 15.0)),
        "draft": shown("draft", ("a x", 2.0), ("c d", 6.0)),
        "lattice": shown("lattice", ("a b", 50.0), ("c d", 60.0)),
        demo_page.OTHER: shown(demo_page.OTHER, ("a b", 40.0), ("c d", 50.0)),
    }
    lines = told(columns, width).splitlines()
    assert lines[0].startswith("By draft-verify. "), "draft is faster, and not exact"
    table = [line.split() for line in lines if line.strip()]
    assert ["draft", "4.0", "5.0", "11.2", "75", "%", "of", "greedy's", "words"] in table
    assert ["draft-verify", "10.0", "2.0", "4.5", "greedy's", "own"] in table
    assert ["greedy", "20.0", "1.0", "2.2"] in table
    assert ["CTranslate2,", "greedy", "45.0", "0.4", "1.0", "greedy's", "own"] in table
    assert "No faster than greedy here: lattice (--all shows them)." in lines
    text = " ".join(" ".join(lines).split())
    assert "draft-verify wrote what greedy search writes, word for word, 2.0 times as fast, and 4.5 times" in text
    assert text.endswith("(2 sentences, one at a time).")
    # without greedy's output in any faster one, nothing is claimed
    del columns["draft-verify"]
    text = " ".join(told(columns, width).split())
    assert "No decoder that writes what greedy search writes was faster than it here: drafts pay where" in text
    assert text.endswith("Greedy search was 2.2 times as fast as CTranslate2.")


def test_a_terminal_gets_colours(run: Run, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "out", Console(force_terminal=True, color_system="standard", width=120))
    ran = run("demo", "-m", family)
    assert ran.code == 0
    assert "\x1b[32m" in ran.out
    assert max(len(line) for line in re.sub(r"\x1b\[[0-9;]*m", "", ran.out).splitlines()) <= 120
    styles = [str(span.style) for span in demo_page.coloured([("a", 0), (" b c", 1), (" d", 0), ("e", 6)]).spans]
    assert styles == ["green", "cyan", "green", "green"], "the colour of the iteration, wherever it wrote"


def test_a_model_without_sentences_is_shown_the_bundled_ones(run: Run, plain: Path) -> None:
    ran = run("demo", "-m", plain)
    assert ran.code == 0
    for source, _ in demo.examples(BUNDLED):
        assert f"\n{source}\n" in ran.out
    assert "step by step" not in ran.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "examples.tsv: expected sentences to show, found none"),
        ("a b\ta b\nc d\n", "examples.tsv, line 2: expected a sentence and its translation with a tab between"),
        ("a\tb\tc\n", "line 1: expected a sentence"),
        ("\tb\n", "line 1: expected a sentence"),
    ],
)
def test_bad_sentences_are_refused(run: Run, plain: Path, text: str, told: str) -> None:
    (plain / demo.EXAMPLES).write_text(text)
    with pytest.raises(InputError):
        demo.examples(plain)
    assert told in run("demo", "-m", plain).error


def test_sentences_too_long_for_a_model_are_told_of_as_everywhere(run: Run, plain: Path) -> None:
    (plain / demo.EXAMPLES).write_text(f"{'a ' * 40}\tb\n")
    ran = run("demo", "-m", plain)
    assert (ran.code, "warning: line 1 has" in ran.err, "UserWarning" in ran.err) == (0, True, False)


def test_in_a_hurry_sentences_are_timed_once(run: Run, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PATIENCE", 0.0)
    monkeypatch.setattr(demo, "PASSES", 3)
    monkeypatch.setattr(demo, "_other", lambda translator: None)
    seen: list[str] = []
    ours = demo._ours

    def counted(translator: Translator, name: str, trace: bool = False) -> Callable[[str], Translation]:
        translate = ours(translator, name, trace)
        return lambda source: seen.append(f"{name} {trace}") or translate(source)  # type: ignore[func-returns-value]

    monkeypatch.setattr(demo, "_ours", counted)
    assert run("demo", "-m", family).code == 0
    assert all(seen.count(f"{name} {trace}") == len(PAIRS) for name in DECODERS for trace in (True, False))


def test_a_slow_machine_is_shown_less(run: Run, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ENOUGH", 0.0)
    monkeypatch.setattr(demo, "_other", lambda translator: None)
    ran = run("demo", "-m", family, "--runtime", "eager", "--all")
    assert ran.code == 0
    assert "1 of 3 sentences are shown" in ran.err
    assert ran.out.count("\n  greedy: ") == 1
    assert "CTranslate2" not in ran.out, "where it is not installed"


def test_strides_show_which_iteration_wrote_what(model: Path) -> None:
    translator = longstride.load(model, device="cpu")
    ids = tuple(translator.target_tokenizer.encode("a b c d"))
    trace = Trace(
        (
            Event((0, 3), (ids[0], ids[3]), 0, 0, True),
            Event((1,), (9,), 0, 0, False),
            Event((1, 2, 4), (ids[1], ids[2], 3), 0, 0, True),
        )
    )
    pieces = demo_page.strides(translator, Translation("a b c d", tokens=ids), trace)
    assert pieces == [("a", 0), (" b c", 2), (" d", 0)]
    assert demo_page.strides(translator, Translation("other", tokens=ids), trace) == [("other", 0)]


def test_agreement_is_a_share_of_words() -> None:
    assert demo_page.agreement("a b c d", "a b c d") == 1.0
    assert demo_page.agreement("a b c d", "a c d e") == 0.75
    assert demo_page.agreement("a", "b") == 0.0
    assert demo_page.agreement("", "") == 1.0


def test_without_a_bundled_model_it_says_so(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("longstride.translator.resources.files", lambda package: tmp_path)
    assert "bundled: expected a model folder, found nothing" in run("demo").error
