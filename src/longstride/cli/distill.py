"""longstride distill: a teacher (or several) decodes a corpus into a new one; resumable, with a manifest."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli.console import Bar, say
from longstride.cli.failures import keeping
from longstride.cli.options import (
    Device,
    Precision,
    Runtime,
    Set,
    Threads,
    decoder_names,
    open_model,
    say_report,
    settings,
)
from longstride.cli.provenance import origin_on
from longstride.cli.streams import input_file, record_file, result_folder
from longstride.contract import OptionError, UsageError, WorkError
from longstride.contract.bundled import BUNDLED
from longstride.contract.options import parse

if TYPE_CHECKING:
    from longstride.bench.records import Distillation
    from longstride.distillation.decoding import Teacher
    from longstride.translator import Translator


def distill(
    input: Annotated[Path, typer.Option("-i", "--input", help="Source text, one sentence per line.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the distilled corpus.")],
    model: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", help=f"Teacher; several are averaged as an ensemble (default: {BUNDLED})."),
    ] = None,
    decoder: Annotated[
        str,
        typer.Option(
            autocompletion=decoder_names, help="The teacher's way of generating, as `longstride decoders` shows it."
        ),
    ] = "beam",
    set: Set = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the distillation as name=value.")
    ] = None,
    runtime: Runtime = "auto",
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the shards that are missing.")] = False,
    processes: Annotated[
        int, typer.Option(min=1, max=256, help="Processes that share the work; two or three keep a large GPU busy.")
    ] = 1,
    record: Annotated[Path | None, typer.Option(help="Append a record when done to this file (JSON lines).")] = None,
) -> None:
    """Decode a training set with a teacher."""
    from longstride.bench.record_files import append_records
    from longstride.distillation.distill import distill as run
    from longstride.distillation.options import DistillOptions
    from longstride.runtime.graph_runner import available_cores
    from longstride.text.corpus import read_lines

    chosen = parse(DistillOptions, settings(option), "--option")
    teachers = model or [BUNDLED]
    output = result_folder(output)
    record = record_file(record)
    input = input_file(input)
    begun = time.monotonic()
    there = finished(output)
    if there and not resume:  # with several processes as with one
        raise UsageError(f"{output}: expected a new folder, found shards in it; go on with them by --resume.")
    if processes > 1:
        said = ["-i", str(input), "-o", str(output), "--runtime", runtime, "--precision", precision, "--device", device]
        said += [part for path in teachers for part in ("-m", path)] + ["--decoder", decoder, "--resume"]
        said += [part for one in set or [] for part in ("--set", one)]
        said += [part for one in option or [] if not one.startswith("shards=") for part in ("--option", one)]
        said += ["--threads", str(threads or max(1, available_cores() // processes))]
        shards = -(-sum(1 for _ in read_lines(input)) // chosen.shard_lines)
        share_out(said, chosen.shards.of(shards), processes)
        resume = True
    translators = [open_model(path, runtime, precision, device, None, threads) for path in teachers]
    teacher = make_teacher(translators, decoder, settings(set))
    kept = "kept the shards that were done; --resume goes on with the rest"
    with keeping(lambda: kept), Bar("distilling", None) as shown:
        outcome = run(
            teacher, input, output, chosen, resume=resume, progress=lambda found: shown.to(found.lines, found.of)
        )
    if processes > 1 or chosen.shards == DistillOptions().shards:  # once, and not by each of several processes
        say_report(*translators, runtime=runtime)
    if outcome.manifest is None:
        say(f"{outcome.complete} of {outcome.shards} shards are there; run again with --resume for the rest.")
    else:
        say(f"Distilled corpus with its manifest: {output}{left_out(outcome.manifest)}")
        if record is not None:
            minutes = (time.monotonic() - begun) / 60
            append_records(
                record, [_record(outcome.manifest, output, teachers, teacher, minutes, processes, device, there)]
            )


def left_out(manifest: dict[str, Any]) -> str:
    """How many outputs are not in it, and why."""
    dropped, kept = int(manifest["dropped"]), int(manifest["kept"])
    if not dropped:
        return ""
    why = ", ".join(f"{reason} {count:,}" for reason, count in manifest["degenerate"].items())
    told = f"; {dropped:,} of {dropped + kept:,} outputs are left out as degenerate ({why})"
    if manifest["degenerate"].get("length ratio", 0) <= kept:
        return told
    return f"{told}. Where outputs are meant to be short, --option rules.max_ratio=1000 keeps them"


def finished(folder: Path) -> set[str]:
    """The names of the shards that are there already."""
    return {path.name for path in (folder / "shards").glob("shard-*.json")}


def share_out(arguments: list[str], shards: range, processes: int) -> None:
    """Run the same command in several processes, each on its own run of shards; if one fails, all stop."""
    bounds = [shards.start + len(shards) * part // processes for part in range(processes + 1)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "longstride", "distill", *arguments, "--option", f"shards={first}:{last}"]
        )
        for first, last in itertools.pairwise(bounds)
        if last > first
    ]
    try:
        while None in (codes := [worker.poll() for worker in workers]) and not any(codes):
            time.sleep(0.2)
        if any(codes):
            raise WorkError(f"one of {len(workers)} processes failed with exit code {next(filter(None, codes))}.")
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in workers:
            worker.wait()


def _record(
    manifest: dict[str, Any],
    output: Path,
    models: list[str],
    teacher: Teacher,
    minutes: float,
    processes: int,
    device: str,
    there: Collection[str],
) -> Distillation:
    """What was made, and how much of it now: shards that were `there` before took no time."""
    import torch

    from longstride.bench.records import Distillation
    from longstride.runtime.choosing import check_device
    from longstride.text.files import file_sha256

    name = ", ".join(Path(model).name for model in models)
    before = [json.loads((output / "shards" / shard).read_text(encoding="utf-8")) for shard in there]
    earlier = sum(int(one["last"]) - int(one["first"]) for one in before)
    sentences = int(manifest["kept"]) + int(manifest["dropped"])
    return Distillation(
        origin=origin_on(f"distillation by {name}", torch.device(check_device(device))),
        name=str(manifest["source"]),
        teacher=name,
        decoder=teacher.signature,
        sentences=sentences,
        minutes=minutes,
        manifest_hash=file_sha256(output / "manifest.json"),
        dropped=int(manifest["dropped"]),
        tokens=int(manifest["tokens"]),
        notes={"processes": processes, "degenerate": manifest["degenerate"], "process_minutes": manifest["minutes"]},
        decoded=sentences - earlier if earlier else None,
    )


def make_teacher(translators: list[Translator], decoder: str, options: dict[str, Any]) -> Teacher:
    """One model with any of its decoders, or several under beam search."""
    from longstride.distillation.decoding import Teacher

    first = translators[0]
    if len(translators) == 1:
        made, limits = first.decoder(decoder, **options)
    elif decoder == "beam":
        made, limits = first.ensemble(translators[1:], **options)
    else:
        raise OptionError(f"--decoder expects beam for several teachers, found {decoder!r}.")
    return Teacher(
        made,
        lambda lines: first.source_tokenizer.encode_for_batches([first.readable(line) for line in lines]),
        lambda rows: first.target_tokenizer.decode_many(
            [[token for token in row if token != first.folder.special.eos] for row in rows]
        ),
        tuple(translator.folder.sha256 for translator in translators),
        first.target_tokenizer.sha256,
        limits,
        min(translator.longest for translator in translators),
    )
