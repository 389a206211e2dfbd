"""Stages of interleaved decoding: the models of the paper's Tables 1 to 4 and Figures 2 to 4, and their scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from driver.commands import SMALL_TRAINING, TIMING, TRAINING, Task
from driver.estimates import base_training, decoding, small_training
from driver.jobs import Job, Stage

ORIGINAL, DISTILLED = "original", "distilled"
FEW_LAYERS = "model.decoder_layers=2"
BEAM, GREEDY = "beam:width=4", "greedy"
"""the autoregressive models' settings, as the paper has them; ours is width 5 elsewhere"""


@dataclass(frozen=True)
class Variant:
    """A small model: what it is called, what it learns from, what differs from an IBDecoder of six layers."""

    name: str
    data: str
    settings: tuple[str, ...] = ()


def _with(**interleaving: object) -> tuple[str, ...]:
    texts = {name: str(value).lower() for name, value in interleaving.items()}
    return tuple(f"model.interleaving.{name}={text}" for name, text in texts.items())


def _both(name: str, *settings: str) -> tuple[Variant, Variant]:
    """On original and on distilled data."""
    return Variant(f"interleaved-small{name}", ORIGINAL, settings), Variant(
        f"interleaved-small-distilled{name}", DISTILLED, settings
    )


TABLE_1 = (*_both(""), *_both("-sa", *_with(c=2)), *_both("-im", *_with(h=4)))
ABLATIONS = (
    Variant("interleaved-small-vanilla-mask", ORIGINAL, _with(mask="vanilla")),
    Variant("interleaved-small-vanilla-positions", ORIGINAL, _with(signal="vanilla")),
    Variant("interleaved-small-middle-to-side", ORIGINAL, _with(order="middle-to-side")),
    Variant("interleaved-small-independent", ORIGINAL, _with(independent=True)),
    Variant("vanilla-sa-2", ORIGINAL, _with(h=1, c=2)),
    Variant("vanilla-sa-4", ORIGINAL, _with(h=1, c=4)),
    # Table 3: one word per step in the order of two directions.
    Variant("interleaved-small-one-word", ORIGINAL, _with(autoregressive=True)),
)
STUDENTS = (*_both("-6-2", FEW_LAYERS), *_both("-6-2-sa", FEW_LAYERS, *_with(c=2)))
SWEEP = tuple(one for c in (3, 4, 6, 8) for one in _both(f"-c{c}", *_with(c=c)))
LINK = "model.interleaving.link=64"
LINKED = tuple(
    Variant(f"interleaved-small-distilled-{name}-linked", DISTILLED, (*_with(c=c), LINK))
    for name, c in (("sa", 2), ("c4", 4))
)
"""neighbouring words of a step tied to each other, which no paper has"""
LINKED_BASE = "interleaved-base-sa-linked"
GOING_ON = ("training.steps=2000", "training.schedule.peak=4e-4", "training.schedule.warmup=100")
"""of a model that has learnt the order already"""
BASE: dict[str, tuple[str, ...]] = {"interleaved-base": (), "interleaved-base-sa": _with(c=2)}

BEGUN = {ORIGINAL: "small", DISTILLED: "small-distilled"}
"""autoregressive models that all small ones begin as: another order is learnt sooner than a language"""
ALIKE = {ORIGINAL: "small-more", DISTILLED: "small-distilled-more"}
"""the same models trained on for as long: what the others are compared with"""
SHORT = ("training.epochs=3", "training.schedule.warmup=200", "training.schedule.peak=1.0e-3")
BASELINES = ("verifier", *ALIKE.values())
AUTOREGRESSIVE_STUDENTS = {"small-6-2-more": DISTILLED, "small-6-2-original": ORIGINAL}
STEADY = 240
"""updates of a training whose speed is read"""
ONE_WORD = {"vanilla-sa-2": "small-more", "interleaved-small": "interleaved-small-one-word"}
"""Table 3: a model of two words per step -> the one that writes the same order one word at a time"""


def stages(task: Task) -> list[Stage]:
    """Two base models, small ones beside autoregressive ones trained alike, and what they are worth."""
    short = small_training(3)
    return [
        Stage(
            "interleaved-base",
            "interleaved",
            tuple(
                task.train(
                    "interleaved-base",
                    DISTILLED,
                    base_training(5000),
                    TRAINING,
                    *settings,
                    name=name,
                    warm_start="verifier",
                )
                for name, settings in BASE.items()
            ),
        ),
        Stage(
            "interleaved-baselines",
            "interleaved",
            (
                task.train("small", DISTILLED, small_training(), SMALL_TRAINING, name="small-distilled"),
                *(
                    task.train("small", data, short, SMALL_TRAINING, *SHORT, name=name, warm_start=BEGUN[data])
                    for data, name in ALIKE.items()
                ),
            ),
        ),
        Stage("interleaved-table-1", "interleaved", tuple(_train(task, one) for one in TABLE_1)),
        # Table 1's training speed: each model alone on the GPU for a few seconds.
        Stage("training-speed", "interleaved", tuple(_timed(task))),
        Stage("interleaved-ablations", "interleaved", tuple(_train(task, one) for one in ABLATIONS)),
        Stage(
            "interleaved-students",
            "interleaved",
            (
                *(
                    task.train(
                        "small-6-2",
                        data,
                        small_training(3, faster=1.45),
                        SMALL_TRAINING,
                        *SHORT,
                        name=name,
                        warm_start=BEGUN[data],
                    )
                    for name, data in AUTOREGRESSIVE_STUDENTS.items()
                ),
                *(_train(task, one) for one in STUDENTS),
            ),
        ),
        Stage("interleaved-sweep", "interleaved", tuple(_train(task, one) for one in SWEEP)),
        Stage(
            "interleaved-links",
            "interleaved",
            (
                *(_train(task, one) for one in LINKED),
                task.train(
                    "interleaved-base",
                    DISTILLED,
                    base_training(2000),
                    TRAINING,
                    *BASE["interleaved-base-sa"],
                    *GOING_ON,
                    LINK,
                    name=LINKED_BASE,
                    warm_start="interleaved-base-sa",
                ),
            ),
        ),
        Stage("evaluate-interleaved", "evaluate", tuple(_evaluations(task))),
        Stage("evaluate-interleaved-links", "evaluate", tuple(_linked_evaluations(task))),
    ]


def _train(task: Task, one: Variant) -> Job:
    recipe = "interleaved-small" if one.data == ORIGINAL else "interleaved-small-distilled"
    faster = 1.45 if FEW_LAYERS in one.settings else 1.0
    return task.train(
        recipe,
        one.data,
        small_training(3, faster=faster),
        SMALL_TRAINING,
        *SHORT,
        *one.settings,
        name=one.name,
        warm_start=BEGUN[one.data],
    )


def _timed(task: Task) -> list[Job]:
    """The rate is read from the hundredth update on, without what validation takes."""
    short = (f"training.steps={STEADY}", "training.epochs=0", "training.average=none", "training.schedule.warmup=100")
    quiet = ("validation.metric=none", f"training.checkpoint_every={STEADY}")
    # Named as what is scored: by that the table finds them.
    models: list[tuple[str, str, tuple[str, ...]]] = [("small", ALIKE[DISTILLED], ())]
    models += [("interleaved-small-distilled", one.name, one.settings) for one in TABLE_1 if one.data == DISTILLED]
    return [
        task.train(recipe, DISTILLED, 0.4, TIMING, *settings, *short, *quiet, name=f"speed-{name}")
        for recipe, name, settings in models
    ]


def _evaluations(task: Task) -> list[Job]:
    """Beam 4 and 1 of every model, some with de-duplication too; differences are from the baseline's beam 4."""
    # Ten bins of source length for Figure 3, over-translation for Figure 4.
    more = ("--by-length", "10", "--over-translation")
    pair, widths = (BEAM, GREEDY), ("interleaved:width=4", "interleaved:width=1")
    dedup = tuple(f"{one};dedup=4" for one in widths)
    usual = decoding(greedy=1, beam=1)
    found = [
        task.evaluate(name, "test", "en-de interleaved", pair, usual, *more)
        for name in (*BASELINES, *AUTOREGRESSIVE_STUDENTS)
    ]
    for name in BASE:
        found.append(_evaluation(task, name, "verifier", (*widths, *dedup), more))
    for one in (*TABLE_1, *ABLATIONS, *STUDENTS, *SWEEP):
        baseline = ALIKE[one.data]
        repeats = one in (*TABLE_1, *SWEEP)
        found.append(_evaluation(task, one.name, baseline, (*widths, *dedup) if repeats else widths, more))
    return found


def _linked_evaluations(task: Task) -> list[Job]:
    """In an experiment of their own, since tables of the paper's do not tell links apart."""
    baselines = {**{one.name: ALIKE[one.data] for one in LINKED}, LINKED_BASE: "verifier"}
    settings = ("interleaved:width=4", "interleaved:width=1")
    return [
        task.evaluate(
            *(name, "test", "en-de linked interleaved", settings, decoding(greedy=1, beam=1), "--over-translation"),
            against=task.output(baseline, "test", BEAM),
        )
        for name, baseline in baselines.items()
    ]


def _evaluation(task: Task, name: str, baseline: str, settings: tuple[str, ...], more: tuple[str, ...]) -> Job:
    minutes = decoding(greedy=len(settings) // 2, beam=len(settings) // 2)
    against: Path = task.output(baseline, "test", BEAM)
    base = task.model(ONE_WORD[name]) if name in ONE_WORD else None
    more = (*more, "--mutual-information", str(base)) if base is not None else more
    job = task.evaluate(name, "test", "en-de interleaved", settings, minutes, *more, against=against)
    return replace(job, needs=(*job.needs, base)) if base is not None else job
