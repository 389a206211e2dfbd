"""A server under load, on this machine alone: capacity, latencies by load, ten times too much, clients that hang up,
memory over many requests, a server that is killed and started again, and outputs compared with `translate`'s.

    python benchmarks/serving_load.py --lines FILE --record OUT.jsonl -- \
        longstride serve -m MODEL --runtime native --precision int8 --port {port}
    python benchmarks/serving_load.py --lines FILE --record OUT.jsonl --only capacity,poisson -- \
        python benchmarks/ctranslate2_server.py CT2 MODEL --port {port}

What stands behind `--` starts the server ({port} is filled in); it is stopped at the end. Every part is bounded
by --seconds or by a number of requests. Each writes one record, a JSON line, and a line for people.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

PARTS = ("capacity", "poisson", "overload", "hangups", "memory", "killed", "equal")
LOADS = (0.25, 0.5, 0.75, 1.0)
RESTART = 1.0
"""Seconds after which a server that has died is started again (RestartSec)."""
GIVE_UP = 120
"""Seconds after which a request counts as failed."""
SENTENCES = ["Good morning!", "The committee has adopted the report.", "We must act now, because time is short."]


class Http:
    """As little of HTTP as it takes: connections that are kept, a request at a time on each."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, method: str, path: str, content: Any = None) -> tuple[int, bytes]:
        """Status and body; 0 where the connection broke or time was over."""
        body = b"" if content is None else json.dumps(content).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        while self._idle:  # the server may have closed it meanwhile
            if (found := await self._asked(*self._idle.pop(), request))[0]:
                return found
        try:
            return await self._asked(*await asyncio.open_connection("127.0.0.1", self.port), request)
        except OSError:
            return 0, b""

    async def _asked(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> tuple[int, bytes]:
        kept = False
        try:
            async with asyncio.timeout(GIVE_UP):
                writer.write(request)
                told = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(told.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                found = await reader.readexactly(length)
            kept = b"connection: close" not in told
            return int(told.split(b" ", 2)[1]), found
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            return 0, b""
        finally:
            if kept:
                self._idle.append((reader, writer))
            else:
                writer.close()

    def close(self) -> None:
        """All connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle = []


@dataclass
class Seen:
    """Requests and what became of them."""

    seconds: list[float] = field(default_factory=list)
    """of those that were answered"""
    refused: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: int = 0

    def figures(self, wall: float) -> dict[str, Any]:
        """For a record."""
        return {
            "statuses": {str(status): number for status, number in sorted(self.statuses.items())},
            "per_second": round(len(self.seconds) / wall, 2),
            "ms": quantiles(self.seconds),
            "refused_ms": quantiles(self.refused),
            "wrong": self.wrong,
            "wall_seconds": round(wall, 2),
        }


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Milliseconds: p50, p95, p99 and the most."""
    ranked = sorted(seconds)
    if not ranked:
        return {}
    places = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(1000 * ranked[min(len(ranked) - 1, int(q * len(ranked)))], 2) for name, q in places.items()}


class Server:
    """A process that can be started again."""

    def __init__(self, command: list[str], log: Any) -> None:
        self._command, self._log = command, log
        self.start()

    def start(self) -> None:
        """Where the last one was."""
        self.process = subprocess.Popen(self._command, stderr=self._log)

    def stop(self) -> int:
        """Let it drain; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Load:
    """A server and what is asked of it."""

    def __init__(self, http: Http, server: Server, lines: list[str], told: Any) -> None:
        self.http, self._server, self._lines, self._told = http, server, lines, told
        self._next = cycle(lines)
        self._chance = random.Random(told.seed)
        self.known: dict[str, str] = {}
        """what lines became the first time: the same each time"""

    @property
    def rss(self) -> float:
        """MiB of memory that the server has."""
        pages = int(Path(f"/proc/{self._server.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return round(pages * 4096 / (1 << 20), 1)

    async def one(self, seen: Seen) -> None:
        """A request of one line."""
        line = next(self._next)
        begun = perf_counter()
        asked = {"q": line, "source": self._told.source, "target": self._told.target}
        status, body = await self.http.ask("POST", "/translate", asked)
        took = perf_counter() - begun
        seen.statuses[status] += 1
        if status == 200:
            seen.seconds.append(took)
            text = json.loads(body)["translatedText"]
            seen.wrong += self.known.setdefault(line, text) != text
        else:
            seen.refused.append(took)

    async def capacity(self) -> dict[str, Any]:
        """As many requests as it can answer, by clients that ask again at once."""
        seen, begun = Seen(), perf_counter()

        async def client() -> None:
            while perf_counter() - begun < self._told.seconds:
                await self.one(seen)

        await asyncio.gather(*(client() for _ in range(self._told.clients)))
        return {"clients": self._told.clients, **seen.figures(perf_counter() - begun)}

    async def poisson(self, rate: float, seconds: float) -> tuple[Seen, float, float]:
        """Requests that come at random, whatever became of the others; also the most memory."""
        seen, begun, tasks, due, most = Seen(), perf_counter(), set(), 0.0, self.rss
        while due < seconds:
            due += self._chance.expovariate(rate)
            if (wait := begun + due - perf_counter()) > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(self.one(seen))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if len(tasks) > self._told.most_open:  # the machine's own limits are not the server's
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if int(due) != int(due - 1 / rate):
                most = max(most, self.rss)
        await asyncio.gather(*tasks)
        return seen, perf_counter() - begun, max(most, self.rss)

    async def overload(self, capacity: float) -> dict[str, Any]:
        """Ten times too many, and how long it takes until a lone request is fast again."""
        lone = Seen()
        for _ in range(5):
            await self.one(lone)
        before = self.rss
        # A process of its own that asks now and then: this one has ten times too much to do, too, and would count its
        # own delays.
        asked = ["--seconds", str(self._told.seconds), "--source", self._told.source, "--target", self._told.target]
        told = [sys.executable, __file__, "--probe", str(self.http.port), *asked, "-"]
        probe = subprocess.Popen(told, stdout=subprocess.PIPE, text=True)
        seen, wall, most = await self.poisson(10 * capacity, self._told.seconds)
        probed = Seen()
        for status, took in json.loads((await asyncio.to_thread(probe.communicate))[0]):
            probed.statuses[status] += 1
            (probed.seconds if status == 200 else probed.refused).append(took)
        begun = perf_counter()
        after = Seen()
        while perf_counter() - begun < 60:
            await self.one(after)
            if after.seconds and after.seconds[-1] < 2 * max(lone.seconds):
                break
        return {
            "rate": round(10 * capacity, 1),
            **seen.figures(wall),
            "probe": {"statuses": dict(probed.statuses), "refused_ms": quantiles(probed.refused)},
            "rss_before": before,
            "rss_most": most,
            "normal_after_seconds": round(perf_counter() - begun, 2),
        }

    async def hangups(self) -> dict[str, Any]:
        """A hundred clients that leave at random; then nothing may be left in the server."""

        async def client() -> None:
            asked = {"text": next(self._next), "stream": True}
            body = json.dumps(asked).encode()
            head = "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.http.port)
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                async with asyncio.timeout(self._chance.random()):
                    await reader.read()
                writer.close()

        tasks = [asyncio.create_task(client()) for _ in range(100)]
        await asyncio.gather(*tasks)
        for _ in range(600):
            _, body = await self.http.ask("GET", "/metrics")
            left = [
                float(line.rpartition(" ")[2])
                for line in body.decode().splitlines()
                if line.startswith(("longstride:num_requests_running", "longstride:num_requests_waiting"))
            ]
            if sum(left) == 0:
                break
            await asyncio.sleep(0.1)
        return {"clients": 100, "rows_left": sum(left)}

    async def memory(self) -> dict[str, Any]:
        """Memory after each tenth of many requests, 32 at a time."""
        seen, sizes, begun = Seen(), [self.rss], perf_counter()
        for _ in range(10):
            left = self._told.requests // 10

            async def client(share: int) -> None:
                for _ in range(share):
                    await self.one(seen)

            await asyncio.gather(*(client(left // 32) for _ in range(32)))
            sizes.append(self.rss)
            print(f"{sum(seen.statuses.values())} requests: {sizes[-1]} MiB", file=sys.stderr, flush=True)
        return {**seen.figures(perf_counter() - begun), "rss": sizes}

    async def killed(self) -> dict[str, Any]:
        """kill -9 while sixteen clients ask; a second later it is started again (deploy/longstride.service)."""
        seen, over = Seen(), asyncio.Event()

        async def client() -> None:
            while not over.is_set():
                await self.one(seen)
                await asyncio.sleep(0.25)

        clients = [asyncio.create_task(client()) for _ in range(16)]
        await asyncio.sleep(2)
        before, begun = dict(seen.statuses), perf_counter()
        self._server.process.kill()
        self._server.process.wait()
        await asyncio.sleep(RESTART)
        self._server.start()
        answered = len(seen.seconds)
        while len(seen.seconds) == answered:
            await asyncio.sleep(0.01)
        first = perf_counter() - begun
        await ready(self.http, self._server.process)
        all_ready = perf_counter() - begun
        over.set()
        await asyncio.gather(*clients)
        return {
            "statuses_before": before,
            "statuses": dict(seen.statuses),
            "wrong": seen.wrong,
            "answers_after_seconds": round(first, 2),
            "ready_after_seconds": round(all_ready, 2),
        }

    async def equal(self) -> dict[str, Any]:
        """Lines in requests of random sizes, some of them given up, compared with `longstride translate`."""
        lines = self._lines[: self._told.compared]
        found: dict[int, str] = {}
        places = list(range(len(lines)))
        self._chance.shuffle(places)
        gate = asyncio.Semaphore(self._told.clients)

        async def request(some: list[int]) -> None:
            asked = {"q": [lines[place] for place in some], "source": self._told.source, "target": self._told.target}
            async with gate:
                if self._chance.random() < 0.2:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.05 * self._chance.random()):
                            await self.http.ask("POST", "/translate", asked)
                for _ in range(100):
                    status, body = await self.http.ask("POST", "/translate", asked)
                    if status not in (503, 504):
                        break
                    await asyncio.sleep(1)
            if status == 200:
                found.update(zip(some, json.loads(body)["translatedText"], strict=True))

        work = []
        while places:
            size = self._chance.randint(1, 8)
            work.append(request(places[:size]))
            places = places[size:]
        await asyncio.gather(*work)
        expected = self._translated(lines)
        different = [place for place in found if found[place] != expected[place]]
        return {"lines": len(lines), "answered": len(found), "different": len(different)}

    def _translated(self, lines: list[str]) -> list[str]:
        """By the command, with the options that the server was started with."""
        command = list(self._told.command)
        command[command.index("serve")] = "translate"
        for option in ("--port", "--host", "--set", "--keys", "--cors", "--languages"):
            while option in command:
                del command[command.index(option) : command.index(option) + 2]
        ran = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
        return ran.stdout.split("\n")[:-1]


def probe(port: int, seconds: float, source: str, target: str) -> None:
    """Ask twenty times a second, for some seconds, each time without waiting for the last; print statuses and times."""

    def ask() -> None:
        begun = perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP)
        try:
            body = json.dumps({"q": SENTENCES[1], "source": source, "target": target})
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            status = connection.getresponse().status
        except OSError:
            status = 0
        found.append([status, perf_counter() - begun])
        connection.close()

    found: list[list[float]] = []
    asking = [threading.Thread(target=ask) for _ in range(int(20 * seconds))]
    for one in asking:
        one.start()
        sleep(0.05)
    for one in asking:
        one.join()
    print(json.dumps(found))


async def ready(http: Http, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    begun = perf_counter()
    while (await http.ask("GET", "/ready"))[0] != 200:
        if process.poll() is not None:
            raise SystemExit(f"error: the server ended with exit code {process.returncode}.")
        if perf_counter() - begun > GIVE_UP:
            raise SystemExit("error: the server did not become ready.")
        await asyncio.sleep(0.2)


async def run(told: Any, port: int, server: Server) -> None:
    """All parts that were asked for."""
    lines = [line for line in told.lines.read_text(encoding="utf-8").splitlines() if line.strip()] if told.lines else []
    http = Http(port)
    await ready(http, server.process)
    load = Load(http, server, lines or SENTENCES, told)
    parts = told.only.split(",")
    rate = told.rate

    def record(part: str, figures: dict[str, Any]) -> None:
        line = json.dumps({"name": told.name, "part": part, "command": " ".join(told.command), **figures})
        print(line, flush=True)
        if told.record is not None:
            with told.record.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    if "capacity" in parts or not rate:
        found = await load.capacity()
        rate = rate or found["per_second"]
        record("capacity", found)
    for share in LOADS if "poisson" in parts else ():
        seen, wall, most = await load.poisson(share * rate, told.seconds)
        record("poisson", {"load": share, "rate": round(share * rate, 2), **seen.figures(wall), "rss_most": most})
    if "overload" in parts:
        record("overload", await load.overload(rate))
    if "hangups" in parts:
        record("hangups", await load.hangups())
    if "memory" in parts:
        record("memory", await load.memory())
    if "killed" in parts:
        record("killed", await load.killed())
    if "equal" in parts:
        record("equal", await load.equal())
    http.close()


def main() -> None:
    """Read the command line, start the server, ask, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=Path, help="sentences to ask for (default: a few of our own)")
    parser.add_argument("--record", type=Path, help="append records to this file")
    parser.add_argument("--name", default="longstride")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64, help="side by side, where capacity is measured")
    parser.add_argument("--most-open", type=int, default=4000, help="requests that are open at once")
    parser.add_argument("--rate", type=float, default=0.0, help="capacity, where it is known (requests a second)")
    parser.add_argument("--requests", type=int, default=24_000, help="of the part memory")
    parser.add_argument("--compared", type=int, default=2000, help="lines of the part equal")
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--log", type=Path, help="write what the server says to this file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+")
    told = parser.parse_args()
    if told.probe is not None:
        probe(told.probe, told.seconds, told.source, told.target)
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * told.most_open + 1000), most))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [word.replace("{port}", str(port)) for word in told.command]
    log = told.log.open("wb") if told.log is not None else subprocess.DEVNULL
    server = Server(command, log)
    try:
        asyncio.run(run(told, port, server))
    finally:
        code = server.stop()
    print(f"The server ended with {code}.", file=sys.stderr)


if __name__ == "__main__":
    main()
