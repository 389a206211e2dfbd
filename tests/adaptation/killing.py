"""Runs a command again and again, killed with -9 at random moments, and at last to its end. Forks: one import for all.

python -m tests.adaptation.killing KILLS SEED REFERENCE_OUT KILLED_OUT -- ARGUMENTS of longstride, without -o
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import torch
import torch._dynamo  # seconds, by the first optimizer that is made: before the first fork


def life(arguments: list[str], seconds: float | None = None) -> int | None:
    """Run in a process of its own, killed after so many seconds; its exit code, None where it was killed."""
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        from longstride.cli.main import main

        os._exit(main(arguments))
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.002)


def main(kills: int, seed: int, reference: str, killed: str, arguments: list[str]) -> int:
    """Once without and once with kills; says how many there were."""
    torch.set_num_threads(1)
    import longstride.adaptation.adapt
    import longstride.cli.adapt
    import longstride.cli.main  # noqa: F401 all of it before the first fork

    draw = random.Random(seed)
    begun = time.monotonic()
    if code := life([*arguments, "-o", reference]):
        return code
    whole = time.monotonic() - begun
    done = 0
    while done < kills:
        code = life([*arguments, "-o", killed], draw.uniform(0, 2 * whole / kills))
        if code is not None:
            break  # it was through before its time came
        done += 1
    print(f"killed {done} times, {whole:.1f} seconds without")
    return life([*arguments, "-o", killed]) or 0


if __name__ == "__main__":
    kills, seed, reference, killed, _, *arguments = sys.argv[1:]
    sys.exit(main(int(kills), int(seed), reference, killed, arguments))
