"""longstride contrastive: how often the right translation is more probable than a wrong one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli import options as shared
from longstride.cli.console import out, say
from longstride.cli.provenance import data_name, model_notes, model_tag, origin_of
from longstride.cli.streams import input_file, record_file
from longstride.contract import OptionError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.bench.records import Contrastive
    from longstride.tasks.contrastive import Accuracy, Cell


def contrastive(
    pairs: Annotated[
        Path,
        typer.Argument(
            help="A JSON list of objects with source, reference and errors: a list of objects with contrastive, type "
            "and distance, as in LingEval97."
        ),
    ],
    model: shared.Model = BUNDLED,
    decoder: shared.DecoderName = None,
    drafter: shared.DrafterFolder = None,
    runtime: shared.Runtime = "auto",
    precision: shared.Precision = "auto",
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    as_json: shared.AsJson = False,
    record: shared.Record = None,
    name: shared.Name = None,
    experiment: shared.Experiment = None,
    workload: shared.Workload = None,
) -> None:
    """Score contrastive pairs: is the right translation more probable than a wrong one?

    The reference has to have the higher log-probability, as a whole and not per token. Nothing is translated.
    Accuracies come for all pairs, by type of error and by distance; a table on a terminal, JSON otherwise.
    """
    from longstride.bench.record_files import appended
    from longstride.bench.record_parts import WorkloadTag
    from longstride.bench.records import Contrastive
    from longstride.cli.evaluation import score_pairs
    from longstride.tasks.contrastive import accuracy, contrast, pairs_of, read_contrastive
    from longstride.text.files import file_sha256

    record = record_file(record, name)
    pairs = input_file(pairs)
    entries = read_contrastive(pairs)
    translator = shared.open_model(model, runtime, precision, device, drafter, threads)
    likelihood = translator.likelihood(decoder)
    if likelihood is None:
        found = decoder or ", ".join(translator.decoders)
        raise OptionError(f"contrastive expects a model that can score given translations, found one for {found}.")
    runner = likelihood.runner.plain
    if runtime == "auto":
        say(f"Carried out by {runner.describe()}.")
    scored = score_pairs(translator, likelihood, pairs_of(entries), str(pairs))
    cells = contrast(entries, scored.totals)
    tokenizer = translator.target_tokenizer.sha256[:12]
    tag = model_tag(translator, drafter)
    result = Contrastive(
        origin=origin_of(experiment or tag.name, translator),
        candidate=name or decoder or translator.decoders[0],
        model=tag,
        workload=WorkloadTag(workload or data_name(pairs), file_sha256(pairs), accuracy(cells).pairs),
        signature=f"contrastive|log-probability|ties:wrong|{scored.factorisation.signature}tokenizer:{tokenizer}",
        cells=cells,
        precision=runner.precision,
        runtime=runner.name,
        notes=model_notes(translator, drafter),
    )
    with appended(record, [result]):
        if as_json or not out.is_terminal:
            sys.stdout.write(json.dumps(_json(result), ensure_ascii=False, indent=2) + "\n")
        else:
            _tell(result)
    if record is not None:
        say(f"Record appended to {record}.")


def _json(one: Contrastive) -> dict[str, Any]:
    from longstride.tasks.contrastive import by_type

    of_type = {found.name: [cell for cell in one.cells if cell.type == found.name] for found in by_type(one.cells)}
    types = {name: _figures(cells) for name, cells in of_type.items()}
    return {"model": one.model.name, "signature": one.signature, **_figures(one.cells), "by_type": types}


def _figures(cells: Sequence[Cell]) -> dict[str, Any]:
    from longstride.tasks.contrastive import accuracy, by_distance

    def figures(found: Accuracy) -> dict[str, Any]:
        return {"pairs": found.pairs, "right": found.right, "accuracy": found.percent}

    return {**figures(accuracy(cells)), "by_distance": {found.name: figures(found) for found in by_distance(cells)}}


def _tell(one: Contrastive) -> None:
    from rich.markup import escape
    from rich.table import Table

    from longstride.tasks.contrastive import Accuracy, accuracy, by_distance, by_type

    out.print(f"{one.model.name}, {one.signature}", markup=False)
    table = Table(box=None, padding=(0, 2))
    for heading in ("pairs", "number", "right", "%"):
        table.add_column(heading, justify="left" if heading == "pairs" else "right")
    rows = [accuracy(one.cells), *by_type(one.cells)]
    rows += [Accuracy(f"distance {found.name}", found.pairs, found.right) for found in by_distance(one.cells)]
    for found in rows:
        table.add_row(escape(found.name), f"{found.pairs:,}", f"{found.right:,}", f"{found.percent:.2f}")
    out.print(table)
