"""The CTranslate2 folder: the same ids in float32, a folder that loads in int8, a clear no to what it cannot hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from longstride.cli.demo import examples
from longstride.contract import EOS, Limits, OptionError, Source
from longstride.interop.ctranslate2 import export_ctranslate2
from longstride.interop.peers import SENTENCES, PeerOptions, agreement, compare, open_peer
from longstride.translator import Translator, load
from tests.interop.conftest import MakeTranslator, letters
from tests.models import random_source

ctranslate2 = pytest.importorskip("ctranslate2")

needs_int8 = pytest.mark.skipif(
    "int8" not in ctranslate2.get_supported_compute_types("cpu"), reason="this processor has no int8 products for it"
)


def full_source(rows: int, vocabulary: int = 13, seed: int = 0) -> Source:
    """Without empty sentences: the library answers these with nothing, whatever the model says."""
    every = random_source(rows * 2, 9, vocabulary, seed)
    kept = torch.nonzero(every.lengths > 1)[:rows, 0]
    return Source(every.ids[kept], every.lengths[kept])


def same_greedy(translator: Translator, folder: Path, source: Source, **options: object) -> bool:
    decoder, limits = translator.decoder("greedy", **options)
    peer = open_peer("ctranslate2", folder, translator, threads=1)
    expected = decoder.decode(source, limits).tokens
    return expected == peer.decode(source, limits).tokens == peer.decode(source, limits, capacity=3).tokens


@pytest.mark.parametrize("seed", range(4))
def test_greedy_gives_the_same_ids(make_translator: MakeTranslator, empty: Path, seed: int) -> None:
    translator = make_translator(seed)
    assert export_ctranslate2(translator, empty) == "A CTranslate2 folder with weights in float32."
    source = full_source(12, seed=seed)
    for options in ({"max_length": 12}, {"max_ratio": 1.0, "max_extra": 1}, {"min_length": 4, "banned": (1, 7)}):
        assert same_greedy(translator, empty, source, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"positions": "learned"},
        {"tie": "target"},
        {"tie": "none", "activation": "gelu"},
        {"activation": "silu", "scale_embeddings": False},
        {"norm": "pre", "positions": "learned", "tie": "none"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_other_shapes_of_model(make_translator: MakeTranslator, empty: Path, changes: dict[str, object]) -> None:
    translator = make_translator(5, **changes)
    export_ctranslate2(translator, empty)
    assert same_greedy(translator, empty, full_source(10), max_length=12)


def test_two_vocabularies(make_translator: MakeTranslator, empty: Path) -> None:
    translator = make_translator(source_tokenizer=letters("xyz"), tie="target")
    export_ctranslate2(translator, empty)
    assert json.loads((empty / "source_vocabulary.json").read_text())[-3:] == ["x", "y", "z"]
    assert same_greedy(translator, empty, full_source(10, 16), max_length=12)


def test_beam_search_mostly_gives_the_same_ids(make_translator: MakeTranslator, empty: Path) -> None:
    """The searches end by different rules, so some outputs may differ; the models do not."""
    translator = make_translator(1)
    export_ctranslate2(translator, empty)
    peer = open_peer("ctranslate2", empty, translator, PeerOptions(4, 0.6), threads=1)
    decoder, limits = translator.decoder("beam", width=4, length_penalty="average", strength=0.6, max_length=12)
    source = full_source(20, seed=1)
    found = compare(decoder.decode(source, limits).tokens, peer.decode(source, limits).tokens)
    assert len(found.differing) <= 4


def test_the_bundled_model(empty: Path) -> None:
    translator = load("bundled", device="cpu", precision="fp32")
    export_ctranslate2(translator, empty)
    lines = [*SENTENCES, *(line for line, _ in examples(translator.folder.path))]
    peer = open_peer("ctranslate2", empty, translator, threads=1)
    assert not agreement(translator, peer, lines).differing
    assert (empty / "source.spm").read_bytes() == translator.source_tokenizer.serialized
    wide = open_peer("ctranslate2", empty, translator, PeerOptions(5, 1.0), threads=1)
    decoder, limits = translator.decoder("beam", width=5, length_penalty="average", strength=1.0)
    source = Source.of(translator.encode(lines[len(SENTENCES) :]))
    assert decoder.decode(source, limits).tokens == wide.decode(source, limits).tokens


@needs_int8
def test_int8_loads_and_leaves_the_model_as_it_was(empty: Path) -> None:
    translator = load("bundled", device="cpu")
    before = {name: value.clone() for name, value in translator.part("model").state_dict().items()}
    assert export_ctranslate2(translator, empty, "int8") == "A CTranslate2 folder with weights in int8."
    after = translator.part("model").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    lines = [line for line, _ in examples(translator.folder.path)]
    peer = open_peer("ctranslate2", empty, translator, precision="int8", threads=1)
    assert len(agreement(translator, peer, lines).differing) <= 4
    assert peer.signature.startswith("ctranslate2|width:1|strength:0.0|threads:1|int8|v")


def test_the_folder_alone_translates(make_translator: MakeTranslator, empty: Path) -> None:
    """With the library's own interface, as docs/interop.md shows it."""
    translator = make_translator(2)
    export_ctranslate2(translator, empty)
    theirs = ctranslate2.Translator(str(empty), "cpu", intra_threads=1)
    found = theirs.translate_batch(
        [["a", "c", "b"]],
        beam_size=1,
        max_decoding_length=10,
        min_decoding_length=0,
        suppress_sequences=[["<pad>"], ["<s>"], ["<mask>"]],
    )
    decoder, _ = translator.decoder("greedy")
    ids = [*translator.source_tokenizer.encode("a c b"), EOS]
    expected = decoder.decode(Source.of([ids]), Limits(max_length=10)).tokens[0]
    assert found[0].hypotheses[0] == translator.target_tokenizer.pieces(expected)


def test_another_precision_is_refused(make_translator: MakeTranslator, empty: Path) -> None:
    with pytest.raises(OptionError, match="--precision expects fp32 or int8 for CTranslate2, found 'fp16'"):
        export_ctranslate2(make_translator(), empty, "fp16")
    assert not list(empty.iterdir())
