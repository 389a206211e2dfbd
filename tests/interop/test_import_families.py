"""Every family imported: transformers' own greedy outputs, token by token, and the way back tensor for tensor.

`LONGSTRIDE_IMPORT_SENTENCES=200` compares more sentences than a quick run does.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from longstride.contract import OptionError, Source
from longstride.interop.ctranslate2 import export_ctranslate2
from longstride.interop.hf import export_hf, import_folder
from longstride.interop.hf.importing import Imported
from longstride.interop.peers import open_peer
from longstride.runtime.choosing import make_runner
from longstride.translator import Translator, load
from tests.interop.hf_models import MODELS, SHAPES, build, generated, saved, sources, words

transformers = pytest.importorskip("transformers")

SENTENCES = int(os.environ.get("LONGSTRIDE_IMPORT_SENTENCES", "12"))
NATIVE = make_runner("cpu", "fp32", "native", 1)


@dataclass(frozen=True)
class Case:
    """A model of theirs, and ours that was made of it."""

    model: Any
    folder: Path
    imported: Imported
    translator: Translator


@pytest.fixture(scope="module", params=[f"{name}-{shape}" for name in MODELS for shape in range(len(SHAPES))])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Saved by transformers, loaded by it again, and imported."""
    name, _, shape = request.param.rpartition("-")
    here = tmp_path_factory.mktemp("family")
    folder = saved(build(name, int(shape)), here / "hf")
    imported = import_folder(folder, tokenizers=(words(), words()))
    imported.save(here / "ours")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True)
    return Case(model.eval(), folder, imported, load(here / "ours", device="cpu"))


def test_greedy_gives_transformers_tokens(case: Case) -> None:
    """Ragged sentences, one by one and sixteen side by side, eagerly and by the native backend."""
    rows = sources(SENTENCES)
    expected = generated(case.model, rows)
    assert len({tuple(row) for row in expected}) > 2  # else little would have been compared
    decoder, limits = case.translator.decoder("greedy")
    assert decoder.decode(Source.of(rows), limits, capacity=16).tokens == expected
    few = rows[: 3 if SENTENCES <= 12 else SENTENCES]
    assert decoder.decode(Source.of(few), limits, capacity=1).tokens == expected[: len(few)]
    native, limits = Translator(case.translator.folder, NATIVE).decoder("greedy")
    assert native.decode(Source.of(rows), limits, capacity=16).tokens == expected
    assert native.decode(Source.of(few), limits, capacity=1).tokens == expected[: len(few)]


def test_given_texts_draft_for_them(case: Case) -> None:
    """Greedy's outputs as drafts, and those of other lines: the same tokens, and of the former in fewer steps."""
    lines = case.translator.text([row[:-1] for row in sources(4)])
    greedy = case.translator.translate(lines, "greedy")
    texts = [one.text for one in greedy]
    for drafts in (texts, texts[::-1]):
        found = case.translator.translate(lines, drafts=drafts, trace=True)
        assert [one.tokens for one in found] == [one.tokens for one in greedy]
        if drafts is texts:
            steps = [one.trace.iterations for one in found if one.trace is not None]
            assert sum(steps) < sum(len(one.tokens) + 1 for one in greedy)


BEAMS: list[tuple[str, bool | str]] = [("marian", True), ("m2m100", False), ("bart", "never"), ("t5", False)]
if SENTENCES > 12:
    BEAMS = [(name, stopping) for name in MODELS for stopping in (True, False, "never")]


@pytest.mark.parametrize(("name", "stopping"), BEAMS)
def test_beams_are_transformers_too(tmp_path: Path, name: str, stopping: bool | str) -> None:
    """Where the folder asks for beams, they are the default."""
    asked = {"num_beams": 4, "length_penalty": 0.8, "early_stopping": stopping}
    folder = saved(build(name, **asked), tmp_path / "hf")
    import_folder(folder, tokenizers=(words(), words())).save(tmp_path / "ours")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
    rows = sources(SENTENCES // 2)
    decoder, limits = load(tmp_path / "ours", device="cpu").decoder()
    assert decoder.name == "beam"
    assert decoder.decode(Source.of(rows), limits).tokens == generated(model, rows, num_beams=4)


def test_an_export_is_the_folder_it_came_from(case: Case, tmp_path: Path) -> None:
    assert "imported from" in export_hf(case.translator, tmp_path)
    before, after = (load_file(folder / "model.safetensors") for folder in (case.folder, tmp_path))
    assert before.keys() == after.keys()
    assert all(before[name].dtype == after[name].dtype for name in before)
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name in ("config.json", "generation_config.json"):
        assert (case.folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_beams_that_share_the_probability_of_what_is_suppressed(tmp_path: Path) -> None:
    """OPUS-MT's folders say renormalize_logits; an export has the original biases again."""
    # What is suppressed is what this model likes best: else sharing its probability out would change no output.
    asked = {"num_beams": 4, "renormalize_logits": True, "bad_words_ids": [[0], [26], [39], [31], [15]]}
    folder = saved(build("marian", **asked), tmp_path / "hf")
    found = import_folder(folder, tokenizers=(words(), words()))
    found.save(tmp_path / "ours")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
    translator, rows = load(tmp_path / "ours", device="cpu"), sources(SENTENCES)
    plain = generated(model, rows, num_beams=4, renormalize_logits=False)
    assert plain != generated(model, rows, num_beams=4)
    for decoder, limits in (translator.decoder(), translator.decoder("greedy")):
        beams = 4 if decoder.name == "beam" else 1
        assert decoder.decode(Source.of(rows), limits).tokens == generated(model, rows, num_beams=beams)
    (tmp_path / "out").mkdir()
    export_hf(translator, tmp_path / "out")
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "out"))
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("name", ["marian", "m2m100", "bart", "mbart50", "pegasus", "flan-t5"])
def test_ctranslate2_takes_what_was_imported(tmp_path: Path, name: str) -> None:
    """All but T5's kind, which is refused."""
    pytest.importorskip("ctranslate2")
    import_folder(saved(build(name), tmp_path / "hf"), tokenizers=(words(), words())).save(tmp_path / "ours")
    translator = load(tmp_path / "ours", device="cpu")
    (tmp_path / "out").mkdir()
    if name == "flan-t5":
        with pytest.raises(OptionError, match="CTranslate2 expects norm_type: layer, found norm_type: rms"):
            export_ctranslate2(translator, tmp_path / "out")
        return
    export_ctranslate2(translator, tmp_path / "out")
    decoder, limits = translator.decoder("greedy")
    source = Source.of(sources(SENTENCES))
    peer = open_peer("ctranslate2", tmp_path / "out", translator, threads=1)
    assert peer.decode(source, limits).tokens == decoder.decode(source, limits).tokens


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_keep_their_type(tmp_path: Path, dtype: torch.dtype) -> None:
    """Half the bytes stay half the bytes, and come back as they were."""
    folder = saved(build("marian").to(dtype), tmp_path / "hf")
    import_folder(folder, tokenizers=(words(), words())).save(tmp_path / "ours")
    (tmp_path / "out").mkdir()
    export_hf(load(tmp_path / "ours", device="cpu"), tmp_path / "out")
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "out"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    stored = load_file(tmp_path / "ours" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {dtype}


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_shards_and_old_files_are_read_alike(tmp_path: Path, name: str) -> None:
    model = build(name)
    whole = import_folder(saved(model, tmp_path / "whole"), tokenizers=(words(), words()))
    sharded = saved(model, tmp_path / "sharded", max_shard_size="4KB")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    old = saved(model, tmp_path / "old")
    (old / "model.safetensors").unlink()
    torch.save(model.state_dict(), old / "pytorch_model.bin")  # with every tied name in it
    older = saved(model, tmp_path / "older")
    (older / "model.safetensors").unlink()
    torch.save(model.state_dict(), older / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    for folder in (sharded, old, older):
        found = import_folder(folder, tokenizers=(words(), words()))
        assert found.options == whole.options
        assert found.state.keys() == whole.state.keys()
        assert all(torch.equal(found.state[key], whole.state[key]) for key in found.state)


@pytest.mark.parametrize("name", ["marian", "bart", "t5"])
def test_old_files_come_back_with_every_tied_name(tmp_path: Path, name: str) -> None:
    """As most published models have them."""
    model = build(name)
    folder = saved(model, tmp_path / "hf")
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    import_folder(folder, tokenizers=(words(), words())).save(tmp_path / "ours")
    (tmp_path / "out").mkdir()
    export_hf(load(tmp_path / "ours", device="cpu"), tmp_path / "out")
    found, state = load_file(tmp_path / "out" / "model.safetensors"), model.state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[key], state[key]) for key in found)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_what_is_shared_stands_for_who_has_no_table(tmp_path: Path, side: str) -> None:
    folder = saved(build("t5"), tmp_path / "hf")
    before = load_file(folder / "model.safetensors")
    other = torch.randn(before["shared.weight"].shape, generator=torch.Generator().manual_seed(3))
    save_file({**before, f"{side}.embed_tokens.weight": other}, folder / "model.safetensors", {"format": "pt"})
    import_folder(folder, tokenizers=(words(), words())).save(tmp_path / "ours")
    (tmp_path / "out").mkdir()
    export_hf(load(tmp_path / "ours", device="cpu"), tmp_path / "out")
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_model_without_an_output_projection_of_its_own(tmp_path: Path) -> None:
    """bart-base is published so: names have no prefix."""
    model = build("bart")
    model.final_logits_bias.zero_()
    folder = saved(model.model, tmp_path / "base")
    model.generation_config.save_pretrained(folder)
    original = load_file(folder / "model.safetensors")
    save_file({**original, "encoder.version": torch.ones(1)}, folder / "model.safetensors")
    whole = import_folder(saved(model, tmp_path / "whole"), tokenizers=(words(), words()))
    found = import_folder(folder, tokenizers=(words(), words()))
    assert any("not read, as transformers does not read it either: encoder.version." in note for note in found.notes)
    assert found.options == whole.options
    assert all(torch.equal(found.state[key], whole.state[key]) for key in whole.state)
    found.save(tmp_path / "ours")
    (tmp_path / "out").mkdir()
    export_hf(load(tmp_path / "ours", device="cpu"), tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == original.keys()


def test_positions_that_were_computed_otherwise_are_taken_as_they_are(tmp_path: Path) -> None:
    model = build("pegasus")
    with torch.no_grad():
        model.model.encoder.embed_positions.weight.mul_(1.001)
    folder = saved(model, tmp_path / "hf")
    found = import_folder(folder, tokenizers=(words(), words()))
    assert found.options.positions == "learned"
    found.save(tmp_path / "ours")
    rows = sources(SENTENCES, seed=2)
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True)
    decoder, limits = load(tmp_path / "ours", device="cpu").decoder("greedy")
    assert decoder.decode(Source.of(rows), limits).tokens == generated(again.eval(), rows)


def test_old_folders_say_in_config_how_to_generate(tmp_path: Path) -> None:
    """As all were before generation_config.json."""
    new = import_folder(saved(build("bart"), tmp_path / "new"), tokenizers=(words(), words()))
    old = saved(build("bart"), tmp_path / "old")
    told = json.loads((old / "generation_config.json").read_text())
    (old / "generation_config.json").unlink()
    config = json.loads((old / "config.json").read_text())
    (old / "config.json").write_text(json.dumps({**config, **told}))
    found = import_folder(old, tokenizers=(words(), words()))
    assert (found.options, found.limits, found.decoder) == (new.options, new.limits, new.decoder)
