"""The command `longstride`: finds the command asked for, and turns errors into one sentence and an exit code.

0 is fine, 1 failed, 2 misused; --debug shows the traceback, --quiet prints results, warnings and errors alone. A
command's module is imported when the command is asked for, and by it what its work needs when the work begins: neither
the version nor any help waits for PyTorch.
"""

from __future__ import annotations

import importlib
import keyword
import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from longstride.cli.entry import run  # noqa: F401 where scripts of earlier installations look for it
from longstride.cli.failures import tell
from longstride.version import __version__

TASKS = {
    "Begin": {
        "demo": "Translate a handful of sentences by every decoder of the bundled model, and compare their speed.",
        "doctor": "Say what this machine can do: runtimes, whether they are right, how fast, what to install.",
    },
    "Use a model": {
        "translate": "Translate lines of text.",
        "decoders": "Show the decoders of a model, or one of them with its options and defaults.",
        "serve": "Answer requests over HTTP: LibreTranslate's API, OpenAI's completions, and our own.",
        "bulk": "Translate a large file in shards, on one machine or many.",
        "generate": "Enlarge a picture by a model of pictures.",
    },
    "Bring a model, or make one": {
        "adapt": "Give a model a drafter, so that it decodes the same output sooner.",
        "import": "Make a model folder of a Hugging Face encoder-decoder.",
        "export": "Write a model in another format.",
        "train": "Train a model as a recipe says.",
        "distill": "Decode a training set with a teacher.",
        "shortlist": "Give a model with a drafter a shortlist, so that processors draft the same output sooner.",
        "lattice": "Candidate tables, and a look into lattices.",
    },
    "Measure": {
        "evaluate": "Score a model's translations (or corrections, or summaries) of a test set.",
        "exactness": "Compare lossless decoders' outputs with greedy's, id by id.",
        "contrastive": "Score contrastive pairs: is the right translation more probable than a wrong one?",
        "bench": "Measure decoders side by side on one test set.",
        "profile": "Say where the time of each decoder goes: a stage's share, calls, time and distance to its floor.",
        "report": "Render every table and plot from records.",
        "pictures": "Test sets of pictures, grids of them, and sheets on which people compare two models'.",
    },
}
"""Commands by what they are for. Each is a function of its name in a module of its name (with an underscore behind it
where Python keeps the name for itself), or an `app` there that has commands of its own. The sentence is the first of
its docstring, which help shows without importing it."""
COMMANDS = {name: sentence for commands in TASKS.values() for name, sentence in commands.items()}

GREETING = """\
Longstride: Transformers that emit several tokens per model call, and the same output, sooner. Try

  longstride demo                                      every decoder of the bundled model at work
  echo "Good morning." | longstride translate          English to German, by the bundled model
  longstride adapt HF_FOLDER --source lines.txt -o DIR  a Hugging Face model of yours gets a drafter

`longstride --help` lists all commands, `longstride doctor` says what would make this machine faster."""

COMPLETE = "_LONGSTRIDE_COMPLETE"
"""Environment variable by which the shell asks for completions."""

FORMERLY = {"--exactness": "exactness", "--contrastive": "contrastive"}
"""Options of `evaluate` that are commands of their own now; the old spelling goes with the next version."""


class _Commands(TyperGroup):
    """Commands that are imported when they are asked for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that a command line names, instead of what stands for it in help."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """By task, as help shows them."""
        for task, commands in TASKS.items():
            with formatter.section(task):
                formatter.write_dl(list(commands.items()))


def load(name: str) -> Any:
    """A command, imported."""
    spelt = f"{name}_" if keyword.iskeyword(name) else name
    module = importlib.import_module(f"longstride.cli.{spelt}")
    found = getattr(module, "app", None)
    if found is None:
        found = typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(name)(getattr(module, spelt))
    command = get_command(found)
    for one in getattr(command, "commands", {}).values():  # of a group: sentences would be cut where a line ends
        one.short_help = one.help.split("\n\n")[0].replace("\n", " ")
    return command


app = typer.Typer(
    name="longstride",
    cls=_Commands,
    help="Train, distil, decode and benchmark Transformers that emit several tokens per model call.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name, _sentence in COMMANDS.items():
    app.command(_name, help=_sentence)(lambda: None)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"longstride {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results, warnings and errors alone.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and leave.")
    ] = False,
) -> None:
    """Options of all commands; without a command, a greeting."""
    if context.invoked_subcommand is None:
        typer.echo(GREETING)


def main(arguments: list[str]) -> int:
    """Carry out one command line and give its exit code."""
    debug, quiet = "--debug" in arguments, "--quiet" in arguments
    if quiet:
        from longstride.cli import console

        console.quiet = True
    arguments = _respelt([one for one in arguments if one not in ("--debug", "--quiet")])  # allowed anywhere
    try:
        # Not by calling the app, which has ways of its own with Ctrl-C, ends of files and pipes.
        command = get_command(app)
        if COMPLETE in os.environ:
            command.main(arguments, "longstride", complete_var=COMPLETE)
        with command.make_context("longstride", arguments) as context:
            command.invoke(context)
        return 0
    except typer.Exit as ended:
        return ended.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except (Exception, KeyboardInterrupt) as error:
        return tell(error, debug)
    finally:
        if quiet:
            console.quiet = False


def _respelt(arguments: list[str]) -> list[str]:
    """The command line in today's words, where it is one of `evaluate` as it was before it was split."""
    for option, command in FORMERLY.items() if arguments[:1] == ["evaluate"] else ():
        for place, argument in enumerate(arguments):
            name, _, value = argument.partition("=")
            if name == option:
                from longstride.cli.console import say

                say(f"`evaluate {option}` is `longstride {command}` now; the old spelling goes with the next version.")
                rest = [*arguments[1:place], *([value] if value else []), *arguments[place + 1 :]]
                return [command, *(one for one in rest if command != "exactness" or one != "--json")]
    return arguments
