"""Stages that score and time what half an hour of training has made: what is there, with nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driver.commands import LONGSTRIDE, TIMING
from driver.estimates import timing
from driver.half_hour_stages import DRAFTER, HEADS, MODELS, PREFIX, Plan, model_name
from driver.jobs import Job, Stage
from driver.memory import TIMED

DECODERS = {
    "verifier": ("greedy", "beam"),
    HEADS: ("blockwise", "blockwise:k=6", "blockwise:accept=top:3,gap:1", "blockwise:accept=top:5,gap:3"),
    DRAFTER: ("draft-verify", "draft-verify:accept=top:3,gap:1", "draft-verify:accept=top:5,gap:3"),
}
ADAPTIVE = {HEADS: "blockwise", DRAFTER: "draft-verify"}
"""what promises greedy's words; with fixed and with adaptive blocks by batch size"""
EXACT_BATCHES = (64, 1)


def clocks(plan: Plan) -> list[Stage]:
    """Scores, exactness and times of the models that are there; nothing where there is no verifier to compare with."""
    found = plan.there
    if "verifier" not in found:
        return []
    drafting = {name: decoder for name, decoder in ADAPTIVE.items() if name in found}
    batched = ["verifier/greedy"]
    batched += [f"{name}/{one}" for name, decoder in drafting.items() for one in (decoder, f"{decoder}:adaptive=true")]
    raced = [f"{name}/{one}" for name in found for one in DECODERS[name]]
    # A verifier alone has nobody to race with.
    races = [
        Stage("race", PREFIX, (_bench(plan, "together", raced, plan.sample, plan.passes, (1,)),)),
        Stage("batches", PREFIX, (_bench(plan, "batches", batched, plan.batched, 1, plan.sizes),)),
    ]
    return [
        *(races if drafting else []),
        Stage("scores", PREFIX, tuple(_scores(plan, name) for name in found)),
        Stage(
            "exactness",
            PREFIX,
            tuple(_exactness(plan, name, one, batch) for name, one in drafting.items() for batch in EXACT_BATCHES),
        ),
        Stage("profiles", PREFIX, tuple(_profile(plan, name) for name in found)),
    ]


def _bench(plan: Plan, name: str, decoders: Sequence[str], sample: int, passes: int, sizes: Sequence[int]) -> Job:
    models = [model for model in MODELS if any(one.startswith(f"{model}/") for one in decoders)]
    best = [f"{model_name('verifier')} {one}" for one in DECODERS["verifier"] if f"verifier/{one}" in decoders]
    return plan.task.bench(
        f"{PREFIX} {name}",
        models,
        decoders,
        timing(len(decoders), sample, 8.0, passes) + 1.0,
        *(part for one in best for part in ("--baseline", one)),
        *("--no-baselines", "--same-as", best[0], "--batch-sizes", ",".join(map(str, sizes))),
        *("--sample", str(sample), "--passes", str(passes), *plan.short),
    )


def _scores(plan: Plan, name: str) -> Job:
    return plan.task.evaluate(name, "test", f"en-de {PREFIX}", DECODERS[name], 0.5, *plan.short)


def _exactness(plan: Plan, name: str, decoder: str, batch: int) -> Job:
    task = plan.task
    job = task.exactness(name, decoder, task.precision, batch, task.runtime)
    # Tables keep one record of a decoder and an experiment, whatever its batches.
    named = ("--experiment", f"en-de {PREFIX} exactness, batches of {batch}, {task.runtime}")
    return replace(job, command=(*job.command, *named, *plan.short))


def _profile(plan: Plan, name: str) -> Job:
    """Where the time goes; within captured steps too, where steps are captured."""
    task = plan.task
    told = ("-s", str(task.text("test", "en")), "--decoders", ",".join(DECODERS[name]), "--record", str(task.records))
    how = ("--precision", task.precision, "--runtime", task.runtime, *(() if plan.dry else ("--inside",)))
    few = ("--sentences", "2", *plan.short) if plan.dry else ()
    named = ("--experiment", f"en-de {PREFIX} profiles, {task.runtime}", "--workload", "en-de test")
    command = (*LONGSTRIDE, "profile", "-m", str(task.model(name)), *told, *how, *few, *named)
    return Job(name, command, 0.4, TIMING, TIMED, needs=(task.model(name),))
