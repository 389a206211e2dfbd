"""Stage 3: time how much to draft on this device, by the number of rows.

A longer draft saves more steps and costs more; where none is fastest, the decoder is greedy search. The stage times
`translate` itself, with more lines than rows: rows are refilled and drain as they do for users.

Beside a step without a draft, a draft costs more with more rows. A draft that pays with 8 rows therefore pays with 2
to 7, while one that pays with 1 row may lose there. So a choice holds for the rows it was timed with and for fewer,
down to the next smaller number timed. Beyond the largest number timed nothing is drafted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from longstride.contract import Runner
from longstride.loaded_model import DRAFTED
from longstride.translator import Translator
from longstride.verification.draft_policy import TREE, DraftPolicy, best_of

NONE = "0"
"""No draft, which is greedy search."""
TREES = (7, 15, 31)
"""Nodes of the trees to time. With the newest token they fill 8 slots or a multiple of 16, a tile of GPU products."""
FEWEST_LINES, LINES_A_ROW, MOST_LINES, MOST_LINES_A_ROW = 4, 2, 32, 8
"""Lines of a run, at least and at most."""
RUN = 2.0
"""Seconds of a run, where these lines allow it."""
RUNS = 7
"""Runs that it takes to choose between no draft and one."""
TURNS, TRIALS = 5, 2
"""Every draft is timed twice; those that are close then, five times. Medians count."""
CLOSE = 1.2
"""A draft that takes longer than this many times the best is not close."""
HOPELESS = 1.25
"""A draft that takes longer than this many times greedy search is not tried with more rows."""
SECONDS = {"cuda": 40.0, "cpu": 120.0}
"""At most so long the stage takes."""
SHARE, LEAST_SECONDS = 0.15, 10.0
"""On a processor it takes at most this share of the minutes of training, and 10 seconds in the shortest."""

Progress = Callable[[str, int, int], None]
STAGE = "measuring lengths of drafts"


def seconds_for(device: str, minutes: float) -> float:
    """Return how long the stage may take."""
    return SECONDS["cuda"] if device == "cuda" else min(SECONDS["cpu"], max(LEAST_SECONDS, SHARE * 60 * minutes))


def candidates(block: int, trees: Sequence[int] = TREES) -> list[str]:
    """Return what is timed, as a table has it: no draft, quarters of a block, trees."""
    chains = sorted({0, *(max(1, block * part // 4) for part in (1, 2, 3, 4))})
    return [*map(str, chains), *(f"{nodes}{TREE}" for nodes in trees)]


def choose(
    translator: Translator, lines: Sequence[str], rows: Sequence[int], progress: Progress, seconds: float
) -> dict[str, Any]:
    """Return the lengths to draft, as the decoder's option has them, and the milliseconds per line behind the choice.

    `seconds` bounds the time. Larger numbers of rows are left out when it ends, or when every draft was hopeless.
    """
    begun = perf_counter()
    block = int(translator.decoder(DRAFTED)[0].options.k)  # type: ignore[attr-defined]
    tried, times = candidates(block), dict[int, dict[str, float]]()

    def run(count: int, drafts: str, some: Sequence[str]) -> float:
        started = perf_counter()
        progress(STAGE, min(int(started - begun), int(seconds)), int(seconds))
        translator.translate(some, DRAFTED, batch=count, lengths=f"1:{drafts}", warn=lambda said: None)
        return perf_counter() - started

    counts = sorted(set(rows))
    for count in counts:
        now, left = _within(tried, count, translator.runner), begun + seconds - perf_counter()
        shortest = 0.0 if not times else RUNS * len(_shortest(lines, count)) * times[max(times)][NONE]
        if len(now) < 2 or left < shortest:
            break
        # The fewer the rows, the longer a line takes: what one number leaves is there for the next.
        until = perf_counter() + (left if count == counts[-1] else left / 2)
        times[count] = found = _timed(partial(run, count), lines, count, now, until)
        hopeless = {drafts for drafts, taken in found.items() if taken > HOPELESS * found[NONE]}
        tried = [one for one in tried if not hopeless.intersection(_within([one], count, translator.runner))]
    progress(STAGE, int(seconds), int(seconds))
    return {
        "lengths": str(table_of(times)),
        "milliseconds": {
            str(count): {drafts: round(1000 * taken, 4) for drafts, taken in found.items()}
            for count, found in times.items()
        },
        "seconds": round(perf_counter() - begun, 1),
    }


def table_of(times: Mapping[int, Mapping[str, float]]) -> DraftPolicy:
    """Return the table of the fastest drafts, by times for numbers of rows."""
    policy, first, before = DraftPolicy(), 1, ""
    for count, best in [*((count, best_of(times[count])) for count in sorted(times)), (0, NONE)]:
        if best != before:
            policy = policy.with_length(first, int(best.removesuffix(TREE)), best.endswith(TREE))
        first, before = count + 1, best
    return policy


def without_trees(figures: dict[str, Any], block: int) -> dict[str, Any]:
    """Return the same choice by the same times among chains alone, or whole blocks where a table was given."""
    times = {
        int(count): {drafts: taken for drafts, taken in found.items() if not drafts.endswith(TREE)}
        for count, found in figures["milliseconds"].items()
    }
    policy = DraftPolicy.from_text(figures["lengths"])
    for rows in policy.trees:
        policy = policy.with_length(rows, policy.length(rows, block))
    return {**figures, "lengths": str(table_of(times) if times else policy)}


def spread(lines: Sequence[str], count: int) -> list[str]:
    """Return `count` lines, taken evenly, some of them twice or more where there are fewer."""
    return [lines[place * len(lines) // count] for place in range(count)]


def _shortest(lines: Sequence[str], count: int) -> list[str]:
    return spread(lines, max(FEWEST_LINES, LINES_A_ROW * count))


def _timed(
    run: Callable[[str, Sequence[str]], float], lines: Sequence[str], count: int, tried: Sequence[str], until: float
) -> dict[str, float]:
    """Return the seconds a line takes with each draft, or with those that there is time for, which is one at least."""
    some = _shortest(lines, count)
    run(NONE, some)  # the first run makes and captures what the next ones use
    each = run(NONE, some) / len(some)
    runs = len(tried) * (1 + TRIALS) + TRIALS * (TURNS - TRIALS)
    fitting = int(min(RUN, (until - perf_counter()) / runs) / each)
    some = spread(lines, min(max(MOST_LINES, MOST_LINES_A_ROW * count), max(len(some), fitting)))
    times = {NONE: [run(NONE, some)]}
    for drafts in (*(one for one in tried if one.endswith(TREE)), *reversed(tried[1:])):
        again = sum(taken[0] for taken in times.values())  # nothing is chosen by one run alone
        if drafts not in times and (len(times) == 1 or perf_counter() + again + 3 * times[NONE][0] < until):
            run(drafts, some)
            times[drafts] = [run(drafts, some)]
    close = list(times)
    for turn in range(1, TURNS):
        if turn == TRIALS:
            best = min(min(times[drafts]) for drafts in close)
            close = [drafts for drafts in close if drafts == NONE or min(times[drafts]) < CLOSE * best]
        if turn >= TRIALS and perf_counter() + sum(times[drafts][0] for drafts in close) > until:
            break
        for drafts in close:
            times[drafts].append(run(drafts, some))
    return {drafts: median(times[drafts]) / len(some) for drafts in tried if drafts in times}


def _within(tried: Sequence[str], count: int, runner: Runner) -> list[str]:
    """Return the drafts, cut to the slots that a step of `count` rows has room for, each once."""
    if runner.steady_slots is None:
        return list(tried)
    room = max(0, runner.steady_slots // runner.round_up(count) - 1)
    cut = [(min(int(drafts.removesuffix(TREE)), room), drafts.endswith(TREE)) for drafts in tried]
    return list(dict.fromkeys(f"{tokens}{TREE if tree and tokens else ''}" for tokens, tree in cut))
