"""The page at /docs: every path of the API, what it takes, and a command that asks it, made of /openapi.json."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from longstride.serving.state import state_of
from longstride.serving.web_page import HEADERS

KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
FORM = "multipart/form-data"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Longstride: API</title>
<link rel="icon" href="page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="page/page.css">
<link rel="stylesheet" href="page/api.css">
</head>
<body>
<header class="top">
  <p class="brand"><img src="page/icon.svg" alt="" width="24" height="24"> Longstride</p>
  <nav aria-label="Server"><a href="./">Race</a> <a href="metrics">Metrics</a></nav>
</header>
<main>
<h1>API</h1>
<p class="lead">What can be asked of this server, each with a command that asks it;
  <a href="openapi.json">openapi.json</a> tells programs the same.
  Errors are JSON: <code>{"error": "…"}</code>, under <code>/v1</code> as OpenAI has them.</p>
%s
</main>
</body>
</html>
"""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def page(request: Request) -> HTMLResponse:
    """The page."""
    state = state_of(request)
    model = next(iter(state.service.models)).spec
    examples = {
        **dict.fromkeys(("q", "text", "prompt"), "Good morning."),
        **dict.fromkeys(("model", "name"), model.name),
        "source": model.source,
        "target": model.target,
        "file": "@letter.txt",
        "token": "NAME",
    }
    key = "X-API-Key: YOUR-KEY" if state.keys.required else ""
    document = request.app.openapi()
    every = [
        (told["tags"][0], _operation(method, path, told, str(request.base_url).rstrip("/"), examples, key))
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    ]
    groups = (
        f"<h2>{escape(tag[:1].upper() + tag[1:])}</h2>\n" + "\n".join(text for _, text in group)
        for tag, group in groupby(every, key=lambda one: one[0])
    )
    return HTMLResponse(PAGE % "\n".join(groups), headers=HEADERS)


def _operation(
    method: str, path: str, told: Mapping[str, Any], address: str, examples: Mapping[str, str], key: str
) -> str:
    bodies: Mapping[str, Any] = told.get("requestBody", {}).get("content", {})
    kind = next(iter(bodies), "")
    schema = bodies[kind]["schema"] if kind else {}
    rows = [(one["name"], one["schema"], True) for one in told.get("parameters", ())]
    rows += [(name, one, name in schema.get("required", ())) for name, one in schema.get("properties", {}).items()]
    table = "\n".join(_row(*row) for row in rows)
    address += re.sub(r"{(\w+)}", lambda found: examples[found[1]], path)
    body = {name: examples[name] for name in schema.get("required", ())}
    command = " \\\n  ".join(_command(address, kind, body, key if method == "post" else ""))
    return "\n".join(
        (
            '<article class="card">',
            f"<h3><b>{method.upper()}</b> {escape(path)}</h3>",
            *(f"<p>{_marked(text)}</p>" for text in told.get("description", "").split("\n\n")),
            f"<table><tr><th>Name<th>What<th>Default<th>Meaning\n{table}</table>" if rows else "",
            f"<pre>{escape(command)}</pre>",
            "</article>",
        )
    )


def _row(name: str, schema: Mapping[str, Any], required: bool) -> str:
    default = "required" if required else json.dumps(schema["default"]) if schema.get("default") is not None else ""
    cells = (f"<code>{escape(name)}</code>", escape(_kind(schema)), escape(default))
    return "<tr>" + "".join(f"<td>{cell}" for cell in (*cells, _marked(schema.get("description", ""))))


def _kind(schema: Mapping[str, Any]) -> str:
    """What a value may be, in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return "list"
    if schema.get("format") == "binary":
        return "file"
    return KINDS.get(schema.get("type", "object"), "object")


def _command(address: str, kind: str, body: Mapping[str, str], key: str) -> Iterator[str]:
    """Parts of a command for curl, one for each line."""
    yield f"curl {shlex.quote(address)}"
    if key:
        yield f"-H {shlex.quote(key)}"
    if kind == FORM:
        yield from (f"-F {name}={shlex.quote(value)}" for name, value in body.items())
    elif body:
        yield "-H 'Content-Type: application/json'"
        yield f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}"


def _marked(text: str) -> str:
    """A text whose words in backquotes are code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
