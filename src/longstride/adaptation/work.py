"""The folder that a run works in: what it was started with, and what each finished stage found. Can be copied.

    adapt.json      format; what decides the result: hashes of model and lines, options, device
    <stage>.json    what a stage found and how long it took; its presence says that the stage is done

Whatever is in it was written whole or not at all, so that a run may be killed at any moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longstride.contract import UsageError
from longstride.text.files import read_json, write_json

FORMAT = 1
STARTED = "adapt.json"


class Work:
    """A run's folder."""

    def __init__(self, folder: Path, origin: Mapping[str, Any]) -> None:
        """Go on with what is in a folder, if it was started with the same, or begin in a new one."""
        self.folder = folder
        self.origin = json.loads(json.dumps({"format": FORMAT, **origin}))  # lists for tuples, as files have them
        file = folder / STARTED
        self.begun_here = not file.exists()
        """whether there was nothing to go on with"""
        if not self.begun_here:
            refuse_other(file, self._read(STARTED), self.origin)
            return
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder}: expected the folder of a run that was begun, or none, found something else.")
        write_json(file, self.origin)

    def found(self, stage: str) -> dict[str, Any] | None:
        """What a stage found, once it is done."""
        name = f"{stage}.json"
        return self._read(name) if (self.folder / name).exists() else None

    def finish(self, stage: str, figures: Mapping[str, Any]) -> dict[str, Any]:
        """A stage is done, and this is what it found."""
        write_json(self.folder / f"{stage}.json", figures)
        return self._read(f"{stage}.json")

    def _read(self, name: str) -> dict[str, Any]:
        file = self.folder / name
        try:
            found = read_json(file)
        except (OSError, ValueError) as error:
            raise UsageError(f"{file}: expected what a run wrote there, found no JSON of it ({error}).") from None
        if not isinstance(found, dict):
            raise UsageError(f"{file}: expected what a run wrote there, found {type(found).__name__}.")
        return found


def refuse_other(file: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with a run that was started with something else, by the name of the option that differs."""
    for name in sorted(before.keys() | now.keys()):
        was, is_now = before.get(name), now.get(name)
        if was != is_now:
            told = (str(value)[:60] for value in (was, is_now))
            raise UsageError(
                f"{file}: expected the {name} that the run was started with, {next(told)}, found {next(told)}; "
                "go on with what it was or choose another folder."
            )
