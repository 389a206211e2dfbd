"""longstride export: a model in other people's formats, written as one folder, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from longstride.cli.console import say
from longstride.cli.export_check import check_export, lines_to_check_with
from longstride.cli.options import DrafterFolder, Model, open_model
from longstride.cli.streams import input_file, result_folder
from longstride.contract import InputError, OptionError
from longstride.interop.ctranslate2 import export_ctranslate2
from longstride.interop.hf import export_hf
from longstride.interop.onnx_folder import export_onnx
from longstride.text.files import temporary_beside
from longstride.translator import BUNDLED, Translator

Exporter = Callable[[Translator, Path, str], str]
"""(model on the CPU in fp32, an empty folder to fill, the precision asked for) -> a sentence that says what was made.

An exporter refuses a model or a precision that the format cannot hold with an OptionError, before writing anything.
"""

EXPORTERS: dict[str, Exporter] = {"hf": export_hf, "ctranslate2": export_ctranslate2, "onnx": export_onnx}
"""Format -> who writes it. An exporter imports what it needs when it is called."""


def export(
    to: Annotated[str, typer.Option("--to", help="Format to write: hf, ctranslate2 or onnx.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to make; it must not exist yet.")],
    model: Model = BUNDLED,
    drafter: DrafterFolder = None,
    precision: Annotated[
        str, typer.Option(help="Precision of what is written: fp32 or int8, as the format has it.")
    ] = "fp32",
    check: Annotated[
        bool, typer.Option(help="Decode a few sentences by the other library too, and compare token ids.")
    ] = True,
    check_with: Annotated[Path | None, typer.Option(help="Check with the sentences of this file instead.")] = None,
) -> None:
    """Write a model in another format."""
    if to not in EXPORTERS:
        raise OptionError(f"--to expects {' or '.join(EXPORTERS) or 'a format'}, found {to!r}.")
    output = result_folder(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output}: expected a new or empty folder to write, found something in it.")
    lines = lines_to_check_with(input_file(check_with))
    translator = open_model(model, device="cpu", drafter=drafter)
    place = output.resolve()
    with temporary_beside(place, folder=True) as temporary:
        made = EXPORTERS[to](translator, temporary, precision)
        if check:
            check_export(translator, to, temporary, precision, lines)
        if place.exists():
            place.rmdir()
        temporary.replace(place)
    say(made)
