"""Stages of lattices: counted tables, scorers, the plain one-pass model, and what the paper's tables show of them."""

from __future__ import annotations

from dataclasses import replace

from driver import memory
from driver.commands import DECODING, LONGSTRIDE, SMALL_TRAINING, TIMING, TRAINING, Task
from driver.estimates import base_training, decoding, small_training
from driver.jobs import Job, Stage

DEPTHS = (1, 2, 3, 4, 5, 6)
SIZES, WINDOWS = (1, 32, 64, 128), (0, 3)
ORIGINAL = "lattice-small-original"
BEGUN = {"original": "small", "distilled": "small-distilled"}
"""autoregressive models that the small ones begin as, by data; quality is told beside theirs"""
PASSES = 4
"""over the data, as the small recipes have it"""


def settings() -> list[str]:
    """Tables 2 and 9: every K with and without a window."""
    return [f"lattice:candidates={k};length_window={window}" for window in WINDOWS for k in SIZES]


def options() -> list[str]:
    """What else can be chosen: over what scores are normalised, trigrams, one shared vocabulary, a prior of lengths."""
    usual = "lattice:candidates=64;length_window=3"
    further = ("normalise=candidates", "order=3", "construction=shared", "length_prior=1.0")
    return [
        usual,
        *(f"{usual};{one}" for one in further),
        "lattice:candidates=128;length_window=3;normalise=candidates",
    ]


def stages(task: Task) -> list[Stage]:
    """Tables, the base scorer, small scorers and one-pass models of one to six layers, and their scores."""
    return [
        Stage("lattice-tables", "lattice", (_tables(task, "original"), _tables(task, "distilled"))),
        Stage(
            "lattice-base",
            "lattice",
            (
                task.train(
                    "lattice",
                    "distilled",
                    base_training(8000, 1.5),
                    TRAINING,
                    base="tables-distilled",
                    warm_start="verifier",
                ),
            ),
        ),
        Stage(
            "lattice-small",
            "lattice",
            (
                *(
                    _small(task, "lattice-small", "distilled", depth, f"lattice-small-{depth}", "tables-distilled")
                    for depth in DEPTHS
                ),
                _small(task, "lattice-small", "original", 1, ORIGINAL, "tables-original"),
            ),
        ),
        Stage(
            "nat",
            "lattice",
            tuple(_small(task, "nat-small", "distilled", depth, f"nat-small-{depth}") for depth in DEPTHS),
        ),
        Stage("evaluate-lattice", "evaluate", tuple(_evaluations(task))),
    ]


def _small(task: Task, recipe: str, data: str, depth: int, name: str, base: str = "") -> Job:
    """One of the small models, all of it trained."""
    minutes = small_training(PASSES, faster=faster(depth))
    layers = f"model.decoder_layers={depth}"
    return task.train(recipe, data, minutes, SMALL_TRAINING, layers, name=name, base=base, warm_start=BEGUN[data])


def faster(depth: int) -> float:
    """Than six decoder layers, as the autoregressive students with one and two of them are."""
    return round(1 / (0.55 + 0.075 * depth), 2)


def _tables(task: Task, data: str) -> Job:
    """Align and count; on the GPU, where there is one."""
    source, target = (setting.partition("=")[2] for setting in task.learning(data)[:2])
    name = f"tables-{data}"
    command = ("lattice", "build", "-s", source, "-t", target, "--tokenizer", str(task.tokenizer))
    return Job(
        name,
        (*LONGSTRIDE, *command, "-o", str(task.work / name)),
        3.0,
        DECODING,
        memory.TABLES,
        needs=(task.cache(data) / "train.ids",),
        makes=(task.model(name),),
    )


def _evaluations(task: Task) -> list[Job]:
    usual = ["lattice:candidates=64;length_window=3"]
    return [
        # Quality is told beside beam 5 and greedy of the autoregressive models of the same size and data.
        *(
            task.evaluate(model, split, "en-de lattice", ["greedy", "beam"], decoding(1, 1))
            for model in ("verifier", *BEGUN.values())
            for split in ("valid", "test")
        ),
        *(
            task.evaluate(model, split, "en-de lattice", settings(), decoding(greedy=4))
            for model in ("lattice", "lattice-small-1", ORIGINAL)
            for split in ("valid", "test")
        ),
        replace(
            task.evaluate("lattice", "test", "en-de lattice options", options(), decoding(greedy=3)),
            name="lattice-options.test",
        ),
        *(
            task.evaluate(f"lattice-small-{depth}", split, "en-de lattice", usual, decoding(greedy=1))
            for depth in DEPTHS[1:]
            for split in ("valid", "test")
        ),
        *(
            task.evaluate(f"nat-small-{depth}", split, "en-de lattice", ["non-autoregressive"], decoding(greedy=1))
            for depth in DEPTHS
            for split in ("valid", "test")
        ),
        _recall(task, "lattice"),
        _recall(task, "nat-small-6"),
        # The paper counts ranks on the validation set at the predicted length, and times at its usual window.
        _look(task, "ranks", "valid", 0, 2.5),
        replace(_look(task, "times", "test", 3, 1.5), share=TIMING),
    ]


def _recall(task: Task, model: str) -> Job:
    """Figure 1: the share of the distilled validation set's words that a lattice holds."""
    folder = task.distilled("valid")
    command = ("lattice", "recall", "-m", str(task.model(model)), "-s", str(folder / "valid.src"))
    told = ("--record", str(task.records), "--experiment", "en-de lattice", "--workload", "en-de distilled valid")
    return Job(
        f"recall.{model}",
        (*LONGSTRIDE, *command, "-r", str(folder / "valid.tgt"), *told),
        0.6,
        DECODING,
        memory.EVALUATION,
        needs=(task.model(model), folder),
    )


def _look(task: Task, what: str, split: str, window: int, minutes: float) -> Job:
    """Figures 2 and 4: where the chosen words stood before the search; how long each stage takes."""
    command = ("lattice", "inspect", "-m", str(task.model("lattice")), "-i", str(task.text(split, "en")))
    options = ("--set", "candidates=64", "--set", f"length_window={window}", "--precision", task.precision)
    told = ("--record", str(task.records), "--experiment", "en-de lattice", "--workload", f"en-de {split}")
    return Job(
        f"{what}.{split}",
        (*LONGSTRIDE, *command, *options, f"--{what}", str(task.work / f"lattice-{what}.json"), *told),
        minutes,
        DECODING,
        memory.EVALUATION,
        needs=(task.model("lattice"),),
    )
