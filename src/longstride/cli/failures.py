"""What went wrong, in one sentence on stderr and an exit code: the last line of defence of every command."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from longstride.cli.entry import INTERRUPTED
from longstride.contract import LongstrideError

FAILED = 1
MISUSED = 2
SHORT = 80
"""Characters of a text that errors show as it is"""
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""What PyTorch's allocators and others say, who have no exception of their own for it."""


def tell(error: BaseException, debug: bool = False) -> int:
    """Say it, and give the exit code; `debug` says where it happened too."""
    if isinstance(error, KeyboardInterrupt):
        _say(f"Interrupted{''.join(f': {kept}' for kept in error.args)}.", error=False)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader of a pipe left; there is nobody to say it to
        return FAILED
    if (code := _misused(error)) is not None:
        return code
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    else:
        _say(_sentence(error))
    return error.exit_code if isinstance(error, LongstrideError) else FAILED


@contextmanager
def keeping(told: Callable[[], str]) -> Iterator[None]:
    """Say what an interruption leaves behind."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(told()) from None


def _sentence(error: BaseException) -> str:
    if isinstance(error, LongstrideError):
        return str(error)
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
        asked = str(error).strip().splitlines()[0].strip() if str(error).strip() else "out of memory"
        return f"there is not enough memory for this ({asked.rstrip('.')}); a smaller batch or model may fit."
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, RecursionError):
        return "this is nested too deeply to be worked on."
    told = " ".join(str(error).split())
    return f"internal error: {type(error).__name__}: {told}; --debug shows the traceback; please report it."


def _of_the_system(error: OSError) -> str:
    """The file and what the operating system says of it."""
    file = error.filename2 if error.filename2 is not None else error.filename  # of two, what was to be written
    if error.errno == errno.EBADF and file is None:
        file = "standard input or output (is it closed?)"
    told = (error.strerror or str(error) or type(error).__name__).rstrip(".")
    return f"{os.fsdecode(file)}: {told}." if isinstance(file, str | bytes) else f"{told}."


def _misused(error: BaseException) -> int | None:
    """What the parser of command lines refused.

    Its exceptions are known by their form, since Typer brings its own copy of Click or takes an installed one.
    """
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message(), file=sys.stderr)  # is the help
        return MISUSED
    command = getattr(getattr(error, "ctx", None), "command_path", "longstride")
    told = message().rstrip()
    if "unexpected extra argument" in told:
        told += _named_by_an_option(error, told.partition(" (")[2].removesuffix(")"))
    told += "" if told.endswith((".", "?")) else "."
    _say(f"{told} See `{command} --help`.")
    return MISUSED


def _named_by_an_option(error: BaseException, given: str) -> str:
    """That files to read are named by an option, where the command has one for it; and where text goes, if it is one
    that was `given`."""
    context = getattr(error, "ctx", None)
    options = {option for one in getattr(getattr(context, "command", None), "params", ()) for option in one.opts}
    named = next((option for option in ("-i", "-s") if option in options), None)
    if named is None:
        return ""
    if getattr(context, "info_name", None) == "translate" and not os.path.lexists(given):
        text = shlex.quote(given if len(given) <= SHORT else "Good morning.")
        return f": text comes on stdin: `echo {text} | longstride translate`; a file to read is named by {named} FILE"
    return f": a file to read is named by {named} FILE"


def _say(text: str, error: bool = True) -> None:
    from longstride.cli.console import err, one_line

    with suppress(OSError):  # stderr itself, on a full disk
        err.print(f"{'[red]error:[/red] ' if error else ''}{one_line(text)}")
