"""All tables of the draft-and-verify family: the papers' layouts, from quality records, with the papers' figures.

A table is made where a group of records (one experiment, one test set) has something to put into it, else left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from longstride.bench.blockwise_tables import blockwise_table, blockwise_variants
from longstride.bench.cells import NOTHING, Column, markdown
from longstride.bench.draft_settings import Setting
from longstride.bench.drafter_tables import block_sizes_table, drafters_table, methods_table, sweep_table
from longstride.bench.races import groups_of_one_precision
from longstride.bench.records import Quality, Record
from longstride.bench.sections import Section, Table, table_sections

__all__ = ["TABLES", "Section", "draft_sections", "places_table"]

PLACES = 10
"""of the block whose acceptance is shown"""


def draft_sections(records: Sequence[Record]) -> list[Section]:
    """All tables that these records have something to say in."""
    return [section for group in groups_of_one_precision(records) for section in table_sections(group, TABLES)]


def places_table(group: Sequence[Quality]) -> str | None:
    """Chance that a drafted token stands given that those before it did, for exact acceptance of the largest block."""
    found = [one for one in map(Setting.of, group) if one.exact and one.plain and one.k > 1]
    found = [one for one in found if one.record.counts is not None and one.record.counts.drafted]
    if len(found) < 2:
        return None
    rows = list({(one.decoder, one.model): one for one in sorted(found, key=lambda one: one.k)}.values())
    columns = [
        Column("decoder", [one.record.candidate for one in rows], numeric=False),
        Column("model", [one.model for one in rows], numeric=False),
    ]
    for place in range(PLACES):
        columns.append(Column(str(place + 1), [_chance(one, place) for one in rows]))
    return markdown(columns)


def _chance(one: Setting, place: int) -> str:
    counts = one.record.counts
    if counts is None or place >= len(counts.reached_at) or not counts.reached_at[place]:
        return NOTHING
    stood = counts.accepted_at[place] if place < len(counts.accepted_at) else 0
    return f"{stood / counts.reached_at[place]:.2f}"


TABLES: tuple[Table, ...] = (
    ("blockwise", "blockwise parallel decoding by block size", blockwise_table),
    ("blockwise-variants", "blockwise with other acceptance", blockwise_variants),
    ("drafts", "drafter and verifier", methods_table),
    ("sweep", "GAD++ by top-β and gap", sweep_table),
    ("block-sizes", "drafters by block size", block_sizes_table),
    ("drafters", "drafters by make", drafters_table),
    ("places", "chance that a drafted token stands, by its place in the block", places_table),
)
"""Name, title and maker of every table."""
