"""Whatever is sent to whichever endpoint: a clear 4xx in the form of its API, never a traceback, never a hang."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from longstride.serving.app import make_app
from longstride.serving.html import runs
from longstride.serving.models import Models, ModelSpec
from longstride.serving.server import Server
from longstride.serving.settings import ServerSettings
from longstride.translator import Translator
from tests.serving.conftest import HANG, Served
from tests.serving.test_files import sent, word

GOOD: dict[str, dict[str, Any]] = {
    "/translate": {"q": "Yes.", "source": "en", "target": "de", "format": "text", "alternatives": 0},
    "/detect": {"q": "Yes."},
    "/translate_file": {"source": "en", "target": "de"},
    "/generate": {"text": "Yes.", "model": "bundled", "decoder": "greedy", "stream": False, "timeout": 9},
    "/v1/completions": {"model": "bundled", "prompt": "Yes.", "stream": False, "stream_options": {}, "n": 1},
}
FORM = {"content-type": "application/x-www-form-urlencoded"}
MULTIPART = {"content-type": "multipart/form-data; boundary=a"}
BODIES: dict[str, tuple[bytes, dict[str, str]]] = {
    "nothing": (b"", {}),
    "no JSON": (b"{'q': 1}", {}),
    "a list": (b"[]", {}),
    "a number": (b"1", {}),
    "null": (b"null", {}),
    "no UTF-8": (b'{"q": "\xff\xfe", "text": "\xff", "prompt": "\xff"}', {}),
    "deep lists": (b'{"q": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", {}),
    "deep objects": (b'{"q": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001, {}),
    "a number of 5,000 digits": (b'{"q": ' + b"9" * 5000 + b"}", {}),
    "too large": (b'{"q": "' + b"a" * (5 << 20) + b'"}', {}),
    "a million numbers": (b'{"q": [' + b"1," * 1_000_000 + b"1]}", {}),
    "many objects": (b'{"q": [' + b"{}," * 20_000 + b"{}]}", {}),
    "many in lists": (b'{"glossary": [' + b'["a", 1, 1, 1, 1],' * 3_000 + b'"a"]}', {}),
    "many names": (b"{" + b",".join(b'"%d": 1' % number for number in range(20_000)) + b"}", {}),
    "a form without fields": (b"&&&=&%%%", FORM),
    "a form of many fields": (b"a=1&" * 5000, FORM),
    "no form": (b"\x00\xff" * 100, MULTIPART),
    "a form without an end": (b'--a\r\nContent-Disposition: form-data; name="q"\r\n\r\n', MULTIPART),
    "a form without a boundary": (b"--a\r\n", {"content-type": "multipart/form-data"}),
}
VALUES: dict[str, Any] = {"number": 3.5, "list": [[]], "object": {"a": {}}, "true": True, "huge": 10**400, "none": None}
VALUES |= {"surrogate": "\ud800", "long": "a" * 60_000, "controls": "\x00\x1b[31m"}


def posted(served: Served, path: str, **content: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with served.client as client:
            return await client.post(path, **content)

    return asyncio.run(ask())


def told(response: httpx.Response, path: str) -> str:
    """What it says, in the form that clients of this API expect."""
    assert response.headers["content-type"] == "application/json"
    found = response.json()["error"]
    message: str = found["message"] if path.startswith("/v1/") else found
    assert isinstance(message, str)
    assert "Traceback" not in message
    return message


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_none(served: Served, path: str, name: str) -> None:
    content, headers = BODIES[name]
    found = posted(served, path, content=content, headers=headers)
    assert found.status_code == (413 if name == "too large" else 400)
    assert told(found, path)


@pytest.mark.parametrize(("path", "field"), [(path, field) for path, good in GOOD.items() for field in good])
def test_fields_of_other_types(served: Served, path: str, field: str) -> None:
    for name, value in VALUES.items():
        if path == "/translate_file":
            form = {**GOOD[path], field: json.dumps(value) if not isinstance(value, str) else value}
            data = {key: text.encode("utf-8", "surrogatepass") for key, text in form.items()}
            found = posted(served, path, data=data, files={"file": ("a.txt", b"Yes.")})
        else:
            found = posted(served, path, content=json.dumps({**GOOD[path], field: value}).encode())
        assert found.status_code in (200, 400, 404), (name, found.text)  # None and True may mean something
        if found.status_code != 200:
            assert told(found, path)


@pytest.mark.parametrize(
    "path", ["/download_file/%00", "/download_file/" + "a" * 5000, "/v1/models/%ff", "/v1/models/..%2f.."]
)
def test_names_that_are_none(served: Served, path: str) -> None:
    async def ask() -> httpx.Response:
        async with served.client as client:
            return await client.get(path)

    found = asyncio.run(ask())
    assert found.status_code == 404
    assert told(found, path)


@pytest.mark.parametrize("method", ["GET", "PUT", "TRACE", "DELETE"])
def test_other_methods_say_which_there_are(served: Served, method: str) -> None:
    async def ask() -> httpx.Response:
        async with served.client as client:
            return await client.request(method, "/translate")

    found = asyncio.run(ask())
    assert (found.status_code, found.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd.txt", "..\\..\\a.txt", "/a/b.txt", 'a"; b="c.txt', "a\x00.txt", "é" * 500 + ".txt"]
)
def test_names_of_files_are_never_paths(served: Served, name: str) -> None:
    found, file = sent(served, name, b"Yes.")
    assert file is not None
    token = found.json()["translatedFileUrl"].rpartition("/")[2]
    assert not set('/\\"\x00\r\n') & set(token)
    assert ".." not in token.split(".", 1)[1]
    assert len(token) < 1000


def archive(kind: int = zipfile.ZIP_DEFLATED, **entries: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", kind) as file:
        for name, content in entries.items():
            file.writestr(name.replace("__", "/").replace("_xml", ".xml"), content)
    return packed.getvalue()


def lying() -> bytes:
    """An archive that holds more than it says."""
    made = bytearray(archive(word__document_xml=b" " * 100_000))
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        start = made.index(mark) + place
        made[start : start + 4] = (10).to_bytes(4, "little")
    return bytes(made)


def damaged(kind: int, head: int) -> bytes:
    """An archive whose content cannot be unpacked."""
    made = bytearray(archive(kind, word__document_xml=b"abc" * 100))
    start = made.index(b".xml") + 4 + head
    made[start : start + 4] = b"\xff" * 4
    return bytes(made)


WORD_FILES: dict[str, Callable[[], bytes]] = {
    "a bomb": lambda: archive(word__document_xml=b" " * (65 << 20)),
    "many bombs": lambda: archive(
        word__document_xml=b"<a/>", **{f"b{number}": b" " * (9 << 20) for number in range(8)}
    ),
    "many entries": lambda: archive(word__document_xml=b"<a/>", **{f"e{number}": b"" for number in range(2100)}),
    "more marks than text": lambda: archive(word__document_xml=b"<a>" + b"<a/>" * (3 << 20) + b"</a>"),
    "deep marks": lambda: word(["<w:p>" * 100_000 + "</w:p>" * 100_000]),
    "many namespaces": lambda: word(["".join(f'<w:t xmlns:a{number}="b{number}"/>' for number in range(500))]),
    "entities": lambda: word(["&a;"], head='<!DOCTYPE a [<!ENTITY a "b">]>'),
    "UTF-16": lambda: archive(word__document_xml='<?xml version="1.0" encoding="utf-16"?><a/>'.encode("utf-16")),
    "many elements": lambda: word(["</w:t><a/><w:t>" * 210_000]),
    "many attributes": lambda: word(["</w:t><a " + " ".join(f"a{n}=''" for n in range(410_000)) + "/><w:t>"]),
    "an entity of entities": lambda: word(
        ["&b;"], head=f"<!DOCTYPE a [<!ENTITY a '{'a' * 99}'><!ENTITY b '{'&a;' * 9999}'>]>"
    ),
    "another compression": lambda: archive(zipfile.ZIP_LZMA, word__document_xml=b"<a/>"),
    "an unknown encoding": lambda: archive(word__document_xml=b'<?xml version="1.0" encoding="nothing"?><a/>'),
    "no text": lambda: archive(other=b"a"),
    "lies": lying,
    "damage": lambda: damaged(zipfile.ZIP_DEFLATED, 0),
    "other damage": lambda: damaged(zipfile.ZIP_LZMA, 9),
}
"""Made by the test that sends them: some take a while."""


@pytest.mark.parametrize("name", WORD_FILES)
def test_word_files_that_are_none(served: Served, name: str) -> None:
    found, _ = sent(served, "a.docx", WORD_FILES[name]())
    assert found.status_code in (400, 413), found.text
    assert told(found, "/translate_file").startswith("Invalid request: ")


def test_a_word_file_may_have_as_many_paragraphs_as_sentences_may_wait(served: Served) -> None:
    found, _ = sent(served, "a.docx", word(*[["a"]] * 1025))
    assert found.status_code == 413
    assert told(found, "/translate_file").startswith("Invalid request: 1025 sentences, and at most 1024 may wait")


def test_boxes_in_paragraphs_are_translated_once(served: Served, translator: Translator) -> None:
    inner = "</w:t></w:r><w:r><w:p><w:r><w:t>Yes.</w:t></w:r></w:p></w:r><w:r><w:t>"
    _, found = sent(served, "a.docx", word([f"Good morning!{inner}"]))
    assert found is not None
    with zipfile.ZipFile(io.BytesIO(found.content)) as file:
        document = file.read("word/document.xml").decode()
    for text in ("Good morning!", "Yes."):
        assert document.count(f">{translator.translate(text)}<") == 1


@pytest.mark.parametrize(
    "start",
    ["<a", "<!", "<?", '<a "', "<a '\"", "<a b=", "<!--", "</", "<a b='\"<a", "<script ", "<script>", "<style/>"],
)
@pytest.mark.parametrize("end", ["", ">", '"', "'>"])
def test_no_page_takes_long_to_be_read(start: str, end: str) -> None:
    """Of half a million characters; with a quadratic pattern it would not be done today."""
    page = start * (500_000 // len(start)) + end
    assert "".join(run.text for run in runs(page)) == page
    long = start + "a " * 250_000 + end
    assert "".join(run.text for run in runs(long)) == long


async def _asked(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        async with asyncio.timeout(HANG):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_slow_and_broken_connections_are_closed(translator: Translator) -> None:
    """Heads that do not come, come byte by byte or are none; and bodies that stop: on a socket, nobody is kept."""
    settings = ServerSettings(timeout=HANG, drain_timeout=HANG, body_timeout=0.5)
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\n"

    async def run() -> list[bytes]:
        models = Models([ModelSpec("bundled", "en", "de", lambda: translator)], settings)
        server = Server(make_app(models), "127.0.0.1", 0, settings)
        running = await server.start()
        found = await asyncio.gather(
            _asked(server.port),
            _asked(server.port, head),
            _asked(server.port, *(bytes([byte]) for byte in b"GET /health"), pause=0.02),
            _asked(server.port, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /he", pause=0.3),
            _asked(server.port, head + b"Content-Length: 10\r\n\r\n", b"{"),
            _asked(server.port, b"\x16\x03\x01\x00 no HTTP\r\n\r\n"),
            _asked(server.port, head + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n"),
        )
        server.should_exit = True
        await running
        return found

    first, second, third, kept, body, other, large = asyncio.run(run())
    assert (first, second, third) == (b"", b"", b"")
    assert kept.startswith(b"HTTP/1.1 200")
    assert body.startswith(b"HTTP/1.1 408")
    assert other.startswith(b"HTTP/1.1 400")
    assert large == b"" or large.startswith(b"HTTP/1.1 400")
