"""Runs jobs side by side as far as the GPU and their needs allow, and keeps book. Knows no command.

A job is done when its mark is there (done/STAGE/JOB.json) or what it makes is; a stage, when all its jobs are
(done/STAGE.json). A job starts when everything it needs is there and there is room for it (room.py); one that failed,
when another has ended since. Run again, only what is not done is run. Every job leads a process group of its own, so
that it can be held still, with its children, while another reads a clock.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from driver.jobs import Job, Stage
from driver.locks import nobody_writes
from driver.mps import without
from driver.notice import Notice
from driver.room import Limits, admitted, passed
from driver.stillness import Stillness, send

INTERRUPTED = 130
"""the exit code of a training that was stopped and left a checkpoint"""
POLL = 0.2
SETTLE = 1.0
"""seconds from holding jobs still to the first clock: what they had begun on the GPU ends"""
STOPPING = 0.1
"""seconds until a process that is told to stop has stopped"""
SIDE_BY_SIDE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""for trainings: without it, ever new shapes made three of them hold 141 GB that they did not use, and wait for each
other; with it they took 75"""


@dataclass
class Running:
    """A job at work."""

    stage: Stage
    job: Job
    process: subprocess.Popen[bytes]
    begun: float
    told: bool = False
    """to stop"""
    held: float = 0.0
    """seconds it was held still, up to the last time it was let go"""
    held_since: float | None = None
    """when it was stopped, where it is"""

    def hold(self) -> None:
        """Take note that it is stopped; once is enough."""
        self.held_since = self.held_since or time.monotonic()

    def let_go(self) -> None:
        """Take note that it goes on."""
        if self.held_since is not None:
            self.held += time.monotonic() - self.held_since
        self.held_since = None

    @property
    def minutes(self) -> float:
        """Its own time so far: what it was held still for does not count."""
        until = time.monotonic() if self.held_since is None else self.held_since
        return round((until - self.begun - self.held) / 60, 2)


@dataclass
class Times:
    """Of a stage in this run."""

    begun: float
    """its first job"""
    own: float = 0.0
    """minutes of its jobs that ended well, added up"""


def mark(work: Path, stage: Stage, job: Job) -> Path:
    """The file that says that a job is done."""
    return work / "done" / stage.name / f"{job.name}.json"


def done(work: Path, stage: Stage, job: Job) -> bool:
    """By its mark or by what it makes; what gathers is never done for good."""
    return not job.last and (mark(work, stage, job).exists() or job.made)


class Schedule:
    """One run of the driver."""

    def __init__(
        self,
        stages: Sequence[Stage],
        work: Path,
        limits: Limits | None = None,
        tell: Callable[[str], None] = lambda text: print(text, flush=True),
        environment: Mapping[str, str] | None = None,
        hold: Path | None = None,
    ) -> None:
        self._work = work
        self._limits = limits or Limits()
        self._tell = tell
        self._stages = list(stages)
        self._waiting = [(stage, job) for stage in stages for job in stage.jobs if not done(work, stage, job)]
        self._running: list[Running] = []
        self._tries: dict[tuple[str, str], int] = {}
        self._failed: list[tuple[Stage, Job, int]] = []
        self._times: dict[int, Times] = {}
        self._stopping = False
        self._signals: list[str] = []
        self.told_to_end = False
        self._started = self._busy_at = time.monotonic()
        self._environment = dict(environment or {})
        self._still, self._notice = Stillness(), Notice(hold)
        self._ending = False
        self._overtaken: Counter[Job] = Counter()
        self._ends = 0
        self._failed_at: dict[tuple[str, str], int] = {}

    def run(self) -> int:
        """Run what can be run; 0 where nothing failed."""
        # A shell makes what it puts in the background deaf to Ctrl-C, and what is started from there would be deaf too:
        # a handler of our own, whatever it does, is not passed on.
        before = {one: signal.signal(one, self._hear) for one in _heard()}
        try:
            while self._step():
                time.sleep(POLL)
        finally:
            self._notice.take_down()
            self._terminate()
            for one, handler in before.items():
                signal.signal(one, handler)
        return self._close()

    def _hear(self, number: int, frame: object) -> None:
        """Take note of a signal; the next step acts on it, since it may come in the middle of one."""
        self.told_to_end = True
        self._signals.append("interrupted" if number == signal.SIGINT else "terminated")

    def _step(self) -> bool:
        """End what has ended, begin what can begin; false when there is nothing more to wait for."""
        for one in [one for one in self._running if one.process.poll() is not None]:
            self._running.remove(one)
            self._ended(one)
        gone = (time.monotonic() - self._started) / 60
        limit = self._limits.stop_after
        while self._signals:
            # Asked twice, nobody wants to wait for checkpoints.
            if self._stopping:
                self._terminate()
            self._stop(self._signals.pop(0))
        if limit is not None and gone >= limit:
            self._stop(f"{limit:g} minutes are over")
        if limit is not None and gone >= limit + self._limits.grace:
            self._terminate()
        asked = self._notice.asked and not self._ending
        if asked:
            self._hold()
        elif not self._stopping:
            self._begin()
        if not any(one.job.reads_clock for one in self._running):
            self._notice.take_down()
            if not asked:
                self._let_go()
        if self._running:
            self._busy_at = time.monotonic()
        idle = (time.monotonic() - self._busy_at) / 60
        patient = not self._stopping and (asked or idle < self._limits.patience)
        return bool(self._running) or (bool(self._waiting) and patient)

    def _begin(self) -> None:
        """Start what may start: what others wait for first, unless scores are to come before; then in order."""
        ready = [
            (stage, job)
            for stage, job in self._waiting
            if not (job.missing or self._too_soon(stage, job))
            and not (job.last and (self._running or self._ready_others(job)))
        ]
        ready.sort(key=lambda pair: self._later(pair[1]))
        jobs = [job for _, job in ready]
        may = admitted(jobs, [one.job for one in self._running], self._limits, self._overtaken)
        self._overtaken.update(passed(jobs, may))
        for stage, job in [pair for pair in ready if any(pair[1] is one for one in may)]:
            if job.reads_clock:
                if not self._notice.put_up():
                    continue
                self._hold()
                time.sleep(SETTLE)
            self._waiting.remove((stage, job))
            self._start(stage, job)

    def _later(self, job: Job) -> bool:
        first = self._limits.scores_first
        # What waits for an idle GPU would make all that comes after it wait too.
        return job.checkpoints == first or (first and job.reads_clock and not self._limits.interrupt)

    def _too_soon(self, stage: Stage, job: Job) -> bool:
        """A job that failed would fail again where nothing has changed: others have to end first, if there are any."""
        return bool(self._running) and self._failed_at.get((stage.name, job.name)) == self._ends

    def _hold(self) -> None:
        """Hold still what runs, but nothing that is in the middle of writing a record."""
        held = self._still.groups
        if all(one.process.pid in held for one in self._running):
            return
        if not held:
            self._tell(f"  held still: {', '.join(one.job.name for one in self._running)}")
        with nobody_writes(self._work):
            self._still.hold(one.process.pid for one in self._running)
            for one in self._running:
                one.hold()
            time.sleep(STOPPING)

    def _let_go(self) -> None:
        if self._still.groups:
            self._still.let_go()
            for one in self._running:
                one.let_go()

    def _terminate(self) -> None:
        """End everything; what is held still hears of it only when it goes on."""
        self._ending = True
        for one in self._running:
            send(one.process.pid, signal.SIGTERM)
        self._let_go()

    def _ready_others(self, job: Job) -> bool:
        return any(not other.last and not other.missing for _, other in self._waiting if other is not job)

    def _start(self, stage: Stage, job: Job) -> None:
        # By identity: of one stage there may be several parts, each with some of its jobs.
        if id(stage) not in self._times:
            self._times[id(stage)] = Times(time.monotonic())
            self._tell(f"{stage.name}: estimated {stage.minutes} minutes")
        self._tell(f"  {stage.name}/{job.name}: begun, estimated {job.minutes} minutes")
        logs = self._work / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        environment = {**SIDE_BY_SIDE, **os.environ} if job.checkpoints else dict(os.environ)
        environment = without(environment) if job.reads_clock else {**environment, **self._environment}
        with (logs / f"{stage.name}-{job.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *job.command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._running.append(Running(stage, job, process, time.monotonic()))

    def _ended(self, one: Running) -> None:
        stage, job, code = one.stage, one.job, one.process.returncode
        self._ends += 1
        minutes = one.minutes
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"stage": stage.name, "job": job.name, "estimated": job.minutes, "minutes": minutes}
        entry |= {"code": code, "ended": ended}
        with (self._work / "minutes.jsonl").open("a", encoding="utf-8") as book:
            book.write(json.dumps(entry) + "\n")
        if code == 0:
            self._tell(f"  {stage.name}/{job.name}: took {minutes} minutes, estimated {job.minutes}")
            _write(mark(self._work, stage, job), entry)
            self._times[id(stage)].own += minutes
            self._finish(stage)
        elif one.told or code == INTERRUPTED:
            self._tell(f"  {stage.name}/{job.name}: stopped after {minutes} minutes; run again to go on")
        else:
            tries = self._tries[stage.name, job.name] = self._tries.get((stage.name, job.name), 0) + 1
            log = self._work / "logs" / f"{stage.name}-{job.name}.log"
            self._tell(f"  {stage.name}/{job.name}: exit code {code} after {minutes} minutes; see {log}")
            self._failed_at[stage.name, job.name] = self._ends
            if tries <= self._limits.retries and not self._stopping:
                self._waiting.append((stage, job))
            else:
                self._failed.append((stage, job, code))

    def _finish(self, stage: Stage) -> None:
        """Mark a stage whose jobs are all done. What it says to have taken is wall-clock time, in which other stages'
        jobs ran too, or its own waited."""
        left = [*self._waiting, *((one.stage, one.job) for one in self._running)]
        if any(other is stage for other, _ in left) or any(other is stage for other, *_ in self._failed):
            return
        times = self._times[id(stage)]
        minutes, own = round((time.monotonic() - times.begun) / 60, 2), round(times.own, 2)
        told = {"stage": stage.name, "estimated": stage.minutes, "minutes": minutes, "jobs": len(stage.jobs)}
        told["own"] = own
        if not stage.partial:
            _write(self._work / "done" / f"{stage.name}.json", told)
        self._tell(
            f"{stage.name}: {own} minutes of jobs' own, {minutes} from the first one's start to the last one's end, "
            f"estimated {stage.minutes}"
        )

    def _stop(self, why: str) -> None:
        """Start nothing more; what keeps checkpoints is told to leave one, the rest may end, but not what others are
        held still for: they need the time that is left."""
        if not self._stopping:
            self._tell(f"stopping: {why}")
        self._stopping = True
        for one in self._running:
            holds = one.job.reads_clock and bool(self._still.groups)
            if (one.job.checkpoints or holds) and not one.told:
                one.told = True
                one.process.send_signal(signal.SIGINT if one.job.checkpoints else signal.SIGTERM)

    def _close(self) -> int:
        minutes = (time.monotonic() - self._started) / 60
        self._tell(f"{minutes:.1f} minutes in all")
        for stage, job in self._waiting:
            missing = ", ".join(map(str, job.missing))
            self._tell(f"  {stage.name}/{job.name}: not begun" + (f", waits for {missing}" if missing else ""))
        for stage, job, code in self._failed:
            self._tell(f"  {stage.name}/{job.name}: failed with exit code {code}")
        return 1 if self._failed else 0


def _heard() -> list[signal.Signals]:
    """What ends a driver; a terminal that is closed only where nobody asked to outlive it."""
    lost = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *lost]


def _write(path: Path, values: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(values) + "\n", encoding="utf-8")
    temporary.replace(path)
