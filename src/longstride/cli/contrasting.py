"""The contrastive part of longstride evaluate: how often the right translation is more probable than a wrong one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from longstride.bench.records import Contrastive, ModelTag, Origin, WorkloadTag, append_records
from longstride.cli.assessing import score_pairs
from longstride.cli.console import out, say
from longstride.cli.provenance import data_name
from longstride.contract import OptionError
from longstride.tasks.contrastive import Accuracy, Cell, Entry, accuracy, by_distance, by_type, contrast, pairs_of
from longstride.text.files import file_sha256
from longstride.translator import Translator


def measure_contrast(
    translator: Translator,
    decoder: str | None,
    file: Path,
    entries: Sequence[Entry],
    names: tuple[str | None, str | None],
    origin: Origin,
    model: ModelTag,
    notes: dict[str, Any],
    record: Path | None,
    as_json: bool,
) -> None:
    """Score all pairs, record and tell; `names` are those of candidate and test set in the record, if given."""
    likelihood = translator.likelihood(decoder)
    if likelihood is None:
        found = decoder or ", ".join(translator.decoders)
        raise OptionError(f"--contrastive expects a model that can score given translations, found one for {found}.")
    scored = score_pairs(translator, likelihood, pairs_of(entries), str(file))
    cells = contrast(entries, scored.totals)
    tokenizer = translator.target_tokenizer.sha256[:12]
    one = Contrastive(
        origin=origin,
        candidate=names[0] or decoder or translator.decoders[0],
        model=model,
        workload=WorkloadTag(names[1] or data_name(file), file_sha256(file), accuracy(cells).pairs),
        signature=f"contrastive|log-probability|ties:wrong|{scored.factorisation.signature}tokenizer:{tokenizer}",
        cells=cells,
        precision=translator.runner.precision,
        runtime=translator.runner.name,
        notes=notes,
    )
    if as_json or not out.is_terminal:
        sys.stdout.write(json.dumps(_json(one), ensure_ascii=False, indent=2) + "\n")
    else:
        _tell(one)
    if record is not None:
        append_records(record, [one])
        say(f"Record appended to {record}.")


def _json(one: Contrastive) -> dict[str, Any]:
    of_type = {name: [cell for cell in one.cells if cell.type == name] for name in _types(one.cells)}
    return {
        "model": one.model.name,
        "signature": one.signature,
        **_figures(accuracy(one.cells)),
        "by_distance": {found.name: _figures(found) for found in by_distance(one.cells)},
        "by_type": {
            name: {
                **_figures(accuracy(cells)),
                "by_distance": {found.name: _figures(found) for found in by_distance(cells)},
            }
            for name, cells in of_type.items()
        },
    }


def _figures(found: Accuracy) -> dict[str, Any]:
    return {"pairs": found.pairs, "right": found.right, "accuracy": found.percent}


def _types(cells: Sequence[Cell]) -> list[str]:
    return [found.name for found in by_type(cells)]


def _tell(one: Contrastive) -> None:
    out.print(f"{one.model.name}, {one.signature}", markup=False)
    table = Table(box=None, padding=(0, 2))
    for heading in ("pairs", "number", "right", "%"):
        table.add_column(heading, justify="left" if heading == "pairs" else "right")
    rows = [accuracy(one.cells), *by_type(one.cells)]
    rows += [Accuracy(f"distance {found.name}", found.pairs, found.right) for found in by_distance(one.cells)]
    for found in rows:
        table.add_row(found.name, f"{found.pairs:,}", f"{found.right:,}", f"{found.percent:.2f}")
    out.print(table)
