"""Where the command begins and ends. Imports nothing that takes time before Ctrl-C is looked after.

From the first line here on, Ctrl-C says "Interrupted." and gives exit code 130; before it, while Python itself starts,
nobody can see to that.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from types import FrameType
from typing import IO, NoReturn

INTERRUPTED = 130
"""What shells give for a command ended by Ctrl-C."""


def run() -> NoReturn:
    """The entry point."""
    signal.signal(signal.SIGINT, _interrupted)
    sys.unraisablehook = _unraisable
    _open_streams()
    # Importing PyTorch makes half a million objects and no garbage: looking for some takes a tenth of the time.
    gc.set_threshold(100_000, 20, 20)
    from longstride.cli.main import main

    try:
        code = main(sys.argv[1:])
        for stream in (sys.stdout, sys.stderr):
            code = _flushed(stream, code)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done; what is left is Python tidying up
    except KeyboardInterrupt:  # while an error was told, or the last of the output written
        _leave()
    if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
        # Taking PyTorch apart object by object takes a quarter of a second, for nothing.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            code = _flushed(stream, code)
        os._exit(code)
    sys.exit(code)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """An exception, for work to be tidied up; but out of an import at once.

    Extension modules swallow exceptions that come while they are being imported, or make others of them.
    """
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave() -> NoReturn:
    os.write(2, b"Interrupted.\n")
    os._exit(INTERRUPTED)


def _unraisable(told: sys.UnraisableHookArgs) -> None:
    """Ctrl-C where no exception can be passed on, in a finalizer."""
    if isinstance(told.exc_value, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(told)


def _open_streams() -> None:
    """Text is UTF-8 whatever the locale says. Streams that were closed are opened, on files that refuse to be used.

    Otherwise the next files to be opened would be taken for them, and written to by whoever writes to stdout.
    """
    for number, name, mode in ((0, "stdin", os.O_WRONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        stream = getattr(sys, name)
        if stream is None:
            os.open(os.devnull, mode)  # takes the lowest number that is free
            stream = open(number, "r" if number == 0 else "w", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        if number and hasattr(stream, "reconfigure"):
            # Names of files may hold bytes that are no UTF-8: they are shown escaped, as Python shows them on stderr.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _flushed(stream: IO[str], code: int) -> int:
    """The exit code, once all is written that was said: another one where it could not be."""
    try:
        stream.flush()
        return code
    except OSError as error:
        # What could not be written must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        # A reader that left a pipe knows it, and what failed before has been said.
        if code == 0 and stream is sys.stdout and not isinstance(error, BrokenPipeError):
            os.write(2, f"error: standard output: {error.strerror}.\n".encode())
        return code or 1
