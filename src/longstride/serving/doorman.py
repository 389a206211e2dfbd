"""A process that accepts a server's connections, and refuses by itself what is posted while there is no room.

In the server's own process a refusal would have to wait for the interpreter, which is the decoder's, too, and take it
away from it. Whoever is let in is handed on: his connection goes through a socket to the server.

Run as a script it imports nothing but a few modules of Python's own, so it starts at once and stays small. Its
arguments are descriptors (listening socket, socket to the server, shared counts) and the bodies of refusals.
"""

from __future__ import annotations

import errno
import mmap
import select
import signal
import socket
import sys
import time

PEEKED = 1 << 16
"""Bytes of a request that are looked at."""
LIMIT, PASSED, REFUSED, COUNTS = range(4)
"""Places of what both processes know: so many posted requests may be let in, so many were, so many were refused."""
POSTED, OTHER = b"p", b"o"
"""What comes with a connection: whether its request is one that is counted."""
PAUSE = 0.1
"""Seconds without accepting after the system had no room for another connection."""
PATIENCE, SHORT = 1.0, 0.001
"""Seconds in which the server has to take a connection, and between two tries to hand it over."""
BUSY = (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS)
LAST = 0.5
"""Seconds in which connections are taken that came before the end."""
LINGER, MOST_LINGERING = 1.0, 500
"""Seconds in which what is sent behind an answer is thrown away, and connections of which it is at once."""


def is_whole(data: bytes) -> bool:
    """Whether a request is all there, so that nothing comes behind an answer."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end or len(data) >= PEEKED:
        return False
    length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0].strip()
    return length.isdigit() and len(length) < 7 and len(body) == int(length)


def answer(body: bytes) -> bytes:
    """A refusal, as it is sent."""
    head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close"
    return f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


class Doorman:
    """Works until the server's end of their socket is closed."""

    def __init__(self, listening: int, server: int, counts: int, bodies: dict[bytes, bytes]) -> None:
        """`bodies`: of refusals, by what requests begin with, the longest first."""
        self._listening, self._server = socket.socket(fileno=listening), socket.socket(fileno=server)
        self._listening.setblocking(False)
        self._server.setblocking(False)
        self._counts = memoryview(mmap.mmap(counts, 8 * COUNTS)).cast("q")
        self._answers = [(start, answer(body)) for start, body in bodies.items()]
        self._poll = select.poll()
        self._lingering: dict[int, tuple[socket.socket, float]] = {}  # by descriptor, until when; the oldest first

    def run(self) -> None:
        """Accept, until the server has gone."""
        poll, server, listening = self._poll, self._server.fileno(), self._listening.fileno()
        poll.register(server, select.POLLIN)
        poll.register(listening, select.POLLIN)
        while server not in (ready := dict(poll.poll(1000 * PAUSE if self._lingering else None))):
            for number in ready.keys() - {listening}:
                self._discard(number)
            now = time.monotonic()
            while self._lingering and next(iter(self._lingering.values()))[1] < now:
                self._forget(next(iter(self._lingering)))
            if listening in ready and not self._accept():
                poll.unregister(listening)
                time.sleep(PAUSE)
                poll.register(listening, select.POLLIN)
        waiting, until = select.poll(), time.monotonic() + LAST
        waiting.register(listening, select.POLLIN)
        while waiting.poll(0) and time.monotonic() < until and self._accept():
            pass  # those that have come: closing would reset their connections

    def _accept(self) -> bool:
        """One connection; False: the system has no room for more."""
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return True
        except OSError:
            return False
        connection.setblocking(False)
        try:
            data = connection.recv(PEEKED, socket.MSG_PEEK)
        except BlockingIOError:
            data = b""
        except OSError:  # it has gone
            connection.close()
            return True
        told = next((told for start, told in self._answers if data.startswith(start)), None)
        counts = self._counts
        if told is not None and counts[PASSED] >= counts[LIMIT]:
            self._refuse(connection, data, told)
            return True
        if self._pass(connection, POSTED if told is not None else OTHER):
            counts[PASSED] += told is not None
            connection.close()
        else:
            self._refuse(connection, data, told or self._answers[-1][1])
        return True

    def _pass(self, connection: socket.socket, kind: bytes) -> bool:
        """Hand a connection over; False: the server does not keep up. Its socket has room for a few hundred, so more
        that come at once wait until some are taken."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                socket.send_fds(self._server, [kind], [connection.fileno()])
                return True
            except OSError as error:
                if error.errno not in BUSY or time.monotonic() > until:
                    return False
                time.sleep(SHORT)

    def _refuse(self, connection: socket.socket, data: bytes, told: bytes) -> None:
        self._counts[REFUSED] += 1
        try:
            if data:
                connection.recv(len(data))
            connection.send(told)
            if is_whole(data):
                connection.close()
                return
            # The rest is still to come: if it met a closed connection, the answer might be lost.
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # it has gone
            connection.close()
            return
        self._lingering[connection.fileno()] = (connection, time.monotonic() + LINGER)
        self._poll.register(connection, select.POLLIN)
        if len(self._lingering) > MOST_LINGERING:
            self._forget(next(iter(self._lingering)))

    def _discard(self, number: int) -> None:
        """What comes behind an answer."""
        try:
            if self._lingering[number][0].recv(PEEKED):
                return
        except BlockingIOError:
            return
        except OSError:  # it has gone
            pass
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._poll.unregister(number)
        self._lingering.pop(number)[0].close()


def main() -> None:
    """Signals are for the server, which tells by closing its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    listening, server, counts = map(int, sys.argv[1:4])
    starts, bodies = sys.argv[4::2], sys.argv[5::2]
    Doorman(listening, server, counts, {a.encode(): b.encode() for a, b in zip(starts, bodies, strict=True)}).run()


if __name__ == "__main__":
    main()
