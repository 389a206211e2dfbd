"""An application on a socket. A first signal drains: open requests are finished. A second one stops at once."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from longstride.serving.door import BODIES, HEAD, Door, Protocol
from longstride.serving.listening import Listener
from longstride.serving.settings import ServerSettings

CONNECTIONS, FILES = 1000, 200
"""Connections in excess of `max_waiting`, beyond which the answer is 503; open files that are not connections."""
ANSWERING = 2
"""Seconds in which requests are told that the server stops."""
OVERDUE = 10.0
"""Seconds after the drain's time, or a second signal, after which the process ends whatever runs in it."""


class Server(uvicorn.Server):
    """uvicorn, with signals as services want them; ends with the exit code 0 when it was asked to."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        settings: ServerSettings,
        reload: Callable[[], Any] | None = None,
        door: Door | None = None,
        stop: Callable[[], Any] | None = None,
        overdue: Callable[[], Any] | None = None,
    ) -> None:
        """`reload` is called, in a thread of its own, by SIGHUP; `door` refuses before anything is parsed; `stop` makes
        requests fail that are not done within the drain's time; `overdue` ends the process if it has not ended then."""
        super().__init__(
            uvicorn.Config(
                app,
                host,
                port,
                log_config=None,
                access_log=False,
                server_header=False,
                # By name: other packages bring another loop and another parser, without the bounds that we set.
                http=partial(Protocol, settings.body_timeout, door or Door(lambda: 1)),  # type: ignore[arg-type]
                loop="asyncio",
                ws="none",
                lifespan="on",
                limit_concurrency=_connections(settings.max_waiting + CONNECTIONS),
                timeout_keep_alive=30,
                timeout_graceful_shutdown=round(settings.drain_timeout) + ANSWERING,
                h11_max_incomplete_event_size=HEAD,
            )
        )
        self._reload, self._door, self._stop, self._overdue = reload, door, stop, overdue
        self._drain_timeout = settings.drain_timeout
        self._listeners: list[Listener] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; where there is a door, a process of its own accepts connections."""
        await super().startup(sockets)
        if self._door is not None and sys.platform == "linux":
            given = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
            make = partial(self.config.http_protocol_class, **given)
            for one in [one.fileno() for server in self.servers for one in server.sockets]:
                self._listeners.append(Listener(one, self._door.room, BODIES, make, self._door.refused))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and finish what is open; what is not done in time is told so."""
        for one in self._listeners:
            await one.close()
        timer = asyncio.get_running_loop().call_later(self._drain_timeout, self._stop or (lambda: None))
        await super().shutdown(sockets)
        timer.cancel()

    @property
    def port(self) -> int:
        """The one that it listens on."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain; when asked again, stop."""
        self.force_exit = self.should_exit
        self.should_exit = True
        if self._overdue is not None:
            timer = threading.Timer(OVERDUE + (0 if self.force_exit else self._drain_timeout), self._overdue)
            timer.daemon = True
            timer.start()

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


def _connections(wanted: int) -> int:
    """Return the number of connections that the limit of open files allows, and raise the soft limit for them."""
    try:
        import resource
    except ImportError:  # Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + FILES:
        most = wanted + FILES if hard == resource.RLIM_INFINITY else min(hard, wanted + FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return max(1, min(wanted, most - FILES))
    return wanted
