"""Special ids: those of our own vocabularies unless a model folder says otherwise, checked wherever they are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longstride
from longstride import model_folder
from longstride.contract import DEFAULT_IDS, MASK, PAD, START, ModelFolderError, OptionError, SpecialIds
from longstride.contract.options import as_dict, parse
from longstride.model_folder import DecoderConfig, ModelFolder, Part
from longstride.nn.transformer import Transformer
from longstride.registry import part_builder
from tests.folders import LONGEST, edit_config, words, write_folder
from tests.models import tiny_model

ids = st.integers(0, 20)


@given(ids, ids | st.none(), ids, ids, ids | st.none(), st.lists(ids).map(tuple) | st.none())
def test_they_survive_a_round_trip_and_let_every_output_end(
    pad: int, unk: int | None, start: int, eos: int, mask: int | None, suppress: tuple[int, ...] | None
) -> None:
    if suppress is not None and eos in suppress:
        with pytest.raises(OptionError, match="no output could end"):
            SpecialIds(pad, unk, start, eos, mask, suppress)
        return
    special = SpecialIds(pad, unk, start, eos, mask, suppress)
    assert parse(SpecialIds, as_dict(special)) == special
    assert eos not in special.never_generated
    assert set(special.never_generated) == ({pad, start, mask} - {eos, None} if suppress is None else set(suppress))
    assert special.largest == max({pad, start, eos, *special.never_generated, unk or 0, mask or 0})


def test_defaults_are_those_of_our_own_vocabularies() -> None:
    assert SpecialIds().never_generated == DEFAULT_IDS.never_generated == (PAD, START, MASK)
    assert words().special == SpecialIds()


def test_a_folder_tells_them_once_and_every_part_that_is_loaded_has_them(tmp_path: Path) -> None:
    special = SpecialIds(start=5, mask=None)
    model = tiny_model(vocabulary=words().size, longest=LONGEST, special=special)
    part = Part("transformer", model.options, model)
    decoders = {"greedy": DecoderConfig({"model": "model"})}
    model_folder.write(tmp_path / "model", {"model": part}, decoders, "greedy", words())
    folder = ModelFolder(tmp_path / "model")
    assert folder.special == special
    assert "special" not in folder.parts["model"].options
    loaded = folder.load("model", part_builder(folder, "model"))
    assert isinstance(loaded, Transformer)
    assert loaded.special == special
    assert folder.identity != ModelFolder(write_folder(tmp_path / "other")).identity


def test_an_old_folder_means_the_defaults(tmp_path: Path) -> None:
    folder = ModelFolder(write_folder(tmp_path / "model"))
    assert "special_ids" not in (tmp_path / "model" / "config.json").read_text()
    assert folder.special == SpecialIds()


def test_parts_that_disagree_are_not_written(tmp_path: Path) -> None:
    model = tiny_model(vocabulary=words().size)
    other = replace(model.options, special=SpecialIds(start=5))
    parts = {"model": Part("transformer", model.options, model), "second": Part("transformer", other, model)}
    with pytest.raises(OptionError, match="special ids of 'model'"):
        model_folder.write(tmp_path / "model", parts, {"greedy": DecoderConfig({"model": "model"})}, "greedy", words())
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"pad": -1}, "pad expects a whole number"),
        ({"eos": 7}, "eos expects the tokenizer's 3, found 7"),
        ({"begin": 1}, "there is no option"),
        ({"start": 10**6}, "special_ids expects ids of the tokenizers"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, found: dict[str, int], told: str) -> None:
    path = write_folder(tmp_path / "model")
    edit_config(path, "special_ids", value=found)
    with pytest.raises(ModelFolderError, match=told):
        longstride.load(path)
