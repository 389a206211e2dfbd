"""longstride import: a Hugging Face encoder-decoder as a model folder, checked against transformers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longstride.cli import options as shared
from longstride.cli.console import Bar, out, say
from longstride.cli.export import check_sentences
from longstride.cli.streams import input_file, result_folder
from longstride.contract import InputError, ModelFolderError, WorkError


def import_(
    folder: Annotated[
        Path, typer.Argument(metavar="HF_FOLDER", help="Folder that transformers' save_pretrained made.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Model folder to make; a model folder that is there is replaced.")
    ],
    source_lang: shared.SourceLang = None,
    target_lang: shared.TargetLang = None,
    check_lines: Annotated[
        Path | None, typer.Option(help="Check with the sentences of this file instead of a few built-in ones.")
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Do not compare outputs; transformers need not be installed.")
    ] = False,
) -> None:
    """Make a model folder of a Hugging Face encoder-decoder.

    Marian (OPUS-MT), M2M100 and NLLB, BART, T5 with mT5 and Flan-T5, mBART, Pegasus. Outputs are compared with those of
    transformers, token by token; where they differ, nothing is written.
    """
    from longstride.interop.hf.check import compare_with_transformers
    from longstride.interop.hf.importing import import_folder
    from longstride.runtime.libraries import MissingPackageError, package
    from longstride.text.folders import folder_written_whole
    from longstride.translator import load

    output = result_folder(output)
    _check_replaceable(output)
    lines = check_sentences(input_file(check_lines))
    if not unchecked:
        try:
            package("transformers")
        except MissingPackageError as error:
            raise MissingPackageError(f"{error} Or import without comparing outputs: --unchecked.") from None
    say(f"Reading {folder}.")
    found = import_folder(folder, source_lang, target_lang)
    for note in found.notes:
        say(note)
    with folder_written_whole(output.resolve()) as building:
        found.save(building)
        if not unchecked:
            with Bar("comparing outputs", len(lines)) as shown:
                compared = compare_with_transformers(
                    folder, load(building, device="cpu"), lines, (source_lang, target_lang), lambda done: shown.to(done)
                )
            if compared.first is not None:
                raise WorkError(f"{folder}: {compared} Nothing was written.")
            out.print(str(compared), markup=False)
    say(f"{found.family}, imported to {output}.")


def _check_replaceable(output: Path) -> None:
    """Refuse to write where something else than a model folder of ours is, before the work."""
    from longstride.model_folder import ModelFolder

    if output.is_dir() and any(output.iterdir()):
        try:
            ModelFolder(output)
        except ModelFolderError:
            raise InputError(f"{output}: expected a model folder to replace, or none, found something else.") from None
