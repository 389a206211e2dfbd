"""LibreTranslate's /translate_file, and where its results are fetched."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from longstride.serving.documents import translate_document, words_of
from longstride.serving.downloads import SUFFIXES
from longstride.serving.errors import BadRequestError
from longstride.serving.libretranslate import Language
from longstride.serving.state import state_of
from longstride.serving.web import Upload, checked, fields, while_connected


class FileRequest(BaseModel):
    """POST /translate_file, beside the file"""

    source: Language
    target: Language
    api_key: str | None = None


class FileAnswer(BaseModel):
    """Where the translated file is."""

    translatedFileUrl: str  # noqa: N815 (LibreTranslate's name)


_PROPERTIES: dict[str, Any] = {name: {"type": "string"} for name in ("source", "target", "api_key")}
_SCHEMA = {
    "type": "object",
    "required": ["file", "source", "target"],
    "properties": {"file": {"type": "string", "format": "binary"}, **_PROPERTIES},
}
router = APIRouter(tags=["LibreTranslate"])


@router.post(
    "/translate_file",
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _SCHEMA}}}},
)
async def translate_file(request: Request) -> FileAnswer:
    """Translate a file: .txt, .srt, .html or .docx."""
    state = state_of(request)
    content = await fields(request)
    file = content.get("file")
    if not isinstance(file, Upload):
        raise BadRequestError("Invalid request: missing file parameter")
    asked = checked(FileRequest, content)
    stem, dot, ending = file.name.rpartition(".")
    suffix = f"{dot}{ending.lower()}"
    data = file.content
    state.keys.admit(request, asked.api_key, len(data))
    if suffix not in SUFFIXES or not stem:
        raise BadRequestError("Invalid request: file format not supported")
    source, timeout = asked.source, state.service.settings.timeout
    if source == "auto":
        words = await while_connected(request, words_of(state.service, suffix, data), timeout)
        found = await state.detector.detect(
            words[: state.service.settings.max_characters], state.service.models.languages
        )
        source = found[0] if found is not None else asked.source
    model = state.service.models.translating(source, asked.target)
    if source == asked.target and source in state.service.models.languages:
        done = data  # as it is, which /translate does with texts
    elif model is None:
        raise BadRequestError(f"{source} is not supported with the target {asked.target}")
    else:
        done = await while_connected(request, translate_document(state.service, model, suffix, data), timeout)
    token = state.downloads.keep(f"{stem}_{asked.target}{suffix}", done)
    return FileAnswer(translatedFileUrl=str(request.url_for("download_file", token=quote(token, safe=""))))


@router.get("/download_file/{token}", response_class=Response)
async def download_file(request: Request, token: str) -> Response:
    """A translated file; never shown as a page, since strangers wrote it."""
    found = state_of(request).downloads.fetch(token)
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.name)}",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(found.content, media_type="application/octet-stream", headers=headers)
