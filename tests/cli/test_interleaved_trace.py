"""A sentence that closes from both sides, shown to people; the interleaved decoder through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longstride import model_folder
from longstride.contract import EOS, Event, Trace
from longstride.model_folder import DecoderConfig, Part
from longstride.systems.interleaved.model import Interleaving
from longstride.systems.interleaved.options import InterleavingOptions
from tests.cli.conftest import Run
from tests.cli.test_trace import shown
from tests.folders import LONGEST, words
from tests.models import tiny_model

LINES = b"a b c\n\nt s r q p\n"


def both_ends(*steps: list[tuple[int, int]]) -> Trace:
    return Trace(tuple(Event(tuple(p for p, _ in step), tuple(t for _, t in step), 0, 0, True) for step in steps))


CLOSING = both_ends([(0, 5), (4, 10)], [(1, 7), (3, 9)], [(2, 8), (5, EOS)])


def test_one_can_watch_the_sentence_close():
    assert shown(CLOSING) == [
        "       1  written   He ·    ·  ·      .",
        "       2  written   He went ·  school .",
        "       3  written   He went to school . </s>",
    ]


def test_an_end_of_its_own_and_long_sentences():
    even = both_ends([(0, 5), (1, 10)], [(2, EOS)])
    assert shown(even) == ["     1-2  written   He . | </s>"]  # two words are one run: nothing to watch
    four = both_ends([(0, 5), (3, 10)], [(1, 7), (2, 9)], [(4, EOS)])
    assert shown(four)[-1] == "       3  written   He went school . </s>"
    steps = [[(place, 9), (39 - place, 9)] for place in range(20)]
    rows = shown(both_ends(*steps, [(40, EOS)]), width=60)
    assert all(len(row) <= 60 for row in rows)
    assert sum("  20  " in row for row in rows) == 1
    assert len(rows) < 2 * 21  # only the rows in which something is new


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tokenizer = words()
    transformer = tiny_model(0, vocabulary=tokenizer.size, longest=LONGEST, sharpness=1.0)
    interleaving = Interleaving(InterleavingOptions(transformer.options.width, h=2))
    parts = {
        "model": Part("transformer", transformer.options, transformer),
        "interleaving": Part("interleaving", interleaving.options, interleaving),
    }
    decoders = {"interleaved": DecoderConfig({name: name for name in parts})}
    model_folder.write(tmp_path / "model", parts, decoders, "interleaved", tokenizer)
    return tmp_path / "model"


@pytest.mark.parametrize("width", ["1", "3"])
def test_the_command_line_shows_it(run: Run, model: Path, tmp_path: Path, width: str) -> None:
    file = tmp_path / "trace.jsonl"
    how = ["translate", "-m", model, "--set", f"width={width}", "--set", "min_length=5", "--device", "cpu"]
    silent = run(*how, stdin=LINES)
    told = run(*how, "--show-trace", "--trace", file, stdin=LINES)
    assert (told.code, told.out) == (0, silent.out)
    assert "·" in told.err
    steps = json.loads(file.read_text().splitlines()[0])["trace"]["steps"]
    places = [place for step in steps for place in step["positions"]]
    assert sorted(places) == list(range(len(places)))
    assert len(steps[0]["positions"]) == 2


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("h=4", "h expects 2, which the model was trained with, found 4."),
        ("c=2", "c expects 1, which the model was trained with, found 2."),
        ("end=never", "'end' expects any-direction|paper, found 'never'."),
        ("width=0", "interleaved: width expects a whole number from 1 to 1000, found 0."),
        ("dedup=-1", "interleaved: dedup expects a whole number from 0 to 1000, found -1."),
    ],
)
def test_bad_options_are_told_in_one_sentence(run: Run, model: Path, setting: str, told: str) -> None:
    assert told in run("translate", "-m", model, "--set", setting, stdin=LINES).error


def test_a_decoder_that_the_model_lacks_is_refused(run: Run, model: Path) -> None:
    assert "no decoder 'greedy'; it has interleaved" in run("translate", "-m", model, "--decoder", "greedy").error


def test_the_page_on_tracing_shows_just_this():
    page = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text()
    assert "\n".join(shown(CLOSING)) in page
