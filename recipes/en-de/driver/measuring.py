"""Stages that read a clock, and those that gather: bench, report, collect."""

from __future__ import annotations

from dataclasses import replace

from driver.commands import Task
from driver.estimates import TEST, timing
from driver.jobs import Job, Stage

EAGER, CAPTURED = 170.0, 16.0
"""milliseconds a sentence of an autoregressive decoder, by runtime; others take less"""
SAMPLE = 200

TOGETHER = {
    "verifier": ("greedy", "beam", "beam:width=4"),
    "small-6-2": ("greedy",),
    "small-6-1": ("greedy",),
    # As the papers have them; the frozen heads and the shallow drafters are slower than their linked twins.
    "blockwise-fine-tuned": ("blockwise",),
    "drafter-shared": ("draft-verify", "draft-verify:accept=top:3,gap:1", "draft"),
    # With links, which no paper has. Frozen heads are as fast as they get with blocks of 4.
    "blockwise-frozen-linked": ("blockwise:k=4",),
    "blockwise-fine-tuned-linked": ("blockwise",),
    "drafter-linked-2": ("draft-verify", "draft-verify:accept=top:3,gap:1", "draft-verify:accept=top:5,gap:3"),
    "drafter-linked-2-k5": ("draft-verify",),
    # The same, trained on.
    "blockwise-fine-tuned-linked-longer": ("blockwise",),
    "drafter-linked-2-longer": ("draft-verify", "draft-verify:accept=top:3,gap:1", "draft-verify:accept=top:5,gap:3"),
    "interleaved-base": ("interleaved", "interleaved:width=4"),
    "interleaved-base-sa": ("interleaved", "interleaved:width=4"),
    "lattice": ("lattice", "lattice:candidates=128", "lattice:candidates=32"),
}
"""model -> decoders, for the one table with all of them"""
BASELINES = ("en-de-verifier greedy", "en-de-verifier beam")

BATCHED = {
    "verifier": ("greedy", "beam"),
    # With large batches every slot costs: adaptive blocks must never be slower than greedy.
    "drafter-linked-2": ("draft-verify", "draft-verify:adaptive=true"),
    "blockwise-fine-tuned-linked": ("blockwise", "blockwise:adaptive=true"),
    "lattice": ("lattice",),
}
"""model -> decoders, for throughput by batch size; interleaved ones have a race of their own"""

BATCHED_SAMPLE = 512
"""sentences there: four batches of the largest"""

WIDTHS = (1, 4, 8)
"""of Figure 2 of the interleaved paper"""


def stages(task: Task) -> list[Stage]:
    """What is timed, then the pages and the models."""
    slow = EAGER if task.runtime == "eager" else CAPTURED
    few = ("--sample", str(SAMPLE), "--passes", "1")
    sentences, passes = (SAMPLE, 1) if task.runtime == "eager" else (task.sentences, task.passes)
    sample = ("--sample", str(sentences)) if sentences else ()
    racing = {model: decoders for model, decoders in TOGETHER.items() if model in (task.together or TOGETHER)}
    return [
        Stage(
            "bench",
            "bench",
            (
                task.bench(
                    "batches",
                    list(BATCHED),
                    [f"{model}/{decoder}" for model, decoders in BATCHED.items() for decoder in decoders],
                    timing(sum(map(len, BATCHED.values())), BATCHED_SAMPLE, 1.2 * slow),
                    *(part for name in BASELINES for part in ("--baseline", name)),
                    *("--same-as", BASELINES[0], "--batch-sizes", "1,8,32,64,128"),
                    *("--sample", str(BATCHED_SAMPLE), "--passes", "1"),
                ),
            ),
        ),
        Stage(
            "bench-together",
            "bench",
            (
                task.bench(
                    "together",
                    list(racing),
                    [f"{model}/{decoder}" for model, decoders in racing.items() for decoder in decoders],
                    timing(sum(map(len, racing.values())), sentences or TEST, 0.4 * slow, passes),
                    *(part for name in BASELINES for part in ("--baseline", name)),
                    *("--same-as", BASELINES[0], *sample, "--passes", str(passes)),
                ),
            ),
        ),
        Stage("bench-interleaved", "bench", (_interleaved(task, slow, few),)),
        Stage(
            "bench-lattice",
            "bench",
            (
                task.bench(
                    "lattice depths",
                    ["small", *(f"lattice-small-{depth}" for depth in range(1, 7))],
                    ["small/greedy", "small/beam", *(f"lattice-small-{depth}/lattice" for depth in range(1, 7))],
                    timing(8, SAMPLE, 0.4 * slow),
                    *few,
                ),
            ),
        ),
        Stage("report", "gather", (_report(task),)),
        Stage("collect", "gather", (_collect(task),)),
    ]


def _interleaved(task: Task, slow: float, few: tuple[str, ...]) -> Job:
    """Figure 2: the same beam and batch size for the verifier and the interleaved models."""
    decoders = ["verifier/greedy", *(f"verifier/beam:width={width}" for width in WIDTHS[1:])]
    models = ["interleaved-base", "interleaved-base-sa"]
    decoders += [f"{model}/interleaved:width={width}" for model in models for width in WIDTHS]
    baselines = ["en-de-verifier greedy", *(f"en-de-verifier beam width={width}" for width in WIDTHS[1:])]
    return task.bench(
        "interleaved batches",
        ["verifier", *models],
        decoders,
        timing(9, SAMPLE, slow),
        *(part for name in baselines for part in ("--baseline", name)),
        *("--batch-sizes", "1,4,8,16,32,64,128", *few),
    )


def _report(task: Task) -> Job:
    """A page of this run's own, beside the records."""
    folder = task.work / "report"
    command = ("report", str(task.records), "-o", str(folder), "--page", str(folder / "index.md"))
    job = task.script("report", "own_page.py", str(folder), "--", *command, minutes=0.3, last=True)
    return replace(job, needs=(task.records,))


def _collect(task: Task) -> Job:
    job = task.script("collect", "collect.py", str(task.work), str(task.store), minutes=0.2, last=True)
    return replace(job, needs=(task.records,))
