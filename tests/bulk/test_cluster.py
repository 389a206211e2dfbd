"""A Ray cluster of several processes on this machine, one of which is killed at work; and replicas of the server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import longstride
from tests.folders import write_folder

pytest.importorskip("ray", reason="Ray is heavy, and only installed by `make test-cluster` (longstride[cluster])")
HANG = 300
"""Seconds after which a test has hung."""

REPLICAS = """
import sys, httpx, ray
from ray import serve
from longstride.serving.replicas import build

ray.init(num_cpus=3, include_dashboard=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(build({"model": sys.argv[1], "languages": "en-de", "replicas": "2", "rows": "2"}))
client = httpx.Client(base_url=f"http://127.0.0.1:{sys.argv[2]}", timeout=300, trust_env=False)
for _ in range(4):
    found = client.post("/translate", json={"q": "a b c", "source": "en", "target": "de"})
    print("SAID", found.json()["translatedText"])
print("BAD", client.post("/translate", json={"q": 3}).status_code)
with client.stream("POST", "/generate", json={"text": "a b", "stream": True}) as stream:
    print("STREAM", sum(line.startswith("data:") for line in stream.iter_lines()) > 1)
serve.shutdown()
"""


def test_a_killed_worker_costs_nothing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [" ".join("abcd"[(number + place) % 4] for place in range(number % 9)) for number in range(240)]
    source.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "longstride", "bulk", "-m", str(folder), str(source), str(output)]
    options = ["--precision", "fp64", "--device", "cpu", "--shard", "10", "--batch", "4"]
    killed = None
    with subprocess.Popen(
        [*command, *options, "--cluster", "local", "--workers", "3"], stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + HANG
        while killed is None and process.poll() is None and time.monotonic() < end:
            for mark in tmp_path.glob("out.txt.shards/*.begun"):
                try:
                    killed = int(mark.read_text().split()[-1])
                    os.kill(killed, signal.SIGKILL)
                    break
                except (FileNotFoundError, IndexError):
                    killed = None
            time.sleep(0.001)
        _, told = process.communicate(timeout=HANG)
    assert process.returncode == 0, told
    assert killed is not None, "no worker was at work"
    alone = longstride.load(folder, device="cpu", precision="fp64").translate(lines)
    assert output.read_text() == "".join(f"{one.text}\n" for one in alone)
    assert not output.with_name("out.txt.shards").exists()


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    command = [sys.executable, "-m", "longstride", "bulk", "-m", str(write_folder(tmp_path / "tiny"))]
    files = [str(tmp_path / "in.txt"), str(tmp_path / "out.txt")]
    ran = subprocess.run([*command, *files, "--cluster", "auto"], capture_output=True, text=True, timeout=HANG)
    assert ran.returncode == 1
    assert "expected the address of a Ray cluster" in ran.stderr.splitlines()[-1]
    assert not (tmp_path / "out.txt").exists()


def test_replicas_answer_as_one_server(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    said = longstride.load(folder, device="cpu").translate("a b c")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ran = subprocess.run(
        [sys.executable, "-c", REPLICAS, str(folder), str(port)], capture_output=True, text=True, timeout=HANG
    )
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("SAID", "BAD", "STREAM"))]  # Ray talks too
    assert lines == [*[f"SAID {said}"] * 4, "BAD 400", "STREAM True"]
