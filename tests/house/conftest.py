"""The English-German driver as modules, and a way to run jobs of a line of Python each."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parents[2] / "recipes" / "en-de"
MODULES = (
    "jobs",
    "room",
    "stillness",
    "locks",
    "notice",
    "mps",
    "schedule",
    "command_line",
    "commands",
    "estimates",
    "collect",
)
FAMILIES = ("autoregressive", "drafts", "interleaved", "lattice", "measuring")


@pytest.fixture(scope="module")
def drive() -> Iterator[ModuleType]:
    """drive.py as a module; what it imports is forgotten afterwards."""
    sys.path.insert(0, str(HERE))
    for name in (*MODULES, *FAMILIES):
        importlib.import_module(f"driver.{name}")
    yield importlib.import_module("drive")
    sys.path.remove(str(HERE))
    for name in [name for name in sys.modules if name == "drive" or name.split(".")[0] == "driver"]:
        del sys.modules[name]


class Runs:
    """Jobs of a line of Python each, in stages of one."""

    def __init__(self, work: Path) -> None:
        self.work, self.told = work, list[str]()
        self.stages: list[Any] = []

    def add(self, name: str, code: str, share: float = 0.4, **more: Any) -> None:
        """A job that runs this code."""
        job = sys.modules["driver.jobs"].Job(name, ("-c", code), 0.1, share, **more)
        self.stages.append(sys.modules["driver.jobs"].Stage(f"stage-{name}", "family", (job,)))

    def schedule(self, hold: Path | None = None, environment: dict[str, str] | None = None, **limits: Any) -> Any:
        """All of them, to be run."""
        module = sys.modules["driver.schedule"]
        return module.Schedule(self.stages, self.work, module.Limits(**limits), self.told.append, environment, hold)

    def run(self, **more: Any) -> int:
        """Run them; the exit code."""
        return int(self.schedule(**more).run())

    def done(self) -> set[str]:
        """The names of those that are."""
        return {path.stem.removeprefix("stage-") for path in (self.work / "done").glob("*.json")}


@pytest.fixture
def runs(drive: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """No jobs yet; a schedule that looks more often than it has to."""
    monkeypatch.setattr(sys.modules["driver.schedule"], "POLL", 0.05)
    monkeypatch.setattr(sys.modules["driver.schedule"], "SETTLE", 0.2)
    return Runs(tmp_path)
