"""Limits that a model folder asks for hold unless whoever decodes says otherwise, option by option."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longstride import model_folder
from longstride.contract import Limits, ModelFolderError
from longstride.model_folder import DecoderConfig, ModelFolder, Part
from longstride.translator import load
from tests.folders import write_folder


def with_limits(folder: Path, **limits: Any) -> Path:
    """A model folder that asks for limits."""
    write_folder(folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "limits": limits}))
    return folder


def test_options_override_single_limits(tmp_path: Path) -> None:
    translator = load(with_limits(tmp_path / "m", max_length=7, min_length=2, max_extra=1000), device="cpu")
    _, limits = translator.decoder("greedy")
    assert limits == Limits(max_length=7, min_length=2, max_extra=1000)
    _, limits = translator.decoder("greedy", max_length=5)
    assert limits == Limits(max_length=5, min_length=2, max_extra=1000)
    found = translator.translate(["a b c", "d"], "greedy")
    assert all(2 <= len(one.tokens) <= 7 for one in found)


def test_limits_are_written_where_they_are_not_the_usual_ones(tmp_path: Path) -> None:
    translator = load(write_folder(tmp_path / "m"), device="cpu")
    part = Part("transformer", translator.part("model").options, translator.part("model"))
    for limits in (None, Limits(), Limits(max_length=9, forced_first=6, banned=(7, 8))):
        decoders = {"greedy": DecoderConfig({"model": "model"})}
        model_folder.write(
            tmp_path / "n", {"model": part}, decoders, "greedy", translator.target_tokenizer, limits=limits
        )
        assert ModelFolder(tmp_path / "n").config.limits == (limits or Limits())
        told = json.loads((tmp_path / "n" / "config.json").read_text()).get("limits")
        assert told == (None if limits in (None, Limits()) else {"max_length": 9, "forced_first": 6, "banned": [7, 8]})


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_length": 0}, "max_length expects"),
        ({"longest": 3}, "longest"),
        ({"max_length": 3, "min_length": 4}, "min_length expects 0 to max_length"),
    ],
)
def test_limits_that_cannot_be_are_refused(tmp_path: Path, limits: dict[str, Any], expected: str) -> None:
    with pytest.raises(ModelFolderError, match=expected):
        load(with_limits(tmp_path / "m", **limits), device="cpu")
