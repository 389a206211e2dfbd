"""LibreTranslate's API: what its clients send, and what they get."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import random
from typing import Any

import httpx
import pytest

from longstride.serving.service import Service
from longstride.translator import Translator
from tests.serving.conftest import Served

LINES = [
    "Good morning!",
    "The committee has adopted the report.",
    "I would like to thank the rapporteur for her work.",
    "We must act now, because time is short.",
    "This is a question of principle.",
    "The vote will take place tomorrow at noon.",
    "Mr President, ladies and gentlemen, thank you.",
    "Yes.",
    "What does the Commission intend to do about this?",
    "Parliament has the right to know.",
]


def post(served: Served, path: str, **content: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with served.client as client:
            return await client.post(path, **content)

    return asyncio.run(ask())


def test_a_text_and_a_list(served: Served, translator: Translator) -> None:
    one = post(served, "/translate", json={"q": LINES[0], "source": "en", "target": "de"})
    assert (one.status_code, one.json()) == (200, {"translatedText": translator.translate(LINES[0])})
    many = post(served, "/translate", json={"q": LINES[:3], "source": "en", "target": "de"})
    assert many.json() == {"translatedText": [translation.text for translation in translator.translate(LINES[:3])]}
    form = post(served, "/translate", data={"q": LINES[0], "source": "en", "target": "de", "alternatives": "0"})
    assert form.json() == one.json()
    assert one.headers["x-request-id"]


def test_white_space_and_lines_are_kept(served: Served, translator: Translator) -> None:
    text = f"  {LINES[0]}\n\n\t{LINES[3]} \r\n"
    found = post(served, "/translate", json={"q": text, "source": "en", "target": "de"}).json()["translatedText"]
    first, second = translator.translate(LINES[0]), translator.translate(LINES[3])
    assert found == f"  {first}\n\n\t{second} \r\n"
    empty = post(served, "/translate", json={"q": ["", " \n", "🙂"], "source": "en", "target": "de"}).json()
    assert empty == {"translatedText": ["", " \n", "🙂"]}


def test_texts_are_split_as_translate_splits_them(served: Served, translator: Translator) -> None:
    texts = [f"{LINES[0]} {LINES[1]}", f"{LINES[3]}  {LINES[4]} {LINES[9]}\n{LINES[7]}", LINES[2], " ".join(6 * LINES)]
    asked = {"q": texts, "source": "en", "target": "de"}
    split = [translation.text for translation in translator.translate(texts)]
    assert post(served, "/translate", json=asked).json() == {"translatedText": split}
    folder = copy.copy(translator.folder)
    folder.config = dataclasses.replace(folder.config, sentences=False)
    whole = copy.copy(translator)
    whole.folder = folder
    made = Served(whole)
    try:
        found = post(made, "/translate", json={**asked, "q": texts[:3]}).json()
    finally:
        made.close()
    assert found == {"translatedText": [translation.text for translation in whole.translate(texts[:3])]}
    assert found["translatedText"] != split[:3]


def test_outputs_under_random_concurrency_and_cancellation_are_those_of_translate(
    served: Served, translator: Translator
) -> None:
    expected = {line: translation.text for line, translation in zip(LINES, translator.translate(LINES), strict=True)}
    chance = random.Random(7)
    service = Service(served.models)

    async def one(client: httpx.AsyncClient) -> None:
        lines = chance.sample(LINES, chance.randint(1, 4))
        asked = {"q": lines, "source": "en", "target": "de"}
        await asyncio.sleep(chance.random() * 0.3)
        if chance.random() < 0.3:
            task = asyncio.create_task(service.generate(served.models.named("bundled"), lines))
            await asyncio.sleep(chance.random() * 0.2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return
        response = await client.post("/translate", json=asked)
        assert response.json() == {"translatedText": [expected[line] for line in lines]}

    async def all_of_them() -> None:
        async with served.client as client:
            await asyncio.gather(*(one(client) for _ in range(16)))

    asyncio.run(all_of_them())
    after = post(served, "/translate", json={"q": LINES[0], "source": "en", "target": "de"})
    assert after.json() == {"translatedText": expected[LINES[0]]}
    for scheduler in served.models.named(None).schedulers.values():
        assert (scheduler.waiting, scheduler.live) == (0, 0)


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"json": {"source": "en", "target": "de"}}, 400, "missing q parameter"),
    ({"json": {"q": 3, "source": "en", "target": "de"}}, 400, "q"),
    ({"json": {"q": "a", "source": "zz", "target": "de"}}, 400, "zz is not supported"),
    ({"json": {"q": "a", "source": "de", "target": "en"}}, 400, "en is not supported as a target of de"),
    ({"json": {"q": "a", "source": "en", "target": "de", "format": "pdf"}}, 400, "pdf format is not supported"),
    ({"json": {"q": "a", "source": "en", "target": "de", "alternatives": 99}}, 400, "alternatives parameter must be"),
    ({"json": {"q": "a", "source": "en", "target": "de", "alternatives": -1}}, 400, "alternatives"),
    ({"json": {"q": ["a"] * 300, "source": "en", "target": "de"}}, 400, "exceeds text limit"),
    ({"json": {"q": "a" * 60_000, "source": "en", "target": "de"}}, 400, "exceeds text limit"),
    ({"json": ["a"]}, 400, "expected a JSON object"),
    ({"content": b"{"}, 400, "no JSON"),
    ({"content": b'{"q": "\xff"}'}, 400, "no JSON"),
    ({"content": b'{"q": ' + b"[" * 100_000}, 400, "no JSON"),
    ({"content": b'{"q": "\\ud800", "source": "en", "target": "de"}'}, 400, "surrogate"),
    ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "form"),
    ({"content": b" " * (5 << 20)}, 413, "exceeds the limit"),
    ({"content": b"{}", "headers": {"content-length": "9" * 30}}, 413, "exceeds the limit"),
]


@pytest.mark.parametrize(("content", "status", "words"), BAD)
def test_bad_requests_get_a_sentence(served: Served, content: dict[str, Any], status: int, words: str) -> None:
    found = post(served, "/translate", **content)
    assert found.status_code == status
    assert words in found.json()["error"]


def test_other_paths_and_methods(served: Served) -> None:
    async def ask() -> list[httpx.Response]:
        async with served.client as client:
            return [await client.get("/nothing"), await client.get("/translate"), await client.get("/health")]

    nothing, wrong, health = asyncio.run(ask())
    assert (nothing.status_code, wrong.status_code, health.json()) == (404, 405, {"status": "ok"})
    assert "error" in nothing.json()


def test_alternatives_are_others(served: Served, translator: Translator) -> None:
    asked = {"q": LINES[1], "source": "en", "target": "de", "alternatives": 2}
    found = post(served, "/translate", json=asked).json()
    assert found["translatedText"] == translator.translate(LINES[1])
    assert 1 <= len(found["alternatives"]) <= 2
    assert found["translatedText"] not in found["alternatives"]


def test_html_keeps_its_tags(served: Served, translator: Translator) -> None:
    text = f'<p class="a">{LINES[0]}<br/><b>Yes.</b></p><script>if (a < b) "Yes.";</script><code>Yes.</code> &lt;'
    found = post(served, "/translate", json={"q": text, "source": "en", "target": "de", "format": "html"}).json()
    yes, first = translator.translate("Yes."), translator.translate(LINES[0])
    expected = f'<p class="a">{first}<br/><b>{yes}</b></p><script>if (a < b) "Yes.";</script><code>Yes.</code> &lt;'
    assert found["translatedText"] == expected


def test_languages_and_settings(served: Served) -> None:
    async def ask() -> list[Any]:
        async with served.client as client:
            return [(await client.get(path)).json() for path in ("/languages", "/frontend/settings", "/openapi.json")]

    languages, settings, schema = asyncio.run(ask())
    assert languages[0] == {"code": "en", "name": "English", "targets": ["de", "en"]}
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert "/translate" in schema["paths"]
    assert json.dumps(schema)
