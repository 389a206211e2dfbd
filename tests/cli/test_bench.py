"""Benchmarks by the command line: who takes part, what is recorded, what is refused. No test looks at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import longstride
from longstride.bench.record_files import read_records
from longstride.bench.records import Latency
from longstride.cli.lineup import line_up, read_entries, read_samples
from longstride.contract import EOS, OptionError, Source
from longstride.model_folder import ModelFolder
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.tasks.ngrams import Gleu
from longstride.text.tokenizer import WordsTokenizer
from longstride.translator import Translator
from tests.cli.conftest import Run, write_pairs
from tests.decoding.test_draft_verify import write_drafted
from tests.folders import words, write_folder
from tests.runtime.recording import TapeRecorder

SHORT = ["--set", "max_length=4"]
"""Nothing here is about the outputs."""


@pytest.fixture
def pairs(tmp_path: Path) -> list[Any]:
    source, reference = write_pairs(tmp_path, 5, ("", "a"))
    return ["-s", source, "-r", reference, "--device", "cpu", "--passes", "1", *SHORT]


def latencies(path: Path) -> list[Latency]:
    found = read_records([path])
    assert all(isinstance(record, Latency) for record in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("greedy", [("greedy", {})]),
        ("greedy,beam", [("greedy", {}), ("beam", {})]),
        ("beam:width=4", [("beam", {"width": "4"})]),
        ("beam:width=4;n_best=2, greedy", [("beam", {"width": "4", "n_best": "2"}), ("greedy", {})]),
        ("beam:banned=5,6,7;width=2,greedy", [("beam", {"banned": "5,6,7", "width": "2"}), ("greedy", {})]),
        ("beam:banned=5,6,beam:width=2", [("beam", {"banned": "5,6"}), ("beam", {"width": "2"})]),
        ("greedy,beem", [("greedy", {}), ("beem", {})]),
    ],
)
def test_decoders_are_named_with_their_options(text: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert [(entry.decoder, entry.options) for entry in read_entries(text)] == expected


@pytest.mark.parametrize("text", ["", "greedy,,beam", ":width=3", "beam:width", "beam:=3"])
def test_what_names_no_decoder_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="--decoders expects name"):
        read_entries(text)


def test_samples_are_for_all_or_for_one() -> None:
    assert read_samples(["20", "beam=5"]) == {"": 20, "beam": 5}
    for text in ("some", "beam=", "=3", "0", "beam=-1"):
        with pytest.raises(OptionError, match="--sample expects a number of sentences"):
            read_samples([text])


def test_every_decoder_takes_part_and_every_reading_is_kept(
    run: Run, model: Path, pairs: list[Any], tmp_path: Path
) -> None:
    out = tmp_path / "records.jsonl"
    ran = run("bench", "-m", model, *pairs, "--batch-sizes", "1,4", "--passes", "2", "-o", out)
    assert ran.code == 0
    assert "1 empty source lines are left out." in ran.err
    assert "| greedy" in ran.out
    found = latencies(out)
    assert [(one.batch_size, one.candidate, one.role) for one in found] == [
        (size, name, "baseline") for size in (1, 4) for name in ("greedy", "beam")
    ]
    for one in found:
        assert len(one.latencies_us) == 2
        assert len(one.output_lengths) == 5
        assert [score.name for score in one.scores][:2] == ["BLEU", "chrF"]
        assert one.equality is not None
        assert one.equality.reference == "greedy"
        assert one.workload.name == "src"
        assert one.origin.experiment == "tiny"
    assert len({one.origin.run for one in found}) == 1


def test_a_runner_that_captures_says_what_that_cost(tmp_path: Path) -> None:
    runner = CudaGraphRunner("cpu", "fp64", recorder=TapeRecorder())
    translator = Translator(ModelFolder(write_folder(tmp_path / "model")), runner)
    (candidate,) = line_up([translator], read_entries("greedy"), {"max_length": 4}, {}, baselines=False)
    assert candidate.captured is not None
    before = candidate.captured()
    candidate.decoder.decode(Source.of([[5, 6, EOS]]), candidate.limits)
    after = candidate.captured()
    assert (before.graphs, before.seconds) == (0, 0.0)
    assert after.graphs > 0
    assert after.seconds > 0


def test_the_baselines_take_part_unasked_unless_unwanted(
    run: Run, model: Path, pairs: list[Any], tmp_path: Path
) -> None:
    out = tmp_path / "records.jsonl"
    wide = ["--decoders", "beam:width=2;max_length=3,beam:width=3", "--sample", "beam=2"]
    assert run("bench", "-m", model, *pairs, *wide, "-o", out).code == 0
    first = latencies(out)
    assert [(one.candidate, one.role) for one in first] == [
        ("greedy", "baseline"),
        ("beam width=2 max_length=3", "baseline"),
        ("beam width=3", "baseline"),
    ]
    assert [len(one.output_lengths) for one in first] == [5, 2, 2]
    assert first[1].limits.max_length == 3
    assert run("bench", "-m", model, *pairs, *wide, "--no-baselines", "-o", out).code == 0
    assert [(one.candidate, one.role) for one in latencies(out)[3:]] == [
        ("beam width=2 max_length=3", "candidate"),
        ("beam width=3", "candidate"),
    ]
    named = ["--baseline", "beam:width=3", "--same-as", "beam width=3", "--experiment", "e", "--workload", "w"]
    assert run("bench", "-m", model, *pairs, *wide, *named, "-o", out).code == 0
    last = latencies(out)[5:]
    assert [one.candidate for one in last if one.role == "baseline"] == ["beam width=3"]
    assert all(one.equality is not None and one.equality.reference == "beam width=3" for one in last)
    assert (last[0].origin.experiment, last[0].workload.name) == ("e", "w")


def test_several_models_stand_side_by_side(run: Run, model: Path, pairs: list[Any], tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", seed=4)
    (tmp_path / "warm").write_text("a b c\n\nd\n")
    out = tmp_path / "records.jsonl"
    ran = run(
        *("bench", "-m", model, "-m", other, *pairs, "--decoders", "greedy"),
        *("--experiment", "two", "--warmup", tmp_path / "warm", "-o", out),
    )
    assert "candidates with different names, found 'tiny greedy' twice" in ran.error
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace('"name": "tiny"', '"name": "small"'))
    assert run("bench", "-m", model, "-m", other, *pairs, "--decoders", "greedy", "-o", out).code == 0
    found = latencies(out)
    assert [(one.candidate, one.role) for one in found] == [
        ("tiny greedy", "baseline"),
        ("tiny beam", "baseline"),
        ("small greedy", "candidate"),
    ]
    assert found[0].model.hash != found[2].model.hash


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--decoders", "greedy,beem"], "has no decoder 'beem'"),
        (["--decoders", "beam:width=0"], "width expects a whole number from 1 to 1000, found 0"),
        (["--decoders", "greedy:width=2"], "decoder greedy has no option 'width'"),
        (["--set", "width=2"], "decoder greedy has no option 'width'"),
        (["--batch-sizes", "0"], "batch_sizes expects a list of whole numbers from 1 to 1000000, found (0,)"),
        (["--batch-sizes", "one"], "batch_sizes expects a list of whole numbers from 1 to 1000000, found 'one'"),
        (["--sample", "lattice=3"], "--sample expects a decoder of the line-up (greedy, beam), found 'lattice'"),
        (["--baseline", "best"], "--baseline expects one of greedy, beam, found 'best'"),
        (["--baseline", "beam:width=3,greedy"], "--baseline expects one of greedy, beam, found 'beam:width=3,greedy'"),
        (["--same-as", "best"], "expects one of greedy, beam, found 'best'"),
        (["--warmup", "nowhere"], "nowhere: expected a text file, found none"),
        (["-s", "empty", "-r", "empty"], "empty: expected at least one sentence to translate, found none"),
        (["-o", "empty.txt"], "empty.txt, line 1: expected a JSON object"),
    ],
)
def test_misuse_is_told_before_any_work(
    run: Run,
    model: Path,
    pairs: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("")
    (tmp_path / "empty.txt").write_text("no record\n")
    asked = [*pairs]
    if "-r" in arguments:  # in the place of the other, not beside it
        del asked[asked.index("-r") : asked.index("-r") + 2]
    assert told in run("bench", "-m", model, *asked, "-o", "records.jsonl", *arguments).error
    assert not (tmp_path / "records.jsonl").exists()
    assert (tmp_path / "empty.txt").read_text() == "no record\n"


def test_models_of_different_tokenizers_are_not_mixed(run: Run, model: Path, pairs: list[Any], tmp_path: Path) -> None:
    tokenizer = WordsTokenizer([*words()._words, "extra"])
    other = write_folder(tmp_path / "other", tokenizer=tokenizer)
    error = run("bench", "-m", model, "-m", other, *pairs, "-o", tmp_path / "records.jsonl").error
    assert "--model expects models of one tokenizer, found another in" in error


def test_another_folders_drafter_takes_part(run: Run, model: Path, pairs: list[Any], tmp_path: Path) -> None:
    out, drafter = tmp_path / "records.jsonl", write_drafted(tmp_path / "drafter")
    asked = ["bench", "-m", model, *pairs, "--drafter", drafter, "-o", out]
    assert run(*asked, "--decoders", "greedy,draft-verify", "--no-baselines", "--precision", "fp64").code == 0
    greedy, drafted = latencies(out)
    assert (greedy.candidate, drafted.candidate) == ("greedy", "draft-verify")
    assert drafted.model.name == "tiny + drafter"
    assert drafted.equality is not None
    assert (drafted.equality.reference, drafted.equality.differing) == ("greedy", 0)
    assert "one --model that it drafts for, found 2" in run(*asked, "-m", model).error


def test_corrections_are_scored_as_evaluate_scores_them(
    run: Run, model: Path, pairs: list[Any], tmp_path: Path
) -> None:
    """GLEU knows each sentence by its place: empty lines are left out, and a sample is a part of the same."""
    (tmp_path / "ref2").write_text("".join(f"{line} a\n" for line in (tmp_path / "ref").read_text().split("\n")[:-1]))
    out, decoders = tmp_path / "records.jsonl", "greedy,copy-verify:k=2"
    asked = [*pairs, "-r", tmp_path / "ref2", "--task", "correction", "--decoders", decoders, "--no-baselines"]
    assert run("bench", "-m", model, *asked, "--sample", "copy-verify=3", "-o", out, "--precision", "fp64").code == 0
    whole, part = latencies(out)
    assert [score.name for score in whole.scores] == ["GLEU", "repetition"]
    assert "references:2" in whole.scores[0].signature
    assert part.sentences is not None
    texts = longstride.load(model, device="cpu", precision="fp64").translate(
        (tmp_path / "src").read_text().split("\n")[:5], max_length=4
    )
    lines = [(tmp_path / name).read_text().split("\n")[:5] for name in ("src", "ref", "ref2")]
    metric = Gleu(lines[0], lines[1:])
    assert whole.scores[0].value == pytest.approx(metric.score([one.text for one in texts], lines[1]).value)
    statistics = metric.statistics([one.text for one in texts])[list(part.sentences)]
    assert part.scores[0].value == pytest.approx(metric.value(statistics.sum(axis=0)))
    assert part.equality is not None
    assert (part.equality.compared, part.equality.differing) == (3, 0)
