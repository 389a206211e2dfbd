"""The English-German task as commands: where everything lies, and one method per `longstride` command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from driver import memory
from driver.jobs import Job, there

HERE = Path(__file__).resolve().parent.parent
LONGSTRIDE = ("-m", "longstride")
ENDINGS = ("", ".xz", ".gz")

TRAINING, SMALL_TRAINING, DECODING, TIMING = 0.5, 0.4, 0.2, math.inf
"""shares of the GPU; what reads a clock has it for itself. A base model keeps it busy half of the time, a small one
less: the rest is its host's. See jobs.py for how much is given out"""


@dataclass(frozen=True)
class Task:
    """Where files lie and how models are run."""

    work: Path
    data: Path = Path("data/en-de")
    given: tuple[Path, ...] = ()
    """folders of models and distilled data made earlier"""
    settings: tuple[str, ...] = ()
    """name=value for every training run"""
    precision: str = "fp16"
    runtime: str = "eager"
    """of what is timed"""
    store: Path = Path("checkpoints")
    """where `collect` puts finished models"""
    together: tuple[str, ...] = ()
    """models of the one race with all decoders, where not all of them are there"""
    sentences: int = 0
    """of that race, 0 for all of the test set, where it is not `eager`: that is too slow for more than a few"""
    passes: int = 3
    """of that race, likewise"""

    @property
    def records(self) -> Path:
        """All records of all commands."""
        return self.work / "records.jsonl"

    @property
    def tokenizer(self) -> Path:
        """One for all models."""
        return self.work / "tokenizer.model"

    @property
    def outputs(self) -> Path:
        """Translations, a folder per model and test set."""
        return self.work / "outputs"

    def text(self, split: str, side: str) -> Path:
        """A file of the corpus, however it is compressed."""
        names = [self.data / f"{split}.{side}{ending}" for ending in ENDINGS]
        return next((path for path in names if path.is_file()), names[1])

    def model(self, name: str) -> Path:
        """A model that was given, else the run that makes it."""
        found = [folder / name for folder in self.given if there(folder / name)]
        return found[0] if found else self.work / name

    def distilled(self, split: str) -> Path:
        """The folder of a distilled corpus that was given, else the one that is made."""
        found = [folder / "distilled" / split for folder in self.given if there(folder / "distilled" / split)]
        return found[0] if found else self.work / "distilled" / split

    def cache(self, data: str) -> Path:
        """The binarized corpus of `original` or `distilled` data, or of `distilled-valid`: see `learning`."""
        return self.work / "cache" / data

    def learning(self, data: str) -> list[str]:
        """Settings that say what is learnt from; `distilled-valid` validates on distilled data too, as drafters do."""
        train: tuple[Path, Path] = (self.text("train", "en"), self.text("train", "de"))
        valid: tuple[Path, Path] = (self.text("valid", "en"), self.text("valid", "de"))
        if data != "original":
            train = _sides(self.distilled("train"), "train")
        if data == "distilled-valid":
            valid = _sides(self.distilled("valid"), "valid")
        pairs = {"train_source": train[0], "train_target": train[1], "valid_source": valid[0], "valid_target": valid[1]}
        named = {**pairs, "tokenizer": self.tokenizer, "cache": self.cache(data)}
        return [f"data.{name}={path}" for name, path in named.items()]

    def train(
        self,
        recipe: str,
        data: str,
        minutes: float,
        share: float,
        *settings: str,
        name: str = "",
        base: str = "",
        warm_start: str = "",
    ) -> Job:
        """Run a recipe; under another `name` where it is run with other settings too."""
        others = {"base": base, "warm_start": warm_start}
        changes = [*self.learning(data), *(f"{key}={self.model(one)}" for key, one in others.items() if one)]
        changes += [*settings, *([f"name=en-de-{name}"] if name else []), *self.settings]
        folder = self.work / (name or recipe)
        command = ("train", str(HERE / f"{recipe}.yaml"), "-o", str(folder), "--resume", "--record", str(self.records))
        return Job(
            name or recipe,
            (*LONGSTRIDE, *command, *_each("--set", changes)),
            minutes,
            share,
            memory.training(recipe, name),
            needs=(self.cache(data) / "train.ids", *(self.model(one) for one in others.values() if one)),
            makes=(self.model(name or recipe),),
            checkpoints=True,
        )

    def distil(
        self, split: str, minutes: float, *more: str, source: Path | None = None, teacher_name: str = "teacher"
    ) -> Job:
        """The teacher's beam-5 output for a split, or another `source` in its place; shards that were given are taken
        along. Records are known by the name of the teacher's folder."""
        teacher, folder = self.model(teacher_name), self.work / "distilled" / split
        given = [str(one / "distilled" / split) for one in self.given if (one / "distilled" / split).is_dir()]
        return Job(
            split,
            (
                *(str(HERE / "driver" / "resume_shards.py"), str(folder), *given, "--"),
                *("distill", "-m", str(teacher), "-i", str(source or self.text(split, "en"))),
                *(
                    "-o",
                    str(folder),
                    "--precision",
                    self.precision,
                    "--set",
                    "width=5",
                    "--option",
                    f"name={split}",
                    "--resume",
                ),
                *("--record", str(self.records), *more),
            ),
            minutes,
            0.9,
            memory.DISTILLATION,
            needs=(teacher, *((source,) if source is not None else ())),
            makes=(self.distilled(split),),
            checkpoints=True,
        )

    def evaluate(
        self,
        model: str,
        split: str,
        experiment: str,
        decoders: Sequence[str],
        minutes: float,
        *more: str,
        against: Path | None = None,
        name: str = "",
    ) -> Job:
        """Score one model in many settings, in one process; one record and one file of outputs for each."""
        folder = self.outputs / f"{model}.{split}"
        rival = ("--against", str(against)) if against is not None else ()
        named = ("--name", name) if name else ()
        return Job(
            f"{model}.{split}",
            (
                *(*LONGSTRIDE, "evaluate", "-m", str(self.model(model)), "-s", str(self.text(split, "en"))),
                *("-r", str(self.text(split, "de")), "--decoders", ",".join(decoders), "--record", str(self.records)),
                *("--json", "--experiment", experiment, "--workload", f"en-de {split}", "-o", str(folder)),
                *("--precision", self.precision, "--batch", "512", *named, *rival, *more),
            ),
            minutes,
            DECODING,
            memory.EVALUATION,
            needs=(self.model(model), *((against,) if against is not None else ())),
            makes=tuple(folder / f"{_file_name(one)}.txt" for one in decoders),
            whole=False,
        )

    def output(self, model: str, split: str, decoder: str) -> Path:
        """The translations of one setting, once they are evaluated."""
        return self.outputs / f"{model}.{split}" / f"{_file_name(decoder)}.txt"

    def exactness(self, model: str, decoder: str, precision: str, batch: int = 256, runtime: str = "eager") -> Job:
        """Count the outputs of a verifying decoder that are not greedy's; fails, once recorded, where there is one."""
        experiment = "en-de exactness" if runtime == "eager" else f"en-de exactness, {runtime}"
        job = self.evaluate(model, "test", experiment, [decoder], 0.6)
        without = _without(job.command, "-o", "--precision", "--batch")
        how = ("--exactness", "--precision", precision, "--batch", str(batch), "--runtime", runtime)
        return replace(job, name=f"{model}.{precision}.{batch}", command=(*without, *how), makes=())

    def bench(self, name: str, models: Sequence[str], decoders: Sequence[str], minutes: float, *more: str) -> Job:
        """Time decoders of several models side by side; with several models a decoder is named FOLDER/DECODER."""
        folders = [self.model(model) for model in models]
        return Job(
            f"{name}, {self.runtime}",
            (
                *(*LONGSTRIDE, "bench", *_each("-m", map(str, folders)), "-s", str(self.text("test", "en"))),
                *("-r", str(self.text("test", "de")), "--decoders", ",".join(decoders), "-o", str(self.records)),
                *("--precision", self.precision, "--runtime", self.runtime),
                *("--experiment", f"en-de {name}, {self.runtime}", "--workload", "en-de test", *more),
            ),
            minutes,
            TIMING,
            memory.TIMED,
            needs=tuple(folders),
        )

    def script(self, name: str, file: str, *arguments: str, minutes: float, last: bool = False) -> Job:
        """Run a script of the driver, which needs no GPU."""
        return Job(name, (str(HERE / "driver" / file), *arguments), minutes, 0.0, last=last)


def _sides(folder: Path, split: str) -> tuple[Path, Path]:
    return folder / f"{split}.src", folder / f"{split}.tgt"


def _each(option: str, values: Sequence[str] | map[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def _file_name(decoder: str) -> str:
    """How `evaluate` names the file of a setting: ``beam:width=4`` is ``beam-width-4``."""
    kept = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in decoder.lower())
    return "-".join(part for part in kept.split("-") if part)


def _without(command: Sequence[str], *options: str) -> list[str]:
    """A command without these options and their values."""
    kept, skip = [], False
    for part in command:
        if not skip and part not in options:
            kept.append(part)
        skip = not skip and part in options
    return kept
