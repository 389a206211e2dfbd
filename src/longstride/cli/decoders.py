"""longstride decoders: what a model can do, with each option and its default."""

from __future__ import annotations

from rich.table import Table

from longstride.cli.console import out
from longstride.cli.options import Model, check_asked, open_model
from longstride.contract.bundled import BUNDLED
from longstride.contract.options import fields


def decoders(model: Model = BUNDLED) -> None:
    """Show the decoders of a model, their options and defaults."""
    check_asked(model)
    from longstride.contract import Limits
    from longstride.registry import DECODERS, find

    translator = open_model(model, device="cpu")
    translator.check()
    folder = translator.folder
    stored = dict.fromkeys(folder.stored(name) for name in folder.parts)
    size = sum((folder.path / part.weights).stat().st_size for part in folder.parts.values())
    out.print(f"{size / 1e6:.1f} MB of weights, stored in {' and '.join(stored)}", markup=False, highlight=False)
    for number, name in enumerate([*translator.decoders, *translator.possible]):
        kind = find(DECODERS, name, "decoder")
        out.print(f"[bold]{name}[/bold]{' (default)' if number == 0 else ''}: {kind.summary}")
        listed = translator.folder.decoders.get(name)
        _options(kind.options, listed.defaults if listed else {})
    out.print("[bold]all of them[/bold]: how long outputs may be, and what may never stand in them")
    _options(Limits, {})


def _options(kind: type, defaults: dict[str, object]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    for name, form, default, sentence in fields(kind):
        table.add_row(f"[cyan]{name}[/cyan]", form, f"{defaults.get(name, default)}" or "-", sentence)
    if table.row_count:
        out.print(table)
