from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from longstride.cli.main import main
from longstride.tasks.toys import generate
from tests.folders import write_folder


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The message of a command that was misused: one sentence, no traceback, exit 2, nothing on stdout."""
        return self._message(2)

    @property
    def failure(self) -> str:
        """The same of work that failed when something was written already: exit 1."""
        return self._message(1)

    def _message(self, code: int) -> str:
        assert self.code == code, self
        assert self.out == ""
        assert "Traceback" not in self.err
        last = self.err.rstrip("\n").split("\n")[-1]
        assert last.startswith("error: ")
        assert last.endswith(".")
        return last


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Carry out a command line in this process."""

    def call(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model folder, not to be changed."""
    return write_folder(tmp_path_factory.mktemp("models") / "tiny")


def write_pairs(folder: Path, number: int, *more: tuple[str, str]) -> tuple[Path, Path]:
    """Sentences and their reverse in two files; `more` pairs after them."""
    made = [*generate("reverse", number, seed=3), *more]
    for place, name in enumerate(("src", "ref")):
        (folder / name).write_text("".join(pair[place] + "\n" for pair in made))
    return folder / "src", folder / "ref"


@pytest.fixture
def own_model(tmp_path: Path) -> Path:
    """A tiny model folder to be spoilt."""
    return write_folder(tmp_path / "own")
