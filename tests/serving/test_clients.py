"""Clients that people have, on a socket: LibreTranslate's own, OpenAI's, and what Mastodon and Weblate send."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import libretranslatepy
import openai
import pytest

from longstride.serving.app import make_app
from longstride.serving.keys import Keys
from longstride.serving.models import Models, ModelSpec
from longstride.serving.server import Server
from longstride.serving.settings import ServerSettings
from longstride.translator import Translator
from tests.serving.conftest import HANG

LINE = "The committee has adopted the report."
KEY = "secret-key-1"


@pytest.fixture(scope="module")
def address(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that asks for a key."""
    keys: Path = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(f'{{"keys": {{"{KEY}": {{"name": "one"}}}}}}')
    settings = ServerSettings(timeout=HANG, drain_timeout=HANG)
    models = Models([ModelSpec("bundled", "en", "de", lambda: translator)], settings)
    server = Server(make_app(models, keys=Keys.read(keys)), "127.0.0.1", 0, settings)
    listening = threading.Event()

    async def run() -> None:
        running = await server.start()
        listening.set()
        await running

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert listening.wait(HANG)
    yield f"http://127.0.0.1:{server.port}"
    server.should_exit = True
    thread.join(HANG)
    assert not thread.is_alive()


def test_libretranslate_s_own_client(address: str, translator: Translator) -> None:
    client = libretranslatepy.LibreTranslateAPI(address, KEY)
    assert client.translate(LINE, "en", "de", timeout=HANG) == translator.translate(LINE)
    assert client.translate(LINE, "auto", "de", timeout=HANG) == translator.translate(LINE)
    [found] = client.detect(LINE, timeout=HANG)
    assert (found["language"], found["confidence"] > 30) == ("en", True)
    assert [language["code"] for language in client.languages(timeout=HANG)] == ["en", "de"]


def test_what_mastodon_sends(address: str, translator: Translator) -> None:
    """A list of HTML texts as JSON, of a language or of none that is known; statuses that it tells apart."""
    texts = [f"<p>{LINE}</p>", ""]
    with httpx.Client(base_url=address, timeout=HANG, trust_env=False) as client:
        for source in ("en", "auto"):
            body = {"q": texts, "source": source, "target": "de", "format": "html", "api_key": KEY}
            found = client.post("/translate", json=body).json()
            assert found["translatedText"] == [f"<p>{translator.translate(LINE)}</p>", ""]
            assert source == "en" or found["detectedLanguage"][0]["language"] == "en"
        wrong = client.post("/translate", json={**body, "api_key": "wrong"})
        pairs = {one["code"]: one["targets"] for one in client.get("/languages").json()}
    assert wrong.status_code == 403
    assert "de" in pairs["en"]


def test_what_weblate_sends(address: str, translator: Translator) -> None:
    """A form; and errors as JSON with an `error`."""
    form = {"api_key": KEY, "q": LINE, "source": "en", "target": "de", "format": "text"}
    with httpx.Client(base_url=address, timeout=HANG, trust_env=False) as client:
        assert client.post("/translate", data=form).json() == {"translatedText": translator.translate(LINE)}
        refused = client.post("/translate", data={**form, "target": "zz"})
    assert (refused.status_code, refused.json()) == (400, {"error": "zz is not supported"})


def test_openai_s_client(address: str, translator: Translator) -> None:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, timeout=HANG, max_retries=0) as client:
        assert "bundled:greedy" in [model.id for model in client.models.list()]
        assert client.models.retrieve("bundled").id == "bundled"
        whole = client.completions.create(model="bundled", prompt=LINE, max_tokens=100, temperature=0)
        assert whole.choices[0].text == translator.translate(LINE)
        assert whole.usage is not None
        chunks = list(
            client.completions.create(
                model="bundled:greedy", prompt=LINE, stream=True, stream_options={"include_usage": True}
            )
        )
        assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
        assert chunks[-1].usage == whole.usage
        with pytest.raises(openai.NotFoundError, match="There is no model 'nothing'"):
            client.completions.create(model="nothing", prompt=LINE)
        with pytest.raises(openai.BadRequestError, match="echo"):
            client.completions.create(model="bundled", prompt=LINE, echo=True)
    with openai.OpenAI(base_url=f"{address}/v1", api_key="wrong-key", timeout=HANG, max_retries=0) as client:
        with pytest.raises(openai.PermissionDeniedError, match="Invalid API key"):
            client.completions.create(model="bundled", prompt=LINE)
        client.models.list()  # what there is, everybody may know


def test_openai_s_client_hears_of_it_in_a_stream(address: str) -> None:
    made = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, timeout=HANG, max_retries=0)
    with made as client, pytest.raises(openai.BadRequestError, match="exceeds text limit"):
        list(client.completions.create(model="bundled", prompt="a" * 60_000, stream=True))
