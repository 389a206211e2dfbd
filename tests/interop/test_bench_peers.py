"""Peers in a benchmark: who takes part, on what, and what their records say. No test looks at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longstride.bench.record_files import read_records
from longstride.bench.records import Latency
from longstride.cli.peers import peer_candidates, read_peers
from longstride.contract import OptionError, Source
from longstride.interop.hf import export_hf
from longstride.interop.peers import HuggingFace
from longstride.tasks.toys import generate
from longstride.translator import load
from tests.cli.conftest import Run, model, run

pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")

__all__ = ["model", "run"]

CTRANSLATE2 = [f"ctranslate2 {precision} {search}" for precision in ("fp32", "int8") for search in ("greedy", "beam")]
HF = ["hf fp32 greedy", "hf fp32 beam"]


@pytest.fixture
def pairs(tmp_path: Path) -> list[Any]:
    made = list(generate("reverse", 5, seed=3))
    for place, name in enumerate(("src", "ref")):
        (tmp_path / name).write_text("".join(pair[place] + "\n" for pair in made))
    files = ["-s", tmp_path / "src", "-r", tmp_path / "ref", "-o", tmp_path / "records.jsonl"]
    return [*files, "--device", "cpu", "--passes", "2", "--set", "max_length=4"]


def test_peers_race_with_ours_and_say_how(run: Run, model: Path, pairs: list[Any], tmp_path: Path) -> None:
    asked = ["--peers", "hf,ctranslate2", "--sample", "hf=3", "--baseline", "greedy", "--baseline", CTRANSLATE2[0]]
    (tmp_path / "hf").mkdir()
    export_hf(load(model, device="cpu"), tmp_path / "hf")
    ran = run("bench", "-m", model, *pairs, *asked, "--assistant", tmp_path / "hf")
    assert ran.code == 0, ran.err
    assert "| ctranslate2 int8 greedy" in ran.out
    found = [one for one in read_records([tmp_path / "records.jsonl"]) if isinstance(one, Latency)]
    assert [one.candidate for one in found] == ["greedy", "beam", *HF, *CTRANSLATE2, "hf-assisted fp32 greedy"]
    by_name = {one.candidate: one for one in found}
    assert [one.candidate for one in found if one.role == "baseline"] == ["greedy", CTRANSLATE2[0]]
    assert len(by_name["hf fp32 greedy"].output_lengths) == 3
    assert len(by_name["hf fp32 greedy"].latencies_us) == 1
    assert len(by_name[CTRANSLATE2[0]].latencies_us) == 2
    for name in (*HF, *CTRANSLATE2):
        one = by_name[name]
        assert one.counts is None
        assert one.limits.max_length == 4
        assert one.model == by_name["greedy"].model
        assert {"library", "threads", "length_limits", "clock", "weights"} <= one.notes.keys()
        assert ("beam" in one.notes) == name.endswith("beam")
        assert one.precision in name
    for name in ("hf fp32 greedy", "hf-assisted fp32 greedy", CTRANSLATE2[0]):
        equality = by_name[name].equality
        assert equality is not None
        assert equality.reference == "greedy"
        assert equality.differing == 0


def test_a_peer_may_be_the_only_baseline(run: Run, model: Path, pairs: list[Any], tmp_path: Path) -> None:
    asked = ["--peers", "ctranslate2", "--baseline", CTRANSLATE2[2]]
    ran = run("bench", "-m", model, *pairs, *asked)
    assert ran.code == 0, ran.err
    found = [one for one in read_records([tmp_path / "records.jsonl"]) if isinstance(one, Latency)]
    assert [one.candidate for one in found] == ["greedy", "beam", *CTRANSLATE2]
    assert [one.candidate for one in found if one.role == "baseline"] == [CTRANSLATE2[2]]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--peers", "marian"], "--peers expects hf, ctranslate2, hf-compiled or several"),
        (["--peers", "hf-compiled"], "--device expects cuda, found cpu"),
        (["--peers", "hf-assisted"], "--peers expects hf, ctranslate2, hf-compiled or several"),
        (["--assistant", "nowhere"], "nowhere: expected a Hugging Face folder"),
        (["--peers", "hf", "--sample", "ctranslate2=3"], "--sample expects a decoder of the line-up"),
        (["--peers", "hf", "--baseline", "ctranslate2 int8 greedy"], "--baseline expects one of greedy, beam"),
    ],
)
def test_misuse_is_told(run: Run, model: Path, pairs: list[Any], tmp_path: Path, asked: list[str], told: str) -> None:
    assert told in run("bench", "-m", model, *pairs, *asked).error
    assert not (tmp_path / "records.jsonl").exists()


@pytest.mark.parametrize("drafts", ["nothing", "prompt lookup", "an assistant"])
def test_generate_gives_greedys_output(model: Path, tmp_path: Path, drafts: str) -> None:
    pytest.importorskip("transformers")
    translator = load(model, device="cpu")
    export_hf(translator, tmp_path)
    assistant = tmp_path if drafts == "an assistant" else None
    peer = HuggingFace(tmp_path, prompt_lookup=drafts == "prompt lookup", assistant=assistant)
    # Away from the last position, where a draft's last token could not be read.
    decoder, limits = translator.decoder("greedy", max_length=9)
    ids = Source.of(translator.encode([source for source, _ in generate("reverse", 3)]))
    assert peer.decode(ids, limits).tokens == decoder.decode(ids, limits).tokens


def test_an_assistant_has_the_models_vocabulary(model: Path, tmp_path: Path) -> None:
    for name, folder in (("model", model), ("bundled", "bundled")):
        (tmp_path / name).mkdir()
        export_hf(load(folder, device="cpu"), tmp_path / name)
    with pytest.raises(OptionError, match="expected an assistant with the model's"):
        HuggingFace(tmp_path / "model", assistant=tmp_path / "bundled")


def test_nobody_asked() -> None:
    translator = load("bundled", device="cpu")
    assert read_peers(None, translator) == []
    assert peer_candidates([], translator, [], {}) == []
    with pytest.raises(OptionError, match="--peers expects"):
        read_peers("", translator)
