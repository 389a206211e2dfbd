"""Runs jobs side by side as far as the GPU and their needs allow, and keeps book. Knows no command.

A job is done when its mark is there (done/STAGE/JOB.json) or what it makes is; a stage, when all its jobs are
(done/STAGE.json). A job starts when everything it needs is there. Run again, only what is not done is run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from driver.jobs import GPU, Job, Stage

INTERRUPTED = 130
"""the exit code of a training that was stopped and left a checkpoint"""
POLL = 0.2
SIDE_BY_SIDE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""for trainings: without it, ever new shapes made three of them hold 141 GB that they did not use, and wait for each
other; with it they took 75"""


@dataclass(frozen=True)
class Limits:
    """How much at once, how long, how often."""

    parallel: int = 8
    share: float = GPU
    retries: int = 1
    stop_after: float | None = None
    """minutes until no more jobs are started and trainings are told to stop"""
    grace: float = 1.5
    """minutes that jobs then have to end"""


@dataclass
class Running:
    """A job at work."""

    stage: Stage
    job: Job
    process: subprocess.Popen[bytes]
    begun: float
    told: bool = False
    """to stop"""


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
    ) -> None:
        self._work = work
        self._limits = limits or Limits()
        self._tell = tell
        self._stages = list(stages)
        self._waiting = [(stage, job) for stage in stages for job in stage.jobs if not done(work, stage, job)]
        self._running: list[Running] = []
        self._tries: dict[tuple[str, str], int] = {}
        self._failed: list[tuple[Stage, Job, int]] = []
        self._begun: dict[str, float] = {}
        self._stopping = False
        self._started = time.monotonic()

    def run(self) -> int:
        """Run what can be run; 0 where nothing failed."""
        before = signal.signal(signal.SIGTERM, lambda *_: self._stop("terminated"))
        # A shell makes what it puts in the background deaf to Ctrl-C, and what is started from there would be deaf too.
        heard = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            while self._step():
                try:
                    time.sleep(POLL)
                except KeyboardInterrupt:
                    self._stop("interrupted")
        finally:
            signal.signal(signal.SIGTERM, before)
            signal.signal(signal.SIGINT, heard)
            for one in self._running:
                one.process.terminate()
        return self._close()

    def _step(self) -> bool:
        """End what has ended, begin what can begin; false when there is nothing more to wait for."""
        for one in [one for one in self._running if one.process.poll() is not None]:
            self._running.remove(one)
            self._ended(one)
        gone = (time.monotonic() - self._started) / 60
        limit = self._limits.stop_after
        if limit is not None and gone >= limit:
            self._stop(f"{limit:g} minutes are over")
        if limit is not None and gone >= limit + self._limits.grace:
            for one in self._running:
                one.process.terminate()
        if not self._stopping:
            self._begin()
        return bool(self._running)

    def _begin(self) -> None:
        """Start jobs in order, what others wait for first. One that does not fit lets only such pass as could run
        beside it."""
        held = 0.0
        for stage, job in sorted(self._waiting, key=lambda pair: not pair[1].checkpoints):
            if job.missing or (job.last and (self._running or self._ready_others(job))):
                continue
            if len(self._running) >= self._limits.parallel:
                break
            used = sum(one.job.share for one in self._running)
            # An idle GPU takes any job, however large its share.
            if used and max(used, held) + job.share > self._limits.share + 1e-6:
                held = max(held, job.share)
                continue
            self._waiting.remove((stage, job))
            self._start(stage, job)

    def _ready_others(self, job: Job) -> bool:
        return any(not other.last and not other.missing for _, other in self._waiting if other is not job)

    def _start(self, stage: Stage, job: Job) -> None:
        if stage.name not in self._begun:
            self._begun[stage.name] = time.monotonic()
            self._tell(f"{stage.name}: estimated {stage.minutes} minutes")
        self._tell(f"  {stage.name}/{job.name}: begun, estimated {job.minutes} minutes")
        logs = self._work / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        environment = {**SIDE_BY_SIDE, **os.environ} if job.checkpoints else None
        with (logs / f"{stage.name}-{job.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *job.command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )
        self._running.append(Running(stage, job, process, time.monotonic()))

    def _ended(self, one: Running) -> None:
        stage, job, code = one.stage, one.job, one.process.returncode
        minutes = round((time.monotonic() - one.begun) / 60, 2)
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"stage": stage.name, "job": job.name, "estimated": job.minutes, "minutes": minutes}
        entry |= {"code": code, "ended": ended}
        with (self._work / "minutes.jsonl").open("a", encoding="utf-8") as book:
            book.write(json.dumps(entry) + "\n")
        if code == 0:
            self._tell(f"  {stage.name}/{job.name}: took {minutes} minutes, estimated {job.minutes}")
            _write(mark(self._work, stage, job), entry)
            self._finish(stage)
        elif one.told or code == INTERRUPTED:
            self._tell(f"  {stage.name}/{job.name}: stopped after {minutes} minutes; run again to go on")
        else:
            tries = self._tries[stage.name, job.name] = self._tries.get((stage.name, job.name), 0) + 1
            log = self._work / "logs" / f"{stage.name}-{job.name}.log"
            self._tell(f"  {stage.name}/{job.name}: exit code {code} after {minutes} minutes; see {log}")
            if tries <= self._limits.retries and not self._stopping:
                self._waiting.append((stage, job))
            else:
                self._failed.append((stage, job, code))

    def _finish(self, stage: Stage) -> None:
        """Mark a stage whose jobs are all done."""
        left = [*self._waiting, *((one.stage, one.job) for one in self._running)]
        if any(other is stage for other, _ in left) or any(other is stage for other, *_ in self._failed):
            return
        minutes = round((time.monotonic() - self._begun[stage.name]) / 60, 2)
        told = {"stage": stage.name, "estimated": stage.minutes, "minutes": minutes, "jobs": len(stage.jobs)}
        if not stage.partial:
            _write(self._work / "done" / f"{stage.name}.json", told)
        self._tell(f"{stage.name}: took {minutes} minutes, estimated {stage.minutes}")

    def _stop(self, why: str) -> None:
        """Start nothing more; what keeps checkpoints is told to leave one, the rest may end."""
        if not self._stopping:
            self._tell(f"stopping: {why}")
        self._stopping = True
        for one in self._running:
            if one.job.checkpoints and not one.told:
                one.told = True
                one.process.send_signal(signal.SIGINT)

    def _close(self) -> int:
        minutes = (time.monotonic() - self._started) / 60
        self._tell(f"{minutes:.1f} minutes in all")
        for stage, job in self._waiting:
            missing = ", ".join(map(str, job.missing))
            self._tell(f"  {stage.name}/{job.name}: not begun" + (f", waits for {missing}" if missing else ""))
        for stage, job, code in self._failed:
            self._tell(f"  {stage.name}/{job.name}: failed with exit code {code}")
        return 1 if self._failed else 0


def _write(path: Path, values: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(values) + "\n", encoding="utf-8")
    temporary.replace(path)
