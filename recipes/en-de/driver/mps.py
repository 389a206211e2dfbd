"""NVIDIA's multi-process service: kernels of several processes run at once on one GPU instead of in turns.

It is tried before it is used; where it is not there or does not work, one sentence says so and all goes on without.
Knows no job.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
VARIABLES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
PREFIX = "CUDA_MPS_"
TRIAL = """
import torch
x = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
for _ in range(100):
    y = x @ x
torch.cuda.synchronize()
"""
"""what two processes do at the same time"""
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""what trainings side by side use, and what was once said not to work with the service"""
SECONDS = 90.0
LONGEST = 80
"""characters of the folder's name: the service puts sockets into it, whose names may have 107"""


class Service:
    """The daemon, from start to stop."""

    def __init__(self, folder: Path, trial: Sequence[str] = (sys.executable, "-c", TRIAL)) -> None:
        self._folder = folder.absolute()
        self._trial = list(trial)
        self._running = False

    @property
    def environment(self) -> dict[str, str]:
        """What its users are told; nothing where it does not run."""
        names = ("pipe", "log")
        return (
            {key: str(self._folder / name) for key, name in zip(VARIABLES, names, strict=True)} if self._running else {}
        )

    def start(self, tell: Callable[[str], None]) -> bool:
        """Start it and try it; false, and a sentence about why, where it cannot be used."""
        problem = self._start()
        if problem:
            self.stop()
            tell(f"MPS is not used: {problem}.")
        return not problem

    def stop(self) -> None:
        """End it, if it runs."""
        if not self._running:
            return
        told = {**os.environ, **self.environment}
        self._running = False
        # One that does not hear is idle, and ends with the machine.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([CONTROL], input=b"quit\n", env=told, timeout=20, capture_output=True, check=False)

    def _start(self) -> str:
        """Empty, or why it cannot be used."""
        if shutil.which(CONTROL) is None:
            return f"there is no {CONTROL}"
        if len(str(self._folder)) > LONGEST:
            return f"its folder's name has {len(str(self._folder))} characters, and may have {LONGEST}: {self._folder}"
        for name in ("pipe", "log"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        self._running = True
        told = {**os.environ, **EXPANDABLE, **self.environment}
        try:
            # Its output must not be a pipe: the daemon keeps what it was begun with.
            with (self._folder / "start.log").open("wb") as log:
                code = subprocess.run(
                    [CONTROL, "-d"], env=told, timeout=20, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
                ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{CONTROL} did not start ({error})"
        if code:
            return f"{CONTROL} ended with exit code {code}, see {self._folder / 'start.log'}"
        return self._try(told)

    def _try(self, told: Mapping[str, str]) -> str:
        with (self._folder / "trial.log").open("wb") as log:
            both = [
                subprocess.Popen(self._trial, env=dict(told), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                for _ in range(2)
            ]
            until = time.monotonic() + SECONDS
            try:
                codes = [one.wait(max(0.1, until - time.monotonic())) for one in both]
            except subprocess.TimeoutExpired:
                return f"two small programs did not end in {SECONDS:g} seconds, see {log.name}"
            finally:
                for one in both:
                    if one.poll() is None:
                        one.kill()
                        one.wait()
        return f"two small programs ended with exit codes {codes}, see {log.name}" if any(codes) else ""


def without(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which the service is not used, for what reads a clock."""
    return {key: value for key, value in environment.items() if not key.startswith(PREFIX)}
