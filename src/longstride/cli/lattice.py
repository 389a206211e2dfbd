"""longstride lattice: candidate tables from a corpus; `recall` and `inspect` look at what they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli.console import Stages, commit, say
from longstride.cli.lattice_inspect import TABLES, inspect, no_tables, recall
from longstride.cli.options import Device, OwnModel, Source, model_path, not_nan, open_model, own_folder, settings
from longstride.cli.streams import input_file, result_files, result_folder
from longstride.contract import ModelFolderError, OptionError
from longstride.contract.options import parse

if TYPE_CHECKING:
    from longstride.model_folder import ModelFolder
    from longstride.text.tokenizer import Tokenizer

app = typer.Typer(
    help="Candidate tables, and a look into lattices.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.command()(inspect)


@app.command()
def build(
    source: Source,
    target: Annotated[Path, typer.Option("-t", "--target", help="Target text, one sentence per source line.")],
    model: Annotated[
        str | None, typer.Option("-m", "--model", help="Model folder whose tokenizers split the text.")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer of both sides, where there is no model.")] = None,
    source_tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer of the source, if it differs.")] = None,
    alignments: Annotated[
        Path | None, typer.Option(help="Alignments of the tokenizer's pieces in Pharaoh format (default: align here).")
    ] = None,
    save_alignments: Annotated[Path | None, typer.Option(help="Also write the alignments, in Pharaoh format.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the tables; it translates by counts alone.")
    ] = None,
    drop_in: Annotated[bool, typer.Option("--drop-in", help="Put the tables into the model's folder instead.")] = False,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="An option of the tables as name=value (filter.max_tokens=100); may be given several times."
        ),
    ] = None,
    memory: Annotated[
        float,
        typer.Option(min=0, max=10**6, callback=not_nan, help="GiB that aligning may take for its probabilities."),
    ] = 8.0,
    device: Device = "auto",
) -> None:
    """Align and count a corpus."""
    from longstride import model_folder
    from longstride.model_folder import DecoderConfig, ModelFolder, Part
    from longstride.runtime.choosing import check_device
    from longstride.systems.lattice.build import BuildOptions, Text
    from longstride.systems.lattice.build import build as build_tables

    options = parse(BuildOptions, settings(set), "--set")
    folder = ModelFolder(model_path(model)) if model is not None else None
    place = _place(output, folder, drop_in)
    source, target = input_file(source), input_file(target)
    if save_alignments is not None:
        (save_alignments,) = result_files(save_alignments)
    tokenizers = _tokenizers(folder, tokenizer, source_tokenizer)
    with Stages() as shown:
        tables, manifest = build_tables(
            Text(source, target, *tokenizers),
            options,
            alignments=alignments,
            save_alignments=save_alignments,
            device=check_device(device),
            memory=memory,
            progress=shown.to,
        )
    made_by, dirty = commit()
    provenance = {**manifest, "commit": made_by, "dirty": dirty}
    part, decoders = Part(TABLES, tables.options, tables), {"counts": DecoderConfig({TABLES: TABLES})}
    if drop_in:
        model_folder.drop_in(place, TABLES, part, decoders, provenance)
    else:
        of_source, of_target = tokenizers
        model_folder.write(place, {TABLES: part}, decoders, "counts", of_target, of_source, {TABLES: provenance})
    say(_summary(manifest, place))


@app.command()
def add(
    tables: Annotated[str, typer.Argument(help="Folder of tables, or a model folder that has some.")],
    model: OwnModel,
) -> None:
    """Put tables that are already built into a model's folder, replacing those it may have."""
    from longstride import model_folder
    from longstride.model_folder import DecoderConfig, ModelFolder, Part

    giver, taker = ModelFolder(model_path(tables)), own_folder(model_path(model), "tables")
    for (side, wanted), found in zip(_hashes(taker).items(), _hashes(giver).values(), strict=True):
        if found != wanted:
            raise OptionError(
                f"{giver.path}: expected tables for the {side} tokenizer {wanted[:12]} of {taker.path}, "
                f"found tables for the {side} tokenizer {found[:12]}."
            )
    names = [name for name, part in giver.parts.items() if part.kind == TABLES]
    if not names:
        raise no_tables(giver)
    module = open_model(tables, device="cpu").part(names[0])
    provenance = giver.config.provenance.get(TABLES, {})
    decoders = {"counts": DecoderConfig({TABLES: TABLES})}
    model_folder.drop_in(taker.path, TABLES, Part(TABLES, module.options, module), decoders, provenance)
    say(f"Candidate tables: {taker.path}")


app.command()(recall)


def _hashes(folder: ModelFolder) -> dict[str, str]:
    target = folder.config.tokenizer_sha256
    return {"source": folder.config.source_tokenizer_sha256 or target, "target": target}


def _place(output: Path | None, folder: ModelFolder | None, drop_in: bool) -> Path:
    """Where the tables go, before any work is done."""
    from longstride.model_folder import ModelFolder

    if drop_in == (output is not None):
        raise OptionError(f"Expected either --output or --drop-in, found {'both' if drop_in else 'neither'}.")
    if output is None:
        if folder is None:
            raise OptionError("--drop-in expects --model, the folder to put the tables into, found none.")
        return own_folder(folder.path, "tables").path
    output = result_folder(output)
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        # A folder is replaced as a whole, so it must be one that holds nothing else.
        try:
            there = set(ModelFolder(output).parts)
        except ModelFolderError:
            there = set()
        if there != {TABLES}:
            raise OptionError(f"{output}: expected a new folder or one of tables alone, found something else.")
    return output


def _tokenizers(
    folder: ModelFolder | None, tokenizer: Path | None, source_tokenizer: Path | None
) -> tuple[Tokenizer, Tokenizer]:
    """Of the source and of the target."""
    from longstride.text.tokenizer import load_tokenizer

    if (folder is None) == (tokenizer is None):
        raise OptionError(f"Expected either --model or --tokenizer, found {'neither' if folder is None else 'both'}.")
    if folder is not None:
        if source_tokenizer is not None:
            raise OptionError("--source-tokenizer expects --tokenizer; with --model the folder's own are used.")
        return folder.tokenizers()
    assert tokenizer is not None
    target = load_tokenizer(tokenizer)
    return (load_tokenizer(source_tokenizer) if source_tokenizer is not None else target), target


def _summary(made: dict[str, Any], place: Path) -> str:
    share = 100 * made["from_no_word"] / max(made["target_words"], 1)
    said = (
        f"{made['pairs']:,} pairs with {made['target_words']:,} target words ({share:.1f} % from no source word): "
        f"{made['entries']:,} entries in {made['bytes'] / 1e6:.1f} MB, {made['minutes']} minutes."
    )
    if made["left_out"]:
        said += f" Left out {made['left_out']:,} pairs by length."
    if made["several_links"]:
        said += f" Of several links to one target word, {made['several_links']:,} times, the one nearest the diagonal."
    return f"{said}\nCandidate tables: {place}"
