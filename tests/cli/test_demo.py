"""The demo: every sentence by every decoder, for people and for pipes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import longstride
from longstride.cli import demo, demo_page
from longstride.contract import Event, InputError, Trace
from longstride.translator import Translation
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


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "plain")


def test_sentences_are_held_out_from_the_training_of_the_bundled_model() -> None:
    pairs = demo.examples(BUNDLED)
    assert len({source for source, _ in pairs}) == len(pairs) >= 5
    # family/mix.py leaves these out of the corpus
    assert (BUNDLED / demo.EXAMPLES).read_text() == (RECIPES / "en-de" / demo.EXAMPLES).read_text()


def test_every_sentence_is_shown_by_every_decoder_with_steps_and_times(run: Run, family: Path) -> None:
    ran = run("demo", "-m", family)
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


def test_a_terminal_gets_colours(run: Run, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "out", Console(force_terminal=True, color_system="standard", width=120))
    ran = run("demo", "-m", family, "--runtime", "eager")
    assert ran.code == 0
    assert "\x1b[32m" in ran.out
    styles = [str(span.style) for span in demo_page.coloured([("a", 0), (" b c", 1), (" d", 0), ("e", 6)]).spans]
    assert styles == ["green", "cyan", "green", "green"], "the colour of the iteration, wherever it wrote"


def test_a_model_without_sentences_is_shown_the_bundled_ones(run: Run, plain: Path) -> None:
    ran = run("demo", "-m", plain, "--runtime", "eager")
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


def test_in_a_hurry_nothing_is_decoded_twice(run: Run, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PATIENCE", 0.0)
    seen: list[int] = []
    show = demo._show
    monkeypatch.setattr(demo, "_show", lambda *told: seen.append(told[-1]) or show(*told))
    assert run("demo", "-m", family, "--runtime", "eager").code == 0
    assert seen == [0] * (len(PAIRS) * len(DECODERS))


def test_a_slow_machine_is_shown_less(run: Run, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ENOUGH", 0.0)
    ran = run("demo", "-m", family, "--runtime", "eager")
    assert ran.code == 0
    assert "1 of 3 sentences are shown" in ran.err
    assert ran.out.count("\n  greedy: ") == 1


def test_times_are_those_without_a_trace(family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 9.0, 10.0, 10.3, 20.0, 20.1, 30.0, 30.2])
    monkeypatch.setattr(demo, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    translator = longstride.load(family, device="cpu")
    assert demo._show(translator, "a b", "greedy", 3).milliseconds == pytest.approx(200)


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
