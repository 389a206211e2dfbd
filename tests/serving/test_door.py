"""Requests that are refused before they are parsed: whoever sends one hears of it, however it comes."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.serving import listening
from longstride.serving.door import MOST_CHUNKS, Door
from longstride.serving.doorman import PEEKED, is_whole
from longstride.serving.guard import LITTLE, MOST_HELD, Guard
from longstride.serving.server import Server
from longstride.serving.settings import ServerSettings
from tests.serving.conftest import HANG

BODY = b'{"q": "Good morning!"}'
OPEN = b'{"open": true}'


def request(path: str = "/translate", body: bytes = BODY, method: str = "POST") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers whatever is let in."""
    if scope["type"] == "lifespan":
        for _ in range(2):
            await send({"type": (await receive())["type"] + ".complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"14")]})
    await send({"type": "http.response.body", "body": OPEN})


class Knocking:
    """A server with a door, and what comes of parts of a request that are sent one after another."""

    def __init__(self, full: bool = True) -> None:
        self.full, self.watched = full, list[tuple[str, int, float]]()
        self._door = Door(lambda: int(not self.full), lambda *told: self.watched.append(told))

    def run(self, work: Callable[[Knocking], Any]) -> None:
        async def main() -> None:
            settings = ServerSettings(body_timeout=HANG)
            self.server = server = Server(app, "127.0.0.1", 0, settings, door=self._door)
            running = await server.start()
            self.port = server.port
            async with asyncio.timeout(HANG):
                await work(self)
            server.should_exit = True
            await running

        asyncio.run(main())

    async def knock(self, *parts: bytes) -> bytes:
        """All that is answered until the connection is closed; `parts` come apart."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        found = await reader.read()
        writer.close()
        return found


def test_what_is_posted_is_refused_however_it_comes_and_the_rest_is_answered() -> None:
    async def work(server: Knocking) -> None:
        whole, large = request(), request(body=b"x" * (3 * PEEKED))
        for parts in ([whole], [whole[:-5], whole[-5:]], [whole[:20], whole[20:]], [large], [large[:99], large[99:]]):
            found = await server.knock(*parts)
            head, _, body = found.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in head
            assert b"connection: close" in head
            assert json.loads(body) == {"error": "The server is full."}
        openai = await server.knock(request("/v1/completions"))
        assert json.loads(openai.partition(b"\r\n\r\n")[2])["error"]["type"] == "server_error"
        many = await asyncio.gather(*(server.knock(whole) for _ in range(100)))
        assert all(one.startswith(b"HTTP/1.1 503 ") for one in many)
        while len(server.watched) < 106:  # which is told a little later
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for method, full, told in (("GET", True, b"200"), ("POST", False, b"200"), ("POST", True, b"503")):
            server.full = full
            writer.write(request(method=method))
            assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == told
            if told == b"200":
                assert await reader.readexactly(len(OPEN)) == OPEN
        assert json.loads(await reader.read()) == {"error": "The server is full."}
        writer.close()

    Knocking().run(work)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server accepts connections itself")
def test_a_doorman_that_was_killed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PATIENCE", 0.01)

    async def work(server: Knocking) -> None:
        [listener] = server.server._listeners
        first = listener._process
        first.kill()
        assert (await server.knock(request())).startswith(b"HTTP/1.1 503 ")
        assert listener._process is not first

    Knocking().run(work)


@pytest.mark.parametrize("sized", [True, False])
def test_whoever_sends_too_much_hears_of_it(sized: bool) -> None:
    """Also clients that send all before they read, as httpx does: a connection that was closed tells them nothing."""
    settings = ServerSettings(max_body=1024, body_timeout=HANG)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * (1 << 16)

    async def ask() -> httpx.Response:
        server = Server(Guard(app, settings), "127.0.0.1", 0, settings)
        running = await server.start()
        async with httpx.AsyncClient(timeout=HANG, trust_env=False) as client:
            content = b"x" * (100 << 16) if sized else parts()
            found = await client.post(f"http://127.0.0.1:{server.port}/translate", content=content)
        server.should_exit = True
        await running
        return found

    found = asyncio.run(ask())
    assert found.status_code == 413
    assert found.json()["error"].endswith("1024 bytes")


@given(st.binary(max_size=40), st.integers(0, 60))
def test_a_request_is_whole_when_all_of_it_has_come(body: bytes, cut: int) -> None:
    whole = request(body=body)
    assert is_whole(whole)
    assert not is_whole(whole[: max(0, len(whole) - 1 - cut)])
    assert not is_whole(whole + b"P")


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b""])
def test_what_does_not_say_how_long_it_is_is_left_to_be_parsed(head: bytes) -> None:
    assert not is_whole(head)


POST = b"POST /translate HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


async def answered(port: int, *parts: bytes) -> tuple[list[bytes], bytes, bool]:
    """Statuses of all answers to what is sent on one connection, what was answered, and whether it was closed then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found, closed = b"", False
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.05)
        while part := await asyncio.wait_for(reader.read(1 << 16), 1):
            found += part
        closed = True
    except TimeoutError:
        pass
    except ConnectionError:
        closed = True
    writer.close()
    return re.findall(rb"HTTP/1\.1 (\d+) ", found), found, closed


def test_requests_that_proxies_read_differently_are_refused_and_their_connection_closed() -> None:
    """RFC 9112, 2.2 and 6: what comes behind them is never read as a request."""
    both = b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    refused = {
        "Content-Length and Transfer-Encoding": POST + both + NEXT,
        "the same of GET": b"GET / HTTP/1.1\r\nHost: a\r\n" + both + NEXT,
        "bare LF": b"GET / HTTP/1.1\nHost: a\n\n" + NEXT,
        "one bare LF": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n" + NEXT,
        "bare CR": b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n" + NEXT,
        "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + NEXT,
        "a signed length": POST + b"Content-Length: +2\r\n\r\n{}" + NEXT,
        "another coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + NEXT,
        "a coding twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + NEXT,
        "a space before the colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n" + NEXT,
        "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + NEXT,
        "no host": b"GET / HTTP/1.1\r\n\r\n" + NEXT,
        "a chunk longer than it says": CHUNKED + b"2\r\n{}}\r\n0\r\n\r\n" + NEXT,
        "many tiny chunks": CHUNKED + b"1\r\na\r\n" * (MOST_CHUNKS + 1) + b"0\r\n\r\n" + NEXT,
    }
    answered_first = {
        "bare LF behind another": request() + b"GET / HTTP/1.1\nHost: a\n\n" + NEXT,
        "both behind another": request() + POST + both + NEXT,
    }
    good = {
        "LF in a body": [request(body=b"a\n\nb\r\n\r\n\n")],
        "a head in two parts": [b"GET / HTTP/1.1\r", b"\nHost: a\r\n\r\n"],
        "the same length twice": [POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"],
        "extensions of chunks": [CHUNKED + b"2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n"],
        "a folded line": [b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"],
        "a thousand headers": [b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 1000 + b"\r\n"],
        "a WebSocket": [b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"],
    }

    async def work() -> None:
        settings = ServerSettings(body_timeout=HANG, max_body=1 << 20)
        server = Server(Guard(app, settings), "127.0.0.1", 0, settings)
        running = await server.start()
        for name, sent in refused.items():
            statuses, found, closed = await answered(server.port, sent)
            assert (statuses in ([b"400"], []), closed) == (True, True), (name, found)
        for name, sent in answered_first.items():
            statuses, found, closed = await answered(server.port, sent)
            assert (statuses, closed) == ([b"200", b"400"], True), (name, found)
        results = await asyncio.gather(*(answered(server.port, *parts) for parts in good.values()))
        for name, (statuses, found, closed) in zip(good, results, strict=True):
            assert (statuses, closed) == ([b"200"], False), (name, found)
        pipelined, _, _ = await answered(server.port, NEXT * 50)
        assert pipelined == [b"200"] * 50
        expecting = POST + b"Expect: 100-continue\r\nContent-Length: "
        assert (await answered(server.port, expecting + b"2\r\n\r\n", b"{}"))[0] == [b"100", b"200"]
        assert (await answered(server.port, expecting + b"9999999\r\n\r\n"))[0] == [b"413"]
        _, why, _ = await answered(server.port, POST + both)
        assert b"either Content-Length or Transfer-Encoding" in why
        server.should_exit = True
        await running

    asyncio.run(work())


def test_bodies_are_bounded_together_and_little_ones_are_still_read() -> None:
    settings = ServerSettings(max_body=MOST_HELD, body_timeout=HANG)
    statuses: list[int] = []
    release = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": OPEN})

    async def ask(guard: Guard, size: int) -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": bytes(size), "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await guard({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, send)

    async def work() -> None:
        guard = Guard(slow, settings)
        held = asyncio.ensure_future(ask(guard, MOST_HELD - LITTLE))
        await asyncio.sleep(0)
        await ask(guard, 2 * LITTLE)
        assert statuses == [503]
        others = [asyncio.ensure_future(ask(guard, LITTLE)) for _ in range(3)]
        release.set()
        await asyncio.gather(held, *others)
        await ask(guard, 2 * LITTLE)
        assert statuses == [503] + [200] * 5

    asyncio.run(work())
