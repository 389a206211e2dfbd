"""The page at /: type a text and watch decoders race. Plain files, with no build step and nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from longstride.registry import DECODERS
from longstride.serving.languages import name_of
from longstride.serving.models import ServedModel
from longstride.serving.state import state_of
from longstride.translator import BY_TEXT

INDEX = "index.html"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
EXAMPLES = "examples.tsv"
"""In a model folder: sentences, each with a tab and its translation behind it."""
MOST_EXAMPLES = 8

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Contents and kinds, by name; they are small, and nothing else can be asked for."""
    folder = resources.files("longstride.serving") / "page"
    return {
        one.name: (one.read_bytes(), KINDS[suffix])
        for one in folder.iterdir()
        if (suffix := "." + one.name.rpartition(".")[2]) in KINDS
    }


@router.get("/")
async def index() -> Response:
    """The page."""
    return _response(INDEX)


@router.get("/page/settings")
async def settings(request: Request) -> dict[str, Any]:
    """What the page has to know of this server."""
    state = state_of(request)
    return {
        "models": [_model(model) for model in state.service.models],
        "key_required": state.keys.required,
    }


@router.get("/page/{name}")
async def file(name: str) -> Response:
    """One of its files."""
    return _response(name)


def _response(name: str) -> Response:
    if name not in _files():
        raise HTTPException(404, "Not Found")
    content, kind = _files()[name]
    return Response(content, media_type=kind, headers=HEADERS)


def _model(model: ServedModel) -> dict[str, Any]:
    spec = model.spec
    names = [name for name in model.decoders if name != BY_TEXT]  # which expects a draft with each text
    return {
        "name": spec.name,
        "source": {"code": spec.source, "name": name_of(spec.source)},
        "target": {"code": spec.target, "name": name_of(spec.target)},
        "decoders": [{"name": name, "summary": DECODERS[name].summary} for name in names],
        "examples": _examples(model),
    }


def _examples(model: ServedModel) -> list[str]:
    """Sentences that came with the model, if any did."""
    file = model.translator.folder.path / EXAMPLES
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.partition("\t")[0] for line in lines if line.strip()][:MOST_EXAMPLES]
