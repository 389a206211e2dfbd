"""A server in a process of its own, and documents that are made to stop it: each is refused in a sentence, or done, and
others are answered meanwhile."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.conftest import HANG
from tests.serving.test_bad_input import archive
from tests.serving.test_files import WORD, word

SECONDS = 5.0
"""Bound for `/health` during an attack, on a busy machine; without limits, attacks stopped the server for 8 to 90."""
BYTES = 300 << 20
"""Memory that an attack may add to the server; some of them added gigabytes."""
PARAGRAPH = "<w:p><w:r><w:t>a</w:t></w:r></w:p>"


def file(name: str, content: Callable[[], bytes]) -> Callable[[], dict[str, Any]]:
    fields = {"source": "en", "target": "de"}
    return lambda: {"url": "/translate_file", "data": fields, "files": {"file": (name, content())}}


def body(path: str, content: Callable[[], bytes]) -> Callable[[], dict[str, Any]]:
    return lambda: {"url": path, "content": content(), "headers": {"content-type": "application/json"}}


def page(text: str) -> Callable[[], dict[str, Any]]:
    return lambda: {"url": "/translate", "json": {"q": text, "source": "auto", "target": "de", "format": "html"}}


def marks(document: str) -> bytes:
    return archive(word__document_xml=f'<w:document xmlns:w="{WORD}">{document}</w:document>'.encode())


ATTACKS: dict[str, Callable[[], dict[str, Any]]] = {
    "nested tags": file("a.html", lambda: b"<svg>" * 20_000 + b"</b>" * 20_000),
    "as many as a body holds": file("a.html", lambda: b"<svg>" * 400_000 + b"</b>" * 400_000),
    "nested tags in a text": page("<svg><b>" * 3000 + "a" + "</i></b>" * 2900),
    "tags in sentences": page("<p>Good <b>morning</b>.</p>" + ("<p>" + "<wbr><i></i>a " * 140) * 10),
    "paragraphs of a page": file("a.html", lambda: b"<p>a" * 90_000),
    "a number without an end": page("Yes. &#" + "9" * 40_000 + ";"),
    "subtitles": file("a.srt", lambda: b"-a\n" * 1_300_000),
    "digits": file("a.txt", lambda: b"1" * 4_000_000),
    "elements": file("a.docx", lambda: marks("<a/>" * 2_000_000)),
    "as many as are read": file("a.docx", lambda: marks("<a/>" * 390_000)),
    "attributes": file("a.docx", lambda: marks("<a " + " ".join(f'a{n}=""' for n in range(700_000)) + "/>")),
    "paragraphs": file("a.docx", lambda: marks(PARAGRAPH * 150_000)),
    "paragraphs that are read": file("a.docx", lambda: marks(PARAGRAPH * 60_000)),
    "a text": file("a.docx", lambda: word(["a " * 4_000_000])),
    "line breaks": file("a.docx", lambda: word(["\n" * 8_000_000])),
    "members": file("a.docx", lambda: archive(**{f"a{number}": b"" for number in range(40_000)})),
    "texts that are numbers": body(
        "/translate", lambda: b'{"q":[' + b"1," * 2_000_000 + b'1],"source":"en","target":"de"}'
    ),
    "terms that are numbers": body(
        "/translate", lambda: b'{"q":"a","source":"en","target":"de","glossary":[' + b"1," * 1_900_000 + b"1]}"
    ),
    "prompts that are numbers": body(
        "/v1/completions", lambda: b'{"model":"a","prompt":[' + b"1," * 2_000_000 + b"1]}"
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The address and the process id of a server."""
    log = tmp_path_factory.mktemp("server") / "log"
    command = [sys.executable, "-m", "longstride", "serve", "--port", "0", "--threads", "1", "--device", "cpu"]
    with log.open("wb") as told, subprocess.Popen(command, stderr=told) as process:
        try:
            for _ in range(10 * HANG):
                if found := re.search(r"Ready: (http://\S+)", log.read_text()):
                    break
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            assert found is not None, log.read_text()
            yield found[1], process.pid
        finally:
            process.terminate()
            assert process.wait(HANG) == 0
    assert '"level": "error"' not in log.read_text().lower()
    assert "traceback" not in log.read_text().lower()


def most_memory(process: int) -> int:
    """Bytes that a process has had."""
    [kilobytes] = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(kilobytes) << 10


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("name", ATTACKS)
def test_others_are_answered_meanwhile(server: tuple[str, int], name: str) -> None:
    address, process = server
    attack, found = ATTACKS[name](), list[httpx.Response]()
    attack["url"] = address + attack["url"]
    with httpx.Client(base_url=address, timeout=HANG, trust_env=False) as client:
        client.post("/translate", json={"q": "Good morning!", "source": "en", "target": "de"})
        before = most_memory(process)
        thread = threading.Thread(target=lambda: found.append(httpx.post(**attack, timeout=HANG, trust_env=False)))
        thread.start()
        waits = []
        while thread.is_alive():
            begun = time.monotonic()
            assert client.get("/health").status_code == 200
            waits.append(time.monotonic() - begun)
            time.sleep(0.02)
    assert max(waits, default=0.0) < SECONDS
    assert most_memory(process) - before < BYTES
    [answer] = found
    assert answer.status_code in (200, 400, 413, 504), answer.text
    if answer.status_code != 200:
        told = answer.json()["error"]
        assert len((told["message"] if isinstance(told, dict) else told).splitlines()) == 1
