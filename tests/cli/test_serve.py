"""longstride serve: it starts, checks itself, ends when asked to, and says what is wrong before it begins."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

import longstride
from longstride.cli.main import main
from longstride.client import Client
from longstride.text.folders import folder_written_whole
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


def ready(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The port of a server that has started, and what it said until then."""
    assert process.stderr is not None
    lines: list[str] = []
    while True:
        lines.append(process.stderr.readline())
        assert lines[-1], "".join(lines)
        if found := re.search(r"^Ready: http://127\.0\.0\.1:(\d+) \(API: /docs\)$", lines[-1]):
            return int(found[1]), lines


def test_sigterm_drains_and_ends_well(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny-en-de")
    command = [sys.executable, "-m", "longstride", "serve", "-m", str(folder), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port, lines = ready(process)
        with Client(f"http://127.0.0.1:{port}", timeout=HANG, trust_env=False) as client:
            assert client.get("/ready")["status"] == "ready"  # at once, where 503 would be an error
            assert isinstance(client.translate("a b", "en", "de"), str)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(HANG) == 0
    told = [json.loads(line) for line in [*lines, *rest.splitlines()] if line.startswith("{")]
    assert [line["path"] for line in told if line["message"] == "request"] == ["/ready", "/translate"]
    assert not any(line.startswith("{") for line in lines), "uvicorn does not say that it starts"


def test_sighup_under_load_loses_no_request_and_mixes_no_models(tmp_path: Path) -> None:
    """Folders are replaced again and again while clients ask: each answer is the one model's or the other's."""
    lines = ["a b c", "c b a d", "d d a"]
    folders = [write_folder(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    meant = [{longstride.load(each, device="cpu").translate(line) for each in folders} for line in lines]
    served = write_folder(tmp_path / "tiny-en-de", seed=1)
    command = [sys.executable, "-m", "longstride", "serve", "-m", str(served), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, ThreadPoolExecutor(5) as pool:
        port, said = ready(process)
        assert process.stderr is not None
        told = pool.submit(process.stderr.read)
        over = threading.Event()

        def ask(first: int) -> int:
            with Client(f"http://127.0.0.1:{port}", timeout=HANG, trust_env=False) as client:
                for number in count(first):
                    assert client.translate(lines[number % 3], "en", "de") in meant[number % 3]
                    if over.is_set():
                        return number - first
            raise AssertionError

        asking = [pool.submit(ask, first) for first in range(4)]
        try:
            for turn in range(6):
                with folder_written_whole(served) as building:
                    shutil.copytree(folders[turn % 2], building, dirs_exist_ok=True)
                for _ in range(1 + turn % 2):
                    process.send_signal(signal.SIGHUP)
                time.sleep(0.3)
        finally:
            over.set()
        assert all(one.result() for one in asking)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG) == 0
        assert "Opened anew: tiny-en-de." in "".join(said) + told.result()
