"""The server's scheduler by itself, in one process and without HTTP: what it can do, beside static batches of 64, and
how long sentences take that come at random, beside one that is alone.

    python benchmarks/scheduler_load.py -m MODEL --drafter FOLDER --lines FILE --record OUT.jsonl
    python benchmarks/scheduler_load.py                       # the bundled model, some lines of our own

Needs no more than the package itself. On a GPU it runs CUDA graphs in fp16, else the native runtime in int8.
Sentences are token ids before anything is timed, and outputs are not made into text.

- static: the next 64 sentences in the order in which they came are decoded until all are done, then the next 64; the
  way of servers that collect a batch. By every decoder that is named, since greedy may be the fastest for 64 rows.
- sorted: all sentences known beforehand, by length, rows refilled: what no server can do.
- capacity: the scheduler with more waiting than it has rows, by numbers of rows.
- parts: milliseconds of an iteration, and what is added to it where as many sentences are admitted at every one as
  there is room for, by numbers of rows: four with, four without, which those that wait for rows keep busy.
- alone: one sentence after another through the scheduler.
- poisson: arrivals at random, at so much of the largest capacity.

Each writes one record, a JSON line. Aims: capacity at least 1.5 times static; p50 at half load under 3 times alone's.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import torch

import longstride
from longstride.contract import Hypothesis, Source
from longstride.serving.errors import ServingError
from longstride.serving.scheduler import Scheduler, Sentence

STATIC = 64
LOADS = (0.25, 0.33, 0.5, 0.75, 0.9)
BLOCK = 4
"""Iterations with admissions, then without."""
FOREVER = 1e6
"""Seconds until a deadline: nothing is to be refused here."""
SENTENCES = [
    "Good morning!",
    "The committee has adopted the report.",
    "We must act now, because time is short.",
    "I would like to thank the rapporteur for the work that she has done together with all of her colleagues.",
    "What does the Commission intend to do about this, and when will Parliament be told of the results?",
]


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds."""
    ranked = sorted(seconds)
    places = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: round(1000 * ranked[min(len(ranked) - 1, int(q * len(ranked)))], 3) for name, q in places.items()}


class Asking:
    """Sentences on their way through a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._changed = threading.Condition()
        self.took: list[float] = []
        self.tokens: dict[tuple[int, ...], list[int]] = {}
        self.failed: list[str] = []

    @property
    def done(self) -> int:
        """How many have come back."""
        return len(self.took) + len(self.failed)

    def ask(self, sources: Iterable[list[int]], came: float | None = None) -> None:
        """Submit each by itself; `came`: when they did, if that was before."""
        begun = monotonic() if came is None else came
        for ids in sources:
            self._scheduler.submit([Sentence(ids, begun + FOREVER, self._teller(ids, begun))])

    def _teller(self, ids: list[int], begun: float) -> Callable[[list[Hypothesis] | ServingError], None]:
        def told(what: list[Hypothesis] | ServingError) -> None:
            if isinstance(what, list):
                self.took.append(monotonic() - begun)
                self.tokens[tuple(ids)] = list(what[0].tokens)
            else:
                self.failed.append(str(what))
            with self._changed:
                self._changed.notify()

        return told

    def wait(self, number: int) -> None:
        """Until so many are done."""
        with self._changed:
            self._changed.wait_for(lambda: self.done >= number)


class Bench:
    """One model and its sentences."""

    def __init__(self, told: Any) -> None:
        self._told = told
        gpu = torch.cuda.is_available()
        self._translator = longstride.load(
            told.model,
            drafter=told.drafter,
            device="cuda:0" if gpu else "cpu",
            precision=told.precision or ("fp16" if gpu else "int8"),
            runtime="cuda-graph" if gpu else "native",
        )
        lines = told.lines.read_text(encoding="utf-8").splitlines() if told.lines else SENTENCES
        self.sources = self._translator.encode([line for line in lines if line.strip()][: told.most])
        self.device = torch.cuda.get_device_name() if gpu else "processor"

    def record(self, part: str, **figures: Any) -> None:
        """Print, and keep."""
        line = json.dumps({"part": part, "model": str(self._told.model), "device": self.device, **figures})
        print(line, flush=True)
        if self._told.record is not None:
            with self._told.record.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    def _timed(self, work: Callable[[int], None], least: int) -> tuple[int, float]:
        """So many sentences at a time, again and again until the seconds are over."""
        work(least)  # what is made once
        number, begun = 0, perf_counter()
        while perf_counter() - begun < self._told.seconds:
            work(least)
            number += least
        return number, perf_counter() - begun

    def static(self, name: str) -> float:
        """Sentences a second, 64 at a time."""
        decoder, limits = self._translator.batched_decoder(name)
        coming = cycle(self.sources)

        def work(number: int) -> None:
            for _ in range(number // STATIC):
                decoder.decode(Source.of(list(islice(coming, STATIC))), limits, capacity=STATIC)

        number, wall = self._timed(work, STATIC * max(1, min(8, len(self.sources) // STATIC)))
        self.record("static", decoder=name, rows=STATIC, sentences=number, per_second=round(number / wall, 2))
        return number / wall

    def sorted(self, name: str) -> None:
        """The same sentences by length, rows refilled."""
        decoder, limits = self._translator.batched_decoder(name)
        ordered = sorted(self.sources, key=len, reverse=True)
        source = Source.of(ordered)
        number, wall = self._timed(lambda _: decoder.decode(source, limits, capacity=STATIC) and None, len(ordered))
        self.record("sorted", decoder=name, rows=STATIC, sentences=number, per_second=round(number / wall, 2))

    def scheduler(self, name: str, rows: int) -> Scheduler:
        """With tables of all sizes in use once, for sources of any length."""
        decoder, limits = self._translator.batched_decoder(name)
        grouped = not self._translator.runner.shape_invariant
        longest = max(map(len, self.sources))
        made = Scheduler(decoder, limits, longest, rows, 10**6, 10**6, grouped=grouped)
        for number in (1, 2, 5, 17, rows, 4 * rows):
            asking = Asking(made)
            some = list(islice(cycle(self.sources), number))
            some[:2] = [max(self.sources, key=len)] * len(some[:2])  # the first is often admitted alone
            asking.ask(some)
            asking.wait(number)
        return made

    def parts(self, name: str, rows: int) -> None:
        """What an iteration takes, and what admitting adds to it."""
        decoder, limits = self._translator.batched_decoder(name)
        longest, coming = max(map(len, self.sources)), cycle(self.sources)
        start = decoder.start if rows == 1 else partial(decoder.start_refilled, arriving=True)
        session = start(rows, limits, longest)
        live, spent, done = 0, {True: 0.0, False: 0.0}, 0
        for seconds in (self._told.seconds / 4, self._told.seconds):  # the first: what is made once
            spent, iterations, done, begun = dict.fromkeys(spent, 0.0), 0, 0, perf_counter()
            while perf_counter() - begun < seconds:
                for admitting in spent:
                    first = perf_counter()
                    for _ in range(BLOCK):
                        free = min(session.free, rows + min(session.queued, rows // 2) - live)
                        if admitting and free > 0:
                            session.admit(Source.of(list(islice(coming, free))))
                            live += free
                        session.advance()
                        ended = len(session.take_finished())
                        live, done = live - ended, done + ended
                    spent[admitting] += perf_counter() - first
                iterations += BLOCK
        while live:
            session.advance()
            live -= len(session.take_finished())
        session.close()
        without, together = (1000 * spent[admitting] / iterations for admitting in (False, True))
        rate = done / sum(spent.values())
        figures = {"iteration_ms": without, "admission_ms": together - without, "per_second": rate}
        self.record("parts", decoder=name, rows=rows, **{part: round(some, 3) for part, some in figures.items()})

    def capacity(self, name: str, rows: int) -> float:
        """Sentences a second while others wait."""
        scheduler, coming = self.scheduler(name, rows), cycle(self.sources)
        asking, begun, number = Asking(scheduler), monotonic(), 0
        while monotonic() - begun < self._told.seconds:
            asking.ask(islice(coming, 2 * rows))
            number += 2 * rows
            asking.wait(number - 2 * rows)  # as many wait as there are rows, at least
        rate = asking.done / (monotonic() - begun)
        asking.wait(number)
        different, compared = self.differences(name, asking.tokens)
        figures = {"sentences": asking.done, "failed": len(asking.failed), "different": different, "compared": compared}
        self.record("capacity", decoder=name, rows=rows, per_second=round(rate, 2), **figures)
        scheduler.stop()
        scheduler.join()
        return rate

    def differences(self, name: str, found: dict[tuple[int, ...], list[int]]) -> tuple[int, int]:
        """How many of 256 outputs are not those of `decode`, and of how many."""
        decoder, limits = self._translator.batched_decoder(name)
        sources = [list(ids) for ids in list(found)[:256]]
        plain = decoder.decode(Source.of(sources), limits, capacity=STATIC).tokens
        return sum(found[tuple(ids)] != list(one) for ids, one in zip(sources, plain, strict=True)), len(sources)

    def loads(self, name: str, rows: int, capacity: float) -> None:
        """Alone, and at random at so much of a capacity."""
        scheduler, chance = self.scheduler(name, rows), random.Random(0)
        alone, begun = Asking(scheduler), monotonic()
        for number, ids in enumerate(cycle(self.sources)):
            if monotonic() - begun > self._told.seconds / 2:
                break
            alone.ask([ids])
            alone.wait(number + 1)
        lone = quantiles(alone.took)
        self.record("alone", decoder=name, rows=rows, sentences=alone.done, ms=lone)
        for load in LOADS:
            asking, coming, number = Asking(scheduler), cycle(self.sources), 0
            begun = due = monotonic()
            late: list[float] = []
            while due - begun < self._told.seconds:
                due += chance.expovariate(load * capacity)
                if (wait := due - monotonic()) > 0:
                    sleep(wait)
                late.append(monotonic() - due)
                asking.ask(islice(coming, 1), due)
                number += 1
            asking.wait(number)
            wall, ms = monotonic() - begun, quantiles(asking.took)
            self.record(
                "poisson",
                decoder=name,
                rows=rows,
                load=load,
                rate=round(load * capacity, 2),
                sentences=number,
                per_second=round(number / wall, 2),
                ms=ms,
                times_alone=round(ms["p50"] / lone["p50"], 3),
                asked_late_ms=quantiles(late),
                failed=len(asking.failed),
            )
        scheduler.stop()
        scheduler.join()


def main() -> None:
    """By hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="bundled")
    parser.add_argument("--drafter", help="a folder with another drafter")
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--most", type=int, default=2048, help="lines that are used")
    parser.add_argument("--decoders", default="draft-verify,greedy", help="the first one is the scheduler's")
    parser.add_argument("--rows", default="64,128,256", help="of the scheduler")
    parser.add_argument(
        "--parts", default="", help="numbers of rows to take apart, such as 1,4,16,64, and nothing else"
    )
    parser.add_argument("--precision")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--record", type=Path)
    told = parser.parse_args()
    bench, names = Bench(told), told.decoders.split(",")
    if told.parts:
        for rows in map(int, told.parts.split(",")):
            bench.parts(names[0], rows)
        return
    static = max(bench.static(name) for name in names)
    bench.sorted(names[0])
    found = {rows: bench.capacity(names[0], rows) for rows in map(int, told.rows.split(","))}
    rows = max(found, key=lambda one: found[one])
    bench.record("times_static", decoder=names[0], rows=rows, times=round(found[rows] / static, 3))
    bench.loads(names[0], rows, found[rows])


if __name__ == "__main__":
    main()
