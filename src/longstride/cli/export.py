"""longstride export: a model in other people's formats, written as one folder, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longstride.cli.console import say
from longstride.cli.options import DrafterFolder, Model, open_model
from longstride.cli.streams import input_file, result_folder
from longstride.contract import InputError, OptionError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.translator import Translator

FORMATS = ("hf", "ctranslate2", "onnx")


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
    from longstride.cli.export_check import check_export, lines_to_check_with
    from longstride.text.files import temporary_beside

    if to not in FORMATS:
        raise OptionError(f"--to expects {' or '.join(FORMATS)}, found {to!r}.")
    output = result_folder(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output}: expected a new or empty folder to write, found something in it.")
    lines = lines_to_check_with(input_file(check_with))
    translator = open_model(model, device="cpu", drafter=drafter)
    place = output.resolve()
    with temporary_beside(place, folder=True) as temporary:
        made = _exporter(to)(translator, temporary, precision)
        if check:
            check_export(translator, to, temporary, precision, lines)
        if place.exists():
            place.rmdir()
        temporary.replace(place)
    say(made)


def _exporter(to: str) -> Callable[[Translator, Path, str], str]:
    """(model on the CPU in fp32, an empty folder to fill, the precision asked for) -> a sentence: what was made.

    Refuses a model or a precision that the format cannot hold with an OptionError, before writing anything.
    """
    from longstride.interop.ctranslate2 import export_ctranslate2
    from longstride.interop.hf import export_hf
    from longstride.interop.onnx_folder import export_onnx

    return {"hf": export_hf, "ctranslate2": export_ctranslate2, "onnx": export_onnx}[to]
