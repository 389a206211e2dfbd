"""longstride translate: lines in, translations out, as many lines as came in."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longstride.cli.console import err, warn
from longstride.cli.options import (
    DecoderName,
    Device,
    DrafterFolder,
    Model,
    Precision,
    Runtime,
    Set,
    Threads,
    open_model,
    say_report,
    settings,
)
from longstride.contract import InputError
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.cli.tracing import TraceTeller
    from longstride.contract import Decoded
    from longstride.translator import Translation, Translator

TABLES = 64
"""So many tables' worth of lines are sorted by length together: memory stays bounded however long the input."""


def translate(
    model: Model = BUNDLED,
    input: Annotated[Path | None, typer.Option("-i", "--input", help="File to translate (default: stdin).")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write (default: stdout).")] = None,
    decoder: DecoderName = None,
    set: Set = None,
    drafter: DrafterFolder = None,
    runtime: Runtime = "eager",
    precision: Precision = "fp32",
    device: Device = "auto",
    threads: Threads = None,
    batch: Annotated[int, typer.Option(min=1, max=10**6, help="Sentences decoded side by side.")] = 32,
    trace: Annotated[Path | None, typer.Option(help="Write how each line came about, as JSON lines.")] = None,
    show_trace: Annotated[
        bool, typer.Option("--show-trace", help="Print how each line came about, and a summary, to stderr.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line instead of plain text.")] = False,
) -> None:
    """Translate lines of text."""
    from longstride.cli.tracing import TraceTeller
    from longstride.text.corpus import decode_lines, read_lines
    from longstride.text.files import written_whole

    translator = open_model(model, runtime, precision, device, drafter, threads)
    options = settings(set)
    translator.decoder(decoder, **options)  # refuse bad options before reading anything
    lines = iter(read_lines(input) if input else decode_lines(sys.stdin.buffer, "standard input"))
    teller = TraceTeller(translator, err) if show_trace else None
    if output is None:
        _run(translator, lines, decoder, options, batch, trace, teller, as_json, sys.stdout)
    else:
        if not output.parent.is_dir():
            raise InputError(f"{output}: expected a folder to write in, found none at {output.parent}.")
        with written_whole(output) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            _run(translator, lines, decoder, options, batch, trace, teller, as_json, file)
    say_report(translator)


def _run(
    translator: Translator,
    lines: Any,
    decoder: str | None,
    options: dict[str, Any],
    batch: int,
    trace: Path | None,
    teller: TraceTeller | None,
    as_json: bool,
    file: Any,
) -> None:
    from longstride.cli.tracing import trace_json
    from longstride.text.files import written_whole

    traces: list[str] = []
    number = 1
    calls = 0

    def watch(decoded: Decoded) -> None:
        nonlocal calls
        calls += decoded.calls

    # A person typing at a terminal wants each line answered; a pipe wants sentences of like length side by side.
    portion = 1 if file.isatty() and sys.stdin.isatty() else batch * TABLES
    while chunk := list(islice(lines, portion)):
        traced = trace is not None or teller is not None
        done = translator.translate(
            chunk, decoder, batch=batch, trace=traced, warn=warn, first_line=number, watch=watch, **options
        )
        for offset, translation in enumerate(done):
            file.write((_json(chunk[offset], translation) if as_json else translation.text) + "\n")
            if trace is not None:
                traces.append(trace_json(translator, number + offset, chunk[offset], translation))
            if teller is not None:
                file.flush()
                teller.tell(number + offset, chunk[offset], translation)
        file.flush()
        number += len(chunk)
    if teller is not None:
        teller.summary(calls)
    if trace is not None:
        with written_whole(trace) as temporary:
            temporary.write_text("".join(line + "\n" for line in traces), encoding="utf-8")


def _json(source: str, translation: Translation) -> str:
    found = {"source": source, "text": translation.text, "score": translation.score, "tokens": list(translation.tokens)}
    return json.dumps(found, ensure_ascii=False)
