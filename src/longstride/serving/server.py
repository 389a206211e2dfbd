"""An application on a socket. A first signal drains: open requests are finished. A second one stops at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from longstride.serving.settings import ServerSettings

MOST_CONNECTIONS = 1000
"""More are answered with 503."""


class Protocol(H11Protocol):
    """A connection on which a request's head must have come within some seconds, or it is closed.

    uvicorn waits for ever for the rest of one that has begun, and for the first; bodies are the guard's to watch.
    """

    def __init__(self, seconds: float, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From here on the first one is waited for."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """From its first byte on the next one is."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        self._stop()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._seconds, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


class Server(uvicorn.Server):
    """uvicorn, with signals as services want them; ends with the exit code 0 when it was asked to."""

    def __init__(
        self, app: ASGIApp, host: str, port: int, settings: ServerSettings, reload: Callable[[], Any] | None = None
    ) -> None:
        """`reload` is called, in a thread of its own, by SIGHUP."""
        super().__init__(
            uvicorn.Config(
                app,
                host,
                port,
                log_config=None,
                access_log=False,
                server_header=False,
                # By name: other packages bring another loop and another parser, without the bounds that we set.
                http=partial(Protocol, settings.body_timeout),  # type: ignore[arg-type]
                loop="asyncio",
                lifespan="on",
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=max(1, round(settings.drain_timeout)),
                h11_max_incomplete_event_size=64 << 10,
            )
        )
        self._reload = reload

    @property
    def port(self) -> int:
        """The one that it listens on."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain; when asked again, stop."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """While it runs; only the main thread hears signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        calls: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGINT: self.handle_exit,
            signal.SIGTERM: self.handle_exit,
        }
        if self._reload is not None and hasattr(signal, "SIGHUP"):
            calls[signal.SIGHUP] = self._reloading
        before = {number: signal.signal(number, call) for number, call in calls.items()}
        try:
            yield
        finally:
            for number, call in before.items():
                signal.signal(number, call)

    def _reloading(self, number: int, frame: FrameType | None) -> None:
        if self._reload is not None:
            threading.Thread(target=self._reload, name="longstride-reload", daemon=True).start()

    async def start(self) -> asyncio.Task[None]:
        """Begin to listen, within a loop that goes on with other things; a task that ends when the server has."""
        task = asyncio.create_task(self.serve())
        while not self.started and not task.done():
            await asyncio.sleep(0.01)
        if task.done():
            task.result()
        return task
