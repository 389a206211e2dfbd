"""longstride evaluate: how good a model's translations are, and whether they are better than another's."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli import options as shared
from longstride.cli.console import out, say
from longstride.cli.provenance import data_name, model_notes, model_tag, origin_of
from longstride.cli.streams import input_file, keep_what_is_read, record_file, result_files, result_folder
from longstride.cli.test_sets import read_material
from longstride.contract import InputError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.cli.evaluation import Evaluation, Rival
    from longstride.cli.lineup import Setting
    from longstride.tasks.score import Score
    from longstride.translator import Translator


def evaluate(
    source: shared.Source,
    reference: shared.References,
    model: shared.Model = BUNDLED,
    task: shared.Task = "translation",
    decoder: shared.DecoderName = None,
    decoders: shared.Settings = None,
    set: shared.Set = None,
    drafter: shared.DrafterFolder = None,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    batch: shared.Batch = 32,
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
    as_json: shared.AsJson = False,
    record: shared.Record = None,
    name: shared.Name = None,
    experiment: shared.Experiment = None,
    workload: shared.Workload = None,
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
    tokenized: Annotated[
        bool,
        typer.Option(
            "--tokenized",
            help="Also BLEU over words between white space (tok:none), for text that is tokenized already: what "
            "papers print as tokenized BLEU.",
        ),
    ] = False,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Also a 95 % interval of every score, by bootstrap.")
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
) -> None:
    """Score a model's translations (or corrections, or summaries) of a test set.

    BLEU and chrF are sacreBLEU's, each with its signature. Corrections are scored with GLEU, over words between white
    space: sources, outputs and references must be tokenized alike, as JFLEG is. Summaries are scored with ROUGE-L, -1
    and -2 (F1; needs the extra `summarization`). Repetition is the share of words, in
    percent, that equal the word right before them. Perplexity is exp of the mean negative log-likelihood of the
    references' tokens (the model's own, end of sentence included), in whatever order the model writes them; of several
    references, of the first. A table on a terminal, JSON otherwise: one object, or a list for --decoders, where
    differences are from greedy's if that is among them.
    """
    options = shared.settings(set)
    shared.check_asked(model, drafter, runtime=runtime, precision=precision, reads=[source, *reference])
    from longstride.bench.record_files import append_records
    from longstride.cli.evaluation import Analyses, evaluations, quality_record
    from longstride.cli.lineup import greedy_among, read_settings, settings_of
    from longstride.text.corpus import write_lines

    several = decoders is not None
    entries = read_settings(decoder, decoders)
    if several and output is not None:
        if os.path.exists(output) and not output.is_dir():
            raise InputError(f"{output}: expected a folder for the outputs of --decoders, found a file.")
        result_folder(output)
    else:
        output, _ = result_files(output, record)
        keep_what_is_read("--output", output, source, *reference, against)
    record = record_file(record, name)
    source, against = input_file(source), input_file(against)
    reference = [input_file(one) for one in reference]
    material = read_material(task, source, reference)
    translator = shared.open_model(model, runtime, precision, device, drafter, threads)
    line_up = settings_of(translator, decoder, entries, options, name, output)

    def other(folder: str) -> Translator:
        return shared.open_model(folder, runtime, precision, device, None, threads)

    rival = _rival(against, line_up, len(material.pairs), other)
    base = other(mutual_information) if mutual_information is not None else None
    analyses = Analyses(exact_match, over_translation, by_length, base, mutual_information or "", tokenized, intervals)
    analyses.check(translator, len(material.pairs))
    test_set = material.workload(translator, workload or data_name(source))
    tag = model_tag(translator, drafter)
    origin = origin_of(experiment or tag.name, translator)
    greedy = greedy_among([(one.name, one.decoder) for one in line_up]) if several else None
    done: dict[str, Evaluation] = {}
    files = (str(source), str(reference[0]))
    try:
        for result in evaluations(translator, line_up, greedy, material, batch, files, rival, analyses):
            setting = result.setting
            done[setting.name] = result
            if record is not None:
                about = {"origin": origin, "model": tag, "workload": test_set.tag}
                notes = model_notes(translator, drafter, setting.decoder.name)
                order = line_up.index(setting)
                append_records(record, [quality_record(result, translator, order, greedy, rival, notes=notes, **about)])
            if setting.file is not None:
                write_lines(setting.file, result.decoding.texts)
        also = [rival.system] if rival is not None and not isinstance(rival.system, list) else []
        shared.say_report(translator, *also, runtime=runtime)
        if record is not None:
            say(f"{len(done)} records appended to {record}." if several else f"Record appended to {record}.")
    finally:  # what was found is told, though it could not be written
        if done:
            _show(tag.name, [done[one.name] for one in line_up if one.name in done], rival, several, as_json)


def _rival(
    against: Path | None, line_up: Sequence[Setting], lines: int, opened: Callable[[str], Translator]
) -> Rival | None:
    """The other system, refused before any work is done: its outputs, or its model."""
    from longstride.cli.evaluation import Rival
    from longstride.text.corpus import read_lines

    if against is None:
        return None
    if against.is_dir() or str(against) == BUNDLED:
        translator = opened(str(against))
        for setting in line_up:
            translator.decoder(setting.asked, **setting.options)
        return Rival(str(against), translator)
    outputs = list(read_lines(against))
    if len(outputs) != lines:
        raise InputError(f"{against}: expected {lines} outputs, one per source line, found {len(outputs)}.")
    return Rival(str(against), outputs)


def _show(model: str, results: Sequence[Evaluation], rival: Rival | None, several: bool, as_json: bool) -> None:
    """One object (a list for several) where no person looks on, tables otherwise."""
    if as_json or not out.is_terminal:
        found = [_json(model, result, rival) for result in results]
        sys.stdout.write(json.dumps(found if several else found[0], ensure_ascii=False, indent=2) + "\n")
        return
    if several:
        _overview(model, results)
    else:
        _details(model, results[0])
    for result in results:
        told = f"{result.setting.name}: " if several else ""
        for one in result.comparisons:
            assert rival is not None
            out.print(
                f"{told}{one.metric} {one.difference:+.2f} over {rival.name} ({one.baseline:.2f}), 95 % interval "
                f"{one.low:+.2f} to {one.high:+.2f}, p = {one.p_value:.3f}",
                markup=False,
            )
    for result in results:
        told = f"{result.setting.name}: " if several else ""
        for each in result.intervals:
            out.print(
                f"{told}{each.metric} {each.value:.2f}, 95 % interval {each.low:.2f} to {each.high:.2f}", markup=False
            )
    for result in results:
        _by_length(result, f"{result.setting.name}, " if several else "")


def _json(model: str, result: Evaluation, rival: Rival | None) -> dict[str, Any]:
    decoding, setting = result.decoding, result.setting
    found: dict[str, Any] = {
        "model": model,
        "name": setting.name,
        "decoder": setting.decoder.signature,
        "sentences": len(decoding.texts),
        "scores": [
            {**asdict(score), "value": score.value if math.isfinite(score.value) else None} for score in result.scores
        ],
        "seconds": round(decoding.seconds, 3),
        "sentences_per_second": round(len(decoding.texts) / max(decoding.seconds, 1e-9), 2),
    }
    if decoding.counts is not None:
        found["iterations"] = decoding.counts.iterations
        found["tokens_per_iteration"] = decoding.counts.tokens_per_iteration
        found["mean_block"] = result.mean_block
    if result.equality is not None:
        found["differ_from_greedy"] = result.equality.differing
    if rival is not None:
        found["against"] = {"system": rival.name, "comparisons": [asdict(one) for one in result.comparisons]}
    if result.intervals:
        found["intervals"] = [asdict(one) for one in result.intervals]
    if result.by_length:
        found["by_length"] = [asdict(one) for one in result.by_length]
    if result.information is not None:
        found["mutual_information"] = {**asdict(result.information), "log10": result.information.log10}
    return found


def _details(model: str, result: Evaluation) -> None:
    from rich.table import Table

    out.print(f"{model}, {result.setting.decoder.signature}", markup=False)
    table = Table(box=None, padding=(0, 2))
    for heading in ("score", "value", "signature"):
        table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
    for score in result.scores:
        table.add_row(score.name, _number(score), score.signature)
    out.print(table)
    decoding = result.decoding
    speed = len(decoding.texts) / max(decoding.seconds, 1e-9)
    line = f"{len(decoding.texts):,} sentences in {decoding.seconds:.1f} s, {speed:,.1f} a second"
    if decoding.counts is not None and decoding.counts.iterations:
        line += f"; {decoding.counts.tokens_per_iteration:.2f} tokens per iteration"
    out.print(line, markup=False)


def _overview(model: str, results: Sequence[Evaluation]) -> None:
    from rich.markup import escape
    from rich.table import Table

    out.print(f"{model}, {len(results[0].decoding.texts):,} sentences", markup=False)
    table = Table(box=None, padding=(0, 2))
    table.add_column("decoder")
    names = [score.name for score in results[0].scores]
    for heading in (*names, "tokens/iteration", "mean block", "differ from greedy"):
        table.add_column(heading, justify="right")
    for result in results:
        counts, same = result.decoding.counts, result.equality
        table.add_row(
            escape(result.setting.name),
            *(_number(score) for score in result.scores),
            f"{counts.tokens_per_iteration:.2f}" if counts and counts.iterations else "",
            f"{result.mean_block:.2f}" if result.mean_block is not None else "",
            f"{same.differing:,}" if same else "",
        )
    out.print(table)
    for score in results[0].scores:
        out.print(f"{score.name}: {score.signature}", markup=False)


def _by_length(result: Evaluation, name: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    if not result.by_length:
        return
    table = Table(box=None, padding=(0, 2), title=f"{escape(name)}by source length", title_justify="left")
    for heading in ("tokens", "sentences", *(score.name for score in result.by_length[0].scores)):
        table.add_column(heading, justify="right")
    for one in result.by_length:
        table.add_row(f"{one.shortest}-{one.longest}", f"{one.sentences:,}", *(_number(score) for score in one.scores))
    out.print(table)


def _number(score: Score) -> str:
    """Two places, three for what is small: mutual information is."""
    return f"{score.value:.3f}" if abs(score.value) < 1 else f"{score.value:.2f}"
