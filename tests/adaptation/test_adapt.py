"""`longstride adapt`: a model with a drafter and a card, whose output is greedy's; held-out lines are never learnt."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.adaptation import checking, lengths, training
from longstride.adaptation.decoding import Lines, Text, divide
from longstride.adaptation.options import AdaptOptions
from longstride.bench.record_files import read_records
from longstride.bench.records import Exactness, Latency
from longstride.cli import adapt_race
from longstride.cli.main import main
from longstride.contract import InputError
from longstride.distillation import distill
from longstride.nn.weights import read_tensors
from longstride.text.files import alone_in
from longstride.translator import load
from tests.adaptation.tiny import SETTINGS, lines_file
from tests.folders import write_folder

Adapt = Callable[..., int]


@pytest.fixture
def adapt(tmp_path: Path) -> Adapt:
    """Adapt a tiny model with further options, into the folder `out`."""
    model, source = write_folder(tmp_path / "model"), lines_file(tmp_path)

    def call(*options: str, settings: list[str] = SETTINGS, lines: Path = source) -> int:
        return main(["adapt", str(model), "-s", str(lines), "-o", str(tmp_path / "out"), *settings, *options])

    return call


def test_the_same_model_with_a_drafter_and_a_card(
    adapt: Adapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapt_race, "_others", lambda *arguments: [])  # other libraries are slow to import
    assert adapt("--set", "sentences=2", "--set", "passes=1") == 0
    out = tmp_path / "out"
    translator = load(out, device="cpu")
    assert translator.decoders[0] == "draft-verify"
    assert translator.folder.decoders["draft-verify"].defaults == {"lengths": "1:3"}
    lines = lines_file(tmp_path, 6, seed=9).read_text().splitlines()
    drafted, greedy = (translator.translate(lines, decoder, batch=1) for decoder in ("draft-verify", "greedy"))
    assert [one.tokens for one in drafted] == [one.tokens for one in greedy]
    assert translator.folder.decoders["draft-verify"].parts["shortlist"] == "shortlist"
    assert int(translator.part("shortlist").words.max()) > translator.folder.special.largest, "something was counted"
    before, after = (read_tensors(folder / "model.safetensors") for folder in (tmp_path / "model", out))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    records = read_records([out / "adaptation.jsonl"])
    (exact,) = (record for record in records if isinstance(record, Exactness))
    assert exact.same_shape.differing == 0
    assert exact.same_shape.sentences == 2
    timed = [(record.candidate, record.batch_kind) for record in records if isinstance(record, Latency)]
    assert timed == [(name, kind) for kind in ("closed", "open") for name in ("greedy", "draft-verify")]
    card = (out / "README.md").read_text()
    assert "| 1 | 3 | 2 | 0 |" in card
    assert "| 1 | greedy (fp32) | 2 |" in card
    assert "| 1, lines of a file | draft-verify (fp32) | 2 |" in card
    assert not (tmp_path / "out.work").exists()


def test_a_drafter_that_is_there_is_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of the same shape, unless the options say otherwise."""
    model, source = write_folder(tmp_path / "model"), lines_file(tmp_path)
    drafters = []
    for name, of, more in (
        ("one", model, []),
        ("two", tmp_path / "one", []),
        ("anew", tmp_path / "one", ["--set", "begin=model"]),
        ("other", tmp_path / "one", ["--set", "block=5"]),
    ):
        given = ["adapt", str(of), "-s", str(source), "-o", str(tmp_path / name), *SETTINGS, "--no-race", *more]
        assert main(given) == 0
        assert ("is trained on" in capsys.readouterr().err) == (name == "two")
        drafters.append(read_tensors(tmp_path / name / "drafter.safetensors"))
    one, two, anew, _ = drafters
    assert all(torch.equal(one[weight], anew[weight]) for weight in one)
    assert not all(torch.equal(one[weight], two[weight]) for weight in one)


def test_once_more_is_nothing_and_something_else_is_refused(
    adapt: Adapt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adapt("--no-race") == 0
    config = (tmp_path / "out" / "config.json").read_bytes()
    assert adapt("--no-race") == 0
    assert adapt("--no-race", "--set", "seed=2") == 2
    assert "the seed that the run was started with, 1, found 2" in capsys.readouterr().err
    assert (tmp_path / "out" / "config.json").read_bytes() == config


def test_stages_one_by_one_and_other_options_on_the_way(
    adapt: Adapt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adapt("--no-race", "--until", "decode") == 0
    work = tmp_path / "out.work"
    assert (work / "decode.json").exists()
    assert not (work / "training").exists()
    assert not (tmp_path / "out").exists()
    others = (
        ("updates", ["--updates", "21"]),
        ("tokens", ["--set", "tokens=130"]),
        ("precision", ["--precision", "fp64"]),
    )
    for name, options in others:
        assert adapt("--no-race", *options) == 2
        assert f"the {name} that the run was started with" in capsys.readouterr().err
    assert adapt("--no-race", lines=lines_file(tmp_path, seed=1)) == 2
    assert "the source that the run was started with" in capsys.readouterr().err
    assert adapt("--no-race", "--until", "train") == 0
    assert (work / "drafted" / "config.json").exists()
    assert adapt("--no-race", "--keep") == 0
    assert (tmp_path / "out" / "config.json").exists()
    assert work.exists()


def test_work_may_lie_on_another_file_system(adapt: Adapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be renamed across."""
    rename = os.replace

    def replace(old: str | Path, new: str | Path) -> None:
        if (tmp_path / "scratch" in Path(old).parents) != (tmp_path / "scratch" in Path(new).parents):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(old), None, str(new))
        rename(old, new)

    monkeypatch.setattr(os, "replace", replace)
    assert adapt("--no-race", "--work", str(tmp_path / "scratch" / "work")) == 0
    assert load(tmp_path / "out", device="cpu").decoders[0] == "draft-verify"
    assert (tmp_path / "out" / "README.md").exists()
    assert not (tmp_path / "scratch" / "work").exists()


def test_where_drafts_do_not_pay_greedy_stays_the_default(adapt: Adapt, tmp_path: Path) -> None:
    assert adapt("--no-race", "--set", "lengths=1:0") == 0
    assert load(tmp_path / "out", device="cpu").decoders[0] == "greedy"
    assert "not faster than greedy search" in (tmp_path / "out" / "README.md").read_text()


def test_drafts_that_lose_the_race_are_not_the_default(
    adapt: Adapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths that were measured may have been chosen by chance; given ones are somebody's wish."""
    monkeypatch.setitem(lengths.SECONDS, "cpu", 0.0)
    measured = [
        one for pair in zip(SETTINGS[::2], SETTINGS[1::2], strict=True) if "lengths" not in pair[1] for one in pair
    ]
    assert adapt("--no-race", "--until", "lengths", settings=measured) == 0
    work = tmp_path / "out.work"
    (work / "lengths.json").write_text('{"seconds": 1.0, "lengths": "1:3", "milliseconds": {}}')
    (work / "race.json").write_text('{"seconds": 1.0, "1": {"greedy": 1.0, "draft-verify": 1.5}}')
    assert adapt("--no-race", settings=measured) == 0
    assert load(tmp_path / "out", device="cpu").decoders[0] == "greedy"
    assert "not faster than greedy search" in (tmp_path / "out" / "README.md").read_text()


def test_a_tree_that_was_chosen_is_the_folders_and_its_cards(adapt: Adapt, tmp_path: Path) -> None:
    assert adapt("--no-race", "--set", "lengths=1:6tree,2:3") == 0
    translator = load(tmp_path / "out", device="cpu")
    assert translator.folder.decoders["draft-verify"].defaults == {"lengths": "1:6tree,2:3"}
    found = translator.translate(["a b c"], trace=True)
    assert max(event.drafted for event in found[0].trace.events) == 6
    assert "| 1 | 6, a tree |" in (tmp_path / "out" / "README.md").read_text()


def test_twenty_updates_are_the_fewest(adapt: Adapt, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And as much is decoded as half of the minutes allow, by whole shards."""
    by_time = [*SETTINGS[2:], "--minutes", "0.00001"]
    assert adapt("--no-race", "--until", "train", settings=by_time) == 0
    said = capsys.readouterr().err
    assert "decode: 5 outputs of the model's own" in said, "one shard"
    assert said.count("20 updates are the fewest; they take about 0.1 minutes here") == 1
    assert [line for line in said.splitlines() if "Checkpoint" in line] == ["Checkpoint of update 20."]
    assert json.loads((tmp_path / "out.work" / "decode.json").read_text())["left_out"] == 16 - 2 - 5
    kept = json.loads((tmp_path / "out.work" / "updates.json").read_text())
    assert kept["updates"] == training.FEWEST


@given(st.lists(st.sampled_from(["a", "b", "c d", "", " ", "e"]), max_size=40), st.integers(1, 6))
def test_no_held_out_line_is_learnt(lines: list[str], held_out: int) -> None:
    full = [line for line in lines if line.strip()]
    try:
        found = divide(lines, held_out)
    except InputError:
        assert len(full) < 2 * held_out or set(full[:-held_out]) <= set(full[-held_out:])
        return
    assert list(found.held_out) == full[-held_out:]
    assert not set(found.training) & set(found.held_out)
    assert set(found.training) == set(full[:-held_out]) - set(found.held_out)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("minutes", [0.3, 1.7, 20.0])
def test_what_is_around_a_short_training_is_short(minutes: float, device: str) -> None:
    """Held-out lines and what is decoded go by the minutes, unless they are given."""
    options = AdaptOptions(minutes=minutes).on(device)
    lines = [str(number) for number in range(60_000)]
    found = Text(lines).divided(options)
    assert len(found.held_out) == min(1_000, max(64, math.ceil(100 * minutes)))
    assert options.decoding_seconds == 30 * minutes
    assert sorted(found.training) == sorted(lines[: -len(found.held_out)])
    sample = sum(map(int, found.training[:1_000])) / 1_000
    assert 25_000 < sample < 35_000, "whatever is decoded is a sample of all"
    by_updates = AdaptOptions(minutes=minutes, updates=1).on(device)
    assert by_updates.decoding_seconds == math.inf
    assert Text(lines).divided(by_updates) == Lines(tuple(lines[:-1_000]), tuple(lines[-1_000:]))
    given = AdaptOptions(minutes=minutes, held_out=7, lines=9).on(device)
    assert (given.held_out_of(60_000), given.decoding_seconds) == (7, math.inf)
    some = Text(lines).divided(given, 2)
    assert len(some.training) == 5
    steps = {int(after) - int(before) for before, after in pairwise(some.training)}
    assert max(steps) - min(steps) <= 1, "evenly, in order"


@given(st.integers(0, 400), st.floats(1e-4, 100), st.integers(0, 3))
def test_as_many_lines_are_raced_as_there_is_time_for(there: int, each: float, asked: int) -> None:
    """From 10 to 256, or as many as are asked for."""
    lines, now = ["a"] * there, [0.0]

    def decode(source: Any, limits: Any) -> None:
        now[0] += each

    translator: Any = SimpleNamespace(
        decoder=lambda name: (SimpleNamespace(decode=decode), None),
        encode=lambda lines, warn: [[1, 2]] * len(lines),
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checking, "time", SimpleNamespace(perf_counter=lambda: now[0]))
        found = checking.raced(translator, lines, AdaptOptions(sentences=asked)) if there else lines
    if asked:
        assert len(found) == min(there, asked)
    else:
        assert len(found) == min(there, 256, max(10, int(checking.RACE_SECONDS / (16 * each) + 1e-6)))


@given(st.integers(2, 10**6), st.floats(1e-5, 100))
def test_weights_are_averaged_over_the_last_quarter_alone(updates: int, each: float) -> None:
    options = training.training_options(updates, 512, AdaptOptions(), torch.device("cpu"), each=each)
    assert options.checkpoint_every == updates or options.checkpoint_every * each >= training.APART * (1 - 1e-9)
    saved = [*range(options.checkpoint_every, updates, options.checkpoint_every), updates]
    assert options.average == "last"
    assert options.average_count == options.keep
    assert saved[-options.average_count] >= 0.75 * updates
    assert options.schedule.warmup <= max(1, updates / 10)
    assert options.schedule.for_run(updates).rate(updates) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--assistant", "nowhere"], "--assistant expects a Hugging Face folder, found nowhere"),
        (["--precision", "fp7"], "fp7"),
        (["--runtime", "steam"], "steam"),
        (["--set", "held_out=99"], "lines"),
    ],
)
def test_misuse_leaves_nothing_behind_and_what_was_begun_stays(
    adapt: Adapt, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    work = tmp_path / "out.work"
    assert adapt("--no-race", *options) == 2
    assert said in capsys.readouterr().err
    assert not work.exists()
    assert adapt("--no-race", "--until", "import") == 0
    before = sorted(work.iterdir())
    assert adapt("--no-race", *options) == 2
    assert sorted(work.iterdir()) == before


def test_two_runs_do_not_share_a_folder(adapt: Adapt, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.work").mkdir()
    with alone_in(tmp_path / "out.work"):
        assert adapt("--no-race", "--until", "import") == 1
        assert f"{tmp_path / 'out.work'}: expected to be the only one to write it" in capsys.readouterr().err
    assert adapt("--no-race", "--until", "import") == 0


def test_ctrl_c_while_it_decodes_says_what_is_kept(
    adapt: Adapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: Any, **how: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(distill, "decode_shard", interrupted)
    assert adapt("--no-race", "--until", "decode") == 130
    said = f"Interrupted: what was done is kept in {tmp_path / 'out.work'}; the same command goes on."
    assert " ".join(capsys.readouterr().err.split()).endswith(said)


@pytest.mark.parametrize("output", ["", ".", ".."])
def test_a_folder_whose_path_ends_in_no_name(
    adapt: Adapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    """The one for work lies beside it, and has its name."""
    (tmp_path / "here" / "within").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "within")
    assert adapt("--set", "held_out=9", "-o", output) == 2
    said = "expected a new folder" if output == ".." else "--source expects at least 18 lines"
    assert said in capsys.readouterr().err


def test_too_few_lines_are_refused(adapt: Adapt, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert adapt("--set", "held_out=9") == 2
    assert "--source expects at least 18 lines" in capsys.readouterr().err
    assert not (tmp_path / "out.work").exists()


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("family", ["marian", "mbart"])
def test_a_hugging_face_folder(family: str, tmp_path: Path) -> None:
    """Marian has no mask and begins with pad; mBART's sources end in a language."""
    pytest.importorskip("transformers")
    from tests.adaptation import hf
    from tests.text.hf_folders import made_lines

    folder, out = hf.write(family, tmp_path / "hf"), tmp_path / "out"
    source = tmp_path / "lines.txt"
    source.write_text("".join(f"{line}\n" for line in made_lines(20, seed=3)), encoding="utf-8")
    asked = ["--no-race"]
    if family == "marian":
        smaller = hf.write(family, tmp_path / "smaller", seed=1)
        asked = ["--set", "sentences=2", "--set", "passes=1", "--assistant", str(smaller)]
    assert main(["adapt", str(folder), "-s", str(source), "-o", str(out), *SETTINGS, *asked]) == 0
    records = read_records([out / "adaptation.jsonl"])
    (exact,) = (record for record in records if isinstance(record, Exactness))
    assert exact.same_shape.differing == 0
    if family == "marian":
        others = [record for record in records if isinstance(record, Latency) if record.runtime == "hf"]
        assert [one.candidate for one in others] == ["hf generate", "hf prompt lookup", "hf assisted"]
        assert others[-1].notes["assistant"] == "smaller"
        assert all(one.equality is not None and one.equality.differing == 0 for one in others)


def test_one_drafter_serves_several_pairs(tmp_path: Path) -> None:
    """Each pair is decoded with its own language first, learnt, counted and told; none is lost to another."""
    pytest.importorskip("transformers")
    from tests.adaptation import hf
    from tests.text.hf_folders import made_lines

    folder, out = hf.write("nllb", tmp_path / "hf"), tmp_path / "out"
    pairs = [("eng_Latn", "deu_Latn"), ("deu_Latn", "fra_Latn"), ("fra_Latn", "eng_Latn")]
    asked = []
    for seed, (source, target) in enumerate(pairs):
        file = tmp_path / f"{source}.txt"
        file.write_text("".join(f"{line}\n" for line in made_lines(10 + seed, seed=seed)), encoding="utf-8")
        asked += ["--pair", f"{source}-{target}={file}"]
    assert main(["adapt", str(folder), "-o", str(out), *SETTINGS, *asked, "--no-race"]) == 0
    names = ["-".join(pair) for pair in pairs]
    records = [one for one in read_records([out / "adaptation.jsonl"]) if isinstance(one, Exactness)]
    assert [one.notes["pair"] for one in records] == names
    assert all(one.same_shape.differing == 0 and one.same_shape.sentences == 2 for one in records)
    assert f"Pairs: {', '.join(names)}" in (out / "README.md").read_text()
    translator = load(out, device="cpu")
    assert translator.folder.config.provenance["pairs"] == 8 + 9 + 10
    lines = list(made_lines(6, seed=9))
    for source, target in pairs:
        drafted, greedy = (
            translator.translate(lines, decoder, batch=1, source_lang=source, target_lang=target)
            for decoder in ("draft-verify", "greedy")
        )
        assert [one.tokens for one in drafted] == [one.tokens for one in greedy]
        assert {one.tokens[0] for one in drafted} == {translator.source_tokenizer.languages[target]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "expects --source or --pair, found neither"),
        (["--pair", "a-b"], "--pair expects two languages and a file, as eng_Latn-deu_Latn=FILE, found 'a-b'"),
        (["--pair", "a-b=FILE", "-s", "FILE"], "found both"),
        (["--pair", "a-b=FILE", "--pair", "a-b=FILE"], "found a-b twice"),
        (["--pair", "a-b=FILE", "--source-lang", "a"], "every --pair has its own"),
        (["--pair", "a-b=FILE"], "language tokens"),
    ],
)
def test_pairs_that_are_no_pairs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    model, file = write_folder(tmp_path / "model"), str(lines_file(tmp_path))
    given = [option.replace("FILE", file) for option in options]
    assert main(["adapt", str(model), "-o", str(tmp_path / "out"), *SETTINGS, *given]) == 2
    assert said.replace("'a-b=FILE'", file) in capsys.readouterr().err
    assert not (tmp_path / "out.work").exists()
