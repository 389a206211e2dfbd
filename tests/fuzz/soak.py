"""A server under hostile and honest load for a while: python -m tests.fuzz.soak [--minutes 20].

First a client asks short texts without anyone else; then it goes on while another sends attacks, one after the other:
the documents of tests/serving/test_attacks.py, a glossary of 30 terms in a line, and requests that are cut off. Prints
latencies of the honest client, statuses and memory. Exits with 1 where an honest request was not answered, or where its
99th percentile under attack is more than twice what it is without.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx

from tests.serving.test_attacks import ATTACKS

TEXTS = ("Good morning!", "The committee has adopted the report.", "We must act now, because time is short.")
PAUSE = 0.2
"""Seconds between two honest requests"""
TERMS = [f"t{number}" for number in range(30)]
GLOSSARY = {"q": " ".join(TERMS), "source": "en", "target": "de", "glossary": {term: f"x{term}" for term in TERMS}}


def honest(url: str, until: float, statuses: Counter[int]) -> list[float]:
    """Ask one text after the other; return the seconds that each took."""
    taken = []
    with httpx.Client(base_url=url, timeout=60) as client:
        for text in cycle(TEXTS):
            if time.monotonic() >= until:
                return taken
            begun = time.perf_counter()
            statuses[client.post("/translate", json={"q": text, "source": "en", "target": "de"}).status_code] += 1
            taken.append(time.perf_counter() - begun)
            time.sleep(PAUSE)
    raise AssertionError


def hostile(url: str, until: float, statuses: Counter[str]) -> None:
    """Send every attack in turn."""
    attacks = {name: make() for name, make in ATTACKS.items()} | {"a glossary": {"url": "/translate", "json": GLOSSARY}}
    host, port = re.fullmatch(r"http://(.*):(\d+)", url).groups()  # type: ignore[union-attr]
    with httpx.Client(base_url=url, timeout=60) as client:
        for attack in cycle(attacks.values()):
            if time.monotonic() >= until:
                return
            with suppress(httpx.HTTPError):
                statuses[str(client.post(**attack).status_code)] += 1
            with socket.create_connection((host, int(port))) as cut:  # a request whose body never comes
                cut.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{")
            statuses["cut off"] += 1


def percentile(taken: list[float], share: float) -> float:
    """Return the milliseconds within which such a share of requests was answered."""
    return 1000 * sorted(taken)[min(len(taken) - 1, int(share * len(taken)))]


def memory(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    with suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0


def told(log: Path) -> str:
    """Wait for the server's address."""
    for _ in range(1200):
        if found := re.search(r"http://[\d.]+:\d+", log.read_text()):
            return found[0]
        time.sleep(0.1)
    raise SystemExit(f"The server did not start: {log.read_text()[-2000:]}")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--quiet", type=float, default=2.0, help="minutes without attacks")
    given = parser.parse_args()
    found: dict[str, Any] = {"minutes": given.minutes}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [sys.executable, "-m", "longstride", "serve", "--port", "0", "--device", "cpu"]
        with log.open("wb") as output, subprocess.Popen(command, stderr=output) as process:
            url = told(log)
            statuses: Counter[int] = Counter()
            attacks: Counter[str] = Counter()
            honest(url, time.monotonic() + 15, Counter())  # warms up
            quiet = honest(url, time.monotonic() + 60 * given.quiet, statuses)
            found["MiB before"] = round(memory(process.pid))
            until = time.monotonic() + 60 * given.minutes
            attacker = threading.Thread(target=hostile, args=(url, until, attacks))
            attacker.start()
            attacked = honest(url, until, statuses)
            attacker.join()
            found["MiB after"] = round(memory(process.pid))
            process.send_signal(signal.SIGTERM)
            found["exit"] = process.wait(60)
    for name, taken in (("quiet", quiet), ("attacked", attacked)):
        found[name] = {"requests": len(taken)}
        found[name] |= {f"p{100 * share:g} ms": round(percentile(taken, share), 1) for share in (0.5, 0.99, 1.0)}
    found |= {"honest statuses": dict(statuses), "attacks": dict(attacks)}
    print(json.dumps(found, indent=1))
    answered = set(statuses) == {200} and found["exit"] == 0
    return 0 if answered and percentile(attacked, 0.99) <= 2 * percentile(quiet, 0.99) else 1


if __name__ == "__main__":
    sys.exit(main())
