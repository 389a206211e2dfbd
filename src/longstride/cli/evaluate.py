"""longstride evaluate: how good a model's translations are, and whether they are better than another's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli.console import say
from longstride.cli.options import (
    DecoderName,
    Device,
    DrafterFolder,
    Experiment,
    Model,
    Precision,
    Runtime,
    Set,
    Threads,
    Workload,
    open_model,
    settings,
)
from longstride.cli.provenance import data_name, origin_of
from longstride.cli.streams import input_file, result_files, result_folder
from longstride.cli.test_sets import Task, read_material
from longstride.contract import InputError, OptionError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.cli.evaluation import Evaluation, Rival, Setting
    from longstride.cli.lineup import Entry
    from longstride.translator import Translator


def evaluate(
    source: Annotated[
        Path | None, typer.Option("-s", "--source", help="Source text, one sentence per line (.gz and .xz too).")
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option("-r", "--reference", help="References, one per source line; for correction several files."),
    ] = None,
    model: Model = BUNDLED,
    task: Task = "translation",
    decoder: DecoderName = None,
    decoders: Annotated[
        str | None,
        typer.Option(
            help="Several settings, loaded once and scored one after another, as bench names them: "
            "greedy,blockwise:k=2,blockwise:k=2;accept=top:2. Differences are from greedy's, where it is among them."
        ),
    ] = None,
    set: Set = None,
    drafter: DrafterFolder = None,
    runtime: Runtime = "eager",
    precision: Precision = "fp32",
    device: Device = "auto",
    threads: Threads = None,
    batch: Annotated[int, typer.Option(min=1, max=10**6, help="Sentences decoded side by side.")] = 32,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Compare with another system by paired bootstrap: a file of its outputs, or a model folder, decoded "
            "with the same decoders and --set."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the translations here: a file, or a folder for --decoders."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON also on a terminal.")] = False,
    record: Annotated[Path | None, typer.Option(help="Append records of quality to this file (JSON lines).")] = None,
    name: Annotated[str | None, typer.Option(help="Names the system in the record (default: the decoder).")] = None,
    experiment: Experiment = None,
    workload: Workload = None,
    exactness: Annotated[
        bool,
        typer.Option(
            "--exactness",
            help="Score nothing, but compare every verifying decoder's ids with greedy's, by its own steps and by "
            "steps of one token; exit 1 where the former differ.",
        ),
    ] = False,
    exact_match: Annotated[
        bool, typer.Option("--exact-match", help="Also the share of outputs that equal the reference, in percent.")
    ] = False,
    over_translation: Annotated[
        bool,
        typer.Option(
            "--over-translation",
            help="Also OTEM-2 and OTEM-4: what is said more often than in the reference, in percent.",
        ),
    ] = False,
    by_length: Annotated[
        int | None,
        typer.Option(min=1, max=10**6, help="Also scores by source length, in so many bins of equally many sentences."),
    ] = None,
    mutual_information: Annotated[
        str | None,
        typer.Option(
            help="Also an estimate of the mutual information between words that the model predicts independently: its "
            "log-perplexity less that of this model, which writes the same order one word at a time."
        ),
    ] = None,
    contrastive: Annotated[
        Path | None,
        typer.Option(
            help="Translate nothing, but score contrastive pairs, by type of error and distance: a JSON list of "
            "objects with source, reference and errors: a list of objects with contrastive, type and distance, as in "
            "LingEval97."
        ),
    ] = None,
) -> None:
    """Score a model's translations (or corrections) of a test set.

    BLEU and chrF are sacreBLEU's, each with its signature. Corrections are scored with GLEU, over words between white
    space: sources, outputs and references must be tokenized alike, as JFLEG is. Repetition is the share of words, in
    percent, that equal the word right before them. Perplexity is exp of the mean negative log-likelihood of the
    references' tokens (the model's own, end of sentence included), in whatever order the model writes them; of several
    references, of the first. A table on a terminal, JSON otherwise: one object, or a list for --decoders.
    """
    from longstride.bench.records import WorkloadTag, append_records, check_records
    from longstride.bench.workload import Workload as TestSet
    from longstride.cli.analyses import Analyses, Base
    from longstride.cli.contrasting import measure_contrast
    from longstride.cli.evaluation import evaluations, quality_record
    from longstride.cli.evaluation_output import show
    from longstride.cli.exactness import measure_exactness
    from longstride.cli.lineage import lineage, tag_of
    from longstride.cli.lineup import greedy_among
    from longstride.tasks.contrastive import read_contrastive
    from longstride.text.corpus import write_lines

    if name is not None and record is None:
        raise OptionError("--name expects --record FILE beside it, found none.")
    further: dict[str, Any] = {
        "--exact-match": exact_match,
        "--over-translation": over_translation,
        "--by-length": by_length,
        "--mutual-information": mutual_information,
    }
    if contrastive is not None:
        unused: dict[str, Any] = {"--source": source, "--reference": reference, "--decoders": decoders, "--set": set}
        unused |= {"--against": against, "--output": output, "--exactness": exactness, **further}
        _check_unused("--contrastive scores pairs of its own", unused)
        (record,) = result_files(record)
        check_records(record)
        contrastive = input_file(contrastive)
        given = read_contrastive(contrastive)
        translator = open_model(model, runtime, precision, device, drafter, threads)
        tag = tag_of(translator, drafter)
        origin, notes = origin_of(experiment or tag.name, translator), lineage(translator, drafter)
        measure_contrast(translator, decoder, contrastive, given, (name, workload), origin, tag, notes, record, as_json)
        return
    if source is None or not reference:
        raise OptionError(
            f"evaluate expects --source and --reference, found no {'--reference' if source else '--source'}."
        )
    several = decoders is not None
    entries = _entries(decoder, decoders)
    output, record = _results(output, record, several)
    source, against = input_file(source), input_file(against)
    reference = [input_file(one) for one in reference]
    material = read_material(task, source, reference)
    if exactness:
        _check_unused("--exactness compares ids alone", {"--output": output, "--against": against, **further})
    translator = open_model(model, runtime, precision, device, drafter, threads)
    line_up = _line_up(translator, decoder, entries, settings(set), name, output)
    rival = _rival(against, line_up, len(material.pairs), (runtime, precision, device))
    base = None
    if mutual_information is not None:
        base = Base(mutual_information, open_model(mutual_information, runtime, precision, device))
    analyses = Analyses(exact_match, over_translation, by_length, base)
    analyses.check(translator, len(material.pairs))
    sources = translator.encode(material.sources, warn=lambda message: None)
    test_set = TestSet.of(
        workload or data_name(source), sources, material.all_references, lambda ids: translator.text([ids])[0]
    )
    tag = tag_of(translator, drafter)
    origin = origin_of(experiment or tag.name, translator)
    if exactness:
        notes = lineage(translator, drafter)
        measure_exactness(translator, line_up, test_set, batch, origin, tag, notes, record)
        return

    greedy = greedy_among([(one.name, one.decoder) for one in line_up]) if several else None
    set_tag = WorkloadTag(test_set.name, test_set.data_hash, test_set.size)
    done: dict[str, Evaluation] = {}
    files = (str(source), str(reference[0]))
    try:
        for result in evaluations(translator, line_up, greedy, material, batch, files, rival, analyses):
            setting = result.setting
            done[setting.name] = result
            if record is not None:
                order, notes = line_up.index(setting), lineage(translator, drafter, setting.decoder.name)
                one = quality_record(result, origin, tag, set_tag, translator, order, greedy, rival, notes)
                append_records(record, [one])
            if setting.file is not None:
                write_lines(setting.file, result.decoding.texts)
        if record is not None:
            say(f"{len(done)} records appended to {record}." if several else f"Record appended to {record}.")
    finally:  # what was found is told, though it could not be written
        if done:
            show(tag.name, [done[one.name] for one in line_up if one.name in done], rival, several, as_json)


def _entries(decoder: str | None, decoders: str | None) -> list[Entry] | None:
    """What --decoders names; none where there is one decoder, by --decoder or the model's own."""
    from longstride.bench.comparison import slug
    from longstride.cli.lineup import read_entries

    if decoders is None:
        return None
    if decoder is not None:
        raise OptionError(f"--decoder and --decoders expect one of them alone, found both ({decoder}, {decoders}).")
    entries = read_entries(decoders)
    files = [slug(entry.name) for entry in entries]
    twice = [entry.name for entry, file in zip(entries, files, strict=True) if files.count(file) > 1]
    if twice:
        raise OptionError(f"--decoders expects every setting once, found {twice[0]!r} several times.")
    return entries


def _check_unused(why: str, options: dict[str, Any]) -> None:
    for option, value in options.items():
        if value:
            raise OptionError(f"{why} and expects no {option}, found one.")


def _results(output: Path | None, record: Path | None, several: bool) -> tuple[Path | None, Path | None]:
    """Where results go; what could not be written, or holds something else, is refused before any work is done."""
    from longstride.bench.records import check_records

    if several and output is not None:
        if os.path.exists(output) and not output.is_dir():
            raise InputError(f"{output}: expected a folder for the outputs of --decoders, found a file.")
        texts: Path | None = result_folder(output)
        (file,) = result_files(record)
    else:
        texts, file = result_files(output, record)
    check_records(file)
    return texts, file


def _line_up(
    translator: Translator,
    asked: str | None,
    entries: Sequence[Entry] | None,
    shared: dict[str, Any],
    name: str | None,
    output: Path | None,
) -> list[Setting]:
    """Every setting with its decoder, which refuses bad options; of several, each with a file in the folder."""
    from longstride.bench.comparison import slug
    from longstride.cli.evaluation import Setting

    if entries is None:
        decoder, limits = translator.decoder(asked, **shared)
        return [Setting(name or decoder.name, asked, shared, decoder, limits, output)]
    found = []
    for entry in entries:
        options = {**shared, **entry.options}
        decoder, limits = translator.decoder(entry.decoder, **options)
        told = f"{name}, {entry.name}" if name else entry.name
        file = output / f"{slug(entry.name)}.txt" if output is not None else None
        found.append(Setting(told, entry.decoder, options, decoder, limits, file))
    return found


def _rival(against: Path | None, line_up: Sequence[Setting], lines: int, how: tuple[str, str, str]) -> Rival | None:
    """The other system, refused before any work is done: its outputs, or its model."""
    from longstride.cli.evaluation import Rival
    from longstride.text.corpus import read_lines

    if against is None:
        return None
    if against.is_dir() or str(against) == BUNDLED:
        translator = open_model(str(against), *how)
        for setting in line_up:
            translator.decoder(setting.asked, **setting.options)
        return Rival(str(against), translator)
    outputs = list(read_lines(against))
    if len(outputs) != lines:
        raise InputError(f"{against}: expected {lines} outputs, one per source line, found {len(outputs)}.")
    return Rival(str(against), outputs)
