"""Requests that are refused before they are parsed: whoever sends one hears of it, however it comes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.serving import listening
from longstride.serving.door import Door
from longstride.serving.doorman import PEEKED, is_whole
from longstride.serving.guard import Guard
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
