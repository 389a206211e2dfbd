"""longstride export --to hf and ctranslate2: written whole, checked by default, refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longstride.interop import peers
from longstride.runtime.libraries import MissingPackageError
from tests.cli.conftest import Run, model, run
from tests.folders import write_folder

__all__ = ["model", "run"]


@pytest.mark.parametrize(
    ("to", "files"),
    [
        ("hf", {"config.json", "generation_config.json", "model.safetensors"}),
        ("ctranslate2", {"config.json", "model.bin", "shared_vocabulary.json"}),
    ],
)
def test_an_export_is_checked(run: Run, model: Path, tmp_path: Path, to: str, files: set[str]) -> None:
    pytest.importorskip({"hf": "transformers"}.get(to, to))
    (tmp_path / "lines").write_text("a b c\n\nd e\nf\n")
    ran = run("export", "-m", model, "--to", to, "-o", tmp_path / "out", "--check-with", tmp_path / "lines")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"Greedy search by {to} ")
    assert ran.out.endswith("fp32: 3 of 3 outputs are the same, id by id.\n")
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_unchecked(run: Run, model: Path, tmp_path: Path) -> None:
    ran = run("export", "-m", model, "--to", "hf", "-o", tmp_path / "out", "--no-check")
    assert (ran.code, ran.out) == (0, "")
    assert "A Hugging Face Marian folder, without a tokenizer" in ran.err


def test_without_the_library_it_is_written_and_said(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise MissingPackageError(f"This expects the package {name}.")

    monkeypatch.setattr(peers, "package", missing)
    ran = run("export", "-m", model, "--to", "hf", "-o", tmp_path / "out")
    assert ran.code == 0
    assert "warning: not checked: This expects the package transformers." in ran.err
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--to", "hf", "--precision", "int8"], "--precision expects fp32 for Hugging Face Marian, found 'int8'"),
        (["--to", "ctranslate2", "--precision", "bf16"], "--precision expects fp32 or int8 for CTranslate2"),
        (["--to", "hf", "--check-with", "nowhere"], "nowhere: expected a text file, found none"),
        (["--to", "hf", "--check-with", "empty"], "empty: expected at least one sentence to check with, found none"),
    ],
)
def test_misuse_leaves_nothing(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    assert told in run("export", "-m", model, "-o", "out", *arguments).error
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_model_that_marian_cannot_be(run: Run, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "pre", norm="pre")
    error = run("export", "-m", other, "--to", "hf", "-o", tmp_path / "out").error
    assert "Hugging Face Marian expects norm: post, found norm: pre in" in error
    assert [path.name for path in tmp_path.iterdir()] == ["pre"]
