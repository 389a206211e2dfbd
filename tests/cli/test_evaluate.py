"""Scores with their signatures, comparison with another system, records."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import longstride
from longstride.bench.record_files import read_records
from longstride.bench.records import Exactness, Quality
from longstride.cli import evaluate
from longstride.tasks.translation import score_translations
from longstride.verification import acceptance, step
from tests.cli.conftest import Run, write_pairs
from tests.decoding.test_draft_verify import write_drafted
from tests.folders import LONGEST, edit_config, write_folder


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[Path, Path]:
    return write_pairs(tmp_path, 6, ("", "a"), ("b", ""))


def command(model: Path | str, pairs: tuple[Path, Path], name: str = "evaluate") -> list[Any]:
    return [name, "-m", model, "-s", pairs[0], "-r", pairs[1], "--device", "cpu"]


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
        (["-o", "empty/out"], "empty/out: expected a folder to write in, found a file at"),
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


SEVERAL = "greedy,beam:width=2,copy-verify:k=2,copy-verify:k=3;accept=top:2"


def test_several_settings_are_what_each_is_alone(
    run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    ran = run(*command(model, pairs), "--decoders", SEVERAL, "--record", file, "-o", tmp_path / "outputs")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert [one["name"] for one in told] == [
        "greedy",
        "beam width=2",
        "copy-verify k=2",
        "copy-verify k=3 accept=top:2",
    ]
    records = read_records([file])
    assert [record.candidate for record in records if isinstance(record, Quality)] == [one["name"] for one in told]
    assert len({record.origin.run for record in records}) == 1
    for one, record in zip(told, records, strict=True):
        assert isinstance(record, Quality)
        decoder, *options = one["name"].split(" ")
        settings = [part for option in options for part in ("--set", option)]
        alone = run(*command(model, pairs), "--decoder", decoder, *settings, "-o", tmp_path / "alone")
        found = json.loads(alone.out)
        for key in ("decoder", "scores", "iterations", "tokens_per_iteration", "mean_block"):
            assert found[key] == one[key], key
        (output,) = (tmp_path / "outputs").glob(f"{one['name'].replace(' ', '-').translate(SIGNS)}.txt")
        assert output.read_text() == (tmp_path / "alone").read_text()
        assert record.equality is not None
        assert (record.equality.reference, record.equality.compared) == ("greedy", 8)
        assert (record.role == "baseline") is (record.candidate == "greedy")
        assert record.decoder == one["decoder"]
    assert len(list((tmp_path / "outputs").iterdir())) == 4


SIGNS = str.maketrans("=:", "--")


def test_exact_acceptance_is_counted_as_greedys_own(
    run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    settings = "copy-verify:k=2,copy-verify:k=3;min_block=3,greedy"
    assert run(*command(model, pairs), "--decoders", settings, "--record", file, "--precision", "fp64").code == 0
    greedy, exact, forced = read_records([file])  # greedy is decoded first, whatever its place
    assert isinstance(greedy, Quality)
    assert isinstance(exact, Quality)
    assert isinstance(forced, Quality)
    assert [one.order for one in (greedy, exact, forced)] == [2, 0, 1]
    assert exact.equality is not None
    assert exact.equality.differing == 0
    assert forced.equality is not None
    assert forced.equality.differing > 0
    (against,) = exact.against
    assert (against.baseline, against.comparison.difference) == ("greedy", 0.0)
    assert greedy.against == ()
    counts = exact.counts
    assert counts is not None
    assert counts.mean_block is not None
    assert counts.verified == counts.drafted_at[0]
    assert exact.notes["parts"]["model"]["width"] == 16


def test_a_model_with_one_head_of_its_own_is_compared_with_that(run: Run, pairs: tuple[Path, Path]) -> None:
    told = json.loads(run(*command("bundled", pairs), "--decoders", "blockwise:k=3,blockwise:k=1").out)
    assert [one["differ_from_greedy"] for one in told] == [0, 0]
    assert [one["mean_block"] is None for one in told] == [False, True]


def test_several_are_told_in_one_table(
    run: Run, model: Path, pairs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "out", Console(force_terminal=True, color_system=None, width=200))
    ran = run(*command(model, pairs), "--decoders", "greedy,copy-verify:k=2", "--against", pairs[1])
    assert ran.code == 0
    assert "copy-verify k=2" in ran.out
    assert "differ from greedy" in ran.out
    assert ran.out.count("p = ") == 4


def test_names_in_brackets_are_shown_as_they_are(
    run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "out", Console(force_terminal=True, color_system=None, width=200))
    told = [*command(model, pairs), "--decoders", "greedy", "--by-length", "2", "--record", tmp_path / "records"]
    for name in ("[v2] mine", "mine [/v2]"):
        ran = run(*told, "--name", name)
        assert ran.code == 0, ran.err
        assert f"{name}, greedy " in ran.out
        assert f"{name}, greedy, by source length" in ran.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--decoders", "greedy,beem"], "has no decoder 'beem'"),
        (["--decoders", "greedy:width=3"], "has no option 'width'"),
        (["--decoders", "greedy", "--decoder", "beam"], "expect one of them alone, found both"),
        (["--decoders", "greedy,greedy"], "every setting once, found 'greedy' several times"),
        (["--decoders", "greedy", "-o", "src"], "src: expected a folder for the outputs of --decoders, found a file"),
        (["--drafter", "nowhere"], "nowhere"),
        (["--exactness", "-o", "out"], "No such option: -o. See `longstride exactness --help`."),
        (["--exactness", "--decoder", "beam"], "a decoder that verifies drafts, found beam"),
        (["--exactness", "--decoders", "copy-verify:accept=top:2"], "Exactness expects accept=exact"),
    ],
)
def test_misuse_of_several_is_told_in_one_sentence(
    run: Run,
    model: Path,
    pairs: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told in run(*command(model, pairs), *arguments).error


def test_another_folders_drafter_drafts(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    drafter, file = write_drafted(tmp_path / "drafter"), tmp_path / "records.jsonl"
    asked = [*command(model, pairs), "--drafter", drafter, "--record", file, "--precision", "fp64"]
    assert run(*asked, "--decoders", "greedy,draft-verify,draft").code == 0
    _, exact, _ = read_records([file])
    assert isinstance(exact, Quality)
    assert exact.model.name == "tiny + drafter"
    assert exact.notes["parts"]["drafter"]["block"] == 4
    assert exact.equality is not None
    assert exact.equality.differing == 0


def test_exactness_is_measured_and_recorded(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    settings = ["--decoders", "copy-verify:k=2,copy-verify:k=3", "--batch", "3"]
    ran = run(*command(model, pairs, "exactness"), *settings, "--record", file)
    assert ran.code == 0
    assert ran.out.count("same step shape: 0 of 7 differ from greedy") == 2
    first, second = read_records([file])
    assert isinstance(first, Exactness)
    assert isinstance(second, Exactness)
    assert [one.candidate for one in (first, second)] == ["copy-verify k=2", "copy-verify k=3"]
    assert (first.same_shape.sentences, first.batch_size, first.precision) == (7, 3, "fp32")
    assert first.width_one.reference.startswith("greedy|")
    assert first.place is not None
    assert (first.place.rows, first.place.width, first.place.moved) == (3, 3, 0)
    before = run(*command(model, pairs), *settings, "--exactness", "--json")  # as it was spelt before
    assert (before.code, before.out) == (0, ran.out)
    assert "`evaluate --exactness` is `longstride exactness` now" in before.err


@pytest.mark.parametrize(("lengths", "kept"), [("1:2,6:3tree", {"tree": 3}), ("1:2", {"k": 2}), ("1:0", {"k": 4})])
def test_exactness_is_of_what_drafts_where_nobody_names_it(
    run: Run, pairs: tuple[Path, Path], tmp_path: Path, lengths: str, kept: dict[str, int]
) -> None:
    """Not of greedy search, the default of a model for which drafts do not pay; as the folder drafts for so many."""
    model, file = write_drafted(tmp_path / "drafted"), tmp_path / "records.jsonl"
    edit_config(model, "default_decoder", value="greedy")
    edit_config(model, "decoders", "draft-verify", "defaults", value={"lengths": lengths})
    ran = run(*command(model, pairs, "exactness"), "--batch", "7", "--record", file)
    assert ran.code == 0, ran.err
    (record,) = read_records([file])
    assert isinstance(record, Exactness)
    assert record.candidate == "draft-verify"
    assert record.options == {"lengths": None, **kept}
    assert (record.same_shape.sentences, record.same_shape.differing) == (7, 0)


def test_exactness_needs_no_references(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    file, asked = tmp_path / "records.jsonl", ["--decoder", "copy-verify", "--record", tmp_path / "records.jsonl"]
    compared = [run(*command(model, (pairs[0], one), "exactness"), *asked) for one in pairs]
    alone = run("exactness", "-m", model, "-s", pairs[0], "--device", "cpu", *asked)
    assert {(ran.code, ran.out) for ran in compared} == {(alone.code, alone.out)}
    *_, record = read_records([file])
    assert isinstance(record, Exactness)
    assert record.same_shape.sentences == 7
    assert len({one.workload.hash for one in read_records([file]) if isinstance(one, Exactness)}) == 3
    for task, nothing in (("nothing", "--task expects"), ("translation", "found none")):
        (tmp_path / "empty").write_text("")
        asked = ["-s", tmp_path / "empty", "--task", task]
        assert nothing in run("exactness", "-m", model, *asked, "--decoder", "copy-verify").error


def test_exactness_of_a_model_that_drafts_nothing_is_refused(run: Run, model: Path, pairs: tuple[Path, Path]) -> None:
    told = "expected a decoder that drafts and promises greedy's output, found greedy, beam; --decoder names one"
    assert told in run(*command(model, pairs, "exactness")).error


def test_a_broken_promise_fails_once_it_is_recorded(
    run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(rule: Any, min_block: int, proposal: Any, reading: Any, eos: int) -> Any:
        """One drafted token more than the rule lets pass."""
        verdict = acceptance.judge(rule, min_block, proposal, reading)
        accepted = (verdict.accepted + 1).minimum(proposal.count)
        drafted = torch.cat([proposal.ids, reading.top[:, -1:]], dim=1)
        ids = torch.where(torch.arange(drafted.shape[1]) < accepted[:, None], drafted, reading.top)
        return replace(verdict, accepted=accepted, ids=ids, newest=ids.gather(1, verdict.committed[:, None] - 1)[:, 0])

    monkeypatch.setattr(step, "judge", careless)
    file = tmp_path / "records.jsonl"
    ran = run(*command(model, pairs, "exactness"), "--decoder", "copy-verify", "--record", file)
    assert ran.code == 1
    assert "Expected greedy's output at the same step shape, found another by copy-verify." in ran.err
    (record,) = read_records([file])
    assert isinstance(record, Exactness)
    assert record.same_shape.differing == len(record.same_shape.mismatches) > 0


def test_corrections_in_several_settings(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    """What a correction is measured by: GLEU, iterations, and whether copying the source changed anything."""
    file = tmp_path / "records.jsonl"
    asked = ["-r", pairs[0], "--task", "correction", "--record", file, "--precision", "fp64"]
    assert run(*command(model, pairs), *asked, "--decoders", "greedy,copy-verify:k=2").code == 0
    assert run(*command(model, pairs, "exactness"), *asked, "--decoder", "copy-verify").code == 0
    greedy, copied, exact = read_records([file])
    assert isinstance(greedy, Quality)
    assert isinstance(copied, Quality)
    assert isinstance(exact, Exactness)
    assert [score.name for score in copied.scores][:3] == ["GLEU", "GLEU (source)", "changed"]
    assert copied.scores[:3] == greedy.scores[:3]
    assert copied.equality is not None
    assert (copied.equality.compared, copied.equality.differing) == (8, 0)
    assert copied.counts is not None
    assert greedy.counts is not None
    assert copied.counts.iterations <= greedy.counts.iterations
    assert copied.against[0].comparison.metric == "GLEU"
    assert exact.same_shape.differing == 0


def test_summaries_are_scored_by_rouge(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("rouge_score")
    file = tmp_path / "records.jsonl"
    asked = ["--task", "summarization", "--intervals", "--record", file]
    ran = run(*command(model, pairs), *asked, "--decoders", "greedy,beam:width=2")
    assert ran.code == 0
    greedy, beam = json.loads(ran.out)
    assert [score["name"] for score in greedy["scores"]][:4] == ["ROUGE-L", "ROUGE-1", "ROUGE-2", "length"]
    for interval, score in zip(greedy["intervals"], greedy["scores"], strict=False):
        assert interval["metric"] == score["name"]
        assert interval["low"] <= score["value"] <= interval["high"]
    _, recorded = read_records([file])
    assert isinstance(recorded, Quality)
    assert recorded.scores[0].value == beam["scores"][0]["value"]
    assert recorded.against[0].comparison.metric == "ROUGE-L"
    refused = run(*command(model, pairs), "-r", pairs[1], "--task", "summarization")
    assert "--task summarization expects one --reference, found 2." in refused.error


def test_intervals_are_kept_where_asked_for(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    told = json.loads(run(*command(model, pairs), "--intervals", "--record", file).out)
    assert run(*command(model, pairs), "--record", file).code == 0
    asked, plain = read_records([file])
    assert isinstance(asked, Quality)
    assert isinstance(plain, Quality)
    assert [asdict(one) for one in asked.intervals] == told["intervals"] != []
    assert plain.intervals == ()


def test_tokenized_bleu_stands_beside_13a(run: Run, model: Path, pairs: tuple[Path, Path]) -> None:
    found = {score["name"]: score for score in json.loads(run(*command(model, pairs), "--tokenized").out)["scores"]}
    assert "|tok:13a|" in found["BLEU"]["signature"]
    assert "|tok:none|" in found["BLEU (tokenized)"]["signature"]


def test_many_lines_that_are_cut_are_counted(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text(f"{'a b c ' * LONGEST}\n" * 6)
    (tmp_path / "ref").write_text("a\n" * 6)
    ran = run(*command(model, (tmp_path / "src", tmp_path / "ref")))
    assert ran.code == 0
    assert ran.err.count("was cut at the model's limit") == 3
    assert "3 further lines were cut" in ran.err
