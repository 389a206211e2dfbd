"""longstride export: a model in other people's formats, written as one folder, whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longstride.cli.console import say
from longstride.cli.options import DrafterFolder, Model, open_model
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

    if to not in FORMATS:
        raise OptionError(f"--to expects {' or '.join(FORMATS)}, found {to!r}.")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output}: expected a new or empty folder to write, found something in it.")
    if not output.resolve().parent.is_dir():
        raise InputError(f"{output}: expected a folder to write in, found none at {output.parent}.")
    lines = lines_to_check_with(check_with)
    translator = open_model(model, device="cpu", drafter=drafter)
    temporary = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.resolve().parent))
    try:
        made = _exporter(to)(translator, temporary, precision)
        if check:
            check_export(translator, to, temporary, precision, lines)
        if output.exists():
            output.rmdir()
        temporary.chmod(0o755)
        temporary.replace(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    say(made)


def _exporter(to: str) -> Callable[[Translator, Path, str], str]:
    """(model on the CPU in fp32, an empty folder to fill, the precision asked for) -> a sentence: what was made.

    Refuses a model or a precision that the format cannot hold with an OptionError, before writing anything.
    """
    from longstride.interop.ctranslate2 import export_ctranslate2
    from longstride.interop.hf import export_hf
    from longstride.interop.onnx_folder import export_onnx

    return {"hf": export_hf, "ctranslate2": export_ctranslate2, "onnx": export_onnx}[to]
