"""What came of every comparison of decoders, in a line each: the shortest way to see what drafting is worth where."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longstride.bench.comparison import BenchRun, paired_times
from longstride.bench.records import Latency
from longstride.bench.statistics import per_second
from longstride.bench.table import NOTHING, Column, markdown

_ABOUT = """## Findings

Each comparison, one sentence at a time, in a line: what its baseline scores and takes, then the fastest decoder whose
outputs are the baseline's, every one of them, and the fastest of all, whatever it scores. Times are milliseconds a
sentence, ratios those within the run. Other batch sizes are under Throughput.
"""


def findings(runs: Sequence[BenchRun], address: Callable[[BenchRun], str]) -> list[str]:
    """As Markdown, nothing where nothing was compared; `address` says where a run stands."""
    runs = [run for run in runs if run.batch_size == 1 and run.baselines and len(run.records) > 1]
    if not runs:
        return []
    shown = [run.shortened() for run in runs]
    columns = [
        Column("comparison", [f"[{run.origin.experiment}]({address(run)})" for run in runs], False),
        Column("test set", [run.workload.name for run in shown], False),
        Column("device", [run.origin.machine.device for run in shown], False),
        Column("baseline", [_told(run.baselines[0]) for run in shown], False),
        Column("fastest, same output", [_fastest(run, same=True) for run in shown], False),
        Column("fastest of all", [_fastest(run, same=False) for run in shown], False),
    ]
    return [_ABOUT, markdown(columns)]


def _told(record: Latency) -> str:
    score = f"{record.scores[0].name} {record.scores[0].value:.2f}, " if record.scores else ""
    return f"{record.candidate}: {score}{1000 / per_second(len(record.output_lengths), record.latencies_us):.2f} ms"


def _fastest(run: BenchRun, same: bool) -> str:
    baseline = run.baselines[0]
    others = [one for one in run.records if one.candidate != baseline.candidate and (not same or _same(one, baseline))]
    pairs = [(one, paired_times(one, baseline)) for one in others]
    ratios = [
        (sum(theirs for theirs, _ in times) / sum(ours for _, ours in times), one) for one, times in pairs if times
    ]
    if not ratios:
        return NOTHING
    ratio, best = max(ratios, key=lambda pair: pair[0])
    return f"{ratio:.2f}×: {_told(best)}"


def _same(record: Latency, baseline: Latency) -> bool:
    found = record.equality
    return found is not None and found.reference == baseline.candidate and found.differing == 0 and found.compared > 0
