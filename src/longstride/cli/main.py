"""The command `longstride`: collects the commands and turns errors into one sentence and an exit code.

0 is fine, 1 failed, 2 misused; --debug shows the traceback.
"""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer
from rich.markup import escape

from longstride.cli.console import err
from longstride.contract import LongstrideError
from longstride.version import __version__

COMMANDS = ("translate", "decoders", "train", "distill", "evaluate", "bench", "report", "demo")

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


def run() -> None:
    """The entry point."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]  # allowed anywhere
    try:
        app(args=arguments)
    except LongstrideError as error:
        if debug:
            raise
        err.print(f"[red]error:[/red] {escape(str(error))}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        err.print("Interrupted.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe left
        sys.stderr.close()
        sys.exit(1)
