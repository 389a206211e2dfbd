"""A disk that is full at any byte of a file: one sentence, nothing half-written, and the same command goes on later."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.adaptation.tiny import SETTINGS, lines_file
from tests.cli.conftest import Run
from tests.fuzz.checks import TEMPORARY

resource = pytest.importorskip("resource")

RESUMED = {
    "translate --resume": {"out.partial", "out.partial.json"},
    "bulk": {"out.shards"},
    "adapt": {"out.work"},
    "distill": {"out"},
}
"""By command, what the next run goes on with."""
COMMANDS = ["translate", "translate --trace", "translate .gz", "import", *RESUMED]


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file may be larger: writing fails at that byte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def command(name: str, model: Path, lines: Path, foreign: Path, out: Path) -> list[object]:
    end = ["-o", out]
    if name == "import":
        return ["import", foreign, *end, "--unchecked"]
    if name == "adapt":
        return ["adapt", model, "-s", lines, *SETTINGS, "--no-race", *end]
    given: list[object] = ["-m", model, "--device", "cpu"]
    if name == "bulk":
        return ["bulk", lines, out, *given, "--shard", "4"]
    if name == "distill":
        return ["distill", "-i", lines, *given, "--option", "keep_all=true", "--option", "shard_lines=5", *end]
    if name == "translate .gz":
        end = ["-o", f"{out}.gz"]
    more = {"translate --resume": ["--resume"], "translate --trace": ["--trace", f"{out}.trace"]}.get(name, [])
    return ["translate", "-i", lines, *given, *more, *end]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    from tests.interop.test_import_command import make

    return make("marian", tmp_path_factory.mktemp("foreign") / "marian")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which transformers 5 does not use
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_leaves_nothing_half_written(
    name: str, run: Run, model: Path, foreign: Path, tmp_path: Path
) -> None:
    lines = lines_file(tmp_path)
    whole = tmp_path / "whole"
    whole.mkdir()
    assert run(*command(name, model, lines, foreign, whole / "out")).code == 0
    largest = max(map(len, files(whole).values()))
    sizes = {100, largest - 1} if name == "adapt" else {0, 1, 100, largest // 2, largest - 1}  # it takes seconds
    for size in sorted(sizes):
        short = tmp_path / "short"
        short.mkdir()
        with room(size):
            ran = run(*command(name, model, lines, foreign, short / "out"))
        assert ran.code == 1, (size, ran)
        assert sum(line.startswith("error: ") for line in ran.err.split("\n")) == 1, (size, ran)
        assert "File too large" in ran.failure, (size, ran)
        left = {path.name for path in short.iterdir()}
        assert left <= RESUMED.get(name, set()), (size, left)
        assert not [path for path in short.rglob("*") if TEMPORARY.match(path.name)], size
        again = ["--resume"] if name == "distill" and any(short.iterdir()) else []
        assert run(*command(name, model, lines, foreign, short / "out"), *again).code == 0
        assert set(files(short)) == set(files(whole)), size
        shutil.rmtree(short)
