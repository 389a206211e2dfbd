"""The server's side of its doorman: starts the process, tells it how many may come in, and takes their connections."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from longstride.serving import doorman
from longstride.serving.doorman import COUNTS, LIMIT, POSTED, REFUSED

AT_ONCE = 32
"""Connections that are taken before whoever else has something to do gets a turn."""
PASSES = 8
"""Of the event loop, after which a request has been parsed and is counted, unless it is a large one."""
OFTEN = 0.02
"""Seconds after which the doorman is told anew, while there is less room than there might be."""
SHORT = 0.005
"""Seconds between two looks whether a doorman has left."""
PATIENCE = 1.0
"""Seconds that a doorman gets to leave; and between one that has died and the next."""
log = logging.getLogger("longstride.serving.access")


class Listener:
    """Connections come from a process that accepts them in the place of the event loop's server, on the same socket."""

    def __init__(
        self,
        listening: int,
        room: Callable[[], int],
        bodies: Mapping[str, str],
        protocol: Callable[[], asyncio.Protocol],
        refused: Callable[[int], None],
    ) -> None:
        """`listening`: a descriptor, which stays its owner's; `room`: how many requests may come in now; `bodies` of
        refusals, by what requests begin with; `protocol` makes one for each connection; `refused` is told of how many
        were."""
        self._room, self._bodies, self._protocol, self._refused = room, bodies, protocol, refused
        self._loop = asyncio.get_running_loop()
        self._listening = socket.socket(fileno=os.dup(listening))
        if hasattr(socket, "TCP_DEFER_ACCEPT") and self._listening.family in (socket.AF_INET, socket.AF_INET6):
            # Connections come when their first bytes have.
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        self._tasks: set[asyncio.Task[object]] = set()
        self._entered = self._counted = self._most = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop.remove_reader(listening)
        self._start()

    def _start(self) -> None:
        if self._closed:
            return
        self._entered = self._counted = 0
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        counts = os.memfd_create("longstride-doorman")
        os.ftruncate(counts, 8 * COUNTS)
        self._counts = memoryview(mmap.mmap(counts, 8 * COUNTS)).cast("q")
        given = [self._listening.fileno(), theirs.fileno(), counts]
        told = [part for pair in self._bodies.items() for part in pair]
        command = [sys.executable, "-I", "-S", doorman.__file__, *map(str, given), *told]
        self._process = subprocess.Popen(command, pass_fds=given)
        theirs.close()
        os.close(counts)
        self._channel = mine
        self._loop.add_reader(mine, self._take)
        self._tell()

    async def close(self) -> None:
        """Accept no more; what has come until now is still taken."""
        self._closed = True
        self._listening.close()
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        until = self._loop.time() + PATIENCE
        while self._process.poll() is None:  # no thread waits for it: all of them may be busy
            self._take()
            await asyncio.sleep(SHORT)
            if self._loop.time() > until:
                self._process.kill()
        while self._channel.fileno() >= 0:  # until its end is seen
            self._take()
        self._tell()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self) -> None:
        """Connections that were let in."""
        posted = 0
        for _ in range(AT_ONCE if self._channel.fileno() >= 0 else 0):
            try:
                data, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._gone()
                break
            posted += data == POSTED
            for descriptor in descriptors:
                connection = socket.socket(fileno=descriptor)
                connection.setblocking(False)
                task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
                self._tasks.add(task)
                task.add_done_callback(self._connected)
        self._enter(posted, PASSES)

    def _enter(self, posted: int, passes: int) -> None:
        """So many are on their way to be counted; then the doorman is told."""
        if passes:
            self._loop.call_soon(self._enter, posted, passes - 1)
            return
        self._entered += posted
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    def _connected(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it has gone meanwhile

    def _gone(self) -> None:
        """The doorman has; unless it was asked to, there has to be another."""
        self._loop.remove_reader(self._channel)
        self._channel.close()
        if not self._closed:
            log.error("The process that accepts connections has ended; another one is started.")
            self._process.wait()
            self._loop.call_later(PATIENCE, self._start)

    def _tell(self) -> None:
        """Room for so many more than have come."""
        room = max(0, self._room())
        self._counts[LIMIT] = self._entered + room
        if new := self._counts[REFUSED] - self._counted:
            self._counted += new
            self._refused(new)
        self._most = max(self._most, room)
        again = not self._closed and (room < self._most or not room)
        self._timer = self._loop.call_later(OFTEN, self._tell) if again else None
