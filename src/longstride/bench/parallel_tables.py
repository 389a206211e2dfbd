"""All tables and charts of interleaved and lattice decoding, each where its records are, else left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longstride.bench.interleaved_figures import batches_sections, lengths_section, words_section
from longstride.bench.interleaved_tables import ablations_table, models_table, perplexity_table, students_table
from longstride.bench.lattice_figures import curve_sections
from longstride.bench.lattice_tables import candidates_table, depths_section, windows_table
from longstride.bench.races import quality_groups, slug
from longstride.bench.records import Quality, Record
from longstride.bench.sections import Section

TABLES: tuple[tuple[str, str, Callable[[Sequence[Quality], Sequence[Record]], str | None]], ...] = (
    ("interleaved", "directions and words per step", models_table),
    ("ablations", "what each idea of interleaving is worth", ablations_table),
    ("factorisations", "perplexity by order and words per step", perplexity_table),
    ("students", "shallow decoders", students_table),
    ("lattice-windows", "lattices by K and length window", windows_table),
    ("lattice-candidates", "lattices by K and data", candidates_table),
)
"""Name, title and maker of every table."""


def parallel_sections(records: Sequence[Record]) -> list[Section]:
    """All that these records have something to say in."""
    found: list[Section | None] = []
    for group in quality_groups(records):
        experiment, workload = group[0].origin.experiment, group[0].workload.name
        place = slug(f"{experiment} {workload}")
        for name, title, make in TABLES:
            text = make(group, records)
            if text is not None:
                found.append(Section(f"{name}/{place}", f"{experiment}: {title}, {workload}", text))
        found.append(lengths_section(group, place, f"{experiment}: quality by source length, {workload}"))
        found.append(words_section(group, place, f"{experiment}: words per direction and step, {workload}"))
        depths = f"{experiment}: depth of scorer and one-pass model, {workload}"
        found.append(depths_section(group, records, place, depths))
    found += [*batches_sections(records), *curve_sections(records)]
    return [section for section in found if section is not None]
