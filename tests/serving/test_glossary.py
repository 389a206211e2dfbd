"""Glossaries of requests and of models: answers are those of `translate` with the same glossary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longstride.serving.models import PREFIXED
from longstride.text.glossary import Glossary
from longstride.translator import Translator
from tests.serving.conftest import Served
from tests.serving.test_generate import events, post

LINE = "The Council has decided to support the proposal."
GLOSSARY = {"Council": "Kammer"}
TEXT = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def expected(translator: Translator) -> str:
    found = translator.translate(LINE, glossary=GLOSSARY)
    assert " Kammer " in found
    return found


@pytest.mark.parametrize("form", [GLOSSARY, [["Council", "Kammer"]], "# ours\nCouncil\tKammer\n"])
def test_libretranslates_api_takes_one(served: Served, expected: str, form: Any) -> None:
    found = post(served, "/translate", json={"q": [LINE, "Good morning."], "glossary": form, **TEXT}).json()
    free = post(served, "/translate", json={"q": "Good morning.", **TEXT}).json()
    assert found["translatedText"] == [expected, free["translatedText"]]


def test_forms_alternatives_and_html_take_one(served: Served, expected: str) -> None:
    asked = {"q": f"<p>{LINE}</p>", "format": "html", "glossary": "Council\tKammer", **TEXT}
    assert post(served, "/translate", data=asked).json()["translatedText"] == f"<p>{expected}</p>"
    found = post(served, "/translate", json={"q": LINE, "alternatives": 1, "glossary": GLOSSARY, **TEXT}).json()
    assert all("Kammer" in text for text in [found["translatedText"], *found["alternatives"]])


@pytest.mark.parametrize("decoder", ["draft-verify", "beam"])
def test_generate_takes_one(served: Served, translator: Translator, decoder: str) -> None:
    asked = {"text": LINE, "decoder": decoder, "glossary": GLOSSARY}
    wanted = translator.translate(LINE, decoder, glossary=GLOSSARY)
    assert post(served, "/generate", json=asked).json()["outputs"][0]["text"] == wanted
    streamed = events(post(served, "/generate", json={**asked, "stream": True}))
    assert "".join(event["text"] for event in streamed[:-1]) == wanted == streamed[-1]["text"]
    assert post(served, "/generate", json={"text": LINE, "decoder": decoder + PREFIXED}).status_code == 400


@pytest.mark.parametrize("glossary", [None, GLOSSARY])
def test_what_is_drawn_belongs_to_a_sentence_whoever_is_beside_it(
    served: Served, translator: Translator, glossary: Any
) -> None:
    texts = ["Good morning!", "", "\n Yes. No.", LINE, "Thank you, the Council said, very much indeed for all this."]
    told = post(served, "/generate", json={"text": texts, "decoder": "sample", "glossary": glossary}).json()
    wanted = translator.translate(texts, "sample", glossary=glossary)
    assert [one["text"] for one in told["outputs"]] == [one.text for one in wanted]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"glossary": "a\tb\tc"}, "Invalid request: glossary, line 1: expected a term, a tab and its translation"),
        ({"glossary": "/etc/hostname/\tx\ty"}, "Invalid request: glossary, line 1"),
        ({"glossary": {"a": ""}}, "Invalid request: A glossary expects terms of 1 to 1000 characters, found ''"),
        (
            {"glossary": [f"t{number}" for number in range(1001)]},
            "Invalid request: glossary expects at most 1000 terms",
        ),
        ({"glossary": 3}, "Invalid request: "),
        ({"glossary": {"a": "b"}, "decoder": "interleaved"}, "A glossary expects another decoder"),
        ({"glossary": {"a": "\ud800"}}, "Invalid request: Expected text, found a lone surrogate"),
        ({"glossary": "\ud800\tb", "stream": True}, "Invalid request: Expected text, found a lone surrogate"),
        ({"glossary": {"a": "x\u2581y"}}, "A glossary expects terms that the model's vocabulary can spell"),
    ],
)
def test_what_is_wrong_is_told(served: Served, asked: Any, told: str) -> None:
    content = json.dumps({"text": LINE, **asked}).encode()  # escaped: some of it is no UTF-8
    found = post(served, "/generate", content=content)
    assert found.status_code == 400
    assert found.json()["error"].startswith(told)


def test_a_models_own_glossary_counts_for_all_and_is_read_again(translator: Translator, tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("Council\tKammer\n")
    served = Served(translator, glossary=lambda: Glossary.read(file))
    models = served.models

    def ask(**more: Any) -> str:
        return str(post(served, "/translate", json={"q": LINE, **TEXT, **more}).json()["translatedText"])

    try:
        answer = post(served, "/v1/completions", json={"model": "bundled", "prompt": LINE}).json()
        assert "Kammer" in answer["choices"][0]["text"]
        assert "Kammer" in ask()
        assert "Gremium" in ask(glossary={"Council": "Gremium"})  # a request's counts
        assert models.reload() == []
        file.write_text("Council\tVersammlung\n")
        assert models.reload() == ["bundled"]
        assert "Versammlung" in ask()
        interleaved = post(served, "/generate", json={"text": LINE, "decoder": "interleaved"})
        assert interleaved.json()["outputs"][0]["text"] == translator.translate(LINE, "interleaved")
    finally:
        served.close()
