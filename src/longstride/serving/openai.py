"""OpenAI's /v1/completions, whose prompt is the source text, and /v1/models.

A model's name is that of a model of the server, or with a decoder behind it: ``bundled:beam``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from longstride.serving.errors import BadRequestError, ServingError
from longstride.serving.generate import EVENTS, STREAMS, GenerateRequest, Name, line, steps
from longstride.serving.models import ServedModel
from longstride.serving.service import Service
from longstride.serving.state import state_of
from longstride.serving.web import checked, fields, takes, while_connected


class StreamOptions(BaseModel):
    """What a stream ends with."""

    include_usage: bool = False


class CompletionRequest(BaseModel):
    """POST /v1/completions; what decoders here have no use for (temperature, max_tokens) is read and left."""

    model: Name = Field(description="A model's name, or name:decoder")
    prompt: str | list[str] = Field(description="Source text, or a list of texts")
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = Field(default=1, ge=1, le=1)
    echo: bool = False


class Choice(BaseModel):
    """One output."""

    text: str
    index: int
    logprobs: None = None
    finish_reason: str | None = "stop"


class Usage(BaseModel):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """Its answer."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class ModelCard(BaseModel):
    """A model, or one of its decoders."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "longstride"


class ModelList(BaseModel):
    """All of them."""

    object: str = "list"
    data: list[ModelCard]


router = APIRouter(tags=["OpenAI"], prefix="/v1")


@router.get("/models")
async def models(request: Request) -> ModelList:
    """Models, and each with its decoders."""
    cards = []
    for model in state_of(request).service.models:
        cards += [ModelCard(id=name) for name in (model.spec.name, *(f"{model.spec.name}:{d}" for d in model.decoders))]
    return ModelList(data=cards)


@router.get("/models/{name}")
async def model_card(request: Request, name: str) -> ModelCard:
    """One of them."""
    _named(state_of(request).service, name)
    return ModelCard(id=name)


@router.post("/completions", openapi_extra=takes(CompletionRequest), response_model=Completion, responses=STREAMS)
async def completions(request: Request) -> Any:
    """Outputs of prompts, or a stream of pieces of one."""
    state = state_of(request)
    asked = checked(CompletionRequest, await fields(request))
    prompts = asked.prompt if isinstance(asked.prompt, list) else [asked.prompt]
    state.keys.admit(request, None, sum(map(len, prompts)))
    if asked.echo:
        raise BadRequestError("Invalid request: echo expects a model that continues its prompt; these translate it")
    service = state.service
    model, decoder = _named(service, asked.model)
    await service.scheduler(model, decoder)
    number, created = f"cmpl-{uuid.uuid4().hex}", int(time.time())
    if asked.stream:
        if len(prompts) != 1:
            raise BadRequestError(f"Invalid request: a stream expects one prompt, found {len(prompts)}")
        service.check(prompts)
        head = Completion(id=number, created=created, model=asked.model, choices=[])
        stream = _stream(service, model, decoder, prompts[0], head, asked)
        return StreamingResponse(stream, media_type=EVENTS, headers={"Cache-Control": "no-store"})
    found = await while_connected(request, service.generate(model, prompts, decoder))
    before, after = sum(one.source_tokens for one in found), sum(one.tokens for one in found)
    return Completion(
        id=number,
        created=created,
        model=asked.model,
        choices=[Choice(text=one.text, index=index) for index, one in enumerate(found)],
        usage=Usage(prompt_tokens=before, completion_tokens=after, total_tokens=before + after),
    )


@router.post("/chat/completions", include_in_schema=False)
async def chat() -> None:
    """Say where to ask instead: these models translate, and hold no conversation."""
    raise BadRequestError(
        "There is no /v1/chat/completions: these models translate. POST the text as `prompt` to /v1/completions.", 404
    )


def _named(service: Service, name: str) -> tuple[ServedModel, str | None]:
    """A model and a decoder: the longest name of a model that fits comes first, since names may have colons in them."""
    for model in service.models:
        if name == model.spec.name:
            return model, None
    first, _, decoder = name.rpartition(":")
    model = service.models.named(first or name)
    if decoder not in model.decoders:
        raise BadRequestError(f"The model {first} has no decoder {decoder!r}.", 404)
    return model, decoder


async def _stream(
    service: Service,
    model: ServedModel,
    decoder: str | None,
    prompt: str,
    head: Completion,
    asked: CompletionRequest,
) -> AsyncIterator[bytes]:
    """Pieces of text as they are committed, an empty one with the reason why it ends, and [DONE]."""

    def chunk(text: str, reason: str | None = None) -> bytes:
        choice = Choice(text=text, index=0, finish_reason=reason)
        return line(head.model_copy(update={"choices": [choice]}).model_dump(exclude={"usage"}))

    tokens = 0
    try:
        asked_for = GenerateRequest(text=prompt, decoder=decoder)
        async with aclosing(steps(service, model, prompt, asked_for)) as events:
            async for event in events:
                if "done" in event:
                    tokens = len(event["tokens"])
                elif event["text"]:
                    yield chunk(event["text"])
    except ServingError as error:
        yield line({"error": {"message": str(error), "type": "server_error", "param": None, "code": error.status}})
        return
    yield chunk("", "stop")
    if asked.stream_options is not None and asked.stream_options.include_usage:
        before = len(model.translator.encode([prompt], warn=lambda message: None)[0])
        usage = Usage(prompt_tokens=before, completion_tokens=tokens, total_tokens=before + tokens)
        yield line(head.model_copy(update={"usage": usage}).model_dump())
    yield b"data: [DONE]\n\n"
