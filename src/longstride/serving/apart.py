"""Functions that read what clients sent, run in processes of their own within bounds of time and memory.

A process imports no torch, gives way to the decoder, and is used again while its jobs are small. It keeps a slow or
large document from stopping the server; it is no sandbox.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from longstride.serving.errors import DeadlineError, OverloadedError, ServingError

R = TypeVar("R")
SECONDS, MEMORY = 10, 512 << 20
"""Processor time and bytes of address space that one job may take."""
PROCESSES, MOST_WAITING = 2, 32
"""Jobs that run side by side, and jobs that run or wait; more are refused."""
LARGE = 64 << 20
"""Bytes of memory that a process keeps after a job, with which it is not used again."""
NICE = 5
_START = "import sys; sys.path.append(sys.argv[1]); from longstride.serving.apart import main; main()"


class Apart:
    """A few processes, started when they are first needed."""

    def __init__(self, seconds: int = SECONDS, memory: int = MEMORY) -> None:
        self._bounds = seconds, memory
        self._threads = ThreadPoolExecutor(PROCESSES, "longstride-apart")
        self._idle = queue.SimpleQueue[subprocess.Popen[bytes]]()
        self._waiting = 0

    async def run(self, timeout: float, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function of a module and return its result; `timeout` in seconds."""
        if self._waiting >= MOST_WAITING:
            raise OverloadedError(f"The server is full: {self._waiting} documents wait to be read.")
        self._waiting += 1
        job = _Job(self._idle, self._bounds, function, arguments)
        try:
            async with asyncio.timeout(timeout):
                found: R = await asyncio.get_running_loop().run_in_executor(self._threads, job.run)
                return found
        except TimeoutError:
            raise DeadlineError("The time for this request was over before the document was read.") from None
        finally:
            self._waiting -= 1
            job.stop()

    def close(self) -> None:
        """End the processes that wait for a job."""
        self._threads.shutdown(cancel_futures=True)
        with suppress(queue.Empty):
            while True:
                _end(self._idle.get_nowait())

    def __del__(self) -> None:
        self.close()


class _Job:
    """A call, and the process that carries it out."""

    def __init__(
        self,
        idle: queue.SimpleQueue[subprocess.Popen[bytes]],
        bounds: tuple[int, int],
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
    ) -> None:
        self._idle, self._bounds, self._call = idle, bounds, (function, arguments)
        self._lock, self._over = threading.Lock(), False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> Any:
        with self._lock:
            if self._over:
                return None
            self._process = process = self._taken()
        assert process.stdin is not None
        assert process.stdout is not None
        again = False
        try:
            pickle.dump(self._call, process.stdin)
            process.stdin.flush()
            again, error, found = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            error = MemoryError()
        with self._lock:
            self._process = None
            again = again and not self._over
        if again:
            self._idle.put(process)
        else:
            _end(process)
        if isinstance(error, MemoryError):
            seconds, memory = self._bounds
            raise ServingError(
                f"Invalid request: the document takes more than {seconds} seconds or {memory >> 20} MiB to be read", 413
            )
        if error is not None:
            raise error
        return found

    def stop(self) -> None:
        """Kill the process, unless the job is done."""
        with self._lock:
            self._over = True
            if self._process is not None:
                self._process.kill()

    def _taken(self) -> subprocess.Popen[bytes]:
        with suppress(queue.Empty):
            while True:
                process = self._idle.get_nowait()
                if process.poll() is None:
                    return process
                _end(process)
        place = Path(__file__).parents[2]
        command = [sys.executable, "-I", "-S", "-c", _START, str(place), *map(str, self._bounds)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(OSError):
        process.communicate()


def main() -> None:
    """Carry out calls from standard input until it ends; signals are for the server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    seconds, memory = map(int, sys.argv[2:])
    os.nice(NICE)
    sys.setrecursionlimit(10_000)  # elements within elements
    with suppress(ValueError, OSError):  # not on every system
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    given, out = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError):
        while True:
            function, arguments = pickle.load(given)
            used = resource.getrusage(resource.RUSAGE_SELF)
            most = int(used.ru_utime + used.ru_stime) + 1 + seconds
            resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))
            error, found = None, None
            try:
                found = function(*arguments)
            except Exception as raised:
                error = raised
            pickle.dump((_resident() < LARGE, error, found), out)
            out.flush()


def _resident() -> int:
    """Bytes of memory that this process has, where the system says so."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
