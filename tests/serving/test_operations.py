"""Limits, keys, figures, full queues, deadlines, reloading and draining."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import shutil
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import longstride
from longstride.contract import RESERVED, InputError, OptionError
from longstride.serving import app
from longstride.serving.app import make_app
from longstride.serving.errors import DeadlineError, OverloadedError
from longstride.serving.generate import GenerateRequest, steps
from longstride.serving.keys import Keys
from longstride.serving.logs import JsonFormatter
from longstride.serving.models import Models, ModelSpec, languages_of
from longstride.serving.scheduler import Scheduler
from longstride.serving.server import Server
from longstride.serving.service import Service
from longstride.serving.settings import ServerSettings
from longstride.tasks.toys import SYMBOLS
from longstride.text.tokenizer import WordsTokenizer
from longstride.translator import Translator
from tests.folders import write_folder
from tests.serving.conftest import HANG, Served

LINE = "Good morning!"


def asked(served: Served, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        async with served.client as client:
            return [await client.request(method, path, **content) for method, path, content in requests]

    return asyncio.run(ask())


def ask_for(text: str = LINE, **more: Any) -> tuple[str, str, dict[str, Any]]:
    return "POST", "/translate", {"json": {"q": text, "source": "en", "target": "de", **more}}


def key_file(path: Path, **limits: Any) -> Path:
    path.write_text(json.dumps({"keys": {"secret-key-1": {"name": "one", **limits}}}))
    return path


def test_keys_as_libretranslate_has_them(
    translator: Translator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "longstride.serving.access")
    served = Served(translator, Keys.read(key_file(tmp_path / "keys.json", requests_per_minute=2)))
    bearer = {"headers": {"Authorization": "Bearer secret-key-1"}}
    method, path, content = ask_for()
    found = asked(
        served,
        ask_for(),
        ask_for(api_key="wrong"),
        ask_for(api_key="secret-key-1"),
        (method, path, {**content, **bearer}),
        ask_for(api_key="secret-key-1"),
        ("POST", "/v1/completions", {"json": {"model": "bundled", "prompt": LINE}}),
    )
    served.close()
    assert [one.status_code for one in found] == [400, 403, 200, 200, 429, 400]
    assert found[0].json() == {"error": "Please contact the server operator to get an API key"}
    assert found[1].json() == {"error": "Invalid API key"}
    assert found[4].headers["retry-after"]
    told = [getattr(line, "key", None) for line in caplog.records if line.message == "request"]
    assert told == [None, None, "one", "one", "one", None]  # by its name, never the key itself
    assert "secret-key-1" not in str([vars(line) for line in caplog.records])


@pytest.mark.parametrize("allowed", [False, True])
def test_a_key_in_the_address_is_refused_unless_an_option_allows_it(
    translator: Translator, tmp_path: Path, allowed: bool
) -> None:
    """Proxies and browsers keep addresses."""
    keys = Keys.read(key_file(tmp_path / "keys.json"))
    served = Served(translator, keys, query_keys=allowed)
    params = {"q": LINE, "source": "en", "target": "de", "api_key": "secret-key-1"}
    body = {"json": {name: value for name, value in params.items() if name != "api_key"}}
    found = asked(
        served,
        ("POST", "/translate", {"params": params}),
        ("POST", "/translate", {"params": {"api_key": "secret-key-1"}, **body}),
    )
    served.close()
    assert [one.status_code for one in found] == [200 if allowed else 400, 400]
    assert allowed or "found it in the address" in found[0].json()["error"]
    free = Served(translator)
    assert asked(free, ("POST", "/translate", {"params": params}))[0].status_code == 200  # this server has no keys
    free.close()


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"keys": {}}', '{"keys": {"short": {"name": "a"}}}', '{"keys": {"long-enough": {}}}',
     '{"keys": {"long-enough": {"name": "a", "requests_per_minute": -1}}}',
     '{"keys": {"long-enough": {"name": "a", "other": 1}}}'],
)  # fmt: skip
def test_a_file_of_keys_that_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(InputError, match=r"keys\.json"):
        Keys.read(tmp_path / "keys.json")


def test_a_full_queue_refuses_with_503(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(translator, max_waiting=2)
    request = ("POST", "/translate", {"json": {"q": [LINE] * 2, "source": "en", "target": "de"}})
    monkeypatch.setattr(Scheduler, "waiting", 1)
    [found] = asked(served, request)
    monkeypatch.undo()
    served.close()
    assert (found.status_code, found.headers["retry-after"]) == (503, "1")
    assert "2 came" in found.json()["error"]


def test_more_sentences_than_any_queue_holds_are_refused_with_413(translator: Translator) -> None:
    served = Served(translator, max_waiting=2)
    [found] = asked(served, ("POST", "/translate", {"json": {"q": [LINE] * 3, "source": "en", "target": "de"}}))
    served.close()
    assert (found.status_code, found.headers.get("retry-after")) == (413, None)
    assert "send fewer" in found.json()["error"]


def test_a_server_that_is_full_when_it_starts_becomes_ready(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "AGAIN", 0.01)
    served = Served(translator, max_waiting=2)
    refused = []

    def submit(self: Scheduler, sentences: Any) -> None:
        if len(refused) < 3:
            refused.append(len(sentences))
            raise OverloadedError("The server is full.")
        submitted(self, sentences)

    submitted = Scheduler.submit
    monkeypatch.setattr(Scheduler, "submit", submit)
    state = served.app._app.state.server  # type: ignore[attr-defined]
    asyncio.run(asyncio.wait_for(app._warm_up(state), HANG))
    assert state.ready
    served.close()


def test_a_server_without_room_refuses_before_it_reads(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(translator)
    monkeypatch.setattr(Models, "room", 0)
    refused, health = asked(served, ("POST", "/translate", {"content": b"{"}), ("GET", "/health", {}))
    served.close()
    assert (refused.status_code, refused.headers["retry-after"], health.status_code) == (503, "1", 200)


def test_a_deadline_that_is_over(served: Served) -> None:
    async def ask() -> None:
        service = Service(served.models)
        with pytest.raises(DeadlineError):
            await service.generate(served.models.named(None), [LINE], timeout=1e-9)

    asyncio.run(ask())


def test_figures_have_the_names_of_dashboards(served: Served) -> None:
    _, metrics, ready = asked(served, ask_for(), ("GET", "/metrics", {}), ("GET", "/ready", {}))
    for name in (
        "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total",
        "spec_decode_num_accepted_tokens_per_pos_total", "num_requests_running", "num_requests_waiting",
        "request_queue_time_seconds_bucket", "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_bucket", "e2e_request_latency_seconds_bucket",
    ):  # fmt: skip
        assert f"longstride:{name}" in metrics.text
    assert ready.status_code == 503  # nothing was warmed up


def test_cors_is_off_unless_asked_for(translator: Translator, served: Served) -> None:
    origin = {"headers": {"Origin": "https://elsewhere.example"}}
    [closed] = asked(served, ("GET", "/health", origin))
    other = Served(translator, origins=["https://elsewhere.example"])
    [opened] = asked(other, ("GET", "/health", origin))
    other.close()
    assert "access-control-allow-origin" not in closed.headers
    assert opened.headers["access-control-allow-origin"] == "https://elsewhere.example"


def test_a_body_that_does_not_arrive(translator: Translator) -> None:
    """Asked as a socket would: httpx's transport reads bodies whole."""
    served = Served(translator, body_timeout=0.01)

    async def slowly() -> list[Any]:
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            return await asyncio.sleep(HANG)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/translate", "headers": []}
        await served.app(scope, receive, send)
        return sent

    sent = asyncio.run(slowly())
    served.close()
    assert sent[0]["status"] == 408


def test_a_reloaded_folder_drops_no_request(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", seed=0)
    write_folder(tmp_path / "b", seed=1)
    lines = ["a b c", "c b a d", "d d a"]
    old, new = ([longstride.load(tmp_path / name).translate(line) for line in lines] for name in "ab")
    assert old != new
    models = Models([ModelSpec("a", "x", "y", lambda: longstride.load(tmp_path / "a"))], ServerSettings(timeout=HANG))
    service = Service(models)

    async def ask() -> None:
        model = models.named("a")
        assert models.reload() == []
        first = asyncio.create_task(service.generate(model, lines))
        await asyncio.sleep(0)
        shutil.rmtree(tmp_path / "a")
        shutil.copytree(tmp_path / "b", tmp_path / "a")
        assert await asyncio.to_thread(models.reload) == ["a"]
        assert [one.text for one in await first] in (old, new)
        assert [one.text for one in await service.generate(model, lines)] == new  # by a model that has handed over
        assert [one.text for one in await service.generate(models.named("a"), lines)] == new

    asyncio.run(ask())
    models.stop()
    assert models.join(HANG)


def test_a_model_of_other_tokens_that_takes_over_begins_anew(tmp_path: Path) -> None:
    """What the old one read means something else to it, and so do its outputs to the old one."""
    write_folder(tmp_path / "a", seed=0)
    write_folder(tmp_path / "b", seed=1, tokenizer=WordsTokenizer([*RESERVED, *reversed(SYMBOLS), "Z"]))
    line = "a b c"
    wanted = longstride.load(tmp_path / "b").translate(line)
    models = Models([ModelSpec("a", "x", "y", lambda: longstride.load(tmp_path / "a"))], ServerSettings(timeout=HANG))
    service = Service(models)
    old = models.named("a")
    shutil.rmtree(tmp_path / "a")
    shutil.copytree(tmp_path / "b", tmp_path / "a")
    assert models.reload() == ["a"]

    async def ask() -> None:
        [answer] = await service.generate(old, [line])
        assert answer.text == wanted
        _, [[piece]] = await service.pieces(old, [line])
        assert piece.text == wanted
        told = [event async for event in steps(service, old, line, GenerateRequest(text=line))]
        assert told[-1]["text"] == "".join(event["text"] for event in told[:-1]) == wanted

    asyncio.run(ask())
    models.stop()
    assert models.join(HANG)


def test_a_folder_that_is_reloaded_twice_at_once_is_opened_once_and_the_old_one_is_let_go(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", seed=0)
    opened: list[weakref.ref[Translator]] = []

    def load() -> Translator:
        found = longstride.load(tmp_path / "a")
        opened.append(weakref.ref(found))
        time.sleep(0.05)  # the other one comes
        return found

    models = Models([ModelSpec("a", "x", "y", load)], ServerSettings(timeout=HANG))
    asyncio.run(Service(models).generate(models.named("a"), ["a b c"]))
    shutil.rmtree(tmp_path / "a")
    write_folder(tmp_path / "a", seed=1)
    with ThreadPoolExecutor(2) as pool:
        told = [one.result() for one in [pool.submit(models.reload) for _ in range(2)]]
    assert sorted(told) == [[], ["a"]]
    gc.collect()
    assert [one() is None for one in opened] == [True, False]


def test_a_folder_is_reloaded_though_another_model_still_ends_and_none_of_the_old_ones_is_lost(tmp_path: Path) -> None:
    for name in "ab":
        write_folder(tmp_path / name, seed=0)
    specs = [ModelSpec(name, "x", "y", partial(longstride.load, tmp_path / name)) for name in "ab"]
    models = Models(specs, ServerSettings(timeout=HANG))
    slow, other = models
    ending, ended = threading.Event(), threading.Event()

    def join(timeout: float | None = None) -> bool:
        ending.set()
        return ended.wait(timeout)

    slow.join = join  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        write_folder(tmp_path / "a", seed=1)
        first = pool.submit(models.reload)
        assert ending.wait(HANG)
        write_folder(tmp_path / "b", seed=1)
        second = pool.submit(models.reload)
        deadline = time.monotonic() + HANG
        while models.named("b") is other and time.monotonic() < deadline:
            time.sleep(0.01)
        replaced, waiting = models.named("b") is not other, not first.done()
        ended.set()
    assert (replaced, waiting) == (True, True)
    assert (first.result(), second.result(), models._old) == (["a"], ["b"], [])


def test_a_scheduler_that_is_made_while_its_model_drains_drains_too(tmp_path: Path) -> None:
    class Draining(dict[str, Scheduler]):
        def __setitem__(self, name: str, made: Scheduler) -> None:
            model.drain()
            super().__setitem__(name, made)

    write_folder(tmp_path / "a")
    models = Models([ModelSpec("a", "x", "y", lambda: longstride.load(tmp_path / "a"))])
    model = models.named("a")
    model._schedulers = Draining(model._schedulers)
    assert model.scheduler("beam").draining


def test_rows_of_clients_that_hang_up_are_freed_and_a_drained_server_ends(translator: Translator) -> None:
    """On a socket; what hangs up is a connection."""
    text = "We must act now, because time is short, and the committee has adopted the report. " * 2
    settings = ServerSettings(timeout=HANG, drain_timeout=HANG)

    async def hang_up(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps({"text": text, "stream": True, "decoder": "greedy"}).encode()
        head = f"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await writer.drain()
        await reader.readuntil(b"data: ")
        writer.close()

    async def run() -> tuple[int, int]:
        models = Models([ModelSpec("bundled", "en", "de", lambda: translator)], settings)
        own = Server(make_app(models), "127.0.0.1", 0, settings)
        running = await own.start()
        async with asyncio.timeout(HANG):
            await asyncio.gather(*(hang_up(own.port) for _ in range(3)))
            scheduler = models.named(None).scheduler("greedy")
            while scheduler.live or scheduler.waiting:
                await asyncio.sleep(0.01)
            own.handle_exit(15, None)
            await running
        assert not own.force_exit
        own.handle_exit(15, None)
        assert own.force_exit
        return scheduler.live, scheduler.waiting

    assert asyncio.run(run()) == (0, 0)


def test_log_lines_are_json() -> None:
    record = logging.makeLogRecord({"msg": "said %s", "args": ("so",), "request_id": "a", "levelname": "INFO"})
    told = json.loads(JsonFormatter().format(record))
    assert (told["message"], told["request_id"], told["level"]) == ("said so", "a", "info")


@pytest.mark.parametrize(
    ("name", "pair"), [("en-de-base", ("en", "de")), ("opus-mt-ro-en", ("ro", "en")), ("model", None)]
)
def test_languages_by_the_name_of_a_folder(name: str, pair: Any) -> None:
    assert languages_of(name) == pair


def test_two_models_of_one_name(translator: Translator) -> None:
    with pytest.raises(OptionError, match="different names"):
        Models([ModelSpec("a", "en", "de", lambda: translator)] * 2)


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/languages", "/metrics", "/openapi.json", "/nothing"])
def test_head_is_get_without_the_content(served: Served, path: str) -> None:
    got, head = asked(served, ("GET", path, {}), ("HEAD", path, {}))
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert got.content


def test_head_is_counted_by_its_path(served: Served) -> None:
    def counted() -> float:
        [figures] = asked(served, ("GET", "/metrics", {}))
        found = [line for line in figures.text.splitlines() if "_seconds_count{" in line and "/page/{name}" in line]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    before = counted()
    asked(served, ("HEAD", "/page/page.js", {}))
    assert counted() == before + 1
