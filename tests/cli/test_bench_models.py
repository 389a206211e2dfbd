"""bench with several models: each may have decoders of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from longstride.bench.record_files import read_records
from longstride.bench.records import Latency
from longstride.cli.lineup import read_entries
from longstride.contract import OptionError
from tests.folders import write_folder

from .conftest import Run


def test_a_decoder_may_be_for_one_model_alone() -> None:
    text = "a/greedy,b/draft-verify:accept=top:3,gap:1,a/beam:width=2,beam"
    found = [(one.model, one.decoder, one.options) for one in read_entries(text, models=True)]
    assert found == [
        ("a", "greedy", {}),
        ("b", "draft-verify", {"accept": "top:3,gap:1"}),
        ("a", "beam", {"width": "2"}),
        ("", "beam", {}),
    ]
    with pytest.raises(OptionError, match="expects name"):
        read_entries("a/", models=True)


def test_models_are_named_by_folder_or_by_name(run: Run, model: Path, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", seed=4)
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace('"name": "tiny"', '"name": "small"'))
    (tmp_path / "text").write_text("a b c\nb a\n")
    out = tmp_path / "records.jsonl"
    text = ["-s", tmp_path / "text", "-r", tmp_path / "text", "--device", "cpu", "--passes", "1"]
    decoders = ["--decoders", "tiny/greedy,other/greedy:max_length=4,small/beam:width=2", "--set", "max_length=3"]
    ran = run("bench", "-m", model, "-m", other, *text, *decoders, "--no-baselines", "-o", out)
    assert ran.code == 0
    found = [one for one in read_records([out]) if isinstance(one, Latency)]
    assert [one.candidate for one in found] == ["tiny greedy", "small greedy max_length=4", "small beam width=2"]
    again = tmp_path / "again.jsonl"
    named = ["--baseline", "other/greedy:max_length=4", "--same-as", "tiny greedy"]
    assert run("bench", "-m", model, "-m", other, *text, *decoders, *named, "-o", again).code == 0
    told = [one for one in read_records([again]) if isinstance(one, Latency)]
    assert [one.candidate for one in told if one.role == "baseline"] == ["small greedy max_length=4"]
    assert {one.equality.reference for one in told if one.equality is not None} == {"tiny greedy"}
    ran = run("bench", "-m", model, "-m", other, *text, *decoders, "--baseline", "third/greedy", "-o", out)
    assert "--baseline expects one of tiny beam, tiny greedy" in ran.error
    ran = run("bench", "-m", model, "-m", other, *text, "--decoders", "third/greedy", "-o", out)
    assert "--decoders expects one of the models" in ran.error
    assert "found 'third'" in ran.error
