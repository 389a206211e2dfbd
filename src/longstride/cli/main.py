"""The command `longstride`: collects the commands and turns errors into one sentence and an exit code.

0 is fine, 1 failed, 2 misused; --debug shows the traceback.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from typing import Annotated

import typer
from rich.markup import escape

from longstride.cli.console import err
from longstride.contract import LongstrideError
from longstride.version import __version__

COMMANDS = ("translate", "decoders", "train", "distill", "evaluate", "bench", "profile", "report", "export", "demo")

GROUPS = ("lattice",)
"""Commands that have commands of their own."""

MISUSED = 2
INTERRUPTED = 130
"""What shells give for a command ended by Ctrl-C."""

app = typer.Typer(
    name="longstride",
    help="Train, distil, decode and benchmark Transformers that emit several tokens per model call.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"longstride {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and leave.")
    ] = False,
) -> None:
    """Options of all commands."""


for _name in COMMANDS:
    app.command(_name)(getattr(importlib.import_module(f"longstride.cli.{_name}"), _name))
for _name in GROUPS:
    app.add_typer(importlib.import_module(f"longstride.cli.{_name}").app, name=_name)


def main(arguments: list[str]) -> int:
    """Carry out one command line and give its exit code."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]  # allowed anywhere
    try:
        code = app(args=arguments, prog_name="longstride", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except LongstrideError as error:
        if debug:
            traceback.print_exc()
        else:
            err.print(f"[red]error:[/red] {escape(str(error))}")
        return error.exit_code
    except KeyboardInterrupt:
        err.print("Interrupted.")
        return INTERRUPTED
    except Exception as error:
        return _misused(error)


def _misused(error: Exception) -> int:
    """What the parser of command lines refused, in one sentence; whatever else went wrong goes on.

    The parser's exceptions are known by their form, since Typer brings its own copy of Click or takes an installed one.
    """
    if type(error).__name__ == "Abort":  # its word for Ctrl-C
        err.print("Interrupted.")
        return INTERRUPTED
    message = getattr(error, "format_message", None)
    if message is None:
        raise error
    command = getattr(getattr(error, "ctx", None), "command_path", "longstride")
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message(), err=True)  # is the help
        return MISUSED
    told = message().rstrip()
    told += "" if told.endswith((".", "?")) else "."
    err.print(f"[red]error:[/red] {escape(told)} See `{command} --help`.")
    return MISUSED


def run() -> None:
    """The entry point."""
    # Text is UTF-8 whatever the locale says, and lines end as they do in files.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe left; nothing more can be said there, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
