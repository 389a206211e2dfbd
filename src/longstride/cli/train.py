"""longstride train: a recipe in, a model folder out; Ctrl-C stops it with a checkpoint and --resume goes on."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli.console import commit, err, live, say
from longstride.cli.options import Device, settings
from longstride.cli.provenance import origin_on
from longstride.cli.streams import record_file, result_folder
from longstride.cli.threads import let_threads_rest
from longstride.contract import InputError, UsageError, WorkError
from longstride.contract.options import as_dict, merged, parse

if TYPE_CHECKING:
    from longstride.bench.records import Training
    from longstride.recipe import Outcome, Recipe
    from longstride.training.metrics import Record


def train(
    recipe: Annotated[Path, typer.Argument(help="Recipe, a YAML file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the run; the model comes to be in it.")],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A field of the recipe (docs/reference/options.md) as name=value; may be given several times."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the newest checkpoint, if there is one, with the recipe it has."),
    ] = False,
    device: Device = "auto",
    record: Annotated[
        Path | None, typer.Option(help="Append a record of the finished run to this file (JSON lines).")
    ] = None,
) -> None:
    """Train a model as a recipe says."""
    let_threads_rest()
    import torch
    import yaml

    from longstride.bench.record_files import append_records
    from longstride.recipe import check, origin_of
    from longstride.recipe import run as run_recipe
    from longstride.runtime.choosing import check_device
    from longstride.text.files import written_whole
    from longstride.training.checkpoints import latest

    read = read_recipe(recipe, settings(set))
    check(read)
    device = str(check_device(device))
    record = record_file(record)
    result_folder(output)
    if latest(output / "checkpoints") and not resume:
        raise UsageError(f"{output}: expected a new folder, found a run in it; go on with --resume or choose another.")
    kept = output / "recipe.yaml"
    origin = origin_of(read, output, read_recipe(kept, {}) if kept.is_file() else None)
    is_new = not output.exists()
    output.mkdir(parents=True, exist_ok=True)
    with written_whole(kept) as temporary:
        temporary.write_text(yaml.safe_dump(as_dict(read), sort_keys=False, allow_unicode=True), encoding="utf-8")
    made_by, dirty = commit()
    provenance = {"commit": made_by, "dirty": dirty, "device": device_name(device), "torch": torch.__version__}
    reporter = _Reporter()
    try:
        outcome = run_recipe(
            read, output, resume=resume, device=device, reporter=reporter, provenance=provenance, origin=origin
        )
    except UsageError as error:  # in the data, say: exit code 2 would promise that nothing was written
        if is_new and [*output.iterdir()] == [kept]:
            kept.unlink()
            output.rmdir()
        raise WorkError(str(error)) from error
    finally:
        reporter.close()
    if outcome.leads:
        _tell(outcome)
    if record is not None and outcome.model is not None:
        append_records(record, [_record(read, recipe, outcome, device)])
    if outcome.result.interrupted:
        sys.exit(130)


def read_recipe(path: Path, changes: dict[str, Any]) -> Recipe:
    """A YAML file with changes laid over it, checked."""
    import yaml

    from longstride.recipe import Recipe

    if not path.is_file():
        raise InputError(f"{path}: expected a recipe, found {'a folder' if path.is_dir() else 'no such file'}.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a recipe of named options, found {type(values).__name__}.")
    return parse(Recipe, merged(values, changes), str(path))


def device_name(device: str) -> str:
    """As a person knows it."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else f"{platform.machine()} CPU"


def _record(read: Recipe, path: Path, outcome: Outcome, device: str) -> Training:
    import torch

    from longstride.bench.records import Training
    from longstride.model_folder import ModelFolder
    from longstride.objectives import OBJECTIVES
    from longstride.tasks.score import Score
    from longstride.tasks.summarization import Rouge
    from longstride.tasks.translation import Bleu

    result = outcome.result
    decoder = OBJECTIVES[read.objective.get("kind", "autoregressive")].decoders[0]  # what validation decodes with
    how = {
        "loss": Score("loss", 0.0, "label-smoothed nats per target token"),
        "bleu": Score("BLEU", 0.0, f"{Bleu().signature}, {decoder}"),
        **({"rouge": Score("ROUGE-L", 0.0, f"{Rouge().signature}, {decoder}")} if "rouge" in result.scores else {}),
        "exact": Score("exact match", 0.0, f"share of outputs equal to the reference, {decoder}"),
    }
    scores = tuple(replace(how[name], value=value) for name, value in sorted(result.scores.items()))
    data = read.data.task if read.data.task != "files" else Path(read.data.train_target).name
    return Training(
        origin=origin_on(read.name, torch.device(device)),
        name=read.name,
        recipe=path.name,
        parameters=outcome.parameters,
        steps=result.step,
        minutes=result.seconds / 60,
        tokens_per_second=result.steady_tokens_per_second or result.tokens_per_second,
        scores=scores,
        data=data,
        epochs=float(result.epoch),
        model_hash=ModelFolder(outcome.model).sha256 if outcome.model else "",
        notes={
            "tokens_per_second_with_everything": result.tokens_per_second,
            "peak_memory": result.peak_memory,
            "averaged_updates": list(result.averaged),
            "validation": dict(result.figures),
        },
    )


def _tell(outcome: Outcome) -> None:
    result = outcome.result
    speed = f", {result.steady_tokens_per_second:,.0f} target tokens/s" if result.steady_tokens_per_second else ""
    scores = ", ".join(f"{name} {value:.4g}" for name, value in result.scores.items())
    say(f"{result.step:,} updates in {result.seconds / 60:.1f} minutes{speed}; {scores}")
    if outcome.model is None:
        say(f"Stopped ({result.reason}); go on with --resume.")
    else:
        say(f"Model of {outcome.parameters / 1e6:.1f} M weights: {outcome.model}")


class _Reporter:
    """A progress line: rewritten in place on a terminal, one per record otherwise."""

    def __init__(self) -> None:
        self._status = err.status("Starting") if live() else None
        if self._status is not None:
            self._status.start()

    def record(self, record: Record) -> None:
        from longstride.training.metrics import TrainingRecord

        if isinstance(record, TrainingRecord):
            line = (
                f"update {record.step:,}/{record.total_steps:,}  epoch {record.epoch}  loss {record.loss:.4f}  "
                f"rate {record.learning_rate:.2e}  norm {record.gradient_norm:.2f}  "
                f"{record.tokens_per_second:,.0f} tokens/s  {_minutes(record.elapsed)} gone, "
                f"{_minutes(record.remaining)} left"
            )
            if self._status is not None:
                self._status.update(line)
            else:
                say(line)
        else:
            mark = "  (best so far)" if record.best else ""
            say(f"update {record.step:,}  validation {record.name} {record.value:.4f}{mark}")

    def message(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
