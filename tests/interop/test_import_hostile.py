"""Folders that somebody spoilt on purpose: refused at once, in one sentence, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from longstride.contract import LongstrideError, ModelFolderError
from longstride.interop.hf import import_folder
from longstride.interop.hf.checked import import_checked
from longstride.interop.hf.families import NEUTRAL
from longstride.interop.hf.generation import EVERY
from longstride.text.folders import folder_written_whole
from longstride.translator import load
from tests.cli.conftest import Run, run
from tests.interop.hf_models import build, saved, words
from tests.interop.test_import_command import make

__all__ = ["run"]

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which transformers 5 does not use


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BART with its tokenizer that could be imported."""
    return make("bart", tmp_path_factory.mktemp("hostile") / "bart")


@pytest.fixture
def bart(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    return Path(shutil.copytree(whole, tmp_path / "bart"))


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


# --- settings --------------------------------------------------------------------------------------------------------

ANY = st.recursive(
    st.booleans() | st.integers(-3, 50) | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
CONFIG = ["d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_attention_heads", "dropout",
          "activation_function", "scale_embedding", "vocab_size", "max_position_embeddings", "tie_word_embeddings",
          "architectures", "model_type", "auto_map", *NEUTRAL]  # fmt: skip


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BART without a tokenizer."""
    return saved(build("bart"), tmp_path_factory.mktemp("bare") / "bart")


@settings(max_examples=150, deadline=None)
@given(
    config=st.dictionaries(st.sampled_from(CONFIG), ANY, max_size=2),
    generation=st.dictionaries(st.sampled_from(EVERY), ANY, max_size=3),
)
def test_settings_of_any_kind_are_imported_or_refused(bare, config, generation):
    """Whatever is imported opens, too."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(shutil.copytree(bare, Path(home) / "hf"))
        change(folder / "config.json", **config)
        change(folder / "generation_config.json", **generation)
        try:
            found = import_folder(folder, tokenizers=(words(), words()))
        except ModelFolderError as refused:
            if not str(refused).startswith(str(folder)):
                raise
            return
        found.save(Path(home) / "ours")
        translator = load(Path(home) / "ours", device="cpu", runtime="eager")
        for name in translator.decoders:
            translator.decoder(name)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"num_beams": 2000}, "num_beams expects a whole number from 1 to 1000, found 2000"),
        ({"length_penalty": float("nan"), "num_beams": 2}, "length_penalty expects finite numbers"),
        ({"min_length": 30, "no_repeat_ngram_size": 1}, "min_length expects at most"),
    ],
)
@pytest.mark.parametrize("unchecked", [False, True])
def test_a_folder_that_translate_refuses_is_not_written(
    run: Run, bart: Path, tmp_path: Path, fields: dict[str, Any], expected: str, unchecked: bool
) -> None:
    size = json.loads((bart / "config.json").read_text())["vocab_size"]
    change(bart / "generation_config.json", suppress_tokens=list(range(9, size)), **fields)
    ran = run("import", bart, "-o", tmp_path / "ours", *(["--unchecked"] if unchecked else []))
    assert expected in ran.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bart"]


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["try_out", "compare_with_transformers"])
def test_no_message_names_the_temporary_folder(
    run: Run, bart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    from longstride.interop.hf import checked

    def fail(*given: Any) -> None:
        translator = given[0] if stage == "try_out" else given[1]
        raise ModelFolderError(f"{translator.folder.config_file}: expected better, in {translator.folder.path.name}.")

    monkeypatch.setattr(checked, stage, fail)
    said = run("import", bart, "-o", tmp_path / "ours").error
    assert said == f"error: {tmp_path}/ours/config.json: expected better, in ours."


def test_what_the_system_says_names_the_folder_too(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failed, folder_written_whole(tmp_path / "made") as building:
        (building / "some" / "file").write_text("")
    assert failed.value.filename == str(tmp_path / "made" / "some" / "file")


# --- files that are none ---------------------------------------------------------------------------------------------


def a_fifo(place: Path) -> None:
    os.mkfifo(place)


def a_device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def a_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = os.getcwd()
        os.chdir(place.parent)  # a socket's path may have about a hundred bytes
        one.bind(place.name)
        os.chdir(here)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("config.json", a_fifo), ("config.json", a_device), ("config.json", a_socket), ("model.safetensors", a_fifo),
        ("generation_config.json", a_device), ("tokenizer.json", a_fifo), ("chat_template.jinja", a_fifo),
    ],
)  # fmt: skip
def test_what_may_never_end_is_refused_at_once(
    run: Run, bart: Path, tmp_path: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    (bart / name).unlink(missing_ok=True)
    spoil(bart / name)
    kind = spoil.__name__.replace("_", " ").replace("fifo", "FIFO")
    said = f"error: {bart / name}: expected a regular file, found {kind}."
    assert run("import", bart, "-o", tmp_path / "ours").error == said
    assert run("translate", "-m", bart, stdin=b"a\n").error == said
    (tmp_path / "lines").write_text("".join(f"line {number}\n" for number in range(60)))
    adapted = run("adapt", bart, "-s", tmp_path / "lines", "-o", tmp_path / "ours")
    assert adapted.error == said
    assert not (tmp_path / "ours").exists()


def test_an_adapter_is_no_model(bart: Path) -> None:
    (bart / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="expected whole weights, found an adapter"):
        import_folder(bart)


# --- heavy tokenizers ------------------------------------------------------------------------------------------------

SECONDS, MEMORY = 30, 2 << 30
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""
"""Runs a command and prints its seconds and KiB; a child of the tests' process would inherit that process's peak."""
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def tokenizer(vocabulary: list[str], merges: list[str], before: dict[str, Any] | None = None) -> str:
    added = [{"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for id, token in enumerate(SPECIAL)]  # fmt: skip
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "vocab": {piece: id for id, piece in enumerate([*SPECIAL, *vocabulary])}, "merges": merges}  # fmt: skip
    return json.dumps(
        {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
         "pre_tokenizer": before, "post_processor": None, "decoder": None, "model": model},
        ensure_ascii=False,
    )  # fmt: skip


def many_merges(count: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        letters = [chr(0x100 + number) for number in range(int(count**0.5) + 1)]
        pairs = list(product(letters, letters))[:count]
        text = tokenizer([*letters, *(a + b for a, b in pairs)], [f"{a} {b}" for a, b in pairs])
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")

    return write


def slow_pattern(pattern: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        before = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        (folder / "tokenizer.json").write_text(tokenizer(list("abcdefghijklmnopqrstuvwxyz .,!"), [], before))

    return write


def many_objects(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": [' + "{}," * (20 << 20) + "{}]}")


def huge_pieces(folder: Path) -> None:
    """A SentencePiece model whose one piece has 200 MB."""
    (folder / "tokenizer.json").unlink()
    (folder / "spiece.model").write_bytes(b"\n\x80\x80\x80\x60\n\xfb\xff\xff\x5f" + b"a" * (200 << 20))


@pytest.mark.parametrize(
    "spoil",
    [many_merges(2_000_000), slow_pattern(r"(\w+\s?)+$"), many_objects, huge_pieces],
    ids=["merges", "pattern", "objects", "pieces"],
)
def test_heavy_tokenizers_end_in_time(bart: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """Done or refused within 30 seconds of the processor and 2 GiB."""
    spoil(bart)
    begun = time.monotonic()
    command = [sys.executable, "-m", "longstride", "import", bart, "-o", tmp_path / "ours", "--unchecked"]
    child = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=False)
    assert time.monotonic() - begun < 10 * SECONDS, "it hangs"
    assert child.returncode in (0, 2), child.stderr
    assert "internal error" not in child.stderr
    seconds, kilobytes = map(float, child.stdout.splitlines()[-1].split())
    assert seconds < SECONDS
    assert kilobytes * 1024 < MEMORY
    assert (tmp_path / "ours").exists() == (child.returncode == 0)


def test_texts_that_a_pattern_is_slow_on_are_refused(bart: Path) -> None:
    """A pattern that is fast on plain sentences may be slow on others: the library gives up, and so do we."""
    from longstride.text.hf_tokenizer import read_hf_tokenizers

    slow_pattern("(b|bb|b?b)+$")(bart)
    with pytest.raises(ModelFolderError, match="cannot read every text"):
        read_hf_tokenizers(bart).source.encode("b" * 80 + "!")


# --- a comparison is required ----------------------------------------------------------------------------------------


def test_fields_that_nobody_knows(run: Run, bart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(bart / "config.json", save_step=58, of_mine={"a": 1})
    change(bart / "generation_config.json", of_yours=[1])
    state = load_file(bart / "model.safetensors")
    save_file({**state, "lm_head.bias": torch.ones(7)}, bart / "model.safetensors", {"format": "pt"})
    ran = run("import", bart, "-o", tmp_path / "ours")
    assert ran.code == 0
    assert "ignored, as transformers does not read it either: save_step, of_mine, of_yours, lm_head.bias." in ran.err
    assert "the same, token by token" in ran.out
    told = json.loads((tmp_path / "ours" / "config.json").read_text())["provenance"]["hf"]
    names = ["save_step", "of_mine", "of_yours", "lm_head.bias"]
    assert told["ignored"] == names
    flags = [word for name in names for word in ("--ignore-field", name)]
    said = run("import", bart, "-o", tmp_path / "other", "--unchecked", *flags[:4]).error
    assert "expected fields and tensors that are known, found of_yours, lm_head.bias; install transformers" in said
    assert said.endswith(f"--unchecked {' '.join(flags)}.")
    said = run("import", bart, "-o", tmp_path / "other", "--unchecked", *flags, "--ignore-field", "auto_map").error
    assert "--ignore-field expects a field or tensor of" in said
    assert not (tmp_path / "other").exists()
    assert run("import", bart, "-o", tmp_path / "other", "--unchecked", *flags).code == 0
    change(bart / "config.json", auto_map={"AutoModel": "mine.Mine"})
    assert "code of its own" in run("import", bart, "-o", tmp_path / "third", "--ignore-field", "auto_map").error


def test_a_field_that_transformers_may_read(bart: Path, tmp_path: Path) -> None:
    """One that its class has, though no class of today's has it."""
    change(bart / "config.json", to_diff_dict=1)
    with pytest.raises(LongstrideError, match="the field to_diff_dict is not supported; transformers"):
        import_checked(bart, tmp_path / "ours", ["Yes."])
    assert not (tmp_path / "ours").exists()


def test_a_live_model_with_unknown_fields_is_compared(bart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import longstride
    from longstride.interop.hf import importing

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(bart, local_files_only=True).eval()
    made = transformers.AutoTokenizer.from_pretrained(bart, local_files_only=True)
    model.config.of_mine = 5
    asked: list[Any] = []
    compare = importing.compare_with_transformers
    monkeypatch.setattr(importing, "compare_with_transformers", lambda *given: asked.append(given) or compare(*given))
    assert isinstance(longstride.from_transformers(model, made, device="cpu").translate("a house"), str)
    assert len(asked) == 1


def test_an_export_says_that_a_forced_last_token_stays_behind(run: Run, bart: Path, tmp_path: Path) -> None:
    change(bart / "generation_config.json", forced_eos_token_id=7, max_length=9)
    assert "the same, token by token" in run("import", bart, "-o", tmp_path / "ours").out
    for to in ("hf", "ctranslate2", "onnx"):
        ran = run("export", "-m", tmp_path / "ours", "--to", to, "-o", tmp_path / to)
        assert ran.code == 0
        assert f"not checked: The decoder {to} cannot obey forced_last" in ran.err


def test_what_transformers_cannot_open_is_told(run: Run, bart: Path, tmp_path: Path) -> None:
    """Its own checks of settings are other ones than ours."""
    change(bart / "config.json", id2label=5)
    ran = run("import", bart, "-o", tmp_path / "ours")
    assert f"{bart}: transformers {transformers.__version__} could not open it (" in ran.failure
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("command", ["import", "adapt", "translate", "serve"])
def test_a_name_of_the_hub_is_answered_with_commands(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines").write_text("".join(f"line {number}\n" for number in range(60)))
    name = "Helsinki-NLP/opus-mt-en-de"
    more = {"import": [name, "-o", "made"], "adapt": [name, "-s", "lines", "-o", "made"]}.get(command, ["-m", name])
    said = run(command, *more)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert f"`hf download {name} --local-dir opus-mt-en-de`, then `longstride import opus-mt-en-de -o " in said.error
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
