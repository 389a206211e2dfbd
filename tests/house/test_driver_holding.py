"""Clocks in the middle of trainings: these are held still, children too, and go on whatever happens."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.house.conftest import HERE, Runs

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({book!r}, "w").write(str(child.pid))
time.sleep({seconds})
child.kill()
"""
"""a job with a child"""


def wait(what: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited for nothing"
        time.sleep(0.02)


def stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells a process's state by /proc")


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The process numbers of a job and of its child."""
    book = tmp_path / "child"
    code = FAMILY.format(book=str(book), seconds=60)
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    wait(lambda: book.exists() and book.read_text() != "")
    yield process.pid, int(book.read_text())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_children_are_held_too_and_all_go_on(drive: ModuleType, family: tuple[int, int]) -> None:
    still = sys.modules["driver.stillness"].Stillness()
    still.hold([family[0]])
    wait(lambda: all(map(stopped, family)))
    still.hold([family[0]])
    assert still.groups == [family[0]]
    still.let_go()
    wait(lambda: not any(map(stopped, family)))
    assert still.groups == []
    still.let_go()


def test_what_joins_later_is_held_with_the_others(drive: ModuleType, family: tuple[int, int]) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    still = sys.modules["driver.stillness"].Stillness()
    try:
        still.hold([family[0]])
        still.hold([family[0], other.pid])
        wait(lambda: all(map(stopped, (*family, other.pid))))
        still.let_go()
        wait(lambda: not any(map(stopped, (*family, other.pid))))
    finally:
        other.kill()
        other.wait()
    still.hold([other.pid])
    still.let_go()  # it has ended: nothing to say about that


def test_all_go_on_when_their_keeper_is_killed(drive: ModuleType, family: tuple[int, int]) -> None:
    code = (
        f"import time; from driver.stillness import Stillness; s = Stillness(); s.hold([{family[0]}]); time.sleep(60)"
    )
    keeper = subprocess.Popen([sys.executable, "-c", code], cwd=HERE)
    wait(lambda: all(map(stopped, family)))
    keeper.kill()
    keeper.wait()
    wait(lambda: not any(map(stopped, family)))


CLOCK = """
import time
book = open({book!r}, "a", buffering=1)
book.write("clock in\\n")
time.sleep(0.8)
book.write("clock out\\n")
"""
TRAINING = """
import os, sys, time
book = open({book!r}, "a", buffering=1)
try:
    while not os.path.exists({book!r} + ".stop"):
        book.write("tick\\n")
        time.sleep(0.05)
except KeyboardInterrupt:
    book.write("checkpoint\\n")
    sys.exit(130)
book.write("end\\n")
"""
"""until a file beside its book tells it to end"""


def unchanged(book: Path) -> bool:
    """For six ticks."""
    before = book.read_text()
    time.sleep(0.3)
    return book.read_text() == before


def between(trail: list[str]) -> list[str]:
    return trail[trail.index("clock in") + 1 : trail.index("clock out")]


def test_a_clock_is_read_in_the_middle_of_a_training(runs: Runs) -> None:
    book = runs.work / "book"
    ready = runs.work / "ready"
    runs.add("training", TRAINING.format(book=str(book)), checkpoints=True)
    runs.add("first", f"import time; time.sleep(0.5); open({str(ready)!r}, 'w')", makes=(ready,))
    stop = f"open({str(book) + '.stop'!r}, 'w')"
    for name, after in (("clock", ""), ("another", stop)):
        runs.add(name, CLOCK.format(book=str(book)) + after, share=math.inf, needs=(ready,))
    assert runs.run(interrupt=True) == 0
    trail = book.read_text().split("\n")
    assert between(trail) == [], "all is still while the clock runs"
    assert trail.index("tick") < trail.index("clock in")
    assert trail.index("end") > trail.index("clock out"), "and then goes on"
    assert trail.count("clock out") == 2
    assert runs.done() == {"training", "first", "clock", "another"}
    assert any("held still: training" in line for line in runs.told)


WRITER = """
import fcntl, os, time
handle = os.open({work!r}, os.O_RDONLY)
fcntl.flock(handle, fcntl.LOCK_EX)
open({ready!r}, "w")
time.sleep({seconds})
os.close(handle)
time.sleep(1)
"""
"""a training whose model is there, and which is about to write its record"""
READER = """
import fcntl, os
fcntl.flock(os.open({work!r}, os.O_RDONLY), fcntl.LOCK_EX)
"""


def test_nobody_is_held_still_in_the_middle_of_writing_a_record(runs: Runs) -> None:
    ready = runs.work / "ready"
    runs.add("training", WRITER.format(work=str(runs.work), ready=str(ready), seconds=0.6), checkpoints=True)
    runs.add("clock", READER.format(work=str(runs.work)), share=math.inf, needs=(ready,))
    begun = time.monotonic()
    assert runs.run(interrupt=True, stop_after=0.5) == 0
    assert time.monotonic() - begun < 20, "the clock would wait for a lock that a stopped process has"
    assert runs.done() == {"training", "clock"}
    assert any("held still: training" in line for line in runs.told)


def test_a_lock_that_is_never_given_back_is_not_waited_for(
    drive: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = sys.modules["driver.locks"]
    monkeypatch.setattr(locks, "SECONDS", 0.1)
    with locks.nobody_writes(tmp_path) as first, locks.nobody_writes(tmp_path) as second:
        assert (first, second) == (True, False)
    with locks.nobody_writes(tmp_path) as again:
        assert again


def test_only_the_time_that_a_job_was_held_still_is_taken_off(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(sys.modules["driver.schedule"].time, "monotonic", lambda: now[0])
    make = sys.modules["driver.schedule"].Running
    early, late = make(None, None, None, 100.0), make(None, None, None, 400.0)

    def at(seconds: float, *told: Callable[[], None]) -> None:
        now[0] = seconds
        for tell in told:
            tell()

    at(160.0, early.hold)
    assert early.minutes == 1
    at(400.0, early.hold, late.hold)
    at(460.0)
    assert (early.minutes, late.minutes) == (1, 0), "it began when the other was held already"
    at(520.0, early.let_go, late.let_go, late.let_go)
    at(580.0)
    assert (early.minutes, late.minutes) == (2, 1)


def test_a_stage_tells_its_jobs_own_minutes_beside_its_wall_clock(runs: Runs) -> None:
    jobs, ready = sys.modules["driver.jobs"], runs.work / "ready"
    first = jobs.Job("first", ("-c", "pass"), 0.1, 0.4)
    last = jobs.Job("last", ("-c", "import time; time.sleep(0.6)"), 0.1, 0.4, needs=(ready,))
    runs.add("other", f"import time; time.sleep(2.4); open({str(ready)!r}, 'w')", makes=(ready,))
    runs.stages += [jobs.Stage("parts", "family", (one,), partial=True) for one in (first, last)]
    runs.stages.append(jobs.Stage("whole", "family", (first, last)))
    assert runs.run() == 0
    lines = [line for line in runs.told if line.startswith("parts: ") and "own" in line]
    assert len(lines) == 2
    for line in lines:
        own, wall = (float(part.split()[0]) for part in line.removeprefix("parts: ").split("own, "))
        assert wall - own < 0.03, "a part does not count from another's beginning"
    told = json.loads((runs.work / "done" / "whole.json").read_text())
    assert told["jobs"] == 2
    assert told["minutes"] >= 0.03, "with what it waited in between"
    assert told["own"] >= 0.01


def test_stopping_does_not_wait_for_a_clock(runs: Runs) -> None:
    book, ready = runs.work / "book", runs.work / "ready"
    runs.add("training", TRAINING.format(book=str(book)), checkpoints=True)
    runs.add("first", f"open({str(ready)!r}, 'w')", makes=(ready,))
    endless = f"import time; open({str(book)!r}, 'a').write('clock in\\n'); time.sleep(60)"
    runs.add("clock", endless, share=math.inf, needs=(ready,))
    begun = time.monotonic()
    assert runs.run(interrupt=True, stop_after=0.07) == 0
    assert time.monotonic() - begun < 30
    assert book.read_text().split()[-1] == "checkpoint", "it was woken to leave one"
    assert "training" not in runs.done()


def test_a_schedule_that_breaks_leaves_nothing_still(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    book, ready = runs.work / "book", runs.work / "ready"
    runs.add("training", TRAINING.format(book=str(book)), checkpoints=True)
    runs.add("first", f"import time; time.sleep(0.5); open({str(ready)!r}, 'w')", makes=(ready,))
    runs.add("clock", "", share=math.inf, needs=(ready,))
    schedule = runs.schedule(interrupt=True)
    start = schedule._start

    def breaking(stage: Any, job: Any) -> None:
        if job.name == "clock":
            raise OSError("no more processes")
        start(stage, job)

    monkeypatch.setattr(schedule, "_start", breaking)
    with pytest.raises(OSError, match="no more processes"):
        schedule.run()
    # Who made the file may still have been ending when it was seen.
    codes = {one.job.name: one.process.wait(10) for one in schedule._running}
    assert codes["training"] == -signal.SIGTERM, "a stopped one would not have heard of it"
    assert set(codes) <= {"training", "first"}


def test_a_notice_holds_every_driver_that_knows_it(runs: Runs, tmp_path: Path) -> None:
    notice, book = tmp_path / "still", runs.work / "book"
    runs.add("training", TRAINING.format(book=str(book)), checkpoints=True)
    still = threading.Event()

    def person() -> None:
        wait(book.exists)
        notice.touch()
        wait(lambda: unchanged(book))
        still.set()
        notice.unlink()
        before = book.read_text()
        wait(lambda: book.read_text() != before)
        (runs.work / "book.stop").touch()

    thread = threading.Thread(target=person)
    thread.start()
    assert runs.run(hold=notice) == 0
    thread.join()
    assert still.is_set()
    assert book.read_text().split()[-1] == "end"


def test_nothing_is_begun_while_a_notice_is_up(runs: Runs, tmp_path: Path) -> None:
    notice, book = tmp_path / "still", tmp_path / "book"
    notice.touch()
    runs.add("job", f"import os; open({str(book)!r}, 'w').write(str(os.path.exists({str(notice)!r})))")
    person = threading.Timer(0.6, notice.unlink)
    person.start()
    assert runs.run(hold=notice) == 0
    person.join()
    assert book.read_text() == "False"


def test_a_clock_puts_the_notice_up_and_takes_it_down(runs: Runs, tmp_path: Path) -> None:
    notice, book = tmp_path / "still", tmp_path / "book"
    runs.add("clock", f"open({str(book)!r}, 'w').write(open({str(notice)!r}).read())", share=math.inf)
    assert runs.run(hold=notice) == 0
    assert int(book.read_text()) == os.getpid()
    assert not notice.exists()
    assert list(tmp_path.glob(".still*")) == []


def test_a_notice_whose_writer_is_dead_counts_for_nothing(drive: ModuleType, tmp_path: Path) -> None:
    make = sys.modules["driver.notice"].Notice
    path = tmp_path / "still"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path.write_text(f"{dead.pid}\n")
    one, other = make(path), make(path)
    assert not one.asked
    assert not path.exists()
    assert one.put_up()
    assert not other.put_up()
    assert (one.asked, other.asked) == (False, True)
    other.take_down()
    assert other.asked, "another's stays"
    one.take_down()
    assert not other.asked
    assert make(None).put_up()
    assert not make(None).asked
