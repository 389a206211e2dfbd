"""What `lattice recall` and `lattice inspect` measure, as records of curves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli.console import say
from longstride.cli.provenance import model_notes, model_tag, origin_of

if TYPE_CHECKING:
    from longstride.translator import Translator

RecordFile = Annotated[Path | None, typer.Option("--record", help="Append records of it to this file (JSON lines).")]


@dataclass(frozen=True)
class Book:
    """Where records go, and what they belong to; without a file nothing is kept."""

    file: Path | None
    experiment: str | None
    workload: str

    def check(self) -> None:
        """Refuse what is none of ours before the work."""
        from longstride.bench.record_files import check_records

        check_records(self.file)

    def keep(
        self,
        translator: Translator,
        name: str,
        axis: str,
        places: Sequence[float],
        curves: Mapping[str, Sequence[float]],
        texts: Sequence[Path],
        sentences: int,
        decoder: str = "",
        **notes: Any,
    ) -> None:
        """Append one record; `texts` are the files that were read."""
        from longstride.bench.record_files import append_records
        from longstride.bench.record_parts import Curve, WorkloadTag
        from longstride.bench.records import Curves
        from longstride.text.files import file_sha256

        if self.file is None:
            return
        told = hashlib.sha256("".join(file_sha256(path) for path in texts).encode()).hexdigest()
        record = Curves(
            origin_of(self.experiment, translator),
            name,
            model_tag(translator),
            WorkloadTag(self.workload, told, sentences),
            axis,
            tuple(map(float, places)),
            tuple(Curve(one, tuple(map(float, values))) for one, values in curves.items()),
            decoder,
            {**model_notes(translator), "precision": translator.runner.precision, **notes},
        )
        append_records(self.file, [record])
        say(f"Record appended to {self.file}.")
