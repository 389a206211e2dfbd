"""longstride export: a model in other people's formats, or in another precision, written as one folder, whole or not at
all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longstride.cli.console import out, say, warn
from longstride.cli.options import DrafterFolder, Model, open_model
from longstride.cli.streams import input_file, result_folder
from longstride.contract import InputError, OptionError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.translator import Translator

OURS = "longstride"
"""The format of model folders."""


def export(
    to: Annotated[str, typer.Option("--to", help="Format to write: hf, ctranslate2, onnx or longstride.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to make; it must not exist yet.")],
    model: Model = BUNDLED,
    drafter: DrafterFolder = None,
    precision: Annotated[
        str, typer.Option(help="Precision of what is written: fp32, int8 or fp16, as the format has it.")
    ] = "fp32",
    check: Annotated[
        bool, typer.Option(help="Decode a few sentences by the other library too, and compare token ids.")
    ] = True,
    check_with: Annotated[Path | None, typer.Option(help="Check with the sentences of this file instead.")] = None,
) -> None:
    """Write a model in another format.

    To longstride: in our own, with its weights stored in another precision.
    """
    from longstride.interop.ctranslate2 import export_ctranslate2
    from longstride.interop.hf import export_hf
    from longstride.interop.onnx_folder import export_onnx
    from longstride.interop.stored import export_folder
    from longstride.text.files import temporary_beside

    # (model on the CPU in fp32, an empty folder to fill, the precision asked for) -> a sentence: what was made
    formats = {"hf": export_hf, "ctranslate2": export_ctranslate2, "onnx": export_onnx, OURS: export_folder}
    if to not in formats:
        raise OptionError(f"--to expects {' or '.join(formats)}, found {to!r}.")
    if to == OURS and drafter is not None:
        raise OptionError(f"--to {OURS} writes the parts that the model's own folder has: expected no --drafter.")
    output = result_folder(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output}: expected a new or empty folder to write, found something in it.")
    lines = check_sentences(input_file(check_with))
    translator = open_model(model, device="cpu", drafter=drafter)
    place = output.resolve()
    with temporary_beside(place, folder=True) as temporary:
        made = formats[to](translator, temporary, precision)
        if check:
            _check(translator, to, temporary, precision, lines)
        if place.exists():
            place.rmdir()
        temporary.replace(place)
    say(made)


def check_sentences(file: Path | None) -> list[str]:
    """Sentences to check with: those of a file, or a few of our own."""
    from longstride.interop.peers import SENTENCES
    from longstride.text.corpus import read_lines

    lines = [line for line in read_lines(file) if line.strip()] if file is not None else list(SENTENCES)
    if not lines:
        raise InputError(f"{file}: expected at least one sentence to check with, found none.")
    return lines


def _check(translator: Translator, to: str, folder: Path, precision: str, lines: list[str]) -> None:
    """Say how many greedy outputs agree; a format that no library here decodes is left alone."""
    from longstride.interop.exportable import GREEDY
    from longstride.interop.onnx_folder import OnnxFolder
    from longstride.interop.peers import PEERS, agreement, open_peer

    if to not in (*PEERS, OnnxFolder.name) or GREEDY not in translator.decoders:
        return
    try:
        peer = OnnxFolder(folder) if to == OnnxFolder.name else open_peer(to, folder, translator, precision=precision)
        found = agreement(translator, peer, lines)
    except OptionError as error:  # a package that is missing, or a limit that the other library does not have
        warn(f"not checked: {error}")
        return
    out.print(f"Greedy search by {to} {peer.version}, {precision}: {found}.", markup=False)
    if found.differing and precision == "fp32":
        warn("in fp32 only a near-tie may come out differently; look at the sentences that do.")
