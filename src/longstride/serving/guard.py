"""What stands before every endpoint: sizes and times of bodies are bounded before anything is parsed, requests get an
id and a line in the log, and whatever goes wrong becomes JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longstride.serving.errors import STOPPED
from longstride.serving.settings import ServerSettings
from longstride.serving.web import error_content

REQUEST_ID = b"x-request-id"
FULL = (503, "The server is full.")
MOST_HELD, LITTLE = 256 << 20, 64 << 10
"""Bytes of all bodies at a time, beyond which only little ones are read."""
_SOUND_ID = re.compile(rb"[\w.:-]{1,100}")
log = logging.getLogger("longstride.serving.access")


class Guard:
    """Bodies are read whole, within bounds, and handed on; after them the client's leaving is passed on."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        watch: Callable[[str, int, float], None] | None = None,
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        """`watch` is told the path, the status and the seconds of every request; while the server is `full`, whatever
        is posted is refused before it is read."""
        self._app, self._settings, self._watch, self._full = app, settings, watch, full
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        told = headers.get(REQUEST_ID, b"")
        number = told.decode("ascii") if _SOUND_ID.fullmatch(told) else uuid.uuid4().hex
        begun, status, held = perf_counter(), 0, 0
        head = scope["method"] == "HEAD"  # GET without the content, which watchers of servers and `curl -I` ask for
        asked = {**scope, "method": "GET"} if head else scope

        async def receiving() -> Message:
            nonlocal held
            message = await receive()
            held += (size := len(message.get("body", b"")))
            self._held += size
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (REQUEST_ID, number.encode())]}
            elif head:
                message = {**message, "body": b""}
            await send(message)

        try:
            full = scope["method"] == "POST" and self._full()
            refused, body = (FULL, None) if full else await self._body(headers, receiving)
            if refused is not None:
                rest = partial(self._rest, receive) if body is None else None
                await _refuse(sending, scope["path"], *refused, rest)
            elif body is not None:
                await self._app(asked, _replayed(body, receive), sending)
        except asyncio.CancelledError:  # by a server that has to end
            if status:
                raise
            await _refuse(sending, scope["path"], 503, STOPPED)
        except Exception as error:
            log.error("A request failed.", exc_info=error, extra={"request_id": number})
            if not status:
                await _refuse(sending, scope["path"], 500, "internal error")
        finally:
            self._held -= held
            seconds = perf_counter() - begun
            client = scope.get("client") or ("", 0)
            facts = {"request_id": number, "method": scope["method"], "path": scope["path"], "status": status}
            key = asked.get("state", {}).get("key")  # whose: see :class:`longstride.serving.keys.Key`
            facts |= {"seconds": round(seconds, 6), "client": client[0]} | ({"key": key} if key else {})
            log.info("request", extra=facts)
            if self._watch is not None:
                route = asked.get("route")
                self._watch(getattr(route, "path", "other"), status, seconds)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> tuple[tuple[int, str] | None, bytes | None]:
        """Why the request is refused, if it is, and its body; neither where the client has gone. No body of one that is
        refused: there is more to come, and worth waiting for."""
        most = self._settings.max_body
        too_large = (413, f"Invalid request: the body exceeds the limit of {most} bytes")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            return (400, "Invalid request: Content-Length is no number"), None
        if len(length) > 18 or int(length) > most:
            return too_large, None
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None, None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    whole = not message.get("more_body", False)
                    if size > most:
                        return too_large, b"" if whole else None
                    if self._held > MOST_HELD and size > LITTLE:
                        return FULL, b"" if whole else None
                    if whole:
                        return None, b"".join(parts)
        except TimeoutError:
            return (408, "Invalid request: the body did not arrive in time"), b""

    async def _rest(self, receive: Receive) -> None:
        """Throw away what is still sent: if it met a closed connection, the answer would be lost to many clients, which
        read it when they have sent all."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.body_timeout):
                while (await receive()).get("more_body", False):
                    pass


def _replayed(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def _refuse(
    send: Send, path: str, status: int, why: str, rest: Callable[[], Awaitable[None]] | None = None
) -> None:
    """`rest`: what has to be done before the connection is closed."""
    body = json.dumps(error_content(path, status, why)).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"retry-after", b"1")] if status == 503 else []
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body, "more_body": rest is not None})
    if rest is not None:
        await rest()
        await send({"type": "http.response.body", "body": b""})
