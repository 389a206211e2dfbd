"""longstride distill: a teacher (or several) decodes a corpus into a new one; resumable, with a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from longstride.cli.console import Bar, say
from longstride.cli.options import DecoderName, Device, Precision, Runtime, Set, open_model, settings
from longstride.contract import EOS, OptionError
from longstride.contract.options import parse
from longstride.distillation.distill import Progress
from longstride.distillation.distill import distill as run
from longstride.distillation.options import DistillOptions
from longstride.distillation.teacher import Teacher


def distill(
    model: Annotated[list[str], typer.Option("-m", "--model", help="Teacher; several are averaged as an ensemble.")],
    input: Annotated[Path, typer.Option("-i", "--input", help="Source text, one sentence per line.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the distilled corpus.")],
    decoder: DecoderName = "beam",
    set: Set = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the distillation as name=value.")
    ] = None,
    runtime: Runtime = "eager",
    precision: Precision = "fp32",
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the shards that are missing.")] = False,
) -> None:
    """Decode a training set with a teacher."""
    chosen = parse(DistillOptions, settings(option), "--option")
    teacher = make_teacher(model, decoder or "beam", settings(set), runtime, precision, device)
    bars: list[Bar] = []

    def show(progress: Progress) -> None:
        if not bars:
            bars.append(Bar("distilling", progress.of))
            bars[0].__enter__()
        bars[0].to(progress.lines, progress.of)

    try:
        outcome = run(teacher, input, output, chosen, resume=resume, progress=show)
    finally:
        for shown in bars:
            shown.__exit__(None, None, None)
    if outcome.manifest is None:
        say(f"{outcome.complete} of {outcome.shards} shards are there; run again with --resume for the rest.")
    else:
        say(f"Distilled corpus with its manifest: {output}")


def make_teacher(
    models: list[str], decoder: str, options: dict[str, Any], runtime: str, precision: str, device: str
) -> Teacher:
    """One model with any of its decoders, or several under beam search."""
    translators = [open_model(model, runtime, precision, device) for model in models]
    first = translators[0]
    if len(translators) == 1:
        made, limits = first.decoder(decoder, **options)
    elif decoder == "beam":
        made, limits = first.ensemble(translators[1:], **options)
    else:
        raise OptionError(f"--decoder expects beam for several teachers, found {decoder!r}.")
    return Teacher(
        made,
        lambda lines: first.source_tokenizer.encode_many(list(lines)),
        lambda rows: first.target_tokenizer.decode_many([[token for token in row if token != EOS] for row in rows]),
        tuple(translator.folder.sha256 for translator in translators),
        first.target_tokenizer.sha256,
        limits,
        min(translator.longest for translator in translators),
    )
