"""longstride import: a Hugging Face encoder-decoder as a model folder, checked against transformers itself."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from longstride.cli import options as shared
from longstride.cli.console import Bar, out, say, warn
from longstride.cli.export import check_sentences
from longstride.cli.streams import input_file, result_folder
from longstride.contract import InputError, ModelFolderError


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
    ignore_field: Annotated[
        list[str] | None,
        typer.Option(
            help="With --unchecked: a field of config.json or generation_config.json, or a tensor, that is not known "
            "and may be ignored; may be given several times."
        ),
    ] = None,
) -> None:
    """Make a model folder of a Hugging Face encoder-decoder.

    Marian (OPUS-MT), M2M100 and NLLB, BART, T5 with mT5 and Flan-T5, mBART, Pegasus. Outputs are compared with those of
    transformers, token by token; where they differ, nothing is written. Fields and tensors that neither transformers
    nor this reads are ignored, with a warning.
    """
    from longstride.interop.hf.checked import import_checked
    from longstride.text.missing import check_there

    output = result_folder(output)
    _check_replaceable(output)
    lines = check_sentences(input_file(check_lines))
    check_there(folder, "a Hugging Face folder")
    say(f"Reading {folder}.")
    with nullcontext() if unchecked else Bar("comparing outputs", len(lines)) as shown:
        found, compared = import_checked(
            folder,
            output.resolve(),
            None if unchecked else lines,
            (source_lang, target_lang),
            ignore=ignore_field or [],
            note=warn,
            progress=None if shown is None else shown.to,
        )
    if compared is not None:
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
