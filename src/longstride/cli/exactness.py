"""The exactness part of longstride evaluate: every verifying decoder beside greedy, by its own steps and by width 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longstride.bench.exactness import agreement, outputs_of
from longstride.bench.records import Agreement, Exactness, ModelTag, Origin, WorkloadTag, append_records
from longstride.bench.workload import Workload
from longstride.cli.console import out, say, stages
from longstride.cli.evaluation import Setting
from longstride.contract import Decoder, Limits, Source, WorkError
from longstride.translator import Translator
from longstride.verification.places import probe_places
from longstride.verification.twin import SameSteps, margins, verifying


def measure_exactness(
    translator: Translator,
    line_up: Sequence[Setting],
    workload: Workload,
    batch: int,
    origin: Origin,
    model: ModelTag,
    notes: dict[str, Any],
    record: Path | None,
) -> None:
    """Measure, record and tell; a difference from greedy at the same step shape is an error once all is recorded."""
    for setting in line_up:  # refuse what promises nothing before any work
        verifying(setting.decoder, 1, setting.limits, 2)
    sentences = [place for place, source in enumerate(workload.sources) if len(source) > 1]
    expected: dict[Limits, dict[int, tuple[int, ...]]] = {}
    broken = []
    for setting in line_up:
        decoder, limits = setting.decoder, setting.limits
        narrow = _width_one(translator)

        def margin(source: Source, prefixes: Sequence[Sequence[int]], setting: Setting = setting) -> list[float]:
            return margins(setting.decoder, source, prefixes, setting.limits)

        with stages() as shown:
            if limits not in expected:
                expected[limits] = outputs_of(narrow, limits, workload, sentences, batch, shown.to)
            found = outputs_of(decoder, limits, workload, sentences, batch, shown.to)
            twin = SameSteps(decoder)
            same = outputs_of(twin, limits, workload, sentences, batch, shown.to)
            probe = Source.of([workload.sources[place] for place in sentences[:batch]])
            places = probe_places(decoder, probe, limits)
        one = Exactness(
            origin=origin,
            candidate=setting.name,
            decoder=decoder.signature,
            model=model,
            workload=WorkloadTag(workload.name, workload.data_hash, workload.size),
            batch_size=batch,
            same_shape=agreement(found, same, twin.signature, workload, margin),
            width_one=agreement(found, expected[limits], narrow.signature, workload, margin),
            device=str(translator.runner.device),
            precision=translator.runner.precision,
            runtime=translator.runner.name,
            limits=limits,
            place=places,
            options=setting.options,
            notes=notes,
        )
        _tell(one)
        if record is not None:
            append_records(record, [one])
        if one.same_shape.differing:
            broken.append(setting.name)
    if record is not None:
        say(f"{len(line_up)} records appended to {record}.")
    if broken:
        raise WorkError(f"Expected greedy's output at the same step shape, found another by {', '.join(broken)}.")


def _width_one(translator: Translator) -> Decoder:
    """Greedy by steps of one slot; of a model with a learned first head, that head alone."""
    if "greedy" in translator.decoders:
        return translator.decoder("greedy")[0]
    return translator.decoder("blockwise", k=1)[0]


def _tell(one: Exactness) -> None:
    out.print(f"{one.candidate}, {one.precision}, {one.batch_size} rows", markup=False)
    out.print(f"  same step shape: {_words(one.same_shape)}", markup=False)
    out.print(f"  steps of one token: {_words(one.width_one)}", markup=False)
    place = one.place
    assert place is not None
    out.print(
        f"  rows that change when moved: {place.moved} of {place.rows}; with other neighbours: {place.neighbours} of "
        f"{place.rows}; slots that change with their place: {place.slots} of {place.rows * place.width}",
        markup=False,
    )


def _words(found: Agreement) -> str:
    text = f"{found.differing:,} of {found.sentences:,} differ from greedy"
    if found.mismatches:
        text += f", largest margin {max(one.margin for one in found.mismatches):.4f}"
    return text
