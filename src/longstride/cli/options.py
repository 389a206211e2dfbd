"""Options that several commands share, spelt once."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli.console import say
from longstride.cli.streams import check_file
from longstride.contract import OptionError
from longstride.contract.bundled import BUNDLED
from longstride.contract.options import assignments
from longstride.runtime.names import AUTO, PRECISIONS, RUNTIMES, check_precision, check_runtime
from longstride.text.missing import check_there

if TYPE_CHECKING:
    from longstride.contract import Runner
    from longstride.model_folder import ModelFolder
    from longstride.translator import Translator
    from longstride.verification.draft_policy import LengthFile

CACHE = "LONGSTRIDE_CACHE"
"""Environment variable: the folder in which measured draft lengths are kept; empty: they are not."""

Model = Annotated[
    str, typer.Option("-m", "--model", help="Model folder, or a run's folder; bundled: English to German.")
]
OwnModel = Annotated[str, typer.Option("-m", "--model", help="Model folder, or a run's folder.")]
"""One to put something into, which the bundled one is not"""


def decoder_names() -> list[str]:
    """Those of this version, for the shell to complete."""
    from longstride.registry import DECODERS

    return list(DECODERS)


DecoderName = Annotated[
    str | None,
    typer.Option(
        "--decoder",
        autocompletion=decoder_names,
        help="Way of generating; `longstride decoders` lists them (default: the model's own).",
    ),
]
DrafterFolder = Annotated[
    str | None, typer.Option("--drafter", help="Model folder, or a run's, whose drafter is to draft for the model.")
]
Assistant = Annotated[
    Path | None,
    typer.Option(
        "--assistant",
        help="Hugging Face folder of a smaller model with the same vocabulary: transformers' assisted generation with "
        "it is timed too.",
    ),
]
GlossaryFile = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        help="What terms have to be called: lines of a term, a tab and its translation, or of a term alone, which is "
        "kept (docs/terminology.md).",
    ),
]
Whole = Annotated[
    bool | None,
    typer.Option(
        "--whole/--sentences",
        help="Read lines whole, or split them into sentences (default: as the model folder says).",
        show_default=False,
    ),
]
SourceLang = Annotated[
    str | None, typer.Option("--source-lang", help="Language of the text, as a multilingual model codes it.")
]
TargetLang = Annotated[
    str | None, typer.Option("--target-lang", help="Language to translate to, as a multilingual model codes it.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="An option of the decoder (`longstride decoders NAME` lists them) as name=value; several times.",
    ),
]
Runtime = Annotated[
    str,
    typer.Option(
        autocompletion=lambda: [AUTO, *RUNTIMES],
        help="Carries model calls out: auto (the fastest); eager; native, onnx (processors); cuda-graph (CUDA).",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        autocompletion=lambda: list(PRECISIONS),
        help="auto (fp16 by cuda-graph; int8 natively if weights are stored so; else fp32), fp32, fp16, bf16 or fp64; "
        "with native or onnx fp32 or int8.",
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=10**6, help="Threads of the processor to use (default: all cores).")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Batch = Annotated[int, typer.Option(min=1, max=10**6, help="Sentences decoded side by side.")]
AutoBatch = Annotated[
    int | None,
    typer.Option(
        "--batch", min=1, max=10**6, help="Sentences decoded side by side (default: what is fastest by the runtime)."
    ),
]
Source = Annotated[Path, typer.Option("-s", "--source", help="Source text, one sentence per line (.gz and .xz too).")]
Reference = Annotated[Path, typer.Option("-r", "--reference", help="Reference translations, one per source line.")]
References = Annotated[
    list[Path],
    typer.Option("-r", "--reference", help="References, one per source line; for correction several files."),
]
Task = Annotated[
    str, typer.Option(help="What the model does: translation, correction, summarization or super-resolution.")
]
Settings = Annotated[
    str | None,
    typer.Option(
        "--decoders",
        help="Several settings, loaded once and taken one after another, as bench names them: "
        "greedy,blockwise:k=2,blockwise:k=2;accept=top:2.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON also on a terminal.")]
Record = Annotated[Path | None, typer.Option(help="Append a record of each result to this file (JSON lines).")]
Name = Annotated[str | None, typer.Option(help="Names the system in the record (default: the decoder).")]
Experiment = Annotated[
    str | None,
    typer.Option(help="What the records belong to; a later run replaces it in reports (default: the model's name)."),
]
Workload = Annotated[str | None, typer.Option(help="Names the test set in records (default: the source file's name).")]


def not_nan(value: float | None) -> float | None:
    """For options that are numbers with a fraction: `min` and `max` let NaN pass."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


def whole_number(text: str, most: int = 10**9) -> int | None:
    """A number from 1 to `most` that a part of an option spells; None: it spells none."""
    text = text.strip()
    number = int(text) if text.isdecimal() and len(text) <= len(str(most)) else 0
    return number if 1 <= number <= most else None


def settings(texts: list[str] | None) -> dict[str, Any]:
    """What --set said."""
    return dict(assignments(texts or []))


def say_report(
    *translators: Translator,
    runtime: str,
    precision: str | None = None,
    batch: int | None = None,
    decoders: Collection[str] = (),
) -> None:
    """Print which runtime carried the work out, the `decoders` that ran and the `batch` that was chosen, and then the
    runners' reports. With the precision `auto`, mention a faster precision."""
    by = f"; decoder{'s' if len(decoders) > 1 else ''}: {' and '.join(decoders)}" if decoders else ""
    many = by if batch is None else f"{by}, {batch} sentences at a time"
    told: dict[str, None] = {}  # models that are carried out alike say so once
    for runner in {id(translator.runner): translator.runner for translator in translators}.values():
        if runtime == "auto" or (decoders and runtime != "eager"):
            fast = runner.name in ("native", "cuda-graph")
            advice = "" if fast or runtime != "auto" else " `longstride doctor` says what would be faster here."
            told[f"Carried out by {runner.describe()}{_faster(runner, precision)}{many}.{advice}"] = None
        if report := runner.report():
            told[report] = None
    for line in told:
        say(line)


def _faster(runner: Runner, precision: str | None) -> str:
    """That int8 is there, where nobody chose a precision and floats were computed natively."""
    from longstride.runtime.choosing import fastest_precision

    if precision != AUTO or (runner.name, runner.precision) != ("native", "fp32"):
        return ""
    there = fastest_precision("cpu", runner.name, "int8") == "int8"
    return " (--precision int8 is usually faster)" if there else ""


def model_path(model: str) -> Path:
    """The folder that --model and its like mean: the bundled one, a model's own, or the one inside a run's folder."""
    from longstride.model_folder import resolve
    from longstride.translator import bundled_folder

    if model == BUNDLED:
        return bundled_folder()
    found = resolve(model)
    check_there(found)
    return found


def own_folder(path: Path, what: str) -> ModelFolder:
    """A model folder to put something into; the one that comes with the package stays as it is."""
    from longstride.model_folder import ModelFolder
    from longstride.translator import bundled_folder

    if path == bundled_folder():
        raise OptionError(f"Expected a model folder of your own to put {what} into, found the bundled one, {path}.")
    return ModelFolder(path)


def check_asked(
    *models: str | None, runtime: str = AUTO, precision: str = AUTO, reads: Sequence[Path | None] = ()
) -> None:
    """Refuse names that there are not, folders and files that are not there: at once, since importing PyTorch and
    loading a model take seconds."""
    check_runtime(runtime)
    check_precision(precision, "--precision")
    for model in models:
        if model is not None and model != BUNDLED:
            check_there(Path(model))
    for file in reads:
        check_file(file)


def open_model(
    model: str,
    runtime: str = "eager",
    precision: str = "fp32",
    device: str = "auto",
    drafter: str | None = None,
    threads: int | None = None,
    announce: bool = True,
) -> Translator:
    """Load a model folder as the shared options say, and `announce` what carries it out where a runtime was named,
    unless that is said with the decoder when the work is done."""
    import torch

    from longstride.runtime.graph_runner import check_threads
    from longstride.translator import load

    check_precision(precision, "--precision")
    if threads is not None:
        check_threads(threads)
        torch.set_num_threads(threads)
    other = model_path(drafter) if drafter is not None else None
    translator = load(
        model_path(model),
        runtime=runtime,
        precision=precision,
        device=device,
        drafter=other,
        threads=threads,
        tell=say,
    )
    kept = cache_folder()
    translator.lengths = partial(_length_file, translator, kept) if kept is not None else None
    if announce and runtime not in ("eager", "auto"):  # of which say_report tells when something was done
        say(f"Carried out by {translator.runner.describe()}.")
    return translator


def cache_folder() -> Path | None:
    """Where measured draft lengths are kept: as the environment says, or `longstride` in the user's cache folder; none:
    they are not."""
    told = os.environ.get(CACHE)
    if told is not None:
        return Path(told) if told else None
    users = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (users if users.is_absolute() else Path.home() / ".cache") / "longstride"
    except RuntimeError:  # nobody knows of a home, as of a user id that a container made up
        return None


def _length_file(translator: Translator, folder: Path, identities: list[str]) -> LengthFile:
    """The file for these model folders on this device."""
    from longstride.bench.machine import describe_machine
    from longstride.verification.draft_policy import LengthFile
    from longstride.version import __version__

    runner, machine = translator.runner, describe_machine(translator.runner.device)
    about = {"models": " ".join(identities), "device": machine.device, "threads": str(machine.threads)}
    about |= {"runtime": runner.describe(), "precision": runner.precision, "torch": machine.torch}
    about |= {"version": __version__}
    name = hashlib.sha256("\n".join(about.values()).encode()).hexdigest()[:32]
    return LengthFile(folder / "draft-lengths" / f"{name}.json", about)
