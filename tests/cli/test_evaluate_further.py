"""Further scores through the command line: any factorisation, mutual information, contrastive pairs, bins by length."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import longstride
from longstride import model_folder
from longstride.bench.record_files import read_records
from longstride.bench.records import Contrastive, Quality
from longstride.cli import contrastive as contrastive_command
from longstride.cli import evaluate
from longstride.contract import EOS
from longstride.model_folder import DecoderConfig, Part
from longstride.tasks.contrastive import Cell
from longstride.tasks.ngrams import OverTranslation
from longstride.tasks.translation import Bleu
from tests.cli.conftest import Run, write_pairs
from tests.decoding.interleaved import tiny_interleaved
from tests.decoding.test_draft_verify import write_drafted
from tests.folders import LONGEST, words
from tests.tasks.test_perplexity import step_by_step


def write_interleaved(path: Path, seed: int = 0, **variant: Any) -> Path:
    tokenizer = words()
    model = tiny_interleaved(seed, variant, vocabulary=tokenizer.size, longest=LONGEST)
    parts = {
        "model": Part("transformer", model.model.options, model.model),
        "interleaving": Part("interleaving", model.options, model.interleaving),
    }
    decoders = {"interleaved": DecoderConfig({name: name for name in parts})}
    model_folder.write(path, parts, decoders, "interleaved", tokenizer, provenance={"recipe": {"name": path.name}})
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[Path, Path]:
    return write_pairs(tmp_path, 9, ("", "a"), ("b", ""))


def command(model: Path | str, pairs: tuple[Path, Path], *more: object) -> list[Any]:
    return ["evaluate", "-m", model, "-s", pairs[0], "-r", pairs[1], "--device", "cpu", "--precision", "fp64", *more]


def scores(told: dict[str, Any]) -> dict[str, Any]:
    return {score["name"]: score["value"] for score in told["scores"]}


def surprises(folder: Path, pairs: tuple[Path, Path], variant: dict[str, Any], seed: int) -> tuple[float, int]:
    """Summed over all references, step by step, and how many tokens there are."""
    model = tiny_interleaved(seed, variant, vocabulary=words().size, longest=LONGEST)
    translator = longstride.load(folder, device="cpu", precision="fp64")
    for one in (model.model, model.interleaving):  # as they were written, in fp32
        one.load_state_dict({name: weight.float().double() for name, weight in one.state_dict().items()})
    total, tokens = 0.0, 0
    for source, target in zip(*(path.read_text().split("\n")[:-1] for path in pairs), strict=True):
        if source and target:
            (ids,), (wanted,) = translator.encode([source]), translator.target_tokenizer.encode_many([target])
            total -= step_by_step(model, ids, [*wanted, EOS])
            tokens += len(wanted) + 1
    return total, tokens


def test_perplexity_and_mutual_information_of_an_interleaved_model(
    run: Run, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    model = write_interleaved(tmp_path / "both-ends", 1, h=2)
    base = write_interleaved(tmp_path / "counterpart", 2, h=2, autoregressive=True)
    file = tmp_path / "records.jsonl"
    ran = run(*command(model, pairs, "--mutual-information", base, "--record", file))
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    mine, tokens = surprises(model, pairs, {"h": 2}, 1)
    theirs, _ = surprises(base, pairs, {"h": 2, "autoregressive": True}, 2)
    found = scores(told)
    assert found["perplexity"] == pytest.approx(math.exp(mine / tokens), rel=1e-6)
    assert found["PMI"] == pytest.approx((mine - theirs) / tokens, rel=1e-5)
    assert found["PMI (log10)"] == pytest.approx((mine - theirs) / tokens / math.log(10), rel=1e-5)
    information = told["mutual_information"]
    assert information["nats"] == found["PMI"]
    assert information["log10"] == found["PMI (log10)"]
    assert information["low"] <= information["nats"] <= information["high"]
    assert information["base_perplexity"] == pytest.approx(math.exp(theirs / tokens), rel=1e-6)
    (record,) = read_records([file])
    assert isinstance(record, Quality)
    assert record.mutual_information is not None
    assert record.mutual_information.base == str(base)
    assert {score.name: score.value for score in record.scores} == found


def test_the_ordinary_transformer_is_the_base_of_left_to_right(
    run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    several = write_interleaved(tmp_path / "sa", 1, h=1, c=2)
    told = json.loads(run(*command(several, pairs, "--mutual-information", model)).out)
    base = json.loads(run(*command(model, pairs)).out)
    found = scores(told)
    assert found["PMI"] == pytest.approx(math.log(found["perplexity"] / scores(base)["perplexity"]))
    assert "order:left-to-right|together:2" in told["scores"][-1]["signature"]


def test_a_model_with_a_first_head_of_its_own_has_a_perplexity(run: Run, pairs: tuple[Path, Path]) -> None:
    found = scores(json.loads(run(*command("bundled", pairs)).out))
    assert found["perplexity"] > 1


def test_drafts_are_scored_by_their_verifier_and_a_drafter_alone_by_nobody(
    run: Run, pairs: tuple[Path, Path], contrastive: Path, tmp_path: Path
) -> None:
    folder = write_drafted(tmp_path / "drafted")
    found = [
        scores(json.loads(run(*command(folder, pairs, "--decoder", one)).out)) for one in ("greedy", "draft-verify")
    ]
    assert found[0]["perplexity"] == found[1]["perplexity"]
    asked = ["contrastive", contrastive, "-m", folder, "--device", "cpu"]
    assert json.loads(run(*asked, "--decoder", "greedy").out) == json.loads(run(*asked).out)
    assert "can score given translations, found one for draft" in run(*asked, "--decoder", "draft").error


def test_exact_match_over_translation_and_bins(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    file, outputs = tmp_path / "records.jsonl", tmp_path / "out"
    asked = ["--exact-match", "--over-translation", "--by-length", "3", "--record", file, "-o", outputs]
    told = json.loads(run(*command(model, pairs, *asked)).out)
    found = scores(told)
    assert list(found) == ["BLEU", "chrF", "exact match", "OTEM-2", "OTEM-4", "repetition", "perplexity"]
    lines, references, sources = (path.read_text().split("\n")[:-1] for path in (outputs, pairs[1], pairs[0]))
    same = sum(line == reference for line, reference in zip(lines, references, strict=True))
    assert found["exact match"] == pytest.approx(100 * same / 11)
    assert found["OTEM-4"] == OverTranslation(4).score(lines, references).value
    order = sorted(range(11), key=lambda place: len(sources[place].split()))
    assert [one["sentences"] for one in told["by_length"]] == [4, 4, 3]
    assert [one["shortest"] for one in told["by_length"]] == [len(sources[order[at]].split()) for at in (0, 4, 8)]
    assert [one["longest"] for one in told["by_length"]] == [len(sources[order[at]].split()) for at in (3, 7, 10)]
    for one, places in zip(told["by_length"], (order[:4], order[4:8], order[8:]), strict=True):
        expected = Bleu().score([lines[place] for place in places], [references[place] for place in places])
        assert (one["scores"][0]["name"], one["scores"][0]["value"]) == ("BLEU", expected.value)
    (record,) = read_records([file])
    assert isinstance(record, Quality)
    assert [(one.shortest, one.longest, one.sentences) for one in record.by_length] == [
        (one["shortest"], one["longest"], one["sentences"]) for one in told["by_length"]
    ]


def test_right_outputs_match_exactly(run: Run, model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    assert run(*command(model, pairs, "-o", tmp_path / "out")).code == 0
    told = json.loads(run(*command(model, (pairs[0], tmp_path / "out"), "--exact-match")).out)
    assert scores(told)["exact match"] == 100.0


def test_bins_are_shown_to_people(
    run: Run, model: Path, pairs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "out", Console(force_terminal=True, color_system=None, width=160))
    told = run(*command(model, pairs, "--by-length", "2")).out
    assert "by source length" in told
    told = run(*command(model, pairs, "--by-length", "2", "--decoders", "greedy,beam")).out
    assert "greedy, by source length" in told
    assert "beam, by source length" in told


ENTRIES = [
    {
        "source": "a b c",
        "reference": "c b a",
        "errors": [
            {"type": "order", "contrastive": "a b c", "distance": 1},
            {"type": "order", "contrastive": "b c a", "distance": 20},
        ],
    },
    {"source": "d e", "reference": "e d", "errors": [{"type": "word", "contrastive": "e f"}]},
    {
        "source": "g h i j",
        "reference": "j i h g",
        "errors": [{"type": "order", "contrastive": "j h i g", "distance": 1}],
    },
]


@pytest.fixture
def contrastive(tmp_path: Path) -> Path:
    (tmp_path / "pairs.json").write_text(json.dumps(ENTRIES))
    return tmp_path / "pairs.json"


@pytest.mark.parametrize("variant", [{"h": 1, "c": 1}, {"h": 1, "c": 2}, {"h": 2}, {"h": 4}], ids=str)
def test_contrastive_pairs_under_any_factorisation(
    run: Run, contrastive: Path, tmp_path: Path, variant: dict[str, Any]
) -> None:
    folder = write_interleaved(tmp_path / "model", 3, **variant)
    model = tiny_interleaved(3, variant, vocabulary=words().size, longest=LONGEST)
    translator = longstride.load(folder, device="cpu", precision="fp64")

    def score(source: str, target: str) -> float:
        (ids,), (wanted,) = translator.encode([source]), translator.target_tokenizer.encode_many([target])
        return step_by_step(model, ids, [*wanted, EOS])

    right = [
        [score(one["source"], one["reference"]) > score(one["source"], error["contrastive"]) for error in one["errors"]]
        for one in ENTRIES  # type: ignore[index]
    ]
    file = tmp_path / "records.jsonl"
    asked = ["contrastive", contrastive, "-m", folder, "--device", "cpu", "--precision", "fp64"]
    ran = run(*asked, "--record", file, "--name", "mine", "--workload", "few")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert (told["pairs"], told["right"]) == (4, sum(map(sum, right)))
    assert told["accuracy"] == pytest.approx(100 * told["right"] / 4)
    near = right[0][0] + right[2][0]
    assert told["by_distance"] == {
        "1": {"pairs": 2, "right": near, "accuracy": 50.0 * near},
        ">15": {"pairs": 1, "right": right[0][1], "accuracy": 100.0 * right[0][1]},
    }
    assert list(told["by_type"]) == ["order", "word"]
    assert told["by_type"]["order"]["by_distance"] == told["by_distance"]
    assert told["by_type"]["word"] == {
        "pairs": 1,
        "right": right[1][0],
        "accuracy": 100.0 * right[1][0],
        "by_distance": {},
    }
    (record,) = read_records([file])
    assert isinstance(record, Contrastive)
    assert (record.candidate, record.workload.name, record.workload.size) == ("mine", "few", 4)
    assert record.cells == (
        Cell("order", 1, 2, near),
        Cell("order", 20, 1, right[0][1]),
        Cell("word", None, 1, right[1][0]),
    )
    assert record.signature == told["signature"]
    for before in (["--contrastive", contrastive], [f"--contrastive={contrastive}"]):  # as it was spelt before
        again = run("evaluate", *asked[2:], *before)
        assert json.loads(again.out) == told
        assert "`evaluate --contrastive` is `longstride contrastive` now" in again.err


def test_contrastive_pairs_are_shown_to_people(
    run: Run, model: Path, contrastive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrastive_command, "out", Console(force_terminal=True, color_system=None, width=160))
    told = run("contrastive", contrastive, "-m", model, "--decoder", "greedy").out
    assert "distance >15" in told
    assert "word" in told
    contrastive.write_text(contrastive.read_text().replace('"word"', '"[/word]"'))
    assert "[/word]" in run("contrastive", contrastive, "-m", model, "--decoder", "greedy").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Missing option '-s' / '--source'. See `longstride evaluate --help`."),
        (["-s", "src"], "Missing option '-r' / '--reference'. See `longstride evaluate --help`."),
        (["--contrastive", "pairs.json", "-s", "src"], "No such option: -s. See `longstride contrastive --help`."),
        (["--contrastive", "pairs.json", "--decoder", "beem"], "has no decoder 'beem'"),
        (["--contrastive", "pairs.json", "--name", "x"], "--name expects --record"),
        (["--contrastive", "nowhere"], "nowhere: expected a text file, found none"),
        (["--contrastive", "src"], "src, line 1: expected JSON"),
        (["-s", "src", "-r", "ref", "--by-length", "12"], "at most as many bins as there are sentences, 11, found 12"),
        (["-s", "src", "-r", "ref", "--mutual-information", "nowhere"], "nowhere"),
        (
            ["-s", "src", "-r", "ref", "--mutual-information", "bundled"],
            "expects one tokenizer: bundled has another than",
        ),
        (["-s", "src", "-r", "ref", "--mutual-information", "ends"], "expects a base of one token per step, found 2"),
        (["-s", "src", "-r", "ref", "--mutual-information", "one"], "in the model's order, left-to-right, found 2-dir"),
    ],
)
def test_misuse_is_told_in_one_sentence(
    run: Run,
    model: Path,
    pairs: tuple[Path, Path],
    contrastive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_interleaved(tmp_path / "ends", h=2)
    write_interleaved(tmp_path / "one", h=2, autoregressive=True)
    ran = run("evaluate", "-m", model, "--device", "cpu", *arguments)
    assert told in ran.error
    assert "reading references" not in ran.err  # refused before any work is done


def test_help_describes_the_format_of_contrastive_pairs(run: Run) -> None:
    assert "LingEval97" in run("contrastive", "--help").out
