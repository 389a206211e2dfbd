"""Languages that are found out: /detect, and the source `auto`."""

from __future__ import annotations

import asyncio
import html
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.serving.detection import SURE, Detector
from longstride.serving.errors import ServingError
from longstride.translator import Translator
from tests.serving.conftest import Served
from tests.serving.test_files import sent, word

ENGLISH = "The committee has adopted the report, and I would like to thank the rapporteur."
GERMAN = "Der Ausschuss hat den Bericht angenommen, und ich möchte der Berichterstatterin danken."
DETECTOR = Detector()
FRENCH = "La commission a adopté le rapport, et je voudrais remercier le rapporteur de son travail."


def asked(served: Served, path: str, **content: Any) -> tuple[int, Any]:
    async def ask() -> tuple[int, Any]:
        async with served.client as client:
            found = await client.post(path, json=content)
            return found.status_code, found.json()

    return asyncio.run(ask())


@pytest.mark.parametrize(("text", "language"), [(ENGLISH, "en"), (GERMAN, "de"), (FRENCH, "fr")])
def test_a_language_is_found(served: Served, text: str, language: str) -> None:
    status, [found] = asked(served, "/detect", q=text)
    assert (status, found["language"]) == (200, language)
    assert 50 < found["confidence"] <= 100


@pytest.mark.parametrize("text", ["", " \n", "🙂🙂", "12 + 3"])
def test_what_has_no_words_is_in_no_language(served: Served, text: str) -> None:
    assert asked(served, "/detect", q=text) == (200, [{"language": "en", "confidence": 0.0}])
    found = {"translatedText": text, "detectedLanguage": {"language": "en", "confidence": 0.0}}
    assert asked(served, "/translate", q=text, source="auto", target="de") == (200, found)


def test_auto_is_found_out_for_each_text(served: Served, translator: Translator) -> None:
    status, found = asked(served, "/translate", q=[ENGLISH, GERMAN, "🙂"], source="auto", target="de")
    assert (status, found["translatedText"]) == (200, [translator.translate(ENGLISH), GERMAN, "🙂"])
    assert [one["language"] for one in found["detectedLanguage"]] == ["en", "de", "en"]
    page = asked(served, "/translate", q=f"<p>{ENGLISH}</p>", source="auto", target="de", format="html")[1]
    assert page["translatedText"] == f"<p>{translator.translate(ENGLISH)}</p>"
    assert page["detectedLanguage"]["language"] == "en"


def test_marks_are_in_no_language(served: Served, translator: Translator) -> None:
    """Neither what stands in a page's style, nor the bytes of an archive."""
    page = f"<style>/* {GERMAN} {GERMAN} */</style><p>{ENGLISH}</p>"
    found = asked(served, "/translate", q=page, source="auto", target="de", format="html")[1]
    assert found["detectedLanguage"]["language"] == "en"
    _, done = sent(served, "a.html", page.encode(), source="auto")
    assert done is not None
    assert str(translator.translate(ENGLISH)) in html.unescape(done.text)
    for number in range(5):
        assert sent(served, "a.docx", word([f"{ENGLISH} {number}"]), source="auto")[0].status_code == 200


def test_a_language_that_no_model_reads(served: Served) -> None:
    assert asked(served, "/translate", q=FRENCH, source="auto", target="de") == (400, {"error": "fr is not supported"})


SHORT = ["x", "No", "Ok lol", "Yes.", "Thanks!", "Hello world"]
"""Texts too short to tell their language, which looks like Vietnamese or Afrikaans just as well."""


@pytest.mark.parametrize("text", SHORT)
def test_a_guess_is_one_of_the_languages_that_there_are(served: Served, text: str) -> None:
    status, [found] = asked(served, "/detect", q=text)
    assert (status, found["language"] in ("en", "de")) == (200, True)
    status, answer = asked(served, "/translate", q=[text, ENGLISH], source="auto", target="de")
    assert (status, answer["detectedLanguage"][0]) == (200, found)


@pytest.mark.parametrize("codes", [(), ("zz",), ("en",), ("de", "en", "zz")])
@given(text=st.text(max_size=20))
@settings(max_examples=50)
def test_what_is_found_is_known_or_sure(codes: tuple[str, ...], text: str) -> None:
    found = asyncio.run(DETECTOR.detect(text, codes))
    if found is not None:
        language, sure = found
        assert 0 <= sure <= 100
        assert language in codes or sure >= SURE or not {"en", "de"} & {*codes}


def test_a_file_of_a_language_that_is_found_out(served: Served, translator: Translator) -> None:
    async def ask() -> str:
        async with served.client as client:
            data, files = {"source": "auto", "target": "de"}, {"file": ("a.txt", ENGLISH.encode())}
            found = await client.post("/translate_file", data=data, files=files)
            return (await client.get(found.json()["translatedFileUrl"])).text

    assert asyncio.run(ask()) == translator.translate(ENGLISH)


def test_without_the_package_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lingua", None)
    with pytest.raises(ServingError, match="lingua-language-detector") as error:
        asyncio.run(Detector().detect(ENGLISH))
    assert error.value.status == 501
