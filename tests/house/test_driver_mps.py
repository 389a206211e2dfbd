"""MPS: tried before it is used, told to trainings and evaluations alone, ended at the end. No GPU: a fake daemon."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.conftest import Runs

CONTROL = """#!/bin/sh
if [ "$1" = -d ]; then echo "begun $CUDA_MPS_PIPE_DIRECTORY" >> "{book}"; exit {code}; fi
read word; echo "$word $CUDA_MPS_PIPE_DIRECTORY" >> "{book}"
"""
TRIAL = "import os; open({book!r}, 'a').write('tried\\n'); raise SystemExit({code})"


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> Path:
    """A control program that only writes down what it is told."""
    book = folder / "book"
    (folder / "bin").mkdir()
    control = folder / "bin" / "nvidia-cuda-mps-control"
    control.write_text(CONTROL.format(book=book, code=code))
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    return book


def trial(book: Path, code: int = 0) -> tuple[str, ...]:
    return (sys.executable, "-c", TRIAL.format(book=str(book), code=code))


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, drive: ModuleType) -> Path:
    """A folder, however long the name of pytest's own is."""
    monkeypatch.setattr(sys.modules["driver.mps"], "LONGEST", 4000)
    return tmp_path_factory.mktemp("mps")


def test_it_is_started_tried_and_ended(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = fake(short, monkeypatch)
    service, told = sys.modules["driver.mps"].Service(short / "mps", trial(book)), list[str]()
    assert service.environment == {}
    assert service.start(told.append)
    assert told == []
    pipe = str(short / "mps" / "pipe")
    assert service.environment == {
        "CUDA_MPS_PIPE_DIRECTORY": pipe,
        "CUDA_MPS_LOG_DIRECTORY": str(short / "mps" / "log"),
    }
    service.stop()
    service.stop()
    assert service.environment == {}
    assert book.read_text().splitlines() == [f"begun {pipe}", "tried", "tried", f"quit {pipe}"]


def test_one_sentence_says_why_it_is_not_used(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, told = sys.modules["driver.mps"], list[str]()
    monkeypatch.setenv("PATH", str(short))
    assert not module.Service(short / "none").start(told.append)
    assert told == ["MPS is not used: there is no nvidia-cuda-mps-control."]
    book = fake(short, monkeypatch)
    service = module.Service(short / "bad", trial(book, code=3))
    assert not service.start(told.append)
    assert told[-1].startswith("MPS is not used: two small programs ended with exit codes [3, 3], see ")
    assert book.read_text().splitlines()[-1].startswith("quit "), "the daemon does not stay"
    monkeypatch.setattr(module, "SECONDS", 0.3)
    assert not module.Service(short / "slow", (sys.executable, "-c", "import time; time.sleep(60)")).start(told.append)
    assert "did not end in 0.3 seconds" in told[-1]
    monkeypatch.setattr(module, "LONGEST", 10)
    assert not module.Service(short / "long", trial(book)).start(told.append)
    assert "may have 10" in told[-1]


def test_a_daemon_that_does_not_start_is_not_used(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(short, monkeypatch, code=1)
    told: list[str] = []
    assert not sys.modules["driver.mps"].Service(short / "mps", ("false",)).start(told.append)
    assert "nvidia-cuda-mps-control ended with exit code 1" in told[0]


def test_what_reads_a_clock_does_not_use_it(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_CLIENT_PRIORITY", "1")
    code = "import os; open({path!r}, 'w').write(','.join(sorted(k for k in os.environ if k.startswith('CUDA_MPS_'))))"
    kinds = {"training": (0.4, {"checkpoints": True}), "score": (0.2, {}), "clock": (math.inf, {})}
    for name, (share, more) in kinds.items():
        runs.add(name, code.format(path=str(runs.work / name)), share=share, **more)
    assert runs.run(environment={"CUDA_MPS_PIPE_DIRECTORY": "here"}) == 0
    assert (runs.work / "clock").read_text() == ""
    for name in ("training", "score"):
        assert (runs.work / name).read_text() == "CUDA_MPS_CLIENT_PRIORITY,CUDA_MPS_PIPE_DIRECTORY"


def test_a_clock_in_the_middle_does_not_use_what_the_driver_was_begun_with(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in sys.modules["driver.mps"].VARIABLES:
        monkeypatch.setenv(name, "/elsewhere")
    code = "import os; open({path!r}, 'w').write(','.join(sorted(k for k in os.environ if k.startswith('CUDA_MPS_'))))"
    wait = f"import os, time\nwhile not os.path.exists({str(runs.work / 'clock')!r} + '.done'): time.sleep(0.05)\n"
    runs.add("training", code.format(path=str(runs.work / "training")) + "\n" + wait, checkpoints=True)
    told, needs = code.format(path=str(runs.work / "clock")), (runs.work / "training",)
    runs.add("clock", f"{told}; open({str(runs.work / 'clock')!r} + '.done', 'w')", share=math.inf, needs=needs)
    assert runs.run(interrupt=True) == 0
    assert any("held still: training" in line for line in runs.told)
    assert (runs.work / "clock").read_text() == ""
    assert (runs.work / "training").read_text() == "CUDA_MPS_LOG_DIRECTORY,CUDA_MPS_PIPE_DIRECTORY"


def test_the_driver_goes_on_without_it(
    drive: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert drive.main(["--work", str(tmp_path / "work"), "--only", "bench-lattice", "--mps"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("MPS is not used: there is no nvidia-cuda-mps-control.\n")
    assert "bench-lattice/lattice depths, eager: not begun" in told
