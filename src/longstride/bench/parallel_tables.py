"""All tables and charts of interleaved and lattice decoding, each where its records are, else left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from longstride.bench.interleaved_figures import batches_sections, lengths_section, words_section
from longstride.bench.interleaved_links import links_table
from longstride.bench.interleaved_tables import ablations_table, models_table, perplexity_table, students_table
from longstride.bench.lattice_figures import curve_sections
from longstride.bench.lattice_tables import candidates_table, depths_section, windows_table
from longstride.bench.races import groups_of_one_precision
from longstride.bench.records import Record
from longstride.bench.sections import Section, Table, table_sections

TABLES: tuple[Table, ...] = (
    ("ablations", "what each idea of interleaving is worth", ablations_table),
    ("factorisations", "perplexity by order and words per step", perplexity_table),
    ("students", "shallow decoders", students_table),
    ("interleaved-links", "links between the words of a step", links_table),
    ("lattice-windows", "lattices by K and length window", windows_table),
    ("lattice-candidates", "lattices by K and data", candidates_table),
)
"""Name, title and maker of every table that is made of its group alone."""


def parallel_sections(records: Sequence[Record]) -> list[Section]:
    """All that these records have something to say in."""
    found: list[Section | None] = []
    models: Table = ("interleaved", "directions and words per step", partial(models_table, records=records))
    for group in groups_of_one_precision(records):
        found += table_sections(group, [models, *TABLES])
        found += [lengths_section(group), words_section(group), depths_section(group, records)]
    found += [*batches_sections(records), *curve_sections(records)]
    return [section for section in found if section is not None]
