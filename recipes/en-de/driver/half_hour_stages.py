"""Stages of a verifier, heads and a drafter in half an hour: what makes them and what packs them.

Heads are begun on the teacher as soon as there is distilled data, beside the verifier; the drafter needs the verifier.
For how many updates both are trained is decided when they begin, by within.py. Knows no clock and runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from driver.autoregressive import prepare
from driver.commands import TRAINING, Task
from driver.drafts import LINK
from driver.estimates import GPU_SECONDS, TEACHER, VERIFIER, distilling, large_alone
from driver.jobs import Job, Stage, there
from driver.memory import training

HEADS, DRAFTER = "blockwise-fine-tuned-linked", "drafter-linked-2"
FIRST = "half-hour-teacher"
"""the teacher's folder: records of distillation are known by that name"""
MODELS = ("verifier", DRAFTER, HEADS)
"""in the order in which one would want to have them"""
PACKED = (FIRST, *MODELS)
"""with the teacher a run whose machine was lost need not begin at its beginning"""
PREFIX = "half an hour"
"""of experiments, after en-de: these records stand beside the first family's and replace none"""
HEADS_PART = 0.4
"""of the GPU's time after distillation, less what the verifier takes: one update to the drafter's three, since heads
gain little from more"""

LARGE = ("data.batches.tokens=65536",)
QUICK = (*LARGE, f"training.steps={VERIFIER}", "training.schedule.peak=6e-4", "training.schedule.warmup=150")
RARELY = ("training.validate_every=2000", "validation.every=100000")
"""validations by decoding at the end alone"""
OWN = ("attention=own", "norms=own", "store=fp16")

_TINY = ("model.width=32", "model.feed_forward=64", "model.heads=2")
_LAYERS = ("model.encoder_layers=1", "model.decoder_layers=2")
TINY = {
    FIRST: (*_TINY, *_LAYERS),
    "verifier": (*_TINY, *_LAYERS),
    HEADS: ("model.feed_forward=16",),
    DRAFTER: _TINY,
}
"""what makes a recipe's model tiny"""
DRY = (
    *("training.steps=4", "training.schedule.warmup=1", "training.checkpoint_every=1", "training.precision=fp32"),
    *("training.compile=none", "data.batches.tokens=512", "data.vocabulary=600", "validation.sentences=8"),
)


@dataclass(frozen=True)
class Plan:
    """One run: where, until when, how much of everything."""

    task: Task
    until: float
    """when trainings must have ended, in seconds since 1970"""
    lines: int = 300_000
    """of the training set that are distilled"""
    processes: int = 5
    """that distil"""
    sample: int = 400
    passes: int = 2
    batched: int = 512
    sizes: tuple[int, ...] = (1, 8, 32, 64, 128)
    dry: bool = False
    """tiny models, a few updates: everything goes through, and nothing is worth keeping"""

    @property
    def first(self) -> Path:
        """The source lines that are distilled."""
        return self.task.work / "text" / f"first-{self.lines}.en"

    @property
    def short(self) -> tuple[str, ...]:
        """A dry run's: what a model of no training writes is as long as it may be, and degenerate."""
        return ("--set", "max_length=8") if self.dry else ()

    @property
    def there(self) -> list[str]:
        """The models that are finished."""
        return [name for name in MODELS if there(self.task.model(name))]


def making(plan: Plan) -> list[Stage]:
    """From text to three models, each packed as soon as it is there; nothing where all were brought along."""
    if plan.there == list(MODELS):
        return []
    task = plan.task
    lines = (str(task.text("train", "en")), str(plan.first), str(plan.lines))
    first = replace(task.script("first-lines", "first_lines.py", *lines, minutes=0.1), makes=(plan.first,))
    # Three shards for each process, so that all end together.
    shard = ("--option", f"shard_lines={-(-plan.lines // (3 * plan.processes))}")
    kept = ("--option", "keep_all=true") if plan.dry else ()
    many = ("--processes", str(plan.processes), *shard, *kept, *plan.short)
    teacher = task.train("teacher", "original", large_alone(TEACHER), TRAINING, name=FIRST)
    quick = "verifier", "distilled", large_alone(VERIFIER), TRAINING
    verifier = task.train(*quick, *QUICK, *RARELY, "training.checkpoint_every=75", warm_start=FIRST)
    return [
        Stage("prepare", PREFIX, (first, prepare(task, "original"))),
        Stage("teacher", PREFIX, (_named(plan, teacher),)),
        Stage(
            "distil-valid",
            PREFIX,
            (task.distil("valid", 0.2, "--option", "keep_all=true", *plan.short, teacher_name=FIRST),),
        ),
        Stage(
            "distil",
            PREFIX,
            (task.distil("train", distilling(plan.lines), *many, source=plan.first, teacher_name=FIRST),),
        ),
        Stage("prepare-distilled", PREFIX, (prepare(task, "distilled", "distilled-valid"),)),
        Stage("verifier", PREFIX, (_named(plan, replace(verifier, gigabytes=training("teacher"))),)),
        Stage("heads", PREFIX, (_heads(plan),)),
        Stage("drafter", PREFIX, (_drafter(plan),)),
        packing(plan, PACKED),
    ]


def packing(plan: Plan, models: Sequence[str]) -> Stage:
    """Each model to pieces that can be copied off."""
    return Stage("parcels", PREFIX, tuple(_parcel(plan, name) for name in models))


def gathering(plan: Plan) -> list[Stage]:
    """A page of this run's records, and all that was written down as a parcel."""
    task = plan.task
    folder = task.work / "report"
    command = ("report", str(task.records), "-o", str(folder), "--page", str(folder / "index.md"))
    page = task.script("report", "own_page.py", str(folder), "--", *command, minutes=0.2)
    return [Stage("report", PREFIX, (replace(page, needs=(task.records,)),)), *keeping(plan)]


def keeping(plan: Plan) -> list[Stage]:
    """Records, minutes, logs and the page as a parcel, packed anew whenever it is asked for."""
    work = plan.task.work
    files = [str(work / name) for name in ("records.jsonl", "minutes.jsonl", "updates", "logs", "outputs", "report")]
    job = plan.task.script("written", "parcels.py", str(work), "written", "--files", *files, minutes=0.1, last=True)
    return [Stage("written", PREFIX, (replace(job, needs=(plan.task.records,)),))]


def _named(plan: Plan, job: Job) -> Job:
    """A training whose records are this run's own; small where it is dry. Later settings win."""
    changes = [
        *OWN,
        f"name={model_name(job.name)}",
        *((*TINY[job.name], *DRY) if plan.dry else ()),
        *plan.task.settings,
    ]
    return replace(job, command=(*job.command, *(part for one in changes for part in ("--set", one))))


def model_name(model: str) -> str:
    """Of a model in records."""
    return f"en-de-half-hour-{model.removeprefix('half-hour-')}"


def _heads(plan: Plan) -> Job:
    job = plan.task.train(*("blockwise-fine-tuned", "distilled", 5.0, 0.4, LINK, *RARELY), name=HEADS, base=FIRST)
    beside = f"verifier:{GPU_SECONDS['verifier']}:{VERIFIER}"
    return _within(plan, job, GPU_SECONDS["heads"], beside, "--part", str(HEADS_PART))


def _drafter(plan: Plan) -> Job:
    settings = (LINK, "training.validate_every=2000")
    job = plan.task.train("drafter-shared-2", "distilled-valid", 6.0, 0.5, *settings, name=DRAFTER, base="verifier")
    return _within(plan, job, GPU_SECONDS["drafter"], f"{HEADS}:{GPU_SECONDS['heads']}")


def _within(plan: Plan, job: Job, update: float, beside: str, *more: str) -> Job:
    """A training for as many updates as there is time for; six where it is dry."""
    few = ("--least", "1", "--most", "6") if plan.dry else ()
    told = (str(plan.task.work), job.name, "--until", f"{plan.until:.1f}", "--update", str(update), "--beside", beside)
    script = plan.task.script(job.name, "within.py", *told, *more, *few, "--", minutes=0.0)
    named = _named(plan, job)
    return replace(named, command=(*script.command, *named.command[2:]))  # without -m longstride


def _parcel(plan: Plan, name: str) -> Job:
    # A drafter's copy of the verifier is packed as a link to it; heads change what they begin as.
    like = ("--like", "verifier") if name == DRAFTER else ()
    job = plan.task.script(name, "parcels.py", str(plan.task.work), name, *like, minutes=0.1)
    return replace(job, needs=(plan.task.model(name),))
