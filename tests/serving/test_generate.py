"""/generate and OpenAI's completions, whole and as streams."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest

from longstride.client import AsyncClient, Client, ServerError
from longstride.contract import InputError, Trace, WorkError
from longstride.contract.trace import Event
from longstride.serving.generate import line
from longstride.translator import Translator
from tests.serving.conftest import HANG, Served

LINE = "The committee has adopted the report, and I would like to thank the rapporteur."


def post(served: Served, path: str, **content: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with served.client as client:
            return await client.post(path, **content)

    return asyncio.run(ask())


def events(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


@pytest.mark.parametrize("decoder", ["draft-verify", "greedy", "beam", "lattice"])
def test_a_stream_joined_is_the_output(served: Served, translator: Translator, decoder: str) -> None:
    found = events(post(served, "/generate", json={"text": LINE, "stream": True, "decoder": decoder}))
    expected = translator.translate(LINE, decoder=decoder)
    assert "".join(event["text"] for event in found[:-1]) == expected == found[-1]["text"]
    assert [token for event in found[:-1] for token in event["tokens"]] == found[-1]["tokens"]
    assert found[-1]["done"]


def test_a_trace_replayed_is_the_output(served: Served) -> None:
    found = events(post(served, "/generate", json={"text": LINE, "stream": True, "trace": True}))
    steps = [
        Event(tuple(one["positions"]), tuple(one["ids"]), one["drafted"], one["accepted"], True, tuple(one["draft"]))
        for one in found[:-1]
    ]
    assert Trace(tuple(steps)).replay() == found[-1]["tokens"]
    assert [one["step"] for one in found[:-1]] == list(range(1, len(found)))
    assert all(len(one["draft_pieces"]) == one["drafted"] >= one["accepted"] for one in found[:-1])


@pytest.mark.parametrize("decoder", ["draft-verify", "blockwise", "interleaved", "beam", "lattice"])
def test_the_last_event_tells_the_whole_trace(served: Served, translator: Translator, decoder: str) -> None:
    asked = {"text": LINE, "stream": True, "trace": True, "decoder": decoder}
    *steps, done = events(post(served, "/generate", json=asked))
    trace = done["trace"]
    expected = translator.translate([LINE], decoder, trace=True, batch=1)[0].trace
    assert expected is not None
    assert [step["positions"] for step in trace["steps"]] == [list(event.positions) for event in expected.events]
    cells = {}
    for step in trace["steps"]:
        cells |= zip(step["positions"], step["texts"], strict=True)
    assert "".join(cells[place] for place in sorted(cells)) == done["text"]
    seconds = [step["decoding_seconds"] for step in trace["steps"]]
    assert seconds == sorted(seconds)
    assert 0 < seconds[-1] < done["seconds"]
    assert len(steps) == len(trace["steps"]) == trace["iterations"]
    assert done["beside"] == 0
    for step in trace["steps"]:
        assert len(step["draft_texts"]) == len(step["draft"]) == step["drafted"]
        assert step["draft_texts"][: step["accepted"]] == step["texts"][: step["accepted"]]


def test_others_on_the_server_are_told(served: Served) -> None:
    """Times of decoders that share a device are not theirs alone."""

    async def ask() -> list[httpx.Response]:
        asked = {"text": LINE, "stream": True, "trace": True, "decoder": "greedy"}
        async with served.client as client:
            return await asyncio.gather(*(client.post("/generate", json=asked) for _ in range(3)))

    assert max(events(response)[-1]["beside"] for response in asyncio.run(ask())) == 2


def test_texts_with_figures(served: Served, translator: Translator) -> None:
    found = post(served, "/generate", json={"text": [LINE, ""], "decoder": "greedy"}).json()
    assert [one["text"] for one in found["outputs"]] == [translator.translate(LINE), ""]
    assert found["outputs"][0]["tokens"] > 5
    assert (found["model"], found["decoder"]) == ("bundled", "greedy")


def test_completions_as_openai_has_them(served: Served, translator: Translator) -> None:
    whole = post(served, "/v1/completions", json={"model": "bundled", "prompt": LINE, "max_tokens": 16}).json()
    assert (whole["object"], whole["choices"][0]["finish_reason"]) == ("text_completion", "stop")
    assert whole["choices"][0]["text"] == translator.translate(LINE)
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + whole["usage"]["completion_tokens"]
    asked = {"model": "bundled:greedy", "prompt": [LINE], "stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, end = events(post(served, "/v1/completions", json=asked))
    assert end == "[DONE]"
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], whole["usage"]["completion_tokens"])
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == translator.translate(LINE)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_models_are_listed(served: Served) -> None:
    async def ask() -> Any:
        async with AsyncClient("http://test", transport=httpx.ASGITransport(served.app)) as client:  # type: ignore[arg-type]
            card = await client.get("/v1/models/bundled:greedy")
            with pytest.raises(ServerError) as error:
                await client.get("/v1/models/nothing")
            return await client.get("/v1/models"), card, error.value.status

    models, card, status = asyncio.run(ask())
    assert {"bundled", "bundled:greedy", "bundled:beam"} <= {model["id"] for model in models["data"]}
    assert (card["id"], status) == ("bundled:greedy", 404)


BAD: list[tuple[str, dict[str, Any], int]] = [
    ("/generate", {"json": {}}, 400),
    ("/generate", {"json": {"text": "a", "decoder": "nothing"}}, 400),
    ("/generate", {"json": {"text": "a", "decoder": "alternatives"}}, 400),
    ("/generate", {"json": {"text": "a", "decodr": "greedy"}}, 400),
    ("/generate", {"json": {"text": "a", "model": "nothing"}}, 404),
    ("/translate", {"json": {"q": "a", "source": "en", "target": "de", "format": "html", "alternatives": 1}}, 400),
    ("/v1/chat/completions", {"json": {"model": "bundled", "messages": []}}, 404),
    ("/v1/chat/completions", {"content": b"{"}, 404),
    ("/generate", {"json": {"text": ["a", "b"], "stream": True}}, 400),
    ("/generate", {"json": {"text": "a", "trace": True}}, 400),
    ("/generate", {"json": {"text": "a", "timeout": -1}}, 400),
    ("/generate", {"json": {"text": {"a": 1}}}, 400),
    ("/generate", {"content": b"\xff"}, 400),
    ("/v1/completions", {"json": {"prompt": "a"}}, 400),
    ("/v1/completions", {"json": {"model": "bundled:nothing", "prompt": "a"}}, 404),
    ("/v1/completions", {"json": {"model": "bundled", "prompt": [1, 2]}}, 400),
    ("/v1/completions", {"json": {"model": "bundled", "prompt": "a", "echo": True}}, 400),
    ("/v1/completions", {"json": {"model": "bundled", "prompt": "a", "n": 2}}, 400),
    ("/v1/completions", {"content": b"[" * 100_000}, 400),
    ("/detect", {"json": {"q": ["a"]}}, 400),
    ("/detect", {"json": {}}, 400),
]


@pytest.mark.parametrize(("path", "content", "status"), BAD)
def test_bad_requests_get_a_sentence(served: Served, path: str, content: dict[str, Any], status: int) -> None:
    found = post(served, path, **content)
    assert found.status_code == status
    told = found.json()["error"]
    assert told["message"] if path.startswith("/v1") else told


def test_an_error_says_where_to_ask_and_what_there_is(served: Served) -> None:
    chat = post(served, "/v1/chat/completions", json={"model": "gpt-4", "messages": []}).json()["error"]
    assert "POST the text as `prompt` to /v1/completions." in chat["message"]
    assert (chat["type"], chat["param"]) == ("invalid_request_error", None)
    model = post(served, "/v1/completions", json={"model": "gpt-4", "prompt": "a"}).json()["error"]
    assert model["message"] == "There is no model 'gpt-4'. Available: bundled."
    page = {"q": "<b>a</b>", "source": "en", "target": "de", "format": "html", "alternatives": 2}
    told = "Invalid request: alternatives are for format text, found html; leave alternatives out"
    assert post(served, "/translate", json=page).json() == {"error": told}
    assert post(served, "/translate", json={**page, "alternatives": 0}).status_code == 200


@pytest.mark.parametrize("text", ["...", "*** * ***", " - - -\n?! ", "🙂", "&&&", "Hello.\n* * *\nBye."])
def test_what_has_no_letter_or_digit_stays_whoever_is_asked(served: Served, translator: Translator, text: str) -> None:
    expected = translator.translate(text)
    asked = {"q": text, "source": "en", "target": "de"}
    found = post(served, "/translate", json=asked).json()["translatedText"]
    generated = post(served, "/generate", json={"text": text}).json()["outputs"][0]["text"]
    assert found == generated == expected == "".join(translator.stream(text))
    if "Hello" in text:
        assert "\n* * *\n" in expected
        return
    *steps, done = events(post(served, "/generate", json={"text": text, "stream": True}))
    assert "".join(step["text"] for step in steps) == done["text"] == expected == text
    assert done["tokens"] == []


def test_clients_stream_and_hear_of_errors(served: Served, translator: Translator) -> None:
    async def ask() -> None:
        transport: Any = httpx.ASGITransport(served.app)  # type: ignore[arg-type]
        async with AsyncClient("http://test", timeout=HANG, transport=transport) as client:
            texts = [event["text"] async for event in client.stream(LINE) if not event.get("done")]
            assert "".join(texts) == translator.translate(LINE)
            with pytest.raises(ServerError, match="no decoder"):
                await client.generate(LINE, decoder="nothing")
            with pytest.raises(ServerError, match="no decoder"):
                [event async for event in client.stream(LINE, decoder="nothing")]

    asyncio.run(ask())


def test_clients_say_where_no_server_is_and_refuse_what_is_no_text() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"  # where nobody listens

    async def ask(client: AsyncClient) -> None:
        async with client:
            await client.translate("a", "en", "de")

    with Client(address, trust_env=False) as client:
        told = rf"^{address}: no server answers \(.*\); `longstride serve` starts one\.$"
        for asking in (
            lambda: client.translate("a", "en", "de"),
            lambda: client.generate(["a"]),
            lambda: list(client.stream("a")),
            lambda: client.get("/ready"),
            lambda: asyncio.run(ask(AsyncClient(address, trust_env=False))),
        ):
            with pytest.raises(WorkError, match=told):
                asking()
        for wrong in (None, 5, b"a", ["a", None]):
            with pytest.raises(InputError, match=r"^Expected a text or several to translate, found "):
                client.translate(wrong, "en", "de")  # type: ignore[call-overload]
            with pytest.raises(InputError, match=r"^Expected a text or several to translate, found "):
                client.generate(wrong)  # type: ignore[arg-type]


def test_no_sign_within_a_text_ends_an_event() -> None:
    told = [{"text": "a\u2028b\u2029c\x85d\x0be\x1cf é 語"}, {"done": True, "text": "\x0c"}]
    stream = httpx.MockTransport(lambda request: httpx.Response(200, content=b"".join(map(line, told))))
    with Client("http://test", transport=stream) as client:
        assert list(client.stream("a")) == told


@pytest.mark.parametrize("status", [200, 502])
def test_an_answer_that_is_no_json_is_told(status: int) -> None:
    """Of a proxy, say."""
    page = httpx.MockTransport(lambda request: httpx.Response(status, content=b"<p>Log in</p>"))
    with Client("http://test", transport=page) as client, pytest.raises(ServerError, match="found '<p>Log") as error:
        client.translate("a", "en", "de")
    assert error.value.status == status
