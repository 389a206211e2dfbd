"""longstride decoders: what a model can do, a line a decoder; with a name, all of that one and its options."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from longstride.cli.console import out
from longstride.cli.options import Model, check_asked, decoder_names, open_model
from longstride.contract.bundled import BUNDLED
from longstride.contract.options import fields


def decoders(
    decoder: Annotated[
        str | None,
        typer.Argument(help="Show this one in full: its options and their defaults.", autocompletion=decoder_names),
    ] = None,
    model: Model = BUNDLED,
) -> None:
    """Show the decoders of a model, or one of them with its options and defaults."""
    check_asked(model)
    from longstride.contract import Limits
    from longstride.registry import DECODERS

    translator = open_model(model, device="cpu")
    translator.check()
    folder = translator.folder
    names = [*translator.decoders, *translator.possible]
    if decoder is not None:
        translator.check_named(decoder)
        out.print(_line(decoder, names))
        _options(DECODERS[decoder].options, folder.decoders[decoder].defaults if decoder in folder.decoders else {})
        out.print("[bold]all decoders[/bold]: how long outputs may be, and what may never stand in them")
        _options(Limits, {})
        return
    stored = dict.fromkeys(folder.stored(name) for name in folder.parts)
    size = sum((folder.path / part.weights).stat().st_size for part in folder.parts.values())
    out.print(f"{size / 1e6:.1f} MB of weights, stored in {' and '.join(stored)}", markup=False, highlight=False)
    for name in names:
        out.print(_line(name, names))
    out.print("`longstride decoders NAME` shows one with its options.", style="dim")


def _line(name: str, names: list[str]) -> str:
    from longstride.registry import DECODERS

    return f"[bold]{name}[/bold]{' (default)' if name == names[0] else ''}: {DECODERS[name].summary}"


def _options(kind: type, defaults: dict[str, object]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    for name, form, default, sentence in fields(kind):
        table.add_row(f"[cyan]{name}[/cyan]", form, f"{defaults.get(name, default)}" or "-", sentence)
    if table.row_count:
        out.print(table)
