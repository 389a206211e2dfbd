"""Tables of further analyses: quality by source length, mutual information, contrastive pairs.

Each is made where some record has something to put into it, and left out otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from longstride.bench.cells import NOTHING, Column, origin_note, with_notes
from longstride.bench.paper_figures import MUTUAL_INFORMATION
from longstride.bench.races import groups_of_one_precision
from longstride.bench.records import Contrastive, Quality, Record
from longstride.bench.sections import Place, Section, Table, table_sections
from longstride.tasks.contrastive import FAR, Cell, accuracy, by_distance, by_type
from longstride.tasks.mutual_information import MutualInformation


def analysis_sections(records: Sequence[Record]) -> list[Section]:
    """All tables that these records have something to say in."""
    found = [section for group in groups_of_one_precision(records) for section in table_sections(group, TABLES)]
    return found + _contrastive_sections(records)


def by_length_table(group: Sequence[Quality]) -> str | None:
    """The leading score of every bin, from short to long sources; a table's bins are those of its first record."""
    rows = [one for one in group if one.by_length and all(part.scores for part in one.by_length)]
    if not rows:
        return None
    limits = [(part.shortest, part.longest) for part in rows[0].by_length]
    rows = [one for one in rows if [(part.shortest, part.longest) for part in one.by_length] == limits]
    score = rows[0].by_length[0].scores[0]
    rows = [one for one in rows if one.by_length[0].scores[0].signature == score.signature]
    columns = _head(rows)
    for number, (shortest, longest) in enumerate(limits):
        values = [one.by_length[number].scores[0].value for one in rows]
        columns.append(Column(f"{shortest}-{longest}", [f"{value:.2f}" for value in values]))
    sizes = sorted({part.sentences for part in rows[0].by_length})
    notes = [
        f"{score.name} (`{score.signature}`) by source tokens, in bins of {' or '.join(map(str, sizes))} sentences.",
        origin_note([one.origin for one in rows]),
    ]
    return with_notes(columns, notes)


def mutual_information_table(group: Sequence[Quality]) -> str | None:
    """Perplexities with and without independence, their ratio in nats and to base 10, and the paper's.

    A model has them, however it is decoded.
    """
    every = [(one, one.mutual_information) for one in group if one.mutual_information is not None]
    if not every:
        return None
    rows = list({(one.model, information): (one, information) for one, information in reversed(every)}.values())[::-1]
    found = [information for _, information in rows]
    columns = [
        Column("model", [one.model.name for one, _ in rows], numeric=False),
        Column("order", [one.order for one in found], numeric=False),
        Column("words per step", [str(one.together) for one in found]),
        Column("perplexity", [f"{one.perplexity:.2f}" for one in found]),
        Column("one word per step", [f"{one.base_perplexity:.2f}" for one in found]),
        Column("PMI, nats", [f"{one.nats:+.3f} ({one.low:+.3f} to {one.high:+.3f})" for one in found]),
        Column("PMI, log10", [f"{one.log10:+.3f}" for one in found]),
        Column("paper, log10", [_in_paper(one) for one in found]),
    ]
    notes = [
        "Point-wise mutual information per token between words that are predicted independently, estimated as "
        "log-perplexity less that of a model of the same order with one word per step; 95 % interval over draws of the "
        "test set.",
        origin_note([one.origin for one, _ in rows]),
    ]
    return with_notes(columns, notes)


TABLES: tuple[Table, ...] = (
    ("by-length", "quality by source length, every setting", by_length_table),
    ("mutual-information", "mutual information of words predicted independently", mutual_information_table),
)


def contrastive_table(group: Sequence[Contrastive]) -> str:
    """Accuracy of every model over all pairs and over each type of error, and by distance."""
    rows = [(one, name, cells) for one in group for name, cells in _kinds(one.cells)]
    precisions = {one.precision for one in group}
    columns = [
        Column("model", [one.model.name for one, _, _ in rows], numeric=False),
        Column("scored by", [one.candidate for one, _, _ in rows], numeric=False),
        Column("precision", [one.precision for one, _, _ in rows] if len(precisions) > 1 else [], numeric=False),
        Column("error", [name for _, name, _ in rows], numeric=False),
        Column("pairs", [f"{accuracy(cells).pairs:,}" for _, _, cells in rows]),
        Column("right, %", [f"{accuracy(cells).percent:.1f}" for _, _, cells in rows]),
    ]
    near = [{found.name: f"{found.percent:.1f}" for found in by_distance(cells)} for _, _, cells in rows]
    for name in [*map(str, range(FAR + 1)), f">{FAR}"]:
        columns.append(Column(f"at {name}", [one.get(name, NOTHING) for one in near]))
    notes = [
        "How often the reference is more probable than the same sentence with an error in it; at: by distance in words "
        "between what the error is about.",
        ". ".join(dict.fromkeys(f"`{one.signature}`" for one in group)) + ".",
        origin_note([one.origin for one in group]),
    ]
    return with_notes(columns, notes)


def _contrastive_sections(records: Sequence[Record]) -> list[Section]:
    """By experiment and file of pairs; of each candidate, model and precision the latest."""
    groups: dict[Place, dict[tuple[str, str, str], Contrastive]] = {}
    for one in sorted((one for one in records if isinstance(one, Contrastive)), key=lambda one: one.origin.date):
        place = Place(one.origin.experiment, one.workload.name)
        groups.setdefault(place, {})[one.candidate, one.model.name, one.precision] = one
    return [
        place.section("contrastive", "contrastive pairs", contrastive_table(list(group.values())))
        for place, group in sorted(groups.items())
    ]


def _kinds(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """All cells together, then each type's, if there are several."""
    types = [found.name for found in by_type(cells)]
    each = [(name, [cell for cell in cells if cell.type == name]) for name in types]
    return [("all", list(cells)), *each] if len(types) > 1 else each


def _head(rows: Sequence[Quality]) -> list[Column]:
    return [
        Column("decoder", [one.candidate for one in rows], numeric=False),
        Column("model", [one.model.name for one in rows], numeric=False),
    ]


def _in_paper(one: MutualInformation) -> str:
    figure = MUTUAL_INFORMATION.get((one.order, one.together))
    return NOTHING if figure is None else f"{figure:+.3f}"
