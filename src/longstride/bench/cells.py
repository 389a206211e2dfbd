"""What Markdown tables are put together from: columns, cells and notes below them. Knows records, but no table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longstride.bench.records import Against, Equality, Latency, Origin, Quality, Training
from longstride.tasks.score import Score

NOTHING = "·"
"""stands where a record does not say"""


Scored = Latency | Quality | Training


@dataclass(frozen=True)
class Column:
    """A heading and a cell per row; a column without anything to say is left out of a table."""

    heading: str
    cells: Sequence[str]
    numeric: bool = True

    @property
    def empty(self) -> bool:
        """Whether no row has anything to say."""
        return all(cell in ("", NOTHING) for cell in self.cells)


def markdown(columns: Sequence[Column]) -> str:
    """A Markdown table, padded so that its source is a table too."""
    shown = [column for column in columns if not column.empty]
    texts = [[_escaped(text) for text in (column.heading, *column.cells)] for column in shown]
    widths = [max(3, *(len(text) for text in column)) for column in texts]
    lines = []
    for row in range(len(texts[0])):
        cells = [
            column[row].rjust(width) if told.numeric else column[row].ljust(width)
            for told, column, width in zip(shown, texts, widths, strict=True)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    rule = ["-" * (width - 1) + ":" if told.numeric else "-" * width for told, width in zip(shown, widths, strict=True)]
    lines.insert(1, "| " + " | ".join(rule) + " |")
    return "\n".join(lines) + "\n"


def score_names(rows: Sequence[Scored]) -> list[str]:
    """All scores that any row has, in the order of the first."""
    return list(dict.fromkeys(score.name for record in rows for score in record.scores))


def equality_column(rows: Sequence[Equality | None]) -> Column:
    """How many outputs differ from those of the first reference there is."""
    reference = next((one.reference for one in rows if one), "")
    cells = [
        f"{one.differing:,} of {one.compared:,}" if one and one.reference == reference else NOTHING for one in rows
    ]
    return Column(f"differ from {reference}", cells)


def signatures_note(rows: Sequence[Scored], leading: bool = True) -> str:
    """The signatures of the first score, or of all the others."""
    names = score_names(rows)[:1] if leading else score_names(rows)[1:]
    scores = [score for record in rows for score in record.scores if score.name in names]
    told = dict.fromkeys(f"{score.name}: `{score.signature}`" for score in scores)
    return ". ".join(told) + ("." if told else "")


def origin_note(origins: Sequence[Origin]) -> str:
    """Where the figures come from: each machine and its versions once, with all its threads, commits and dates."""
    alike: dict[tuple[str, ...], list[Origin]] = {}
    for origin in origins:
        machine = origin.machine
        alike.setdefault((machine.device, machine.cpu, machine.torch, origin.version), []).append(origin)
    return " ".join(map(_told_once, alike.values()))


def _told_once(origins: Sequence[Origin]) -> str:
    """Of origins that differ in threads, commits and dates alone."""
    machine, version = origins[0].machine, origins[0].version
    cpu = f" ({machine.cpu})" if machine.cpu and machine.cpu != machine.device else ""
    threads = listed(str(number) for number in sorted({origin.machine.threads for origin in origins}))
    in_order = sorted(origins, key=lambda origin: origin.date)
    changed = {True: " with uncommitted changes", False: ""}
    commits = list(dict.fromkeys((one.commit[:10] or "unknown") + changed[one.dirty] for one in in_order))
    dates = list(dict.fromkeys(origin.date[:10] for origin in in_order))
    told = f"{dates[0]} to {dates[-1]}" if len(dates) > 2 else listed(dates)
    return (
        f"{machine.device}{cpu}, {threads} CPU threads, PyTorch {machine.torch}, Longstride {version}, "
        f"commit{'s' if len(commits) > 1 else ''} {listed(commits)}, {told}."
    )


def listed(words: Iterable[str]) -> str:
    """``2``, ``2 and 16``, ``2, 8 and 16``"""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def paragraph(notes: Sequence[str]) -> str:
    """Notes one after another, the empty ones left out."""
    return " ".join(note for note in notes if note) + "\n"


def with_notes(columns: Sequence[Column], notes: Sequence[str]) -> str:
    """A table and a paragraph of notes below it."""
    return markdown(columns) + "\n" + paragraph(notes)


def difference_text(against: Sequence[Against], baseline: str) -> str:
    """``−0.31 (−0.52 to 0.00)``: from this baseline, if it was compared with."""
    for one in against:
        if one.baseline == baseline:
            found = one.comparison
            return f"{_signed(found.difference)} ({_signed(found.low)} to {_signed(found.high)})"
    return NOTHING


def _signed(value: float) -> str:
    text = f"{value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


def score_text(scores: Sequence[Score], name: str) -> str:
    """A score by name, with two digits."""
    return next((f"{score.value:.2f}" for score in scores if score.name == name), NOTHING)


def over(amount: int, number: int) -> str | None:
    """A ratio with two digits; none where there is nothing to divide by."""
    return f"{amount / number:.2f}" if number else None


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
