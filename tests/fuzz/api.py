"""Schemathesis against the server's own description of its API: `make fuzz-api`.

A server over the bundled model is asked what its OpenAPI document allows and what it does not. Its answers must be as
the document says; whether anything failed inside is read off its log, where a 500 has a traceback. That a request which
fits the document is refused all the same is no finding: which models and languages there are, it cannot say.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

UNFIT = "positive_data_acceptance,not_a_server_error"
"""Checks that are left out: 504 is what one gets who asks for an answer within a microsecond."""


def main() -> int:
    """The exit code: 0 where nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        command = [sys.executable, "-m", "longstride", "serve", "--port", "0", "--threads", "1", "--device", "cpu"]
        with log.open("wb") as file, subprocess.Popen(command, stderr=file) as server:
            try:
                found = _fuzz(_address(server, log), asked.minutes * 60, asked.seed, place)
            finally:
                server.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    failed = [line for line in lines if line.get("status") == 500 or "traceback" in line]
    for line in failed[:10]:
        print(json.dumps(line, indent=2).replace("\\n", "\n"))
    print(f"{len(lines):,} lines in the log, {len(failed)} of failures; the server ended with {server.returncode}.")
    return int(bool(failed or found or server.returncode))


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, once it is ready."""
    while server.poll() is None:
        told = re.search(r"Ready: (http://\S+)", log.read_text())
        if told is not None and httpx.get(f"{told[1]}/ready", trust_env=False).status_code == 200:
            return told[1]
        time.sleep(0.2)
    sys.exit(log.read_text())


def _fuzz(address: str, seconds: float, seed: int | None, place: str) -> int:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", "--checks", "all"]
    command += ["--exclude-checks", UNFIT, "--continue-on-failure", "--max-time", str(max(1, round(seconds)))]
    command += ["--request-timeout", "60", "--max-response-time", "60"] + (
        ["--seed", str(seed)] if seed is not None else []
    )
    return subprocess.run(command, cwd=place, env={**os.environ, "NO_PROXY": "127.0.0.1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
