"""Quality records read as settings of draft-and-verify decoders, by signature and notes; how tables tell them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from longstride.bench.cells import NOTHING, Column, origin_note, signatures_note, with_notes
from longstride.bench.records import Latency, Quality

EXACT = "exact"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Setting:
    """One record and the options of its decoder."""

    record: Quality
    decoder: str
    options: dict[str, str]
    """as the signature spells them"""

    @staticmethod
    def of(record: Quality) -> Setting:
        """Read ``blockwise|k:8|accept:top:2|min_block:1|...|fp32|v0.1.0``."""
        return Setting(record, *read_signature(record.decoder))

    @property
    def k(self) -> int:
        """The block size; 0 where the decoder has none."""
        return int(self.options.get("k", "0"))

    @property
    def accept(self) -> str:
        """``exact``, ``top:3,gap:1.0``, ...; nothing for a decoder that accepts nothing."""
        return self.options.get("accept", "")

    @property
    def min_block(self) -> int:
        """The least that is committed per iteration."""
        return int(self.options.get("min_block", "1"))

    @property
    def exact(self) -> bool:
        """Whether it promises greedy's output."""
        return self.accept == EXACT and self.min_block == 1

    @property
    def plain(self) -> bool:
        """Whether the block size is fixed."""
        return self.options.get("adaptive", "false") == "false"

    @property
    def top(self) -> tuple[int, float] | None:
        """B and T of ``top:B,gap:T``."""
        parts = dict(part.partition(":")[::2] for part in self.accept.split(","))
        return (int(parts["top"]), float(parts["gap"])) if {"top", "gap"} == set(parts) else None

    @property
    def model(self) -> str:
        """The model's name."""
        return self.record.model.name

    @property
    def bleu(self) -> float | None:
        """The leading score."""
        return self.record.scores[0].value if self.record.scores else None

    @property
    def tokens(self) -> float | None:
        """Tokens per iteration, EOS counted."""
        counts = self.record.counts
        return counts.tokens_with_eos / counts.iterations if counts and counts.iterations else None

    @property
    def mean_block(self) -> float | None:
        """Tokens per iteration that had a draft to verify."""
        return self.record.counts.mean_block if self.record.counts else None

    def part(self, name: str) -> dict[str, Any]:
        """Options of a part of the model, as far as the record tells."""
        return part_of(self.record, name)

    @property
    def trained_block(self) -> int:
        """How many tokens the drafter was trained to draft; 0 where the record does not tell."""
        return int(self.part("drafter").get("block", 0))


def read_signature(signature: str) -> tuple[str, dict[str, str]]:
    """A decoder's name and its options, as its signature spells them."""
    name, *rest = signature.split("|")
    return name, dict(part.partition(":")[::2] for part in rest if ":" in part)


def part_of(record: Quality | Latency, name: str) -> dict[str, Any]:
    """Options of a part of the record's model, as far as its notes tell."""
    parts = record.notes.get("parts", {})
    found = parts.get(name, {}) if isinstance(parts, dict) else {}
    return found if isinstance(found, dict) else {}


def settings(group: Sequence[Quality], decoder: str) -> list[Setting]:
    """The settings of one decoder, with a fixed block size, in their order."""
    found = [Setting.of(record) for record in group]
    return [one for one in found if one.decoder == decoder and one.plain]


def models(found: Iterable[Setting]) -> list[str]:
    """Their models, in order."""
    return list(dict.fromkeys(one.model for one in found))


def number(value: float | None) -> str:
    """Two digits, or nothing."""
    return NOTHING if value is None else f"{value:.2f}"


def pair(first: float | None, second: float | None) -> str:
    """``26.11 / 4.69``"""
    return NOTHING if first is None or second is None else f"{first:.2f} / {second:.2f}"


def minus(one: float | None, other: float | None) -> str:
    """``−0.31``, or nothing."""
    return NOTHING if one is None or other is None else f"{one - other:+.2f}".replace("-", "−")


def times(value: float | None) -> str:
    """``2.10×``, or nothing."""
    return NOTHING if value is None else f"{value:.2f}×"


def cells_of(found: Mapping[Key, Setting], keys: Iterable[Key], told: Callable[[Setting], str]) -> list[str]:
    """A cell per key, nothing where there is no setting for it."""
    return [told(found[key]) if key in found else NOTHING for key in keys]


def noted(columns: Sequence[Column], notes: Sequence[str], rows: Sequence[Setting]) -> str:
    """A table with what a fair reader asks below it."""
    records = [one.record for one in rows]
    sizes = sorted({record.workload.size for record in records})
    told = [f"{' or '.join(f'{size:,}' for size in sizes)} sentences.", *notes, signatures_note(records)]
    if any(record.against for record in records) and any(" − " in column.heading for column in columns):
        told.append("In brackets: 95 % intervals over resampled sentences.")
    precisions = sorted({record.precision for record in records})
    told.append(f"Precision: {', '.join(precisions)}.")
    return with_notes(columns, [*told, origin_note([record.origin for record in records])])
