"""Which models can be handed over at all, and what is said where a library is missing. Needs no other library."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from longstride.contract import OptionError
from longstride.interop.exportable import exportable
from longstride.interop.peers import compare, open_peer
from longstride.runtime import libraries
from tests.folders import edit_config
from tests.interop.conftest import MakeTranslator


def test_a_model_without_greedy_search_is_refused(make_translator: MakeTranslator) -> None:
    translator = make_translator()
    edit_config(translator.folder.path, "default_decoder", value="beam")
    edit_config(translator.folder.path, "decoders", "greedy", value=None)
    again = type(translator)(type(translator.folder)(translator.folder.path), translator.runner)
    told = r"CTranslate2 expects a model that greedy search is right for; .* beam alone"
    with pytest.raises(OptionError, match=told):
        exportable(again, "CTranslate2")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(libraries.MissingPackageError, match=r"the package transformers.*longstride\[interop\]"):
        libraries.package("transformers")


def test_a_package_that_lacks_something_speaks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'tokenizers'", name="tokenizers")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="tokenizers"):
        libraries.package("transformers")


def test_an_unknown_peer_is_refused(make_translator: MakeTranslator, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"There is no peer 'marian'\. Available: hf, ctranslate2"):
        open_peer("marian", tmp_path, make_translator())


def test_agreement_says_what_differs() -> None:
    assert str(compare([[5], [6, 7]], [[5], [6, 7]])) == "2 of 2 outputs are the same, id by id"
    found = compare([[5], [6, 7], []], [[5], [6], []])
    assert found.differing == (1,)
    assert str(found) == "2 of 3 outputs are the same, id by id; the first that is not: 2"
