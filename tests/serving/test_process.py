"""A server in a process of its own: bursts, a glossary that once stopped it, and its end with requests in flight."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.folders import write_folder
from tests.serving.conftest import HANG

TEXT = {"source": "en", "target": "de"}


class Process:
    """A running server; answers are whole, or an error."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    async def ask(self, path: str = "/translate", **asked: Any) -> tuple[int, dict[str, str], Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        return await told(reader, writer, posted(path, **asked))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)


def posted(path: str = "/translate", **asked: Any) -> bytes:
    body = json.dumps({**TEXT, **asked} if path == "/translate" else asked).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\nConnection: close\r\n\r\n" + body


async def told(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *parts: bytes
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and what the body says; a cut connection is no answer."""
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        head, end, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    assert end, "the connection was cut"
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert len(body) == int(headers["content-length"])
    return int(first.split()[1]), headers, json.loads(body)


@contextmanager
def running(model: Path | str, *options: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "longstride", "serve", "-m", f"en-de={model}", "--port", "0", "--device", "cpu"]
    command += ["--languages", "en-de", *(part for option in options for part in ("--set", option))]
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            found, until = None, time.monotonic() + HANG
            while found is None:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
                log.seek(0)
                found = re.search(r"^Ready: http://127\.0\.0\.1:(\d+)", log.read(), re.MULTILINE)
            yield Process(process, int(found[1]))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "tiny")


def within(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG):
            await work()

    asyncio.run(main())


def test_a_burst_within_the_queue_is_served_and_what_is_beyond_is_refused(tiny: Path) -> None:
    with running(tiny, f"timeout={HANG}") as server:

        async def burst() -> None:
            for _ in range(2):
                answers = await asyncio.gather(*(server.ask(q=f"a b {number}") for number in range(400)))
                assert {status for status, _, _ in answers} == {200}

        within(burst)
        server.stop()
        assert server.process.wait(HANG) == 0
    with running(tiny, "max_waiting=4", "rows=1") as server:

        async def overload() -> None:
            answers = await asyncio.gather(*(server.ask(q="a b c d e f g h") for _ in range(200)))
            assert {status for status, _, _ in answers} == {200, 503}
            assert all(headers.get("retry-after") for status, headers, _ in answers if status == 503)
            assert all("full" in body["error"] for status, _, body in answers if status == 503)

        within(overload)
        server.stop()


def test_a_glossary_of_many_terms_stops_nobody() -> None:
    """30 terms in 30 words: others are answered meanwhile, and the server ends when it is asked to."""
    line = " ".join(f"t{number}" for number in range(30))
    glossary = {f"t{number}": f"x{number}" for number in range(30)}
    with running("bundled", f"timeout={HANG}", "drain_timeout=1") as server:

        async def work() -> None:
            attacks = [asyncio.create_task(server.ask(q=line, glossary=glossary)) for _ in range(3)]
            gone = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
            for _, writer in gone:
                writer.write(posted(q=line, glossary=glossary))
                await writer.drain()
            await asyncio.sleep(1)
            for _, writer in gone:
                writer.close()
            for _ in range(3):
                status, _, body = await server.ask(q="Good morning.")
                assert (status, body["translatedText"]) == (200, "Guten Morgen!")
            assert not any(attack.done() for attack in attacks), "the attack was over before it could do harm"
            server.stop()
            for attack in attacks:
                status, _, body = await attack
                assert status == 200 or (status == 503 and "stop" in body["error"])

        within(work)
        assert server.process.wait(HANG) == 0


def test_requests_in_flight_at_the_end_are_answered_or_told(tiny: Path) -> None:
    with running(tiny, "drain_timeout=1", "rows=1", f"timeout={HANG}") as server:

        async def work() -> None:
            begun = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
            data = posted(q="a b")
            for (_, writer), sent in zip(begun, (len(data) - 3, 30, 0), strict=True):  # in the body, in the head, none
                writer.write(data[:sent])
                await writer.drain()
            many = [asyncio.create_task(server.ask(q="a b c d e f g h")) for _ in range(150)]
            await asyncio.sleep(0.3)
            server.stop()
            await asyncio.sleep(0.2)
            rest = [told(*one, data[sent:]) for one, sent in zip(begun, (len(data) - 3, 30), strict=False)]
            answers = await asyncio.gather(*many, *rest)
            for status, headers, body in answers:
                assert status == 200 or (status == 503 and headers["retry-after"] and "error" in body)
            begun[-1][1].close()

        within(work)
        assert server.process.wait(HANG) == 0
