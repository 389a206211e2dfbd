"""What endpoints share: reading what was asked, in JSON or as a form; leaving off when the client leaves; errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import UploadFile

from longstride.contract import InputError, OptionError
from longstride.contract.options import shown
from longstride.contract.suggestions import meant
from longstride.serving.errors import BadRequestError, CancelledError, DeadlineError, ServingError
from longstride.serving.settings import ServerSettings
from longstride.serving.state import state_of
from longstride.text.glossary import Glossary
from longstride.text.tokenizer import refuse_surrogates

MOST_VALUES = 10_000
"""Values of lists and objects in a request, where the server's limits need no more."""
R = TypeVar("R")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Upload:
    """A file that came with a form."""

    name: str
    content: bytes


class Error(BaseModel):
    """Why a request was not answered."""

    error: str


class OpenAIErrorDetail(BaseModel):
    """The same, in OpenAI's words."""

    message: str
    type: str
    param: str | None
    code: str | int | None


class OpenAIError(BaseModel):
    """What OpenAI's clients look for."""

    error: OpenAIErrorDetail


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Error, "description": "What was asked for cannot be answered"},
    "5XX": {"model": Error, "description": "There is no room, or the time was over"},
}
"""For the page of the API."""
OPENAI_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {**told, "model": OpenAIError} for status, told in ERRORS.items()
}


async def _value(value: str | UploadFile) -> str | Upload:
    return value if isinstance(value, str) else Upload(value.filename or "", await value.read())


async def fields(request: Request) -> dict[str, Any]:
    """What a request says, by name: JSON, a form (with files) or, where there is neither, the query."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        found: dict[str, Any] = {}
        try:
            async with request.form(max_files=1, max_fields=1000) as form:
                for name in form:
                    values = [await _value(value) for value in form.getlist(name)]
                    found[name] = values if len(values) > 1 else values[0]
        except Exception as error:  # whatever the parser stumbles over
            raise BadRequestError("Invalid request: the form cannot be read") from error
        return found
    body = await request.body()
    state = state_of(request)
    settings = state.service.settings
    if not body.strip():
        if "api_key" in request.query_params and state.keys.required and not settings.query_keys:
            raise BadRequestError(
                "Invalid request: expected the API key in the body or a header (Authorization: Bearer KEY), "
                "found it in the address, which proxies write to their logs"
            )
        return dict(request.query_params)
    most = max(MOST_VALUES, 4 * (settings.max_texts + settings.max_terms))
    _check_number(body.count(b","), most + settings.max_characters)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("Invalid request: the body is no JSON") from error
    if not isinstance(content, dict):
        raise BadRequestError(f"Invalid request: expected a JSON object, found {type(content).__name__}")
    waiting: list[Any] = [content]
    number = 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | dict):
            number += len(value)
            _check_number(number, most)
            waiting += value.values() if isinstance(value, dict) else value
    return content


def _check_number(values: int, most: int) -> None:
    """Refuse too many, which take long to be parsed, and of each of which pydantic would write an error."""
    if values > most:
        raise BadRequestError(f"Invalid request: the body has more than {most} values")


GlossaryField = Annotated[
    dict[str, str | None] | list[str | list[str]] | str | None,
    Field(
        description="What terms have to be called: an object of terms and translations (null: kept), a list of terms "
        "that are kept, or lines of a term, a tab and its translation"
    ),
]
"""In what a request asks for."""


def glossary_of(given: Any, settings: ServerSettings) -> Glossary | None:
    """Return the glossary of a request; refuse one beyond the server's limits."""
    if not given:
        return None
    most, longest = settings.max_terms, settings.max_term
    lines = given.splitlines() if isinstance(given, str) else given
    if len(lines) > most:
        raise BadRequestError(f"Invalid request: glossary expects at most {most} terms, found {len(lines)}")
    try:
        found = Glossary.parse(lines, "glossary") if isinstance(given, str) else Glossary.of(given)
        for term in (term for pair in found.entries.items() for term in pair):
            refuse_surrogates(term)
            if len(term) > longest:
                raise OptionError(f"A glossary expects terms of 1 to {longest} characters, found {shown(term)}.")
    except (OptionError, InputError) as error:
        raise BadRequestError(f"Invalid request: {error}") from None
    return found


def checked(model: type[M], content: dict[str, Any]) -> M:
    """What was asked, in its form; the first thing that is wrong is told."""
    files = {name: value for name, value in content.items() if isinstance(value, Upload)}
    for name in model.model_fields:
        if model.model_fields[name].is_required() and name not in content:
            raise BadRequestError(f"Invalid request: missing {name} parameter")
    for name in content if model.model_config.get("extra") == "forbid" else ():
        if name not in model.model_fields:
            hint = meant(name, model.model_fields)
            raise BadRequestError(f"Invalid request: there is no parameter {shown(name)}{hint}")
    try:
        return model.model_validate({name: value for name, value in content.items() if name not in files})
    except ValidationError as error:
        raise BadRequestError(f"Invalid request: {described(error.errors()[0])}") from None


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """For the page of the API: a body in JSON or as a form."""
    schema = _inlined(model.model_json_schema())
    kinds = ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


def _inlined(schema: dict[str, Any]) -> Any:
    """Without references, which would be looked for elsewhere once it is part of another document."""
    known = schema.pop("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return walk(known[value["$ref"].rpartition("/")[2]])
        return {name: walk(one) for name, one in value.items()}

    return walk(schema)


def described(error: Any) -> str:
    """One complaint of pydantic's in words: ``source: Input should be a valid string``."""
    where = ".".join(str(part) for part in error["loc"] if part != "body")
    return f"{where}: {error['msg']}" if where else str(error["msg"])


async def while_connected(request: Request, work: Coroutine[Any, Any, R], seconds: float | None = None) -> R:
    """Return the result of some work; cancel it when the client leaves, or after this number of seconds."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if leaving.done():
            raise CancelledError("The client has gone.")
        raise DeadlineError("The time for this request was over before it was done.")
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def error_response(request: Request, error: ServingError) -> JSONResponse:
    """An error of ours."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return plain_response(request, error.status, str(error), headers)


def error_content(path: str, status: int, message: str) -> dict[str, Any]:
    """An error as the API that was asked has it: OpenAI's under /v1, LibreTranslate's elsewhere."""
    message = message.encode("utf-8", "replace").decode()  # may quote half a surrogate pair
    if not path.startswith("/v1/"):
        return {"error": message}
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def plain_response(
    request: Request, status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error of the web server's own: no such page, another method (and which ones there are)."""
    return JSONResponse(error_content(request.url.path, status, message), status, headers=dict(headers or {}))
