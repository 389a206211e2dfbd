"""longstride serve: it starts, checks itself, ends when asked to, and says what is wrong before it begins."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from longstride.cli.main import main
from longstride.client import Client
from tests.folders import write_folder

HANG = 300
"""Seconds after which it has hung."""


def test_check_translates_a_sentence_and_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--check", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == "Guten Morgen!\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "nothing-en-de"], "nothing-en-de"),
        (["-m", "x=nothing"], "nothing: expected a model folder, found nothing"),
        (["-m", "bundled", "--languages", "en-de", "--languages", "de-en"], "one pair for each of 1 models"),
        (["-m", "bundled", "--languages", "english"], "a pair as en-de"),
        (["--set", "rows=0"], "rows"),
        (["--set", "nothing=1"], "nothing"),
        (["--keys", "no-such-file.json"], "no-such-file.json"),
        (["--decoder", "nothing"], "no decoder"),
        (["-m", "a=bundled", "-m", "a=bundled"], "different names"),
        (["--port", "70000"], "--port"),
    ],
)
def test_what_is_wrong_is_said_first(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--check", "--device", "cpu", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_port_that_another_server_has_is_named_before_models_are_opened(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", "--port", str(port), "--device", "cpu"]) == 1
    told = f"error: 127.0.0.1:{port}: could not be listened on (Address already in use); --port names another"
    assert capsys.readouterr().err.startswith(told)


def test_sigterm_drains_and_ends_well(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny-en-de")
    command = [sys.executable, "-m", "longstride", "serve", "-m", str(folder), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port, lines = None, []
        while port is None:
            lines.append(process.stderr.readline())
            assert lines[-1], "".join(lines)
            found = re.search(r"^Ready: http://127\.0\.0\.1:(\d+) \(API: /docs\)$", lines[-1])
            port = int(found[1]) if found else None
        with Client(f"http://127.0.0.1:{port}", timeout=HANG, trust_env=False) as client:
            assert client.get("/ready")["status"] == "ready"  # at once, where 503 would be an error
            assert isinstance(client.translate("a b", "en", "de"), str)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(HANG) == 0
    told = [json.loads(line) for line in [*lines, *rest.splitlines()] if line.startswith("{")]
    assert [line["path"] for line in told if line["message"] == "request"] == ["/ready", "/translate"]
    assert not any(line.startswith("{") for line in lines), "uvicorn does not say that it starts"
