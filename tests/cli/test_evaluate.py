"""Scores with their signatures, comparison with another system, records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import longstride
from longstride.bench.records import Quality, read_records
from longstride.cli import evaluate
from longstride.tasks.toys import generate
from longstride.tasks.translation import score_translations
from tests.cli.conftest import Run
from tests.folders import LONGEST, write_folder


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[Path, Path]:
    made = [*generate("reverse", 6, seed=3), ("", "a"), ("b", "")]
    for place, name in enumerate(("src", "ref")):
        (tmp_path / name).write_text("".join(pair[place] + "\n" for pair in made))
    return tmp_path / "src", tmp_path / "ref"


def command(model: Path, pairs: tuple[Path, Path]) -> list[Any]:
    return ["evaluate", "-m", model, "-s", pairs[0], "-r", pairs[1], "--device", "cpu"]


def test_scores_are_those_of_the_translations(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    ran = run(*command(model, pairs), "-o", tmp_path / "out")
    assert ran.code == 0
    found = json.loads(ran.out)
    sources, references = (path.read_text().split("\n")[:-1] for path in pairs)
    outputs = [one.text for one in longstride.load(model, device="cpu").translate(sources)]
    assert (tmp_path / "out").read_text().split("\n")[:-1] == outputs
    scores = {score["name"]: score for score in found["scores"]}
    assert list(scores) == ["BLEU", "chrF", "repetition", "perplexity"]
    for score in score_translations(outputs, references):
        assert scores[score.name]["value"] == score.value
        assert scores[score.name]["signature"] == score.signature
    assert scores["perplexity"]["value"] > 1
    assert found["sentences"] == len(sources)
    assert found["decoder"].startswith("greedy|")


def test_another_decoder_gives_other_outputs(run: Run, model: Path, pairs: tuple[Path, Path]) -> None:
    ran = run(*command(model, pairs), "--decoder", "beam", "--set", "width=3", "--batch", "2")
    assert "beam|width:3|" in json.loads(ran.out)["decoder"]


def test_a_file_of_outputs_and_the_model_that_made_them_compare_alike(
    run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    other = write_folder(tmp_path / "other", seed=5)
    assert run(*command(other, pairs), "-o", tmp_path / "others").code == 0
    by_file = json.loads(run(*command(model, pairs), "--against", tmp_path / "others").out)["against"]
    by_model = json.loads(run(*command(model, pairs), "--against", other).out)["against"]
    assert by_file["comparisons"] == by_model["comparisons"]
    assert [one["metric"] for one in by_file["comparisons"]] == ["BLEU", "chrF"]
    for one in by_file["comparisons"]:
        assert one["difference"] == pytest.approx(one["candidate"] - one["baseline"])
        assert one["low"] <= one["difference"] <= one["high"]
        assert 0 < one["p_value"] <= 1


def test_a_record_can_be_read_again(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    assert run(*command(model, pairs), "--record", file).code == 0
    naming = ["--record", file, "--name", "mine", "--experiment", "trial", "--workload", "few"]
    ran = run(*command(model, pairs), *naming, "--against", pairs[1])
    assert f"Record appended to {file}." in ran.err
    first, second = read_records([file])
    assert isinstance(first, Quality)
    assert isinstance(second, Quality)
    assert (first.candidate, first.origin.experiment, first.workload.name) == ("greedy", "tiny", "src")
    assert (second.candidate, second.origin.experiment, second.workload.name) == ("mine", "trial", "few")
    assert first.workload.hash == second.workload.hash
    assert first.scores == second.scores
    assert first.model.name == "tiny"
    assert first.counts is not None
    assert first.counts.iterations == first.counts.tokens_with_eos > 0
    assert second.against[0].baseline == str(pairs[1])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--decoder", "beem"], "has no decoder 'beem'"),
        (["--set", "width=2"], "has no option 'width'"),
        (["--against", "nowhere"], "nowhere: expected a text file, found none"),
        (["--against", "short"], "short: expected 8 outputs, one per source line, found 1"),
        (["-o", "nowhere/out"], "nowhere/out: expected a folder to write in"),
        (["--name", "x"], "--name expects --record"),
        (["-s", "short"], "found 1 in short and 8 in"),
        (["-r", "nowhere"], "nowhere: expected a text file, found none"),
        (["-s", "empty", "-r", "empty"], "empty: expected at least one sentence to translate, found none"),
    ],
)
def test_misuse_is_told_in_one_sentence(
    run: Run,
    model: Path,
    pairs: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("a\n")
    (tmp_path / "empty").write_text("")
    before = sorted(tmp_path.rglob("*"))
    asked = command(model, pairs)
    if "-r" in arguments:  # in the place of the other, not beside it
        del asked[asked.index("-r") : asked.index("-r") + 2]
    assert told in run(*asked, *arguments).error
    assert sorted(tmp_path.rglob("*")) == before


def test_long_lines_are_cut_with_warnings_that_name_the_file(run: Run, model: Path, tmp_path: Path) -> None:
    long = " ".join("a" * (LONGEST + 5))
    (tmp_path / "long").write_text(f"a\n{long}\n")
    ran = run(*command(model, (tmp_path / "long", tmp_path / "long")))
    assert ran.code == 0
    assert f"warning: {tmp_path / 'long'}, line 2 has {LONGEST + 5} tokens and was cut" in ran.err
    assert "1 references were cut at the model's limit" in ran.err


def test_a_table_is_for_people(
    run: Run, model: Path, pairs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "out", Console(force_terminal=True, color_system=None, width=160))
    ran = run(*command(model, pairs), "--against", pairs[1])
    assert ran.code == 0
    assert "BLEU" in ran.out
    assert "tok:13a" in ran.out
    assert "p = " in ran.out
    assert json.loads(run(*command(model, pairs), "--json").out)["sentences"] == 8


def test_help_defines_the_repetition_rate_and_perplexity(run: Run) -> None:
    told = " ".join(run("evaluate", "--help").out.split())
    assert "equal the word right before them" in told
    assert "exp of the mean negative log-likelihood" in told
