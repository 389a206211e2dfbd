"""`python -m tests.fuzz`: random cases for so many minutes, or so many cases; exit 1 if anything was found."""

from __future__ import annotations

import os

# Before anything is imported: no pools of threads in a process that forks.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import argparse
import gc
import io
import itertools
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import torch

from tests.fuzz import findings, material
from tests.fuzz.checks import command_of
from tests.fuzz.child import Outcome
from tests.fuzz.findings import Book
from tests.fuzz.grammar import ROOT, commands, entry_point
from tests.fuzz.pool import Pool, remove

AHEAD = ("onnx", "matplotlib.backends.backend_agg", "transformers.models.marian.modeling_marian")
"""Slow imports that commands leave until they need them; here once for all cases."""


def main() -> int:
    """Parse, run, tell."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on (default: 10)")
    parser.add_argument("--cases", type=int, help="end after so many cases, however long they take")
    parser.add_argument("--seed", type=int, help="draws the cases (default: a new one)")
    parser.add_argument("--case", help="run SEED:NUMBER again, show all of it and keep its folder")
    parser.add_argument("--workers", type=int, default=1, help="cases at a time (default: 1)")
    parser.add_argument("--findings", type=Path, help="write what was found to this file, too, as it is found")
    told = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"  # of their processes
    for name in AHEAD:
        try:
            import_module(name)
        except ImportError:
            print(f"without {name}", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="longstride-fuzz-"))
    folder.chmod(0o755)
    try:
        if told.case:
            seed, number = map(int, told.case.split(":"))
            return _again(seed, number, folder)
        seed = told.seed if told.seed is not None else random.SystemRandom().randrange(10**6)
        return _search(seed, folder, told)
    finally:
        remove(folder / "cases" if told.case is None else folder / "material")
        if not told.case:
            remove(folder)


def _warm_up(model: Path) -> None:
    """What every command does the first time it is called in a process, done once for all of them."""
    carry_out = import_module("longstride.cli.main").main
    keep = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"a b\n"), encoding="utf-8")
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    try:
        carry_out(["translate", "-m", str(model)])
        carry_out(["translate", "--threads", "none"])
    finally:
        sys.stdin, sys.stdout, sys.stderr = keep


def _pool(seed: int, folder: Path, workers: int = 1, keep: bool = False) -> Pool:
    made = material.make(folder / "material")
    cases = folder / "cases"
    cases.mkdir()
    _warm_up(folder / "material" / "tiny")
    gc.collect()
    gc.freeze()  # what is here by now is not looked through again in every process, which would copy its pages
    return Pool(seed, cases, made, commands(), entry_point(), workers, keep)


def _search(seed: int, folder: Path, told: argparse.Namespace) -> int:
    began = time.monotonic()
    pool = _pool(seed, folder, told.workers)
    book, codes, cases = Book(seed), Counter[str](), 0
    seconds: dict[str, list[float]] = defaultdict(list)
    print(f"seed {seed}: {len(pool.commands)} commands", flush=True)

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            if number == told.cases or (told.cases is None and time.monotonic() - began > 60 * told.minutes):
                return
            yield number

    for number, outcome in pool.outcomes(numbers()):
        cases += 1
        codes[str(outcome.code)] += 1
        seconds[command_of(outcome.argv)].append(outcome.seconds)
        for new in book.add(number, outcome):
            print(f"\n{new.told()}".encode("utf-8", "backslashreplace").decode(), flush=True)
            if told.findings:
                book.write(told.findings, cases)
    if told.findings:
        book.write(told.findings, cases)
    for name, taken in sorted(seconds.items()):
        print(
            f"{len(taken):6} {name or '(none)':16} {sum(taken) / len(taken):5.2f} s each, {max(taken):5.1f} s at most"
        )
    exits = ", ".join(f"{count} of exit {code}" for code, count in sorted(codes.items()))
    print(f"\n{cases} cases of seed {seed} in {(time.monotonic() - began) / 60:.1f} minutes ({exits}).")
    print(f"{len(book.seen)} findings." if book.seen else "Nothing found.")
    return int(bool(book.seen))


def _again(seed: int, number: int, folder: Path) -> int:
    """One case, all that can be seen of it, and its folder left for a closer look."""
    ((_, outcome),) = _pool(seed, folder, keep=True).outcomes(iter([number]))
    _show(outcome, folder / "cases" / str(number) / "here")
    return int(bool(outcome.findings))


def _show(outcome: Outcome, folder: Path) -> None:
    lines = [
        f"folder  {folder}",
        f"shell   {findings.shell(outcome)}",
        f"faults  {', '.join(outcome.faults) or 'none'}",
        f"exit    {outcome.code}",
        *(f"stdout  {line}" for line in outcome.out.split("\n")[:40] if line),
        *(f"stderr  {line}" for line in outcome.err.split("\n")[-40:] if line),
        *(f"found   {one.kind} at {one.place}: {one.told}\n{one.traceback}" for one in outcome.findings),
    ]
    print("\n".join(lines).encode("utf-8", "backslashreplace").decode())


if __name__ == "__main__":
    sys.exit(main())
