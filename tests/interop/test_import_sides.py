"""Sides of different sizes, a forced last token and fields that nobody knows: every family, by every backend."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from longstride.adaptation.options import AdaptOptions
from longstride.adaptation.training import drafter_settings
from longstride.contract import Source
from longstride.contract.options import parse
from longstride.interop.ctranslate2 import export_ctranslate2
from longstride.interop.hf import export_hf, import_folder
from longstride.interop.hf.families import FAMILIES, NEUTRAL, NO_EFFECT
from longstride.interop.hf.fields import Fields
from longstride.interop.hf.generation import EVERY
from longstride.interop.peers import open_peer
from longstride.runtime.choosing import make_runner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.systems.draft_verify.model import Drafter, begin_as
from longstride.systems.draft_verify.options import DrafterOptions
from longstride.translator import Translator, load
from tests.interop.hf_models import EOS, MODELS, build, generated, saved, sources, words

transformers = pytest.importorskip("transformers")

FAIRSEQ = [name for name, (kind, *_) in MODELS.items() if kind not in ("T5", "MT5")]
SIDES = {
    "encoder_ffn_dim": st.sampled_from([8, 20, 24]),
    "decoder_ffn_dim": st.sampled_from([8, 20, 24]),
    "encoder_attention_heads": st.sampled_from([1, 2, 4]),
    "decoder_attention_heads": st.sampled_from([1, 2, 4]),
}
FORCED = {"max_length": st.integers(3, 9), "forced_eos_token_id": st.sampled_from([None, EOS, 0, 8, 21])}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**12) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
UNKNOWN = st.dictionaries(st.text("abc_xyz", min_size=3, max_size=12), PLAIN, max_size=4)


def add(file: Path, fields: dict[str, Any]) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@settings(max_examples=24, deadline=None)
@given(
    name=st.sampled_from(sorted(MODELS)), seed=st.integers(0, 99), sides=st.fixed_dictionaries(SIDES),
    forced=st.fixed_dictionaries({}, optional=FORCED), beams=st.sampled_from([1, 1, 3]), unknown=UNKNOWN, more=UNKNOWN,
)  # fmt: skip
def test_whatever_is_imported_generates_what_transformers_does(name, seed, sides, forced, beams, unknown, more):
    sides = sides if name in FAIRSEQ else {}
    asked = {"min_length": 0, "min_new_tokens": None, "num_beams": beams}
    with tempfile.TemporaryDirectory() as home:
        folder = saved(build(name, seed=seed, **sides, **asked, **forced), Path(home) / "hf")
        add(folder / "config.json", unknown)
        add(folder / "generation_config.json", more)
        found = import_folder(folder, tokenizers=(words(), words()))
        assert {*found.ignored} == {key for key, value in {**unknown, **more}.items() if value is not None}
        found.save(Path(home) / "ours")
        assert found.options.feed_forward == sides.get("decoder_ffn_dim", 24)
        assert found.options.of_encoder.heads == sides.get("encoder_attention_heads", 2)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
        rows = sources(6, seed)
        decoder, limits = load(Path(home) / "ours", device="cpu").decoder()
        assert decoder.decode(Source.of(rows), limits).tokens == generated(model, rows, num_beams=beams)


@pytest.mark.parametrize("name", ["marian", "bart", "mbart"])
def test_every_backend_and_every_export_has_both_sides(tmp_path: Path, name: str) -> None:
    sides = {"encoder_ffn_dim": 40, "decoder_ffn_dim": 12, "encoder_attention_heads": 4, "decoder_attention_heads": 1}
    model = build(name, **sides)
    folder = saved(model, tmp_path / "hf")
    import_folder(folder, tokenizers=(words(), words())).save(tmp_path / "ours")
    rows = sources(12)
    source, expected = Source.of(rows), generated(model, rows)
    for runtime in ("eager", "native", "onnx"):
        if runtime == "onnx":
            pytest.importorskip("onnxruntime")
        translator = Translator(load(tmp_path / "ours", device="cpu").folder, make_runner("cpu", "fp32", runtime, 1))
        for decoder in ("greedy", "copy-verify"):
            made, limits = translator.decoder(decoder)
            assert made.decode(source, limits).tokens == expected, (runtime, decoder)
    (tmp_path / "out").mkdir()
    export_hf(translator, tmp_path / "out")
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    pytest.importorskip("ctranslate2")
    (tmp_path / "ct2").mkdir()
    export_ctranslate2(translator, tmp_path / "ct2")
    made, limits = translator.decoder("greedy")
    assert open_peer("ctranslate2", tmp_path / "ct2", translator, threads=1).decode(source, limits).tokens == expected


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_field_that_transformers_reads_is_unknown(family: Any) -> None:
    """Fields are ignored because transformers ignores them: its classes' own, and other names of these, are none."""
    config = transformers.CONFIG_MAPPING[family.model_types[0]]
    names = {*config().to_dict(), *config.attribute_map}
    fields = Fields({"vocab_size": 9, "pad_token_id": 0}, "config.json")
    family.read(fields)
    fields.leave((*NO_EFFECT, *NEUTRAL, *EVERY, "tie_word_embeddings"))
    fields.values |= dict.fromkeys(names, "said")
    assert fields.unknown() == ()
    assert {*transformers.GenerationConfig().to_dict()} <= {*EVERY}


@pytest.mark.parametrize("name", ["marian", "m2m100", "bart", "t5"])
def test_tensors_that_transformers_does_not_read(tmp_path: Path, name: str) -> None:
    """A bias that the class has not, and a layer more than the settings ask for."""
    model = build(name)
    folder = saved(model, tmp_path / "hf")
    state = load_file(folder / "model.safetensors")
    more = {"lm_head.bias": torch.ones(40)}
    if name in ("m2m100", "t5"):
        more["final_logits_bias"] = torch.randn(1, 40)
    first = [key for key in state if ".layers.0." in key or (".block.0.layer.1." in key and "decoder" not in key)]
    more |= {key.replace(".0.", ".7.", 1): state[key].clone() for key in first}
    save_file({**state, **more}, folder / "model.safetensors", {"format": "pt"})
    found = import_folder(folder, tokenizers=(words(), words()))
    assert {*found.ignored} == {*more}
    found.save(tmp_path / "ours")
    rows = sources(8)
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
    decoder, limits = load(tmp_path / "ours", device="cpu").decoder("greedy")
    assert decoder.decode(Source.of(rows), limits).tokens == generated(again, rows) == generated(model, rows)


@pytest.mark.parametrize("own_layers", [0, 1])
def test_a_drafter_is_made_for_a_model_with_two_sides(tmp_path: Path, own_layers: int) -> None:
    """As adaptation makes it: of the decoder's sizes, beginning with the weights that fit."""
    sides = {"encoder_ffn_dim": 40, "decoder_ffn_dim": 12, "encoder_attention_heads": 4, "decoder_attention_heads": 2}
    found = import_folder(saved(build("bart", **sides), tmp_path / "hf"), tokenizers=(words(), words()))
    model = found.module()
    asked = drafter_settings(model.options, AdaptOptions(block=3, own_encoder_layers=own_layers))
    options = parse(DrafterOptions, {**asked, "vocabulary": 40, "verifier_width": 16, "special": model.special})
    assert (options.feed_forward, options.heads) == (12, 2)
    drafter = Drafter(options).eval()
    begin_as(drafter, model)
    assert torch.equal(drafter.decoder.layers[0].feed_forward.up.weight, model.decoder.layers[0].feed_forward.up.weight)
    source, runner = Source.of(sources(6)), make_runner("cpu", "fp32", "eager", 1)
    greedy = Greedy(model, runner).decode(source, found.limits).tokens
    assert DraftVerify(model, drafter, runner).decode(source, found.limits).tokens == greedy
