"""Carry out a pipeline of commands: whatever is not done yet, and all that follows from what has changed.

    python recipes/pipeline.py recipes/en-de/half-hour.yaml [--set work=runs/other] [--minutes 28] [--dry-run]

A stage is done when its outputs are there and were made by the same commands from the same inputs, by content; that is
written to WORK/stages/NAME.json, what its commands print to WORK/logs/NAME.log. Ctrl-C lets commands leave what they
leave when they are interrupted; run again, they go on. A stage that is to be made anew from something else begins with
nothing: what it made before is kept as NAME.old. pipeline_file.py says what is in a pipeline file.

Exit codes: 0 fine (also where --minutes were over), 1 a stage failed, 2 misused, 130 interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where this is imported, not run

from pipeline_file import Pipeline, Stage, read_pipeline

from longstride.contract import InputError
from longstride.text.files import file_sha256, lock_file, written_whole

POLL = 0.05
"""seconds between looks at what runs"""
LAST_LINES = 15
"""of a failed stage's log, which are shown"""
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROGRAMS = {"longstride": [sys.executable, "-m", "longstride"], "python": [sys.executable]}


@dataclass
class Running:
    """A stage at work."""

    stage: Stage
    state: dict[str, Any]
    log: IO[bytes]
    process: subprocess.Popen[bytes]
    left: list[str]
    """commands that come after this one"""
    begun: float = field(default_factory=time.monotonic)


class Runner:
    """What is done, what is to do, and the doing of it."""

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None] = print) -> None:
        self.pipeline, self.work, self.tell = pipeline, pipeline.work, tell
        self.asked_to_stop = 0
        """how often a signal has asked"""
        self._hashes: dict[tuple[str, int, int], str] = {}
        self._makers = {path: stage.name for stage in pipeline.stages for path in stage.outputs}
        self._needs = {stage.name: list(filter(None, map(self._maker, stage.inputs))) for stage in pipeline.stages}
        self._lock = -1

    def state(self, stage: Stage) -> dict[str, Any]:
        """What was written down about a stage."""
        path = self._state_path(stage)
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}

    def reason(self, stage: Stage) -> str:
        """Why a stage has to be carried out; empty where it is done."""
        state = self.state(stage)
        if not state:
            return "never run"
        if state["commands"] != list(stage.commands):
            return "its command changed"
        changed = [path for path in (*stage.inputs, *state["inputs"]) if state["inputs"].get(path) != self.hash(path)]
        if changed:
            return f"{changed[0]} changed"
        if not state["done"]:
            return "not finished"
        return next((f"{path} is missing" for path in stage.outputs if not os.path.exists(path)), "")

    def plan(self, chosen: Sequence[Stage]) -> dict[str, str]:
        """Stages that would be carried out, and why. Writes nothing."""
        found: dict[str, str] = {}
        for stage in chosen:
            before = [maker for maker in self._needs[stage.name] if maker in found]
            if any(path.startswith(f"{self.work}/") and not self._maker(path) for path in stage.inputs):
                before += found  # what no stage makes, as records, all may add to
            if why := (f"after {before[0]}" if before else self.reason(stage)):
                found[stage.name] = why
        return found

    def touch(self, chosen: Sequence[Stage]) -> None:
        """Take what is there for what would be made."""
        with self._alone():
            for stage in chosen:
                if stage.outputs and all(map(os.path.exists, stage.outputs)) and not self._lacking(stage):
                    self._write(stage, {**self._new_state(stage), "done": True})
                    self.tell(f"{stage.name}: taken as done")

    def run(self, chosen: Sequence[Stage], minutes: float | None = None, jobs: int | None = None) -> int:
        """Carry out what is not done; the exit code."""
        for program in {shlex.split(command)[0] for stage in chosen for command in stage.commands}:
            if program not in PROGRAMS and shutil.which(program) is None:
                raise InputError(f"{program}: expected a program, found none of that name.")
        running = list[Running]()
        with self._alone():
            try:
                return self._run(list(chosen), running, minutes, jobs or self.pipeline.jobs)
            finally:
                self._signal(running, signal.SIGTERM)  # where this very loop has failed

    def _run(self, waiting: list[Stage], running: list[Running], minutes: float | None, jobs: int) -> int:
        end = time.monotonic() + 60 * minutes if minutes is not None else None
        failed, stopped, heard = list[str](), False, 0
        while waiting or running:
            while not (stopped or self.asked_to_stop) and (stage := self._next(waiting, running, jobs)):
                why = self.reason(stage)
                if why and end is not None and time.monotonic() + 60 * stage.minutes > end:
                    self.tell(f"{stage.name}: not begun, {stage.minutes:g} minutes are more than are left")
                    stopped = True
                    break
                waiting.remove(stage)
                if lacking := self._lacking(stage, failed):
                    self.tell(f"{stage.name}: not begun, needs {lacking}")
                    failed.append(stage.name)
                elif why:
                    running.append(self._begin(stage, why))
            if (stopped or self.asked_to_stop) and not running:
                break
            time.sleep(POLL)
            if self.asked_to_stop > heard:
                self._signal(running, signal.SIGINT if heard == 0 else signal.SIGKILL)
                heard = self.asked_to_stop
            for one in [one for one in running if one.process.poll() is not None]:
                if one.process.returncode == 0 and one.left and not self.asked_to_stop:
                    one.process = self._start(one.left.pop(0), one.log)
                    continue
                running.remove(one)
                if not self._ended(one):
                    failed.append(one.stage.name)
        if self.asked_to_stop:
            return INTERRUPTED
        if waiting or failed:
            told = [f"{len(waiting)} stages left"] * bool(waiting) + [f"failed: {', '.join(failed)}"] * bool(failed)
            self.tell("; ".join(told))
        return 1 if failed else 0

    def stop(self, *_: object) -> None:
        """A signal's handler: the first lets commands end as when they are interrupted, the second ends them."""
        self.asked_to_stop += 1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else may work here, nor may commands of a runner that was killed still be at it: they hold it too."""
        folder = self.work / "stages"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not lock_file(self._lock):
                raise InputError(f"{self.work}: expected a folder that nobody works in, found another run at it.")
            yield
        finally:
            os.close(self._lock)

    def hash(self, path: str) -> str:
        """Of a file's bytes, or of a folder's files and their names; empty where there is nothing."""
        if not os.path.isdir(path):
            return self._file_hash(path) if os.path.isfile(path) else ""
        files = sorted(one for one in Path(path).rglob("*") if one.is_file())
        told = [f"{one.relative_to(path)} {self._file_hash(str(one))}" for one in files]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()

    def _file_hash(self, path: str) -> str:
        found = os.stat(path)
        key = path, found.st_size, found.st_mtime_ns
        if key not in self._hashes:
            self._hashes[key] = file_sha256(path)
        return self._hashes[key]

    def _next(self, waiting: list[Stage], running: list[Running], jobs: int) -> Stage | None:
        """The first stage that may begin: one that runs alone waits for all before it, and all after it for it."""
        if running and not (running[0].stage.beside and len(running) < jobs):
            return None
        unfinished = {one.stage.name for one in running}
        for stage in waiting:
            if not stage.beside and unfinished:
                return None
            if not unfinished.intersection(self._needs[stage.name]):
                return stage
            unfinished.add(stage.name)
        return None

    def _maker(self, path: str) -> str:
        """The stage that makes a file or what it lies in."""
        above = (str(one) for one in (Path(path), *Path(path).parents))
        return next((self._makers[one] for one in above if one in self._makers), "")

    def _lacking(self, stage: Stage, failed: Sequence[str] = ()) -> str:
        """What a stage cannot begin without."""
        for path in stage.inputs:
            maker = self._maker(path)
            if maker in failed or not os.path.exists(path):
                return f"{path}, which {maker} makes" if maker else path
        return ""

    def _begin(self, stage: Stage, why: str) -> Running:
        state, before = self._new_state(stage), self.state(stage)
        if before and any(before[name] != state[name] for name in ("commands", "inputs")):
            for path in filter(os.path.exists, stage.makes):
                _set_aside(Path(path))
        self._write(stage, state)
        for path in stage.outputs:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.tell(f"{stage.name}: begun ({why}), estimated {stage.minutes:g} minutes")
        path = self._log_path(stage)
        path.parent.mkdir(parents=True, exist_ok=True)
        log = path.open("ab")
        first, *left = stage.commands
        return Running(stage, state, log, self._start(first, log), left)

    def _start(self, command: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        program, *words = shlex.split(command)
        log.write(f"$ {command}\n".encode())
        log.flush()
        return subprocess.Popen(
            [*PROGRAMS.get(program, [program]), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a terminal's Ctrl-C reaches this process alone, which passes it on once
            pass_fds=[self._lock],
        )

    def _ended(self, one: Running) -> bool:
        """Whether all is well; what was interrupted is."""
        one.log.close()
        stage, code = one.stage, one.process.returncode
        taken = round((time.monotonic() - one.begun) / 60, 2)
        missing = [path for path in stage.outputs if not os.path.exists(path)] if code == 0 else []
        if self.asked_to_stop and (code or one.left):
            self.tell(f"{stage.name}: stopped after {taken:g} minutes; run again to go on")
            return True
        if code or missing:
            told = f"exit code {code}" if code else f"no {missing[0]}"
            lines = self._log_path(stage).read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
            self.tell("\n".join([f"{stage.name}: failed after {taken:g} minutes with {told}", *lines]))
            return False
        self._write(stage, {**one.state, "done": True, "minutes": taken, "estimated": stage.minutes})
        self.tell(f"{stage.name}: took {taken:g} minutes, estimated {stage.minutes:g}")
        return True

    def _signal(self, running: Sequence[Running], what: signal.Signals) -> None:
        for one in running:
            if one.process.poll() is None:
                os.killpg(one.process.pid, what)

    def _new_state(self, stage: Stage) -> dict[str, Any]:
        inputs = {path: self.hash(path) for path in stage.inputs}
        return {"commands": list(stage.commands), "inputs": inputs, "done": False}

    def _state_path(self, stage: Stage) -> Path:
        return self.work / "stages" / f"{stage.name}.json"

    def _log_path(self, stage: Stage) -> Path:
        return self.work / "logs" / f"{stage.name}.log"

    def _write(self, stage: Stage, state: dict[str, Any]) -> None:
        with written_whole(self._state_path(stage)) as temporary:
            temporary.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


def _set_aside(path: Path) -> None:
    old = path.with_name(f"{path.name}.old")
    if old.is_dir():
        shutil.rmtree(old)
    os.replace(path, old)


def choose(pipeline: Pipeline, only: str = "", first: str = "") -> list[Stage]:
    """The stages that names or patterns tell (STAGE, STAGE/NAME, separated by commas), or all from one of them on."""
    chosen = list(pipeline.stages)
    if first:
        chosen = chosen[chosen.index(_named(chosen, first)[0]) :]
    if only:
        found = {one.name for text in only.split(",") for one in _named(chosen, text)}
        chosen = [one for one in chosen if one.name in found]
    return chosen


def _named(stages: Sequence[Stage], text: str) -> list[Stage]:
    found = [one for one in stages if fnmatchcase(one.name, text) or fnmatchcase(one.name.partition("/")[0], text)]
    if not found:
        names = dict.fromkeys(one.name.partition("/")[0] for one in stages)
        raise InputError(f"{text}: expected one of the stages {', '.join(names)}, found no such stage.")
    return found


def show(runner: Runner, chosen: Sequence[Stage], commands: bool) -> None:
    """What would be carried out."""
    plan = runner.plan(chosen)
    for stage in chosen:
        why = plan.get(stage.name)
        runner.tell(f"{stage.name}: " + (f"to do ({why}), estimated {stage.minutes:g} minutes" if why else "done"))
        for command in stage.commands if commands else ():
            runner.tell(f"  {command}")
    left = sum(stage.minutes for stage in chosen if stage.name in plan)
    runner.tell(f"{len(plan)} of {len(chosen)} stages to do, about {left:.0f} minutes one after another")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(
        "pipeline.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="pipeline, a YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another value of a variable")
    parser.add_argument("--only", default="", help="these stages alone, separated by commas; STAGE/NAME, patterns too")
    parser.add_argument("--from", default="", dest="first", help="this stage and those after it")
    parser.add_argument("--minutes", type=float, help="begin nothing that is estimated to end later than that")
    parser.add_argument(
        "--jobs", type=int, help="stages at once, of those that may (default: as the file has it, or 1)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what is done and what there is to do, and leave")
    parser.add_argument("--commands", action="store_true", help="the same, with all commands")
    parser.add_argument("--touch", action="store_true", help="take outputs that are there as done; run nothing")
    asked = parser.parse_args(arguments)
    try:
        if wrong := [one for one in asked.set if "=" not in one]:
            raise InputError(f"--set: expected name=value, found {wrong[0]!r}.")
        changes = dict(one.split("=", 1) for one in asked.set)
        pipeline = read_pipeline(asked.file, changes)
        runner = Runner(pipeline, lambda text: print(text, flush=True))
        chosen = choose(pipeline, asked.only, asked.first)
        if asked.dry_run or asked.commands:
            show(runner, chosen, asked.commands)
            return 0
        if asked.touch:
            runner.touch(chosen)
            return 0
        heard = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, runner.stop) for one in heard}
        if signal.SIGINT not in heard:  # begun by a script with `&`: commands would inherit that, and are stopped by it
            before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            return runner.run(chosen, asked.minutes, asked.jobs)
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
