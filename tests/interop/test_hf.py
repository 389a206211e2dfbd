"""The Hugging Face Marian folder: the same numbers, the same ids, and a clear no to what Marian cannot be."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from longstride import ops
from longstride.contract import DEFAULT_IDS, EOS, PAD, START, Limits, OptionError, Source
from longstride.interop.hf import export_hf
from longstride.interop.peers import SENTENCES, HuggingFace, PeerOptions, agreement, compare, open_peer
from longstride.systems.autoregressive.decoder import BeamOptions
from longstride.translator import load
from tests.interop.conftest import MakeTranslator, letters
from tests.models import random_source

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("tie", ["all", "target", "none"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh", "silu"])
def test_logits_agree(make_translator: MakeTranslator, empty: Path, tie: str, activation: str) -> None:
    translator = make_translator(tie=tie, activation=activation, scale_embeddings=activation != "gelu")
    assert "without a tokenizer" in export_hf(translator, empty)
    model = translator.part("model")
    theirs = transformers.MarianMTModel.from_pretrained(empty, local_files_only=True)
    source = random_source(4, 7, 13, seed=3)
    ids = torch.randint(5, 13, (4, 6), generator=torch.Generator().manual_seed(1))
    ids[:, 0] = START
    visible = ops.real(source.lengths, source.longest)
    with torch.no_grad():
        expected = model.logits(model.decode(ids, model.encode(source.ids, visible), visible))  # type: ignore[operator]
        found = theirs(input_ids=source.ids, attention_mask=visible.long(), decoder_input_ids=ids).logits
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


def test_a_bias_of_the_logits_goes_along(make_translator: MakeTranslator, empty: Path) -> None:
    translator = make_translator(logits_bias=True)
    bias = translator.part("model").logits_bias
    assert isinstance(bias, torch.Tensor)
    bias.normal_(generator=torch.Generator().manual_seed(2))
    export_hf(translator, empty)
    theirs = transformers.MarianMTModel.from_pretrained(empty, local_files_only=True)
    assert torch.equal(theirs.final_logits_bias[0], bias)


def test_two_vocabularies_of_different_size(make_translator: MakeTranslator, empty: Path) -> None:
    translator = make_translator(source_tokenizer=letters("xyz"), tie="target")
    export_hf(translator, empty)
    peer = open_peer("hf", empty, translator)
    source = random_source(12, 8, 16, seed=1)
    decoder, limits = translator.decoder("greedy", max_length=12)
    assert peer.decode(source, limits).tokens == decoder.decode(source, limits).tokens


@pytest.mark.parametrize("seed", range(4))
def test_greedy_gives_the_same_ids(make_translator: MakeTranslator, empty: Path, seed: int) -> None:
    translator = make_translator(seed)
    export_hf(translator, empty)
    peer = open_peer("hf", empty, translator)
    source = random_source(16, 8, 13, seed=seed)
    for options in ({"max_length": 12}, {"max_ratio": 1.0, "max_extra": 1}, {"min_length": 4, "banned": (1, 7)}):
        decoder, limits = translator.decoder("greedy", **options)
        expected = decoder.decode(source, limits).tokens
        assert peer.decode(source, limits).tokens == expected
        assert peer.decode(source, limits, capacity=5).tokens == expected


def test_its_static_cache_gives_the_same_ids(make_translator: MakeTranslator, empty: Path) -> None:
    """On a processor nothing is compiled, but what is fed and what comes out is the same as where it is."""
    translator = make_translator(1)
    export_hf(translator, empty)
    peer = open_peer("hf-compiled", empty, translator)
    assert peer.name == "hf-compiled"
    source = random_source(6, 8, 13, seed=1)
    for row in range(6):
        one = source.slice(row, row + 1)
        decoder, limits = translator.decoder("greedy", max_length=12)
        assert peer.decode(one, limits).tokens == decoder.decode(one, limits).tokens


def test_beam_search_mostly_gives_the_same_ids(make_translator: MakeTranslator, empty: Path) -> None:
    """The searches end by different rules, so some outputs may differ; the models do not."""
    translator = make_translator(1)
    export_hf(translator, empty)
    peer = open_peer("hf", empty, translator, PeerOptions(4, 0.6))
    decoder, limits = translator.decoder("beam", width=4, length_penalty="average", strength=0.6, max_length=12)
    assert decoder.options == BeamOptions(4, "average", 0.6)  # type: ignore[attr-defined]
    source = random_source(20, 8, 13, seed=1)
    found = compare(decoder.decode(source, limits).tokens, peer.decode(source, limits).tokens)
    assert len(found.differing) <= 4


def test_the_library_generates_as_told_by_the_folder_alone(make_translator: MakeTranslator, empty: Path) -> None:
    translator = make_translator(2)
    export_hf(translator, empty)
    model = transformers.MarianMTModel.from_pretrained(empty, local_files_only=True)
    source = random_source(8, 8, 13, seed=2)
    visible = ops.real(source.lengths, source.longest)
    rows = model.generate(source.ids, attention_mask=visible.long()).tolist()
    decoder, _ = translator.decoder("greedy")
    expected = decoder.decode(source, Limits(max_length=38, max_ratio=0, max_extra=38)).tokens
    assert [row[0] for row in rows] == [START] * 8
    assert [row[1 : row.index(EOS)] for row in rows] == expected
    written = json.loads((empty / "generation_config.json").read_text())
    assert written["bad_words_ids"] == [[token] for token in DEFAULT_IDS.never_generated]
    assert (written["pad_token_id"], written["eos_token_id"]) == (PAD, EOS)


def test_exporting_leaves_the_model_as_it_was(make_translator: MakeTranslator, empty: Path) -> None:
    translator = make_translator(3)
    before = {name: value.clone() for name, value in translator.part("model").state_dict().items()}
    export_hf(translator, empty)
    after = translator.part("model").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    names = load_file(empty / "model.safetensors").keys()
    assert "model.shared.weight" in names
    assert "lm_head.weight" not in names


def test_the_bundled_model_and_its_tokenizer(empty: Path) -> None:
    translator = load("bundled", device="cpu")
    assert export_hf(translator, empty) == "A Hugging Face Marian folder."
    assert not agreement(translator, HuggingFace(empty), SENTENCES).differing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends another package
        tokenizer = transformers.AutoTokenizer.from_pretrained(empty, local_files_only=True)
    lines = [*SENTENCES, "Grüße  aus Köln!", "日本"]
    assert tokenizer(lines)["input_ids"] == translator.encode(lines)
    text = "zweihundertvier alte Bücher"
    assert tokenizer.decode(translator.target_tokenizer.encode(text), skip_special_tokens=True) == text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"norm": "pre"}, "expects norm: post, found norm: pre"),
        ({"positions": "learned"}, "found positions: learned"),
        ({"sinusoid": "fairseq"}, "expects sinusoid: marian, found sinusoid: fairseq"),
        ({"position_offset": 2}, "found position_offset: 2"),
        ({"embedding_norm": True}, "found embedding_norm: True"),
        ({"norm_eps": 0.01}, "found norm_eps: 0.01"),
        ({"scale_attention": False}, "found scale_attention: False"),
        ({"scale_logits": True}, "found scale_logits: True"),
        ({"gated": True}, "found gated: True"),
        ({"bias": False}, "found bias: False"),
        ({"head": 4}, "expects heads that share the width"),
        ({"heads": 2, "key_value_heads": 1}, "expects heads that share the width"),
    ],
)
def test_what_marian_cannot_be_is_refused(
    make_translator: MakeTranslator, empty: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(OptionError, match=told):
        export_hf(make_translator(**changes), empty)
    assert not list(empty.iterdir())


def test_another_precision_is_refused(make_translator: MakeTranslator, empty: Path) -> None:
    with pytest.raises(OptionError, match="--precision expects fp32"):
        export_hf(make_translator(), empty, "int8")


def test_a_peer_has_no_session_and_no_trace(make_translator: MakeTranslator, empty: Path) -> None:
    translator = make_translator()
    export_hf(translator, empty)
    peer = open_peer("hf", empty, translator)
    with pytest.raises(Exception, match="has no session"):
        peer.start(1, Limits(), 5)
    decoded = peer.decode(Source.of([[5, EOS]]), trace=True)
    assert decoded.traces is None
    assert peer.decode(Source.of([])).tokens == []
    assert peer.signature.startswith("hf|width:1|")
