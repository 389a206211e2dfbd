"""What commands there are and what options each has, asked of the command line itself: a new one needs no line here."""

from __future__ import annotations

import inspect
import tomllib
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Parameter:
    """An option or argument of a command."""

    name: str
    kind: type
    """bool, int, float, str or Path"""
    flags: tuple[str, ...]
    """how it is spelt; empty for an argument"""
    off: tuple[str, ...]
    """how a switch is turned off"""
    required: bool
    multiple: bool
    least: float | None
    help: str


@dataclass(frozen=True)
class Command:
    """A command, by the words that call it."""

    words: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        return " ".join(self.words)


def entry_point() -> Callable[[], None]:
    """What the installed script calls, by pyproject.toml."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, function = scripts["longstride"].partition(":")
    found: Callable[[], None] = getattr(import_module(module), function)
    return found


def commands() -> list[Command]:
    """Every command, in a fixed order."""
    app: Any = import_module("longstride.cli.main").app
    return list(_walk(typer.main.get_command(app), None, ()))


def _walk(command: Any, parent: Any, words: tuple[str, ...]) -> Iterator[Command]:
    context = command.context_class(command, info_name=words[-1] if words else "longstride", parent=parent)
    if not hasattr(command, "list_commands"):
        yield Command(words, tuple(_parameters(command)))
        return
    for name in sorted(command.list_commands(context)):
        _, found, _ = command.resolve_command(context, [name])  # imports it, where that waits until it is asked for
        yield from _walk(found, context, (*words, name))


def _parameters(command: Any) -> Iterator[Parameter]:
    hints = typing.get_type_hints(inspect.unwrap(command.callback))
    for one in command.params:
        if one.name not in hints:  # --help
            continue
        positional = one.param_type_name == "argument"
        yield Parameter(
            one.name,
            _plain(hints[one.name]),
            () if positional else tuple(one.opts),
            tuple(one.secondary_opts),
            bool(one.required),
            bool(one.multiple) or one.nargs != 1,
            getattr(one, "min", getattr(getattr(one, "type", None), "min", None)),
            getattr(one, "help", "") or "",
        )


def _plain(hint: Any) -> type:
    """The type of one value: without None, of a list's element."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    if typing.get_origin(hint) in (list, tuple):
        hint = typing.get_args(hint)[0]
    return hint if isinstance(hint, type) else str
