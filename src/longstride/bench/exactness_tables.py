"""The table of exactness: outputs that are not greedy's, by precision, and what a row's bits depend on."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from longstride.bench.cells import NOTHING, Column, origin_note, with_notes
from longstride.bench.records import Agreement, Exactness, Record

PRECISIONS = ("fp64", "fp32", "fp16", "bf16", "int8")


def exactness_table(records: Sequence[Record]) -> str | None:
    """One row per decoder, model, test set and precision, the latest of each."""
    kept: dict[tuple[str, ...], Exactness] = {}
    found = [record for record in records if isinstance(record, Exactness)]
    for one in sorted(found, key=lambda record: record.origin.date):
        place = (one.origin.experiment, one.workload.name, one.model.name, one.candidate, one.precision, one.runtime)
        kept[(*place, one.origin.machine.device)] = one
    rows = sorted(kept.values(), key=_place)
    if not rows:
        return None
    devices = [one.origin.machine.device for one in rows]
    margins = any(one.width_one.mismatches for one in rows)
    probes = [one.place for one in rows]
    columns = [
        Column("decoder", [one.candidate for one in rows], numeric=False),
        Column("model", [one.model.name for one in rows], numeric=False),
        Column("test set", [one.workload.name for one in rows], numeric=False),
        Column("precision", [one.precision for one in rows], numeric=False),
        Column("runtime", [one.runtime for one in rows], numeric=False),
        Column("rows", [str(one.batch_size) for one in rows]),
        Column("differ, same shape", [_differ(one.same_shape) for one in rows]),
        Column("differ, width 1", [_differ(one.width_one) for one in rows]),
        Column("margin there: median", [_margin(one.width_one, statistics.median) for one in rows]),
        Column("largest", [_margin(one.width_one, max) for one in rows]),
        Column("moved rows", [f"{one.moved} of {one.rows}" if one else NOTHING for one in probes]),
        Column("other neighbours", [f"{one.neighbours} of {one.rows}" if one else NOTHING for one in probes]),
        Column("moved slots", [f"{one.slots:,} of {one.rows * one.width:,}" if one else NOTHING for one in probes]),
        Column("device", devices if len(set(devices)) > 1 else [], numeric=False),
    ]
    notes = [
        "Outputs that differ from greedy's, id by id: greedy by the decoder's own steps (same shape), and by steps of "
        "one token (width 1), which round otherwise.",
        "Margin: best less second-best log-probability where the outputs part." if margins else "",
        "Moved rows, other neighbours, moved slots: how many results of a verifying step changed in any bit when a row "
        "stood elsewhere in the table, when half of the other rows held other sentences, when a token was first in its "
        "step.",
        origin_note([one.origin for one in rows]),
    ]
    return with_notes(columns, notes)


def _place(one: Exactness) -> tuple[str, str, str, int, str, str, str]:
    """Test set by test set and model by model, from high precision to low."""
    wide = PRECISIONS.index(one.precision) if one.precision in PRECISIONS else len(PRECISIONS)
    device = one.origin.machine.device
    return one.workload.name, one.model.name, one.candidate, wide, one.precision, one.runtime, device


def _differ(one: Agreement) -> str:
    return f"{one.differing:,} of {one.sentences:,}"


def _margin(one: Agreement, of: Callable[[Sequence[float]], float]) -> str:
    margins = [mismatch.margin for mismatch in one.mismatches]
    return f"{of(margins):.4f}" if margins else NOTHING
