"""The page's files: right kinds, nothing inline, nothing from elsewhere. What it does is in test_browser.py."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest

import longstride
from longstride.serving import web_page
from longstride.serving.keys import Keys
from longstride.translator import Translator
from tests.serving.conftest import Served

PACKAGE = Path(longstride.__file__).parent
FILES = sorted((PACKAGE / "serving" / "page").iterdir())


def get(served: Served, *paths: str) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        async with served.client as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(ask())


def test_the_page_comes_with_a_strict_policy(served: Served) -> None:
    index, script, style, icon = get(served, "/", "/page/page.js", "/page/page.css", "/page/icon.svg")
    assert index.text.startswith("<!doctype html>")
    kinds = [one.headers["content-type"].partition(";")[0] for one in (index, script, style, icon)]
    assert kinds == ["text/html", "text/javascript", "text/css", "image/svg+xml"]
    for response in (index, script, style, icon):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "../app.py", "%2e%2e%2fapp.py", "page"])
def test_nothing_else_is_served(served: Served, name: str) -> None:
    [found] = get(served, f"/page/{name}")
    assert found.status_code == 404


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_are_shipped_small_and_ask_nobody_else(path: Path) -> None:
    project = PACKAGE.parents[1] / "pyproject.toml"
    if project.is_file():
        shipped = tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]["longstride"]
        assert any(fnmatch(str(path.relative_to(PACKAGE)), pattern) for pattern in shipped)
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 350
    assert path.suffix in web_page.KINDS
    assert re.findall(r"(?:https?:)?//[\w-]+\.[\w.-]+", text) in ([], ["http://www.w3.org"])


def test_the_page_names_its_files_and_has_nothing_inline() -> None:
    text = (PACKAGE / "serving" / "page" / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'(?:src|href)="page/([^"]+)"', text))
    assert named <= {path.name for path in FILES}
    assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", text)


def test_tokens_without_a_draft_do_not_look_as_if_a_draft_had_stood() -> None:
    page = PACKAGE / "serving" / "page"
    rules = re.findall(r"^([^{}]+)\{([^}]*)\}", (page / "page.css").read_text(encoding="utf-8"), re.MULTILINE)
    looks = {name: look for names, look in rules for name in names.strip().split(", ")}
    assert "--stood" in looks[".stood"]
    assert not re.search(r"--stood|--own|border", looks[".new.written"])
    assert 'class="token new written"' in (page / "index.html").read_text(encoding="utf-8"), "the legend has it"


def test_what_the_page_has_to_know(served: Served, translator: Translator, tmp_path: Path) -> None:
    [found] = get(served, "/page/settings")
    [model] = found.json()["models"]
    names = [decoder["name"] for decoder in model["decoders"]]
    assert names[: len(translator.decoders)] == translator.decoders
    assert "text-verify" not in names
    assert all(decoder["summary"] for decoder in model["decoders"])
    assert (model["source"]["name"], model["target"]["code"]) == ("English", "de")
    assert model["examples"]
    assert not found.json()["key_required"]
    (tmp_path / "keys.json").write_text('{"keys": {"secret-key-1": {"name": "one"}}}')
    guarded = Served(translator, Keys.read(tmp_path / "keys.json"))
    [found] = get(guarded, "/page/settings")
    guarded.close()
    assert found.json()["key_required"]


def test_the_page_of_the_api_tells_every_path_with_a_command(served: Served) -> None:
    page, told = get(served, "/docs", "/openapi.json")
    assert page.headers["content-security-policy"] == web_page.HEADERS["Content-Security-Policy"]
    for path, methods in told.json()["paths"].items():
        for method in methods:
            assert f"<h3><b>{method.upper()}</b> {path}</h3>" in page.text
    assert page.text.count("<pre>curl http://test/") == sum(map(len, told.json()["paths"].values()))
    commands = [shlex.split(html.unescape(found)) for found in re.findall("<pre>(.*?)</pre>", page.text, re.DOTALL)]
    asked = {words[1]: json.loads(words[-1]) for words in commands if words[-2] == "-d"}
    assert asked["http://test/translate"] == {"q": "Good morning.", "source": "en", "target": "de"}

    async def ask() -> list[int]:
        async with served.client as client:
            return [(await client.post(address, json=body)).status_code for address, body in asked.items()]

    assert set(asyncio.run(ask())) == {200}


def test_no_page_names_another_host_or_has_anything_inline(served: Served) -> None:
    for page in get(served, "/", "/docs"):
        assert page.headers["content-type"].startswith("text/html")
        assert set(re.findall(r"(?:https?:)?//[\w-]+[\w.-]*", page.text)) <= {"http://test"}
        assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page.text)
    assert [page.status_code for page in get(served, "/redoc", "/docs/oauth2-redirect")] == [404, 404]
