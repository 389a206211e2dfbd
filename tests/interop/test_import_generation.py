"""generation_config.json as limits and a search: lengths are counted as transformers counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longstride.contract import Limits
from longstride.interop.hf.fields import Fields
from longstride.interop.hf.generation import UNBOUND, Generation, read_generation

IDS = {"eos_token_id": 3, "pad_token_id": 0, "decoder_start_token_id": 2}


def read(folder: Path, config: dict[str, Any] | None = None, **fields: Any) -> Generation:
    (folder / "generation_config.json").write_text(json.dumps({**IDS, **fields}))
    return read_generation(folder, Fields(config or {}, "config.json"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_length": 24}, {"max_length": 23}),
        ({"max_length": 24, "forced_eos_token_id": 3}, {"max_length": 22}),
        ({"max_length": 24, "forced_eos_token_id": [3]}, {"max_length": 22}),
        ({"max_new_tokens": 24, "max_length": 9}, {"max_length": 24}),
        ({"max_new_tokens": 24, "forced_eos_token_id": 3}, {"max_length": 23}),
        ({"max_length": 24, "min_length": 6}, {"max_length": 23, "min_length": 5}),
        ({"max_length": 24, "min_length": 6, "min_new_tokens": 3}, {"max_length": 23, "min_length": 3}),
        ({"max_length": 24, "min_length": 99}, {"max_length": 23, "min_length": 23}),
        ({"max_length": 24, "forced_bos_token_id": 7}, {"max_length": 23, "forced_first": 7}),
        ({"max_length": 24, "no_repeat_ngram_size": 3}, {"max_length": 23, "no_repeat_ngram": 3}),
        ({}, {}),
    ],
)
def test_limits(tmp_path: Path, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read(tmp_path, **fields).limits == Limits(**expected, max_extra=UNBOUND)


def test_no_longest_output_is_said(tmp_path: Path) -> None:
    assert "says no max_length" in read(tmp_path).notes[0]
    assert not read(tmp_path, max_length=20).notes


def test_sampling_is_said(tmp_path: Path) -> None:
    (note,) = read(tmp_path, max_length=20, do_sample=True, temperature=0.7, top_k=5).notes
    assert "asks for sampling" in note


def test_beams(tmp_path: Path) -> None:
    found = read(tmp_path, num_beams=4, length_penalty=0.8, early_stopping=True)
    search = {"width": 4, "length_penalty": "hf", "strength": 0.8, "early_stopping": True}
    expected = {**search, "forced_eos": False}
    assert (found.decoder, found.decoder_options) == ("beam", expected)
    found = read(tmp_path, num_beams=2, early_stopping="never", forced_eos_token_id=3)
    assert (found.decoder_options["early_stopping"], found.decoder_options["forced_eos"]) == ("never", True)
    found = read(tmp_path, length_penalty=0.8)
    assert (found.decoder, found.decoder_options) == ("greedy", {})


def test_what_is_forbidden(tmp_path: Path) -> None:
    assert read(tmp_path, bad_words_ids=[[9], [3], [5]], suppress_tokens=[7]).suppress == (5, 7, 9)
    assert read(tmp_path).suppress == ()


def test_values_that_change_nothing_are_fine(tmp_path: Path) -> None:
    neutral = {
        "repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "num_beam_groups": 1, "diversity_penalty": 0,
        "begin_suppress_tokens": None, "sequence_bias": None, "guidance_scale": 1, "num_return_sequences": 1,
        "renormalize_logits": False, "top_k": 50, "temperature": 1.0, "use_cache": True, "_from_model_config": True,
        "transformers_version": "4.30", "remove_invalid_values": True, "cache_implementation": None,
    }  # fmt: skip
    assert read(tmp_path, max_length=24, **neutral) == read(tmp_path, max_length=24)


def test_the_first_input_is_looked_for_as_transformers_does(tmp_path: Path) -> None:
    assert read(tmp_path, {"decoder_start_token_id": 9}).start == 2
    assert read(tmp_path, {"decoder_start_token_id": 9}, decoder_start_token_id=None, bos_token_id=5).start == 5
    assert read(tmp_path, {"decoder_start_token_id": 9}, decoder_start_token_id=None).start == 9


def test_old_folders(tmp_path: Path) -> None:
    """config.json says it all; an own file makes what it says of generating void."""
    told = {**IDS, "bos_token_id": 5, "max_length": 10, "num_beams": 3, "force_bos_token_to_be_generated": True}
    old = read_generation(tmp_path, Fields(told, "config.json"))
    assert (old.decoder, old.limits.max_length, old.limits.forced_first) == ("beam", 9, 5)
    new = read(tmp_path, told, max_length=20)
    assert (new.decoder, new.limits.max_length, new.limits.forced_first) == ("greedy", 19, None)
