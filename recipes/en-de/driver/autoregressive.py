"""Stages of issue 2's models: corpus, teacher, distilled data, verifier, students, and their scores."""

from __future__ import annotations

from dataclasses import replace

from driver.commands import SMALL_TRAINING, TRAINING, Task
from driver.estimates import TEACHER, alone, decoding, large_alone, small_training
from driver.jobs import Job, Stage

SMALL = ("small", "small-6-2", "small-6-1")
EVALUATED = ("teacher", "verifier", *SMALL)


def stages(task: Task) -> list[Stage]:
    """From text to the verifier."""
    return [
        Stage("prepare", "autoregressive", (prepare(task, "original"),)),
        Stage(
            "teacher",
            "autoregressive",
            (task.train("teacher", "original", large_alone(TEACHER), TRAINING),),
        ),
        Stage("distil-valid", "autoregressive", (task.distil("valid", 0.4, "--option", "keep_all=true"),)),
        Stage("distil", "autoregressive", (task.distil("train", 5.5, "--processes", "3"),)),
        Stage("prepare-distilled", "autoregressive", (prepare(task, "distilled", "distilled-valid"),)),
        Stage(
            "verifier",
            "autoregressive",
            (task.train("verifier", "distilled", alone(3500), TRAINING, warm_start="teacher"),),
        ),
        Stage(
            "students",
            "autoregressive",
            (
                task.train("small", "original", small_training(), SMALL_TRAINING),
                task.train("small-6-2", "distilled", small_training(faster=1.45), SMALL_TRAINING),
                task.train("small-6-1", "distilled", small_training(faster=1.6), SMALL_TRAINING),
            ),
        ),
        *(
            Stage(f"evaluate-{decoder}", "evaluate", tuple(_scored(task, model, decoder) for model in EVALUATED))
            for decoder in ("greedy", "beam")
        ),
    ]


def _scored(task: Task, model: str, decoder: str) -> Job:
    minutes = decoding(greedy=decoder == "greedy", beam=decoder == "beam")
    return task.evaluate(model, "test", "en-de", [decoder], minutes, name=model)


def prepare(task: Task, *corpora: str) -> Job:
    """The tokenizer and binarized corpora; the tokenizer is a given model's, where there is one."""
    take = [str(folder / "teacher" / "tokenizer.model") for folder in task.given]
    vocabulary = [one.partition("=")[2] for one in task.settings if one.startswith("data.vocabulary=")]
    arguments = [str(task.tokenizer), "--take", *take, str(task.data / "tokenizer.model")]
    arguments += ["--vocabulary", vocabulary[-1]] if vocabulary else []
    needs = []
    for name in corpora:
        files = [setting.partition("=")[2] for setting in task.learning(name)][:4]
        arguments += ["--corpus", str(task.cache(name)), *files]
        if name != "original":
            needs += [task.distilled("train"), *([task.distilled("valid")] if name == "distilled-valid" else [])]
    job = task.script("corpora", "prepare.py", *arguments, minutes=0.8)
    made = [task.cache(name) / "train.ids" for name in corpora]
    return replace(job, needs=tuple(dict.fromkeys(needs)), makes=(task.tokenizer, *made))
