"""Stages of draft and verify: blockwise heads, drafters, their settings, exactness."""

from __future__ import annotations

from collections.abc import Sequence

from driver.commands import TRAINING, Task
from driver.estimates import base_training, decoding
from driver.jobs import Job, Stage

FROZEN_SIZES, TUNED_SIZES = (2, 4, 6, 8, 10), (2, 4, 6, 8)
"""Block sizes decoded from the frozen heads (k=10) and the fine-tuned ones (k=8)."""
SHALLOW = ("drafter-shared-1", "drafter-shared-2")
"""Fewer layers than the paper's six."""
MAKES: dict[str, tuple[str, ...]] = {
    "drafter-shared": (),
    "drafter-own": (),
    "drafter-partial": ("model.encoder=partial", "model.shared_layers=3", "model.encoder_layers=3"),
}
"""Two layers by where they read the source, all trained for MAKING updates."""
BLOCKS = (15, 20, 25, 30)
"""Block sizes beside the first make's own 10."""
LINK = "model.link=64"
LINKED: dict[str, tuple[str, tuple[str, ...]]] = {
    "drafter-linked-2": ("drafter-shared-2", ()),
    "drafter-linked-2-k5": ("drafter-shared-2", ("model.block=5", "objective.blocks=4")),
}
"""Drafters whose slots are tied to their neighbours; blocks of 5 are for processors, where every slot costs."""
LINKED_HEADS = {
    "blockwise-frozen-linked": "blockwise-frozen-distilled",
    "blockwise-fine-tuned-linked": "blockwise-fine-tuned",
}
LONGER: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "blockwise-fine-tuned-linked": ("blockwise-fine-tuned", "distilled", ("training.steps=2500",)),
    "drafter-linked-2": ("drafter-shared-2", "distilled-valid", ("training.steps=3000",)),
}
"""what is trained on from where it ended, since its loss was still falling: recipe, data, settings"""
ONWARD = ("training.schedule.peak=3e-4", "training.schedule.warmup=100")
EXACT = {
    "drafter-linked-2": "draft-verify",
    "blockwise-frozen-linked": "blockwise:k=4",
    "blockwise-fine-tuned-linked": "blockwise",
}
"""what is raced and promises greedy's words"""
WIDE = tuple(f"model.block={k}" for k in BLOCKS if k > 10)
MAKING = 2000


def heads_settings(sizes: Sequence[int], greedy: bool, variants: bool) -> list[str]:
    """Table 1 of the blockwise paper: every k exactly; as variants top-2, top-3 and minimum blocks of 2 and 3 too."""
    found = [*(["greedy"] if greedy else []), "blockwise:k=1", *(f"blockwise:k={k}" for k in sizes)]
    if variants:
        found += [f"blockwise:k={k};accept=top:{best}" for best in (2, 3) for k in sizes]
        found += [f"blockwise:k={k};min_block={least}" for least in (2, 3) for k in sizes if k >= least]
    return found


def drafter_settings(sweep: bool) -> list[str]:
    """GAD's Tables 1 and 3: both alone, exact, and GAD++ at the paper's two settings or over top-β and gap τ."""
    loose = [(best, gap) for best in (3, 5) for gap in (1, 2, 3, 4, 5)] if sweep else [(3, 1), (5, 3)]
    both = [f"draft-verify:accept=top:{best},gap:{gap}" for best, gap in loose]
    return ["greedy", "beam", "draft", "draft-verify", *both]


def stages(task: Task) -> list[Stage]:
    """Heads and drafters for the verifier (and heads for the teacher), then their scores."""
    heads = {
        "blockwise-frozen-original": heads_settings(FROZEN_SIZES, True, False),
        "blockwise-frozen-distilled": heads_settings(FROZEN_SIZES, True, True),
        # Trained with a first head of its own, it has no other greedy search than k=1.
        "blockwise-fine-tuned": heads_settings(TUNED_SIZES, False, True),
    }
    sweep, few = drafter_settings(sweep=True), drafter_settings(sweep=False)
    return [
        Stage(
            "heads",
            "blockwise",
            (
                task.train("blockwise-frozen-original", "original", base_training(2500, 1.4, 0.4), 0.4, base="teacher"),
                task.train(
                    "blockwise-frozen-distilled", "distilled", base_training(2500, 1.4, 0.4), 0.4, base="verifier"
                ),
            ),
        ),
        Stage(
            "drafter",
            "drafts",
            (
                task.train("drafter-shared", "distilled-valid", base_training(5000, 0.9, 0.8), 0.8, base="verifier"),
                *(
                    task.train(name, "distilled-valid", base_training(steps, faster, 0.3), 0.3, base="verifier")
                    for name, steps, faster in zip(SHALLOW, (4000, 6000), (2.2, 2.0), strict=True)
                ),
            ),
        ),
        Stage(
            "heads-fine-tuned",
            "blockwise",
            (task.train("blockwise-fine-tuned", "distilled", base_training(4000, 0.6), TRAINING, base="verifier"),),
        ),
        Stage(
            "evaluate-drafts",
            "evaluate",
            tuple(
                task.evaluate(model, split, experiment, settings, decoding(greedy=len(settings)))
                for split in ("valid", "test")
                for model, experiment, settings in (
                    *((name, "en-de blockwise", found) for name, found in heads.items()),
                    ("drafter-shared", "en-de drafts", sweep),
                    *((name, "en-de shallow drafters", few) for name in SHALLOW),
                )
            ),
        ),
        Stage(
            "exactness",
            "evaluate",
            tuple(
                task.exactness(model, decoder, precision)
                for precision in ("fp32", "fp16", "bf16")
                for model, decoder in (
                    ("blockwise-frozen-distilled", "blockwise"),
                    ("blockwise-fine-tuned", "blockwise"),
                    ("drafter-shared", "draft-verify"),
                )
            ),
        ),
        # The same with links between neighbouring tokens, which no paper has.
        Stage(
            "links",
            "drafts",
            (
                *(
                    task.train(
                        recipe,
                        "distilled-valid",
                        base_training(6000, 2.0, 0.3),
                        0.3,
                        LINK,
                        *settings,
                        name=name,
                        base="verifier",
                    )
                    for name, (recipe, settings) in LINKED.items()
                ),
                *(
                    task.train(
                        recipe, "distilled", base_training(3000, 0.9, 0.4), 0.4, LINK, name=name, base="verifier"
                    )
                    for name, recipe in LINKED_HEADS.items()
                ),
            ),
        ),
        Stage(
            "evaluate-links",
            "evaluate",
            (
                *(task.evaluate(name, "test", "en-de linked drafters", few, decoding(len(few))) for name in LINKED),
                *(
                    task.evaluate(name, "test", "en-de linked heads", settings, decoding(len(settings)))
                    for name, settings in (
                        ("blockwise-frozen-linked", heads_settings(FROZEN_SIZES, True, False)),
                        ("blockwise-fine-tuned-linked", heads_settings(TUNED_SIZES, False, False)),
                    )
                ),
            ),
        ),
        Stage(
            "links-longer",
            "drafts",
            tuple(
                task.train(
                    recipe,
                    data,
                    base_training(2500, 0.9, 0.4) if data == "distilled" else base_training(3000, 2.0, 0.3),
                    0.4 if data == "distilled" else 0.3,
                    LINK,
                    *settings,
                    *ONWARD,
                    name=f"{name}-longer",
                    base="verifier",
                    warm_start=name,
                )
                for name, (recipe, data, settings) in LONGER.items()
            ),
        ),
        Stage(
            "evaluate-links-longer",
            "evaluate",
            tuple(
                task.evaluate(f"{name}-longer", "test", experiment, settings, decoding(len(settings)))
                for name, experiment, settings in (
                    ("blockwise-fine-tuned-linked", "en-de linked heads", heads_settings(TUNED_SIZES, False, False)),
                    ("drafter-linked-2", "en-de linked drafters", few),
                )
            ),
        ),
        # As they are raced, by the runtime of what is timed: one sentence at a time too.
        Stage(
            "exactness-links",
            "evaluate",
            tuple(
                task.exactness(model, decoder, precision, batch, task.runtime)
                for precision, batch in (("fp16", 64), ("bf16", 64), ("fp32", 64), ("fp16", 1))
                for model, decoder in EXACT.items()
            ),
        ),
        # Two layers by encoder and by block size: shorter trainings, all alike.
        Stage(
            "drafter-makes",
            "drafts",
            tuple(
                _made(task, "drafter-own" if settings or name == "drafter-own" else "drafter-shared-2", name, *settings)
                for name, settings in MAKES.items()
            ),
        ),
        Stage(
            "drafter-blocks",
            "drafts",
            tuple(_made(task, "drafter-shared-2", f"drafter-shared-k{k}", f"model.block={k}") for k in BLOCKS),
        ),
        Stage(
            "evaluate-drafter-makes",
            "evaluate",
            (
                # Makes on the test set; block sizes on the validation set, as the paper has them.
                *(
                    task.evaluate(_short(model), split, experiment, few, decoding(greedy=len(few), beam=1))
                    for split, experiment, models in (
                        ("test", "en-de drafters by make", tuple(MAKES)),
                        (
                            "valid",
                            "en-de drafters by block",
                            ("drafter-shared", *(f"drafter-shared-k{k}" for k in BLOCKS)),
                        ),
                    )
                    for model in models
                ),
            ),
        ),
    ]


def _short(name: str) -> str:
    return f"{name}-2-short"


def _made(task: Task, recipe: str, name: str, *settings: str) -> Job:
    """A drafter for a comparison; wide blocks are drafted at two places of a target, which cost as much as narrow ones
    at three."""
    wide = ("objective.blocks=2",) if any(one in settings for one in WIDE) else ()
    return task.train(
        recipe,
        "distilled-valid",
        base_training(MAKING, 1.7, 0.3),
        0.3,
        f"training.steps={MAKING}",
        *settings,
        *wide,
        name=_short(name),
        base="verifier",
    )
