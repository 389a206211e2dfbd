"""/generate, our own: texts in, outputs with figures out; or a stream of what every iteration did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from time import perf_counter
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from longstride.contract import Hypothesis
from longstride.contract.trace import Event
from longstride.serving.errors import BadRequestError, ServingError
from longstride.serving.models import ServedModel
from longstride.serving.service import Service
from longstride.serving.state import state_of
from longstride.serving.tracing import TracedOutput
from longstride.serving.web import GlossaryField, checked, fields, glossary_of, takes, while_connected
from longstride.text.glossary import Glossary
from longstride.text.sentences import has_words
from longstride.translation import GrowingText

EVENTS = "text/event-stream"
STREAMS: dict[int | str, dict[str, Any]] = {200: {"content": {EVENTS: {}}}}
"""For the page of the API: with `stream`, answers are events."""
Name = Annotated[str, Field(max_length=200)]


class GenerateRequest(BaseModel):
    """POST /generate"""

    model_config = ConfigDict(extra="forbid")  # a misspelt name would go unnoticed: others' forms have names we lack
    text: str | list[str] = Field(description="Text, or a list of texts")
    model: Name | None = Field(default=None, description="A model's name (default: the first)")
    decoder: Name | None = Field(default=None, description="A decoder of it (default: its own)")
    stream: bool = Field(
        default=False, description="Server-sent events; for one text, which is decoded as one sentence"
    )
    trace: bool = Field(default=False, description="In a stream: every step with its draft and verdict")
    whole: bool = Field(default=False, description="Do not split long lines into sentences")
    timeout: float | None = Field(default=None, gt=0, le=86400, description="Seconds within which it is wanted")
    glossary: GlossaryField = None
    api_key: str | None = None


class Generated(BaseModel):
    """One output."""

    text: str
    source_tokens: int
    tokens: int
    missing_terms: list[str] | None = Field(
        default=None, description="With a glossary: its terms for which no place was found"
    )


class GenerateAnswer(BaseModel):
    """Its answer, one output for each text."""

    model: str
    decoder: str = Field(description="The decoder that ran; several where it is being tried which is faster")
    outputs: list[Generated]
    seconds: float


router = APIRouter(tags=["generate"])


@router.post(
    "/generate",
    openapi_extra=takes(GenerateRequest),
    response_model=GenerateAnswer,
    response_model_exclude_none=True,
    responses=STREAMS,
)
async def generate(request: Request) -> Any:
    """Outputs of texts, or a stream of how one came about.

    Events of a stream are `{"text", "tokens"}` as tokens are committed, or with `trace` `{"step", "positions", "ids",
    "pieces", "draft", "draft_pieces", "drafted", "accepted", "text"}`; the last one is `{"done": true, "text", "score",
    ...}`, with `trace` also `trace`: the same steps as they are known at the end, writes that were held back in their
    places, each token with the text that it adds, and `decoding_seconds` from the row that the sentence got to the end
    of each step. `beside` is how many other sentences the server had meanwhile, at most: they take time, too.
    """
    state, begun = state_of(request), perf_counter()
    asked = checked(GenerateRequest, await fields(request))
    if asked.trace and not asked.stream:
        raise BadRequestError("Invalid request: trace expects stream beside it, whose events tell it")
    texts = asked.text if isinstance(asked.text, list) else [asked.text]
    state.keys.admit(request, asked.api_key, sum(map(len, texts)))
    service = state.service
    glossary = glossary_of(asked.glossary, service.settings)
    model = service.models.named(asked.model)
    if asked.decoder is not None:
        model.check_decoder(asked.decoder)
    await service.scheduler(model, asked.decoder)  # what there is not is refused before a stream begins
    if asked.stream:
        if len(texts) != 1:
            raise BadRequestError(f"Invalid request: a stream expects one text, found {len(texts)}")
        service.check(texts)
        events = steps(service, model, texts[0], asked, glossary)
        return StreamingResponse(sent(events, begun), media_type=EVENTS, headers={"Cache-Control": "no-store"})
    work = service.generate(model, texts, asked.decoder, asked.timeout, asked.whole, glossary=glossary)
    found = await while_connected(request, work)
    outputs = [
        Generated(
            text=one.text,
            source_tokens=one.source_tokens,
            tokens=one.tokens,
            missing_terms=list(one.missing) or None,
        )
        for one in found
    ]
    return GenerateAnswer(
        model=model.spec.name,
        decoder=_ran(asked, model, dict.fromkeys(name for one in found for name in one.decoders)),
        outputs=outputs,
        seconds=perf_counter() - begun,
    )


async def steps(
    service: Service, model: ServedModel, text: str, asked: GenerateRequest, glossary: Glossary | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """What is sent of one text: every iteration, and the end; of a model that was just replaced, by the other."""

    async def begin(model: ServedModel) -> tuple[dict[str, Any], AsyncGenerator[dict[str, Any], None]]:
        events = _steps(service, model, text, asked, glossary)
        return await anext(events), events

    _, (first, events) = await service.taken(model, begin)
    async with aclosing(events):
        yield first
        async for event in events:
            yield event


async def _steps(
    service: Service, model: ServedModel, text: str, asked: GenerateRequest, glossary: Glossary | None
) -> AsyncGenerator[dict[str, Any], None]:
    growing, number = GrowingText(model.translator.text, model.translator.folder.special.eos), 0
    traced, beside = TracedOutput(model.translator), service.load
    found: list[Hypothesis] = []
    ran: dict[str, None] = {}
    said = has_words(text)  # else it stays as it is, as everywhere
    if said:
        async with aclosing(service.events(model, text, asked.decoder, asked.timeout, glossary, ran)) as events:
            async for progress, found in events:  # noqa: B007
                if progress is None:
                    break
                number += 1
                tokens, new = growing.add(progress.event)
                if asked.trace:
                    traced.add(progress)
                    beside = max(beside, service.load - 1)
                    yield {"step": number, **_step(model, progress.event), "text": new}
                elif tokens:
                    yield {"text": new, "tokens": tokens}
    tokens = list(found[0].tokens) if found else []
    told, new = growing.end(tokens) if said else ([], text)
    if (told or new) and not asked.trace:
        yield {"text": new, "tokens": told}
    more = {"trace": await asyncio.to_thread(traced.told), "beside": beside} if asked.trace else {}
    yield {
        "done": True,
        "text": model.translator.text([tokens])[0] if said else new,
        "tokens": tokens,
        "score": found[0].score if found else None,
        "steps": number,
        "model": model.spec.name,
        "decoder": _ran(asked, model, ran),
        **more,
    }


def _ran(asked: GenerateRequest, model: ServedModel, ran: Iterable[str]) -> str:
    """The decoders that ran; the one that would have, where there was nothing to decode."""
    return ", ".join(ran) or asked.decoder or model.decoders[0]


def _step(model: ServedModel, event: Event) -> dict[str, Any]:
    pieces = model.translator.target_tokenizer.pieces
    return {
        "positions": list(event.positions),
        "ids": list(event.ids),
        "pieces": pieces(event.ids),
        "draft": list(event.draft),
        "draft_pieces": pieces(event.draft),
        "drafted": event.drafted,
        "accepted": event.accepted,
        "final": event.final,
    }


async def sent(events: AsyncGenerator[dict[str, Any], None], begun: float) -> AsyncIterator[bytes]:
    """As server-sent events, each with the seconds since the request came; an error is the last one."""
    try:
        async with aclosing(events):
            async for event in events:
                yield line({**event, "seconds": round(perf_counter() - begun, 6)})
    except ServingError as error:
        yield line({"error": str(error), "status": error.status})


def line(event: Any) -> bytes:
    """One event; in ASCII, since clients differ in what ends a line for them: U+2028, U+0085 and others may."""
    return f"data: {json.dumps(event)}\n\n".encode()
