"""What stands before HTTP itself: connections on which nothing comes are closed, and while there is no room what is
posted is refused before anything of it is parsed.

To parse a request and answer it takes about a millisecond of the interpreter, for which the decoder has to wait: where
many more come than can be done, each has to cost next to nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from time import monotonic
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from longstride.serving.doorman import LINGER, answer
from longstride.serving.guard import FULL
from longstride.serving.web import error_content

HEAD = 64 << 10
"""Bytes of a request's head."""
MOST_CHUNKS = 10_000
_BARE_LF = re.compile(rb"(?<!\r)\n")
log = logging.getLogger("longstride.serving.access")


BODIES = {start: json.dumps(error_content(path, *FULL)) for start, path in (("POST /v1/", "/v1/"), ("POST ", "/"))}
"""Of refusals, by what requests begin with."""
_ANSWERS = [(start.encode(), answer(body.encode())) for start, body in BODIES.items()]


class Door:
    """Says who is let in. Refusals are logged once a second, with their number."""

    def __init__(self, room: Callable[[], int], watch: Callable[[str, int, float], None] | None = None) -> None:
        """`room`: for how many requests there is some; `watch` is told of refusals as the guard's is of requests."""
        self.room, self._watch = room, watch
        self._refused, self._told = 0, 0.0

    def refusal(self, data: bytes, crowded: bool = False) -> bytes | None:
        """What is answered to a request that begins like this; None: it is let in. `crowded`: there are too many
        connections."""
        told = next((told for start, told in _ANSWERS if data.startswith(start)), None)
        if told is None or not (crowded or self.room() <= 0):
            return None
        self.refused(1)
        return told

    def refused(self, number: int) -> None:
        """So many were, here or by whoever stands outside."""
        self._refused += number
        if (now := monotonic()) - self._told >= 1:
            log.info("refused", extra={"status": FULL[0], "requests": self._refused})
            self._refused, self._told = 0, now
        for _ in range(number if self._watch is not None else 0):
            self._watch("other", FULL[0], 0.0)  # type: ignore[misc]


class Connection(h11.Connection):
    """HTTP/1.1 without what h11 lets pass and RFC 9112 lets servers refuse, since proxies may read it differently; and
    without bodies of many tiny chunks, each of which takes as long as a large one."""

    complaint: str | None = None
    """why the last request was refused"""
    _chunks = 0

    def next_event(self) -> Any:
        """The next one, as h11 has it."""
        if self.their_state is h11.IDLE:
            self._chunks = 0
            if _BARE_LF.search(self.trailing_data[0].partition(b"\r\n\r\n")[0]):
                self._refuse("Lines of a request's head end with CR and LF, found LF alone.")
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                self._refuse("A request has either Content-Length or Transfer-Encoding, found both.")
        self._chunks += isinstance(event, h11.Data)
        if self._chunks > MOST_CHUNKS:
            self._refuse(f"A body comes in at most {MOST_CHUNKS} chunks, found more.")
        return event

    def _refuse(self, why: str) -> None:
        self.complaint = why
        raise h11.RemoteProtocolError(why)


class Protocol(H11Protocol):
    """A connection on which a request's head must have come within some seconds, or it is closed.

    uvicorn waits for ever for the rest of one that has begun, and for the first; bodies are the guard's to watch.
    """

    def __init__(self, seconds: float, door: Door, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.conn: Connection = Connection(h11.SERVER, self.config.h11_max_incomplete_event_size or HEAD)
        self._seconds, self._door = seconds, door
        self._timer: asyncio.TimerHandle | None = None
        self._refused = self._ending = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From here on the first one is waited for."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """From its first byte on the next one is."""
        if self._refused:
            return
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0] and self._refuse(data):
            return
        super().data_received(data)
        self._watch()
        if self._ending and self.cycle is not None:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """End after the request that is under way, or on its way: at once only where one was answered."""
        idle = self.cycle is None or self.cycle.response_complete
        if self.transport.is_closing() or not idle or (self.cycle is not None and not self.conn.trailing_data[0]):
            super().shutdown()
        else:  # the first one, or what has come of the next
            self._ending, self._seconds = True, min(LINGER, self._seconds)
            self._stop()
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        self._stop()

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong, unless an answer has begun."""
        try:
            super().send_400_response(self.conn.complaint or msg)
        except h11.LocalProtocolError:
            self.transport.close()

    def _refuse(self, data: bytes) -> bool:
        crowded = self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency
        if (told := self._door.refusal(data, crowded)) is None:
            return False
        self._refused = True
        self._stop()
        self._unset_keepalive_if_required()
        self.transport.write(told)
        # What was sent and not read would make the system reset the connection, and the answer might be lost with it.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER, self.transport.close)
        return True

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._seconds, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
