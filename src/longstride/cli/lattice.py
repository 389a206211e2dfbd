"""longstride lattice: candidate tables from a corpus, and how many of a reference's words their lattice holds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli.console import Bar, commit, out, say
from longstride.cli.lattice_inspect import inspect
from longstride.cli.lattice_records import Book, RecordFile
from longstride.cli.options import (
    Device,
    Experiment,
    Model,
    Reference,
    Set,
    Source,
    Workload,
    model_path,
    not_nan,
    open_model,
    settings,
    whole_number,
)
from longstride.cli.provenance import data_name
from longstride.cli.streams import input_file, result_files, result_folder
from longstride.contract import ModelFolderError, OptionError
from longstride.contract.bundled import BUNDLED
from longstride.contract.options import parse
from longstride.contract.ranges import shown
from longstride.text.files import check_writable

if TYPE_CHECKING:
    from longstride.contract import Runner
    from longstride.model_folder import ModelFolder
    from longstride.systems.lattice.build import Built
    from longstride.systems.lattice.candidates import CandidateSource
    from longstride.systems.lattice.tables import Tables
    from longstride.text.tokenizer import Tokenizer
    from longstride.translator import Translator

TABLES = "tables"
"""The name and the kind of the part."""
SIZES = "1,2,4,8,16,32,64,128,256"

app = typer.Typer(help="Candidate tables, and a look into lattices.", no_args_is_help=True, rich_markup_mode=None)
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
    set: Set = None,
    memory: Annotated[
        float,
        typer.Option(min=0, max=10**6, callback=not_nan, help="GiB that aligning may take for its probabilities."),
    ] = 8.0,
    device: Device = "auto",
) -> None:
    """Align and count a corpus."""
    from longstride.model_folder import ModelFolder
    from longstride.runtime.choosing import check_device
    from longstride.systems.lattice.build import BuildOptions, Text
    from longstride.systems.lattice.build import build as build_tables

    options = parse(BuildOptions, settings(set), "--set")
    folder = ModelFolder(model_path(model)) if model is not None else None
    place = _place(output, folder, drop_in)
    source, target = input_file(source), input_file(target)
    check_writable(save_alignments)
    tokenizers = _tokenizers(folder, tokenizer, source_tokenizer)
    with _stages() as progress:
        built = build_tables(
            Text(source, target, *tokenizers),
            options,
            alignments=alignments,
            save_alignments=save_alignments,
            device=check_device(device),
            memory=memory,
            progress=progress,
        )
    _write(built, place, tokenizers, into=folder if drop_in else None)
    say(_summary(built, place))


@app.command()
def add(
    tables: Annotated[str, typer.Argument(help="Folder of tables, or a model folder that has some.")],
    model: Model,
) -> None:
    """Put tables that are already built into a model's folder, replacing those it may have."""
    from longstride import model_folder
    from longstride.model_folder import DecoderConfig, ModelFolder, Part

    giver, taker = ModelFolder(model_path(tables)), _own(model_path(model))
    here, there = (
        [f"{side} tokenizer {hash[:12]}" for side, hash in _hashes(folder).items()] for folder in (taker, giver)
    )
    if differing := [pair for pair in zip(here, there, strict=True) if pair[0] != pair[1]]:
        raise OptionError(
            f"{giver.path}: expected tables for the {differing[0][0]} of {taker.path}, "
            f"found tables for the {differing[0][1]}."
        )
    module = _tables_of(open_model(tables, device="cpu"))
    provenance = giver.config.provenance.get(TABLES, {})
    part = Part(TABLES, module.options, module)
    model_folder.drop_in(taker.path, TABLES, part, {"counts": DecoderConfig({TABLES: TABLES})}, provenance)
    say(f"Candidate tables: {taker.path}")


@app.command()
def recall(
    source: Source,
    reference: Reference,
    model: Model = BUNDLED,
    sizes: Annotated[str, typer.Option("--candidates", help="Values of K, with commas between.")] = SIZES,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    device: Device = "auto",
    record: RecordFile = None,
    experiment: Experiment = None,
    workload: Workload = None,
) -> None:
    """Say how many words of a reference the candidate lattice holds, by K and construction."""
    from longstride.systems.lattice.recall import recall as measure_recall
    from longstride.text.binarized import binarize
    from longstride.text.filtering import LengthFilter

    values = _sizes(sizes)
    (record,) = result_files(record)
    source, reference = input_file(source), input_file(reference)
    book = Book(record, experiment, workload or data_name(source))
    book.check()
    translator = open_model(model, device=device)
    constructions = constructions_of(translator)
    with tempfile.TemporaryDirectory() as folder:
        corpus = binarize(
            source,
            reference,
            translator.source_tokenizer,
            Path(folder) / "corpus",
            LengthFilter(max_tokens=translator.longest),
            target_tokenizer=translator.target_tokenizer,
        )
        found: dict[str, dict[int, float]] = {}
        for name, construction in constructions.items():
            with Bar(name, len(corpus)) as bar:
                found[name] = measure_recall(construction, corpus, values, translator.runner.device, bar.to)
        words = int((corpus.target.lengths - 1).sum())
    curves = {name: [shares[value] for value in values] for name, shares in found.items()}
    book.keep(
        translator, "recall", "candidates per place", values, curves, [source, reference], len(corpus), words=words
    )
    if as_json:
        out.print(json.dumps({"pairs": len(corpus), "words": words, "recall": found}), markup=False)
        return
    say(f"Share of {words:,} words of {len(corpus):,} sentences that are among the K candidates of their place.")
    out.print(f"{'K':>5}" + "".join(f"{name:>10}" for name in found))
    for value in values:
        out.print(f"{value:>5}" + "".join(f"{100 * found[name][value]:>9.2f}%" for name in found))


def constructions_of(translator: Translator) -> dict[str, CandidateSource]:
    """Every way in which a model's parts propose words."""
    folder = translator.folder
    found: dict[str, CandidateSource] = {}
    for name, part in sorted(folder.parts.items(), key=lambda item: item[1].kind != TABLES):
        if part.kind in (TABLES, "scorer", "one-pass"):
            found |= _proposed(part.kind, translator.part(name), translator.runner)
    if not found:
        raise _no_tables(folder)
    return found


def _proposed(kind: str, part: Any, runner: Runner) -> dict[str, CandidateSource]:
    """The ways in which a part proposes words, by the names that the lattice decoder has for its own."""
    from longstride.systems.lattice import scoring
    from longstride.systems.lattice.candidates import ScoredCandidates
    from longstride.systems.lattice.tables import SharedVocabulary
    from longstride.systems.non_autoregressive import filling

    if kind == TABLES:
        return {"tables": part, "shared": SharedVocabulary(part)}
    name, scores = ("model", scoring.place_scores) if kind == "scorer" else ("one-pass", filling.place_scores)
    return {name: ScoredCandidates(partial(scores, part), part.options.vocabulary, runner)}


def _tables_of(translator: Translator) -> Tables:
    from longstride.systems.lattice.tables import Tables

    for name, part in translator.folder.parts.items():
        if part.kind == TABLES:
            module = translator.part(name)
            assert isinstance(module, Tables)
            return module
    raise _no_tables(translator.folder)


def _no_tables(folder: ModelFolder) -> ModelFolderError:
    return ModelFolderError(
        f"{folder.path}: expected a model folder with candidate tables, found the parts {', '.join(folder.parts)}; "
        f"make some with `longstride lattice build`."
    )


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
        return _own(folder.path).path
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


def _own(path: Path) -> ModelFolder:
    """A model folder to put tables into; the one that comes with the package stays as it is."""
    from longstride.model_folder import ModelFolder
    from longstride.translator import bundled_folder

    if path == bundled_folder():
        raise OptionError(f"Expected a model folder of your own to put tables into, found the bundled one, {path}.")
    return ModelFolder(path)


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


def _write(built: Built, place: Path, tokenizers: tuple[Tokenizer, Tokenizer], into: ModelFolder | None) -> None:
    from longstride import model_folder
    from longstride.model_folder import DecoderConfig, Part

    made_by, dirty = commit()
    provenance = {**built.manifest, "commit": made_by, "dirty": dirty}
    part = Part(TABLES, built.tables.options, built.tables)
    decoders = {"counts": DecoderConfig({TABLES: TABLES})}
    if into is not None:
        model_folder.drop_in(place, TABLES, part, decoders, provenance)
    else:
        source, target = tokenizers
        model_folder.write(place, {TABLES: part}, decoders, "counts", target, source, {TABLES: provenance})


def _summary(built: Built, place: Path) -> str:
    made = built.manifest
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


def _sizes(text: str) -> list[int]:
    values = [whole_number(part, most=10**6) for part in text.split(",")]
    if None in values:
        raise OptionError(f"--candidates expects numbers from 1 to {10**6} with commas between, found {shown(text)}.")
    return sorted(value for value in values if value is not None)


@contextmanager
def _stages() -> Iterator[Any]:
    """A bar for each stage in turn."""
    bars: dict[str, Bar] = {}

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in bars:
            for bar in bars.values():
                bar.__exit__()
            say(f"{stage} ...")
            bars[stage] = Bar(stage, total or None).__enter__()
        bars[stage].to(done, total or None)

    try:
        yield progress
    finally:
        for bar in bars.values():
            bar.__exit__()
