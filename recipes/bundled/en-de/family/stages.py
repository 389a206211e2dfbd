"""The stages of the bundled family as jobs: what is run, what it needs, what it makes, what it is guessed to cost.

Only `corpora`, `verifier`, `decoders` and `assemble` are worth a GPU's time; all else runs on a CPU before or after.
Knows what a job is (recipes/en-de/driver/jobs.py) and nothing of how jobs are scheduled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from driver import memory
from driver.commands import DECODING, HERE, LONGSTRIDE, TIMING, TRAINING
from driver.estimates import SMALL_ALONE, START, decoding
from driver.jobs import Job, Stage

from family.assemble import DECODERS
from family.mix import text

RECIPES = Path(__file__).resolve().parent.parent
PREPARE = HERE / "driver" / "prepare.py"
NAME = "bundled-en-de"

PASS = 19.0e6
"""target tokens of one pass over all pairs: 34 pieces each for 500,000 debates, 12 each for 160,000 everyday ones"""
SHALLOW, FROZEN = 1.45, 1.8
"""how much faster than a small model of six and six layers: with two decoder layers, on a frozen encoder"""
BESIDE = 0.65
"""how much longer an update takes for each other process that trains on the same GPU (MPS)"""
QUARTER = 0.3
"""share of the GPU that lets four models be trained at once"""

TABLES = ("counted.keep=32", "counted.reach=1", "counted.longest=64", "counted.least=3", "counted.fewest=3")
"""pruned: a seventh of the size, the same recall of 64 candidates within a point (README.md beside the recipes)"""
SIZE = 8000
"""pieces of the vocabulary"""

GIGABYTES = {"verifier": 5.0, "heads": 6.0, "drafter": 10.0, "interleaved": 8.0, "lattice": 6.0}
"""of device memory, guessed from the small models of recipes/en-de"""

SAMPLE = 100
"""sentences that are timed"""
RUNTIMES = {"eager": "fp32", "onnx": "int8"}
"""of a CPU, each in the precision that suits it"""

_TINY_MODEL = ("model.width=32", "model.feed_forward=64", "model.heads=2")
_TINY_ENCODER = (*_TINY_MODEL, "model.encoder_layers=1")
TINY: dict[str, tuple[str, ...]] = {
    "verifier": _TINY_ENCODER,
    "heads": ("model.feed_forward=16",),
    "drafter": _TINY_MODEL,
    "interleaved": _TINY_ENCODER,
    "lattice": _TINY_ENCODER,
}
"""what makes a recipe's model tiny, so that a dry run takes a minute on a CPU"""
DRY = (
    *("training.epochs=0", "training.steps=4", "training.schedule.warmup=1", "training.checkpoint_every=2"),
    *("training.keep=2", "training.average_count=2", "training.precision=fp32", "training.compile=none"),
    *("data.batches.tokens=512", "validation.sentences=8"),
)


@dataclass(frozen=True)
class Task:
    """Where files lie and how models are run."""

    work: Path
    distilled: Path
    """the teacher's output: train.src and train.tgt"""
    debates: Path
    """valid and test sets of the debates"""
    everyday: Path
    """train, valid and test sets of everyday sentences"""
    settings: tuple[str, ...] = ()
    """name=value for every training run"""
    dry: bool = False
    """tiny models and a few updates: everything goes through, and nothing is worth keeping"""
    precision: str = "fp32"
    """for decoding"""

    @property
    def mixed(self) -> Path:
        """The corpus; its folder is named as a teacher's output is, by which records know what was learnt."""
        return self.work / "distilled"

    @property
    def tokenizer(self) -> Path:
        """One for all."""
        return self.work / "tokenizer.model"

    @property
    def cache(self) -> Path:
        """The binarized corpus."""
        return self.work / "cache"

    @property
    def records(self) -> Path:
        """All records of all commands."""
        return self.work / "records.jsonl"

    @property
    def outputs(self) -> Path:
        """Translations, a folder per test set."""
        return self.work / "outputs"

    @property
    def bundle(self) -> Path:
        """The one folder."""
        return self.work / "bundle"

    def side(self, split: str, side: str) -> Path:
        """A file of the mixed corpus."""
        return self.mixed / (f"{split}.{side}.xz" if split == "train" else f"{split}.{side}")


def stages(task: Task) -> list[Stage]:
    """Everything there is to do, in order."""
    return [
        Stage("mix", "prepare", (_mix(task),)),
        Stage("corpora", "prepare", (_corpora(task),)),
        Stage("tables", "prepare", (_tables(task),)),
        Stage("verifier", "train", (_train(task, "verifier", _minutes(16, SHALLOW), TRAINING),)),
        Stage(
            "decoders",
            "train",
            (
                _train(task, "heads", _minutes(8, FROZEN, 3), QUARTER, "base"),
                _train(task, "drafter", _minutes(8, FROZEN, 3), QUARTER, "base"),
                _train(task, "interleaved", _minutes(8, FROZEN, 3), QUARTER, "warm_start"),
                _train(task, "lattice", _minutes(8, FROZEN, 3), QUARTER, "warm_start"),
            ),
        ),
        Stage("assemble", "gather", (_assemble(task),)),
        Stage("evaluate", "measure", tuple(_evaluate(task, kind) for kind in ("everyday", "debates"))),
        Stage(
            "bench",
            "measure",
            tuple(_bench(task, kind, runtime) for runtime in RUNTIMES for kind in ("everyday", "debates")),
        ),
        Stage("card", "gather", (_card(task),)),
    ]


def _minutes(passes: int, faster: float, beside: int = 0) -> float:
    """A training, beside so many others."""
    return round(START + (1 + BESIDE * beside) * passes * PASS / (SMALL_ALONE * faster) / 60, 1)


def _mix(task: Task) -> Job:
    command = [str(RECIPES / "family" / "mix.py"), str(task.mixed), "--examples", str(RECIPES / "examples.tsv")]
    for name in ("distilled", "debates", "everyday"):
        command += [f"--{name}", str(getattr(task, name))]
    made = tuple(task.side(split, side) for split in ("train", "valid") for side in ("en", "de"))
    return Job("mix", tuple(command), 3.0, 0.0, makes=(task.mixed / "mix.json", *made))


def _corpora(task: Task) -> Job:
    files = [str(task.side(split, side)) for split in ("train", "valid") for side in ("en", "de")]
    size = ("--vocabulary", str(SIZE if not task.dry else 600))
    return Job(
        "corpora",
        (str(PREPARE), str(task.tokenizer), *size, "--corpus", str(task.cache), *files),
        0.8,
        0.0,
        needs=(task.mixed / "mix.json",),
        makes=(task.tokenizer, task.cache / "train.ids"),
    )


def _tables(task: Task) -> Job:
    """Align and count; some minutes on one core of a CPU."""
    text_files = ("-s", str(task.side("train", "en")), "-t", str(task.side("train", "de")))
    more = ("--tokenizer", str(task.tokenizer), "-o", str(task.work / "tables"))
    settings = [part for one in TABLES for part in ("--set", one)]
    command = (*LONGSTRIDE, "lattice", "build", *text_files, *more, *settings)
    needs = (task.mixed / "mix.json", task.tokenizer)
    return Job("tables", command, 5.0, DECODING, memory.TABLES, needs=needs, makes=(task.work / "tables",))


def _train(task: Task, name: str, minutes: float, share: float, on_verifier: str = "") -> Job:
    """Run a recipe, in the place of the paths that it names."""
    pairs = {f"{split}_{kind}": task.side(split, side) for split in ("train", "valid") for kind, side in SIDES}
    named = {**pairs, "tokenizer": task.tokenizer, "cache": task.cache}
    changes = [f"data.{key}={path}" for key, path in named.items()]
    needs = [task.cache / "train.ids"]
    others = {on_verifier: "verifier"} if on_verifier else {}
    if name == "lattice":
        others["base"] = "tables"
    for role, other in others.items():
        changes.append(f"{role}={task.work / other}")
        needs.append(task.work / other)
    changes += [*(TINY[name] if task.dry else ()), *(DRY if task.dry else ()), *task.settings]
    told = ("-o", str(task.work / name), "--resume", "--record", str(task.records))
    command = (*LONGSTRIDE, "train", str(RECIPES / f"{name}.yaml"), *told, *_each("--set", changes))
    made = (task.work / name,)
    peak = GIGABYTES[name] + memory.CONTEXT
    return Job(name, command, minutes, share, peak, needs=tuple(needs), makes=made, checkpoints=True)


SIDES = (("source", "en"), ("target", "de"))


def _assemble(task: Task) -> Job:
    command = (str(RECIPES / "family" / "assemble.py"), str(task.work), str(task.bundle))
    runs = ("verifier", "heads", "drafter", "interleaved", "lattice")
    return Job("assemble", command, 0.2, 0.0, needs=tuple(task.work / run for run in runs), makes=(task.bundle,))


def _files(task: Task, kind: str) -> tuple[str, ...]:
    folder = task.everyday if kind == "everyday" else task.debates
    return ("-s", str(text(folder, "test.en")), "-r", str(text(folder, "test.de")))


def _evaluate(task: Task, kind: str) -> Job:
    told = ("--record", str(task.records), "--experiment", "bundled en-de", "--workload", f"{kind} test", "--json")
    more = ("-o", str(task.outputs / kind), "--precision", task.precision, "--batch", "128")
    return Job(
        kind,
        (*LONGSTRIDE, "evaluate", "-m", str(task.bundle), *_files(task, kind), "--decoders", _all(), *told, *more),
        decoding(greedy=len(DECODERS) - 1, beam=1, sentences=2500),
        DECODING,
        memory.EVALUATION,
        needs=(task.bundle,),
    )


def _bench(task: Task, kind: str, runtime: str) -> Job:
    """On two cores of a CPU, one sentence at a time: what `longstride demo` shows, measured properly."""
    precision = RUNTIMES[runtime]
    told = ("-o", str(task.records), "--experiment", f"bundled en-de, {runtime}", "--workload", f"{kind} test")
    more = ("--device", "cpu", "--threads", "2", "--sample", str(2 if task.dry else SAMPLE), "--passes", "2")
    more = (*more, "--runtime", runtime, "--precision", precision)
    return Job(
        f"{kind}-{runtime}",
        (*LONGSTRIDE, "bench", "-m", str(task.bundle), *_files(task, kind), "--decoders", _all(), *told, *more),
        4.0,
        TIMING,
        needs=(task.bundle,),
    )


def _card(task: Task) -> Job:
    """The card again, with all scores that there are."""
    command = (str(RECIPES / "family" / "card.py"), str(task.bundle), str(task.records))
    return Job("card", command, 0.1, 0.0, needs=(task.bundle, task.records), last=True)


def _all() -> str:
    return ",".join(DECODERS)


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (option, value)]
