"""What may run at once: never more memory than there is, no clock beside anything, and everything at some time."""

from __future__ import annotations

import math
import sys
from collections import Counter
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.house.conftest import Runs

SHARES = st.sampled_from([0.0, 0.2, 0.3, 0.4, 0.5, 0.9, 1.5, math.inf])
MEMORY = st.sampled_from([0.0, 5.0, 9.0, 12.0, 20.0, 46.6, 90.0, 200.0])


@given(
    sizes=st.lists(st.tuples(SHARES, MEMORY), max_size=14),
    memory=st.sampled_from([20.0, 60.0, 130.0]),
    share=st.sampled_from([1.2, 2.6]),
    parallel=st.integers(1, 8),
    interrupt=st.booleans(),
    choice=st.randoms(use_true_random=False),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_nothing_is_ever_exceeded_and_all_is_run(
    drive: ModuleType,
    sizes: list[tuple[float, float]],
    memory: float,
    share: float,
    parallel: int,
    interrupt: bool,
    choice: Any,
) -> None:
    jobs, room = sys.modules["driver.jobs"], sys.modules["driver.room"]
    limits = room.Limits(parallel=parallel, share=share, memory=memory, interrupt=interrupt)
    waiting = [jobs.Job(str(number), (), 1.0, *size) for number, size in enumerate(sizes)]
    running: list[Any] = []
    overtaken: Counter[Any] = Counter()
    while waiting or running:
        begun = room.admitted(waiting, running, limits, overtaken)
        overtaken.update(room.passed(waiting, begun))
        assert begun or running, "an idle GPU takes any"
        assert [one.name for one in begun] == [one.name for one in waiting if one in begun], "in order"
        running += begun
        waiting = [one for one in waiting if one not in begun]
        heavy = [one for one in running if one.gigabytes]
        assert sum(one.gigabytes for one in heavy) <= memory or len(heavy) == 1
        clocks, others = [one for one in running if one.reads_clock], [one for one in running if not one.reads_clock]
        assert len(clocks) <= 1
        assert not clocks or interrupt or not any(one.share for one in others)
        assert len(running) <= parallel + (1 if interrupt else 0)
        # Those beside a clock are held still: it is the clock that ends.
        running.remove(clocks[0] if clocks else choice.choice(running))


def test_a_large_job_is_not_passed_for_ever(drive: ModuleType) -> None:
    jobs, room = sys.modules["driver.jobs"], sys.modules["driver.room"]
    large, many = jobs.Job("large", (), 1.0, 0.9), [jobs.Job(str(number), (), 1.0, 0.4) for number in range(40)]
    limits, overtaken = room.Limits(share=1.3), Counter[Any]()
    running, waiting = many[:2], [large, *many[2:]]
    while large in waiting:
        begun = room.admitted(waiting, running, limits, overtaken)
        overtaken.update(room.passed(waiting, begun))
        waiting = [one for one in waiting if one not in begun]
        running = [*running, *begun][1:]
    assert len(waiting) > 30


def test_jobs_keep_within_the_memory(runs: Runs) -> None:
    book = str(runs.work / "book")
    code = f"import time; open({book!r}, 'a').write('+'); time.sleep(0.5); open({book!r}, 'a').write('-')"
    for name in ("a", "b", "c"):
        runs.add(name, code, share=0.1, gigabytes=50.0)
    assert runs.run(memory=110.0) == 0
    trail = (runs.work / "book").read_text()
    assert trail.count("+") == 3
    assert max(trail[:end].count("+") - trail[:end].count("-") for end in range(len(trail) + 1)) == 2


def test_scores_come_first_where_asked(runs: Runs) -> None:
    book = str(runs.work / "book")
    for name, more in (("training", {"checkpoints": True}), ("clock", {}), ("score", {})):
        share = math.inf if name == "clock" else 1.0
        runs.add(name, f"open({book!r}, 'a').write({name[0]!r})", share=share, **more)
    assert runs.run(scores_first=True) == 0
    assert (runs.work / "book").read_text() == "stc", "what waits for an idle GPU does not hold trainings up"


def test_the_share_is_larger_where_kernels_run_at_once(drive: ModuleType) -> None:
    line, jobs = sys.modules["driver.command_line"], sys.modules["driver.jobs"]
    asked = drive.parser().parse_args(["--memory", "60", "--interrupt-for-timing"])
    assert (line.limits(asked).share, line.limits(asked, at_once=True).share) == (jobs.GPU, jobs.GPU_AT_ONCE)
    assert (line.limits(asked).memory, line.limits(asked).interrupt) == (60.0, True)
    asked = drive.parser().parse_args(["--share", "0.7"])
    assert line.limits(asked, at_once=True).share == pytest.approx(0.7)
