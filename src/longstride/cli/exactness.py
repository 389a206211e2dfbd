"""longstride exactness: every verifying decoder's ids beside greedy's, by its own steps and by steps of one token."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli import options as shared
from longstride.cli.console import Stages, out, say
from longstride.cli.provenance import data_name, model_notes, model_tag, origin_of
from longstride.cli.streams import input_file, record_file
from longstride.cli.test_sets import read_material
from longstride.contract import InputError, OptionError, WorkError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.bench.record_parts import Agreement
    from longstride.bench.records import Exactness
    from longstride.cli.lineup import Entry, Setting
    from longstride.contract import Decoder, Limits
    from longstride.translator import Translator


def exactness(
    source: shared.Source,
    reference: Annotated[
        list[Path] | None,
        typer.Option("-r", "--reference", help="References, which only make the test set known again in records."),
    ] = None,
    model: shared.Model = BUNDLED,
    task: shared.Task = "translation",
    decoder: Annotated[
        str | None,
        typer.Option(
            autocompletion=shared.decoder_names,
            help="A decoder that verifies drafts (default: each of the model's whose output is to be greedy's).",
        ),
    ] = None,
    decoders: shared.Settings = None,
    set: shared.Set = None,
    drafter: shared.DrafterFolder = None,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    batch: shared.Batch = 32,
    record: shared.Record = None,
    name: shared.Name = None,
    experiment: shared.Experiment = None,
    workload: shared.Workload = None,
) -> None:
    """Compare lossless decoders' outputs with greedy's, id by id.

    Drafts are as long as the model folder says for so many rows. Once with greedy carried out by the decoder's own
    steps, where nothing may differ: exit 1 where something does. Once with greedy by steps of one token, whose products
    have other shapes and may round otherwise.
    """
    options, reads = shared.settings(set), [source, *(reference or ())]
    shared.check_asked(model, drafter, runtime=runtime, precision=precision, reads=reads)
    from longstride.bench.exactness import agreement, outputs_of
    from longstride.bench.record_files import appended
    from longstride.bench.records import Exactness
    from longstride.cli.lineup import read_settings
    from longstride.verification.exactness import SameShapeGreedy, margins, probe_batch_invariance, verifying

    entries = read_settings(decoder, decoders)
    record = record_file(record, name)
    source = input_file(source)
    material = read_material(task, source, [input_file(one) for one in reference or ()], scored=False)
    translator = shared.open_model(model, runtime, precision, device, drafter, threads)
    line_up = _line_up(translator, decoder, entries, options, name, batch)
    for one in line_up:  # refuse what promises nothing before any work
        verifying(one.decoder, 1, one.limits, 2)
    test_set = material.workload(translator, workload or data_name(source))
    tag = model_tag(translator, drafter)
    origin = origin_of(experiment or tag.name, translator)
    sentences = [place for place, ids in enumerate(test_set.sources) if len(ids) > 1]
    if not sentences:
        raise InputError(f"{source}: expected at least one sentence to translate, found none.")
    narrow = _width_one(translator)
    expected: dict[Limits, dict[int, tuple[int, ...]]] = {}
    broken = []
    for one in line_up:
        limits = one.limits
        margin = partial(margins, one.decoder, limits=limits)
        with Stages() as shown:
            if limits not in expected:
                expected[limits] = outputs_of(narrow, limits, test_set, sentences, batch, shown.to)
            found = outputs_of(one.decoder, limits, test_set, sentences, batch, shown.to)
            twin = SameShapeGreedy(one.decoder)
            same = outputs_of(twin, limits, test_set, sentences, batch, shown.to)
            places = probe_batch_invariance(one.decoder, test_set.source(sentences[:batch]), limits)
        result = Exactness(
            origin=origin,
            candidate=one.name,
            decoder=one.decoder.signature,
            model=tag,
            workload=test_set.tag,
            batch_size=batch,
            same_shape=agreement(found, same, twin.signature, test_set, margin),
            width_one=agreement(found, expected[limits], narrow.signature, test_set, margin),
            device=str(translator.runner.device),
            precision=translator.runner.precision,
            runtime=translator.runner.name,
            limits=limits,
            place=places,
            options=one.options,
            notes=model_notes(translator, drafter),
        )
        with appended(record, [result]):
            _tell(result)
        if result.same_shape.differing:
            broken.append(one.name)
    shared.say_report(translator, runtime=runtime)
    if record is not None:
        say(f"{len(line_up)} records appended to {record}.")
    if broken:
        raise WorkError(f"Expected greedy's output at the same step shape, found another by {', '.join(broken)}.")


def _line_up(
    translator: Translator,
    asked: str | None,
    entries: list[Entry] | None,
    told: dict[str, Any],
    name: str | None,
    rows: int,
) -> list[Setting]:
    """Every setting that was asked for, or that the model has; each with a draft of one length, which is compared."""
    from longstride.cli.lineup import Entry, settings_of

    if asked is None and entries is None:
        found = _lossless(translator)
        asked, entries = (found[0], None) if len(found) == 1 else (None, [Entry(each, {}) for each in found])
    settings = settings_of(translator, asked, entries, told, name)
    steady = []
    for one in settings:
        more = _one_length(one, rows)
        decoder, limits = translator.decoder(one.asked, **one.options, **more)
        steady.append(replace(one, decoder=decoder, limits=limits, options={**one.options, **more}))
    return steady


def _lossless(translator: Translator) -> list[str]:
    """The model's decoders that draft and whose output is to be greedy's; a model that has none is refused."""
    from longstride.registry import DECODERS

    found = [name for name in translator.decoders if DECODERS[name].lossless]
    if not found:
        further = [name for name in translator.possible if DECODERS[name].lossless]
        named = f"; --decoder names one that it can do besides ({', '.join(further)})" if further else ""
        raise OptionError(
            f"{translator.folder.path}: expected a decoder that drafts and promises greedy's output, found "
            f"{', '.join(translator.decoders)}{named}."
        )
    return found


def _one_length(one: Setting, rows: int) -> dict[str, Any]:
    """Where the model folder lets drafts be as long as is fastest: what it says for so many rows. Where drafts do not
    pay they are lossless all the same."""
    options: Any = getattr(one.decoder, "options", None)
    more: dict[str, Any] = {}
    if getattr(options, "adaptive", False) and "adaptive" not in one.options:
        more["adaptive"] = False
    if (policy := getattr(options, "lengths", None)) is not None and "lengths" not in one.options:
        more["lengths"] = None
        if nodes := policy.nodes(rows):
            more["tree"] = nodes
        elif options.k is not None:
            more["k"] = policy.length(rows, options.k) or options.k
    return more


def _width_one(translator: Translator) -> Decoder:
    """Greedy by steps of one slot; of a model with a learned first head, that head alone."""
    if "greedy" in translator.decoders:
        return translator.decoder("greedy")[0]
    return translator.decoder("blockwise", k=1)[0]


def _tell(one: Exactness) -> None:
    place = one.place
    assert place is not None
    lines = (
        f"{one.candidate}, {one.precision}, {one.batch_size} rows",
        f"  same step shape: {_words(one.same_shape)}",
        f"  steps of one token: {_words(one.width_one)}",
        f"  rows that change when moved: {place.moved} of {place.rows}; with other neighbours: {place.neighbours} of "
        f"{place.rows}; slots that change with their place: {place.slots} of {place.rows * place.width}",
    )
    for line in lines:
        out.print(line, markup=False)


def _words(found: Agreement) -> str:
    text = f"{found.differing:,} of {found.sentences:,} differ from greedy"
    if found.mismatches:
        text += f", largest margin {max(one.margin for one in found.mismatches):.4f}"
    return text
