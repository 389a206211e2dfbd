"""What a run was started with, kept in its folder, so that it goes on as that run or not at all. Knows no model.

    origin.json    format; the recipe; hashes of what the recipe names: text files, tokenizer, model folders

Files are compared by what is in them: they may have moved, but not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from longstride.contract import UsageError
from longstride.text.files import read_json, write_json

FORMAT = 1
FILE = "origin.json"
MAY_CHANGE = frozenset(
    {
        "about",
        "data.cache",
        # how long
        "training.steps",
        "training.epochs",
        "training.max_minutes",
        "training.patience",
        "training.max_bad_updates",
        # what is told, kept and written, and when
        "training.validate_every",
        "training.checkpoint_every",
        "training.log_every",
        "training.tensorboard",
        "training.keep",
        "training.keep_best",
        "training.average",
        "training.average_count",
        "training.average_span",
        "validation.every",
        "validation.batch",
        "store",
        # by how many processes, on which machine
        "training.accumulation",
        "training.unused_parameters",
        "training.compile",
        "training.prefetch",
        "attention",
        "norms",
    }
)
"""Options of a recipe that may change when a run goes on; docs/recipes.md tells them too."""


@dataclass(frozen=True)
class Origin:
    """What a run was started with, as plain data."""

    recipe: dict[str, Any]
    contents: dict[str, str]
    """option -> hash of the file or model folder that it names"""
    format: int = FORMAT

    def check(self, started: Origin, folder: Path) -> None:
        """Refuse to go on with a run that was `started` with something else, by the name of what differs."""
        before, now = dict(_flat(started.recipe)), dict(_flat(self.recipe))
        hashed = started.contents.keys() & self.contents.keys()
        differing = [
            f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
            for name in sorted(before.keys() | now.keys())
            if name not in MAY_CHANGE | hashed and _text(before.get(name)) != _text(now.get(name))
        ]
        differing += [
            f"{name} ({now.get(name)}) had SHA-256 {started.contents[name][:12]} and has now {self.contents[name][:12]}"
            for name in sorted(hashed)
            if started.contents[name] != self.contents[name]
        ]
        if differing:
            more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
            raise UsageError(
                f"{folder}: expected the recipe and data that the run in it was started with, but "
                f"{differing[0]}{more}; go on with what it was or choose another folder."
            )

    def write(self, folder: Path) -> None:
        """Keep it in the run's folder."""
        write_json(folder / FILE, asdict(self))


def read(folder: Path) -> Origin | None:
    """What the run in a folder was started with, if there is one that says so."""
    file = folder / FILE
    try:
        values = read_json(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: expected what the run was started with, found no JSON of it ({error}).") from None
    try:
        recipe, contents, version = values["recipe"], values["contents"], values["format"]
    except (KeyError, TypeError):
        raise UsageError(f"{file}: expected recipe, contents and format, found something else.") from None
    plain = (
        isinstance(recipe, dict)
        and isinstance(contents, dict)
        and all(isinstance(each, str) for each in contents.values())
    )
    if version != FORMAT or not plain:
        raise UsageError(f"{file}: expected what a run was started with in format {FORMAT}, found something else.")
    return Origin(recipe, contents)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(value: Any) -> str:
    """Values that came as text, by --set, equal those of a file: 8 and "8", 1e-3 and "0.001", true and "true"."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return str(Decimal(text).normalize())
    except ArithmeticError:
        return text
