"""The demo: every sentence by every decoder, for people and for pipes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

import longstride
from longstride.cli import demo
from longstride.contract import Event, Trace
from longstride.tasks.toys import split_of
from longstride.translator import Translation
from tests.cli.conftest import Run


def test_sentences_are_held_out_from_the_training_of_the_bundled_model() -> None:
    pairs = demo.sentences()
    assert len(pairs) == len(demo.WRITTEN) + demo.GENERATED
    assert {split_of(source) for source, _ in pairs} == {"test"}
    assert len({source for source, _ in pairs}) == len(pairs)


def test_every_sentence_is_shown_by_every_decoder(run: Run, model: Path) -> None:
    ran = run("demo", "-m", model)
    assert ran.code == 0
    assert "\x1b" not in ran.out
    for source, _ in demo.sentences():
        assert f"\n{source}\n" in ran.out
    assert ran.out.count("  greedy: ") == ran.out.count("  beam: ") == len(demo.sentences())
    assert ran.out.count(" iterations, ") == 2 * len(demo.sentences())
    assert ran.out.count("greedy, not the reference") + ran.out.count("same as greedy") > 0


def test_a_terminal_gets_colours(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "out", Console(force_terminal=True, color_system="standard", width=120))
    ran = run("demo", "-m", model)
    assert ran.code == 0
    assert "\x1b[32m" in ran.out
    styles = [str(span.style) for span in demo._coloured([("a", 0), (" b c", 2), (" d", 0)]).spans]
    assert styles == ["green", "cyan", "green"]


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
    pieces = demo.strides(translator, Translation("a b c d", tokens=ids), trace)
    assert pieces == [("a", 0), (" b c", 2), (" d", 0)]
    assert demo.strides(translator, Translation("other", tokens=ids), trace) == [("other", 0)]


def test_without_a_bundled_model_it_says_so(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("longstride.translator.resources.files", lambda package: tmp_path)
    assert "bundled: expected a model folder, found nothing" in run("demo").error
