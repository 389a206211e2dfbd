"""What cannot be imported is refused in one sentence that names the file, the field or the tensor."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from longstride.contract import RESERVED, ModelFolderError
from longstride.interop.hf import import_folder
from longstride.text.tokenizer import Tokenizer, WordsTokenizer
from tests.interop.hf_models import VOCABULARY, build, saved, words

pytest.importorskip("transformers")

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BART that could be imported."""
    return saved(build("bart"), tmp_path_factory.mktemp("refusals") / "bart")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    (tmp_path / "bart").mkdir()
    for file in original.iterdir():
        (tmp_path / "bart" / file.name).write_bytes(file.read_bytes())
    return tmp_path / "bart"


def told(folder: Path, tokenizer: Tokenizer | None = None) -> str:
    """The sentence that an import is refused with."""
    with pytest.raises(ModelFolderError) as refused:
        import_folder(folder, tokenizers=(tokenizer or words(), tokenizer or words()))
    said = str(refused.value)
    assert said.startswith(str(folder))
    assert said.endswith(".")
    assert "\n" not in said
    return said


def change(file: Path, **fields: Any) -> None:
    """Change fields of a JSON file; None takes one out."""
    values = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "found the decoder-only GPT2LMHeadModel"),
        ({"architectures": ["BartForCausalLM"]}, "found the decoder-only BartForCausalLM"),
        ({"model_type": "fsmt", "architectures": ["FSMTForConditionalGeneration"]}, "found the architecture FSMT"),
        ({"architectures": ["BartForSequenceClassification"]}, "found the architecture BartForSequence"),
        ({"model_type": None, "architectures": None}, "found the architecture None"),
        ({"auto_map": {"AutoModel": "modeling_mine.Mine"}}, "code of its own ({'AutoModel': 'modeling_mine.Mine'})"),
        ({"trust_remote_code": True}, "code of its own"),
        ({"encoder_attention_heads": 3}, "encoder_heads expects a divisor of the width 16, found 3"),
        ({"decoder_ffn_dim": 8}, "'model.decoder.layers.0.fc1.weight' expects the shape [8, 16], found [24, 16]"),
        ({"activation_function": "mish"}, "activation_function expects relu, gelu"),
        ({"normalize_before": True}, "the field normalize_before = True is not supported"),
        ({"hidden_size": 18}, "the field hidden_size = 18 is not supported"),  # another name of d_model
        ({"custom_pipelines": {"mine": {}}}, "the field custom_pipelines = {'mine': {}} is not supported"),
        ({"dropout": float("nan")}, "dropout expects finite numbers, found nan"),
        ({"of_tomorrow": [float("inf")]}, "of_tomorrow expects finite numbers, found [inf]"),
        ({"quantization_config": {"bits": 4}}, "the field quantization_config = {'bits': 4} is not supported"),
        ({"d_model": "wide"}, "d_model expects a whole number from 1 on, found 'wide'"),
        ({"d_model": 18}, "'model.shared.weight' expects the shape [40, 18], found [40, 16]"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "heads expects a divisor of the width 16"),
        ({"encoder_layers": 3}, "the tensor 'model.encoder.layers.2.self_attn.q_proj.weight', found it missing"),
        ({"tie_word_embeddings": False}, "expected the tensor 'lm_head.weight', found it missing"),
    ],
)  # fmt: skip
def test_settings(folder: Path, fields: dict[str, Any], expected: str) -> None:
    change(folder / "config.json", **fields)
    assert expected in told(folder)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"repetition_penalty": 1.2}, "the field repetition_penalty = 1.2 is not supported"),
        ({"encoder_no_repeat_ngram_size": 2}, "the field encoder_no_repeat_ngram_size = 2 is not supported"),
        ({"num_beam_groups": 2}, "the field num_beam_groups = 2 is not supported"),
        ({"begin_suppress_tokens": [7]}, "the field begin_suppress_tokens = [7] is not supported"),
        ({"sequence_bias": [[[5], -1.0]]}, "the field sequence_bias"),
        ({"bad_words_ids": [[5, 6]]}, "bad_words_ids expects words of one token each, found [5, 6]"),
        ({"forced_eos_token_id": [3, 7]}, "forced_eos_token_id expects one id, or null, found [3, 7]"),
        ({"forced_eos_token_id": 40}, "forced_eos_token_id expects an id of the model's vocabulary, found 40"),
        (
            {"forced_eos_token_id": 7, "suppress_tokens": [7]},
            "forced_eos_token_id expects an id that is not suppressed",
        ),
        ({"num_beams": 2000}, "num_beams expects a whole number from 1 to 1000, found 2000"),
        ({"num_beams": 2, "length_penalty": 1e300}, "length_penalty expects a number from -10 to 10, found 1e+300"),
        ({"length_penalty": float("nan")}, "length_penalty expects finite numbers, found nan"),
        ({"max_length": 10**9}, "max_length expects a whole number from 1 to 1000000, found 999999998"),
        ({"max_new_tokens": 10**9}, "max_length expects a whole number from 1 to 1000000"),
        ({"bad_words_ids": True}, "bad_words_ids expects a list, found True"),
        ({"suppress_tokens": ["the"]}, "suppress_tokens expects ids, found 'the'"),
        ({"max_length": -5}, "max_length expects a whole number from 1 on, found -5"),
        ({"no_repeat_ngram_size": 10**9}, "no_repeat_ngram_size expects a whole number from 0 to 1000000"),
        ({"eos_token_id": [3, 4]}, "eos_token_id expects one id, found [3, 4]"),
        ({"early_stopping": "soon"}, "early_stopping expects true, false or never, found 'soon'"),
        ({"max_length": 2}, "max_length expects room for a token"),
        ({"forced_bos_token_id": 40}, "forced_bos_token_id expects an id of the model's vocabulary, found 40"),
        ({"suppress_tokens": [3]}, "suppress may not hold eos, 3"),
        ({"renormalize_logits": True, "num_beams": 4}, "renormalize_logits expects neither min_length nor"),
    ],
)
def test_generation(folder: Path, fields: dict[str, Any], expected: str) -> None:
    change(folder / "generation_config.json", **fields)
    assert expected in told(folder)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        # No bucket would be left for distances of 16 and more.
        ("t5", {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 16}, "half of the 32"),
        # transformers gives padding no position, wherever it stands.
        ("m2m100", {"decoder_start_token_id": 0}, "not to begin with padding, found its id, 0"),
        ("m2m100", {"forced_bos_token_id": 0}, "not to begin with padding, found its id, 0"),
    ],
)
def test_families_of_their_own(tmp_path: Path, name: str, changes: dict[str, Any], expected: str) -> None:
    assert expected in told(saved(build(name, **changes), tmp_path / "hf"))


def _missing(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in state.items() if name != "model.decoder.layers.0.fc1.bias"}


def _misshapen(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**state, "model.decoder.layers.0.fc1.bias": torch.zeros(3)}


def _whole_numbers(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**state, "model.decoder.layers.0.fc1.bias": torch.zeros(24, dtype=torch.int8)}


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (_missing, "expected the tensor 'model.decoder.layers.0.fc1.bias', found it missing"),
        (_misshapen, "'model.decoder.layers.0.fc1.bias' expects the shape [24], found [3]"),
        (_whole_numbers, "'model.decoder.layers.0.fc1.bias' expects floating-point numbers, found torch.int8"),
    ],
)
def test_tensors(folder: Path, spoil: Callable[[dict[str, Any]], dict[str, Any]], expected: str) -> None:
    save_file(spoil(load_file(folder / WEIGHTS)), folder / WEIGHTS)
    assert expected in told(folder)


@pytest.mark.parametrize("kept", [0, 7, 2000])
def test_truncated_weights(folder: Path, kept: int) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:kept])
    assert f"{WEIGHTS}: not a safetensors file" in told(folder)


def test_no_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    assert "expected model.safetensors or pytorch_model.bin, whole or in shards, found none" in told(folder)
    (folder / "tf_model.h5").write_bytes(b"")
    assert "found tf_model.h5" in told(folder)


def test_a_shard_that_is_missing_or_away(folder: Path) -> None:
    state = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).rename(folder / "one.safetensors")
    index = folder / f"{WEIGHTS}.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(state, "one.safetensors") | {"more": "one.safetensors"}}))
    assert "expected the tensor 'more', found it missing" in told(folder)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(list(state)[:2], "one.safetensors")}))
    assert "to be listed, found it not" in told(folder)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(state, "two.safetensors")}))
    assert "two.safetensors: not a safetensors file" in told(folder)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(state, "../bart/one.safetensors")}))
    assert "expected plain file names, found '../bart/one.safetensors'" in told(folder)


class _Mischief:
    def __reduce__(self) -> Any:
        return print, ("run",)


def test_a_pickle_is_not_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / WEIGHTS).unlink()
    torch.save({"model.shared.weight": _Mischief()}, folder / "pytorch_model.bin")
    assert "found a pickle that would run code of its own" in told(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Mischief()))
    told(folder)
    (folder / "pytorch_model.bin").write_bytes(b"PK and no archive")
    assert "expected whole PyTorch weights" in told(folder)
    assert capsys.readouterr().out == ""


def test_a_tokenizer_that_does_not_fit(folder: Path) -> None:
    more = WordsTokenizer([*RESERVED, *(f"w{number}" for number in range(VOCABULARY))])
    assert f"at most the model's {VOCABULARY} ids, found one of {more.size}" in told(folder, more)
    change(folder / "generation_config.json", eos_token_id=4, forced_eos_token_id=4)
    assert "expected a tokenizer whose eos is the model's 4, found one with 3" in told(folder)


@pytest.mark.parametrize(("content", "expected"), [("{", "expected JSON"), ("[]", "expected a JSON object")])
def test_settings_that_are_none(folder: Path, content: str, expected: str) -> None:
    (folder / "config.json").write_text(content)
    assert expected in told(folder)
    (folder / "config.json").unlink()
    assert "found no file" in told(folder)


def test_no_folder(tmp_path: Path) -> None:
    assert "expected a Hugging Face folder, found nothing" in told(tmp_path / "nowhere")
