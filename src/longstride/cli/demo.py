"""longstride demo: a few sentences by every decoder the bundled model has, and how each of them got there.

Which decoders there are and which sentences are shown, the model folder says: any that has an examples.tsv (a sentence
and its translation a line, with a tab between) can be shown. How it looks is in :mod:`longstride.cli.demo_page`.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longstride.cli.console import Stages, out, warn
from longstride.cli.options import Model, open_model
from longstride.contract import InputError, Trace
from longstride.contract.bundled import BUNDLED

if TYPE_CHECKING:
    from longstride.cli.demo_page import Shown
    from longstride.translator import Translator

DemoRuntime = Annotated[str, typer.Option("--runtime", help="auto (the fastest), eager, native or onnx.")]
DemoPrecision = Annotated[str | None, typer.Option("--precision", help="fp32 or int8 (default: int8, but eager).")]

EXAMPLES = "examples.tsv"
REPEATS = 3
"""How often a sentence is timed,"""
PATIENCE = 20.0
"""unless so many seconds have gone by: then the time of the traced translation has to do,"""
ENOUGH = 45.0
"""and after so many the sentences that are left are left out: the machine is slow, or busy with other things."""


def demo(model: Model = BUNDLED, runtime: DemoRuntime = "auto", precision: DemoPrecision = None) -> None:
    """Translate a handful of sentences by every decoder of the bundled model."""
    from longstride.cli.demo_page import REFERENCE, introduction, sentence, summary, traces

    precision = precision or ("fp32" if runtime == "eager" else "int8")
    translator = open_model(model, runtime, precision, device="cpu")
    pairs = examples(translator.folder.path)
    decoders = sorted(translator.decoders, key=lambda name: name != REFERENCE)
    results: list[list[Shown]] = []
    begun = time.monotonic()
    with Stages() as shown:
        for number, (source, _) in enumerate(pairs):
            shown.to("translating", number, len(pairs))
            gone = time.monotonic() - begun
            if results and gone > ENOUGH:
                break
            results.append([_show(translator, source, name, REPEATS if gone < PATIENCE else 0) for name in decoders])
    if len(results) < len(pairs):
        warn(f"this takes long here: {len(results)} of {len(pairs)} sentences are shown.")
        pairs = pairs[: len(results)]
    introduction(out)
    for pair, row in zip(pairs, results, strict=True):
        sentence(out, translator, pair, row)
    traces(out, translator, pairs, results)
    summary(out, [reference for _, reference in pairs], results)


def examples(folder: Path) -> list[tuple[str, str]]:
    """The sentences stored with a model, and their translations; where it has none, the bundled model's."""
    from longstride.text.corpus import read_lines
    from longstride.translator import load

    file = folder / EXAMPLES
    if not file.is_file():
        file = load(BUNDLED, device="cpu").folder.path / EXAMPLES
    pairs = []
    for number, line in enumerate(read_lines(file), start=1):
        source, *rest = line.split("\t")
        if len(rest) != 1 or not source.strip() or not rest[0].strip():
            raise InputError(
                f"{file}, line {number}: expected a sentence and its translation with a tab between, found {line!r}."
            )
        pairs.append((source, rest[0]))
    if not pairs:
        raise InputError(f"{file}: expected sentences to show, found none.")
    return pairs


def _show(translator: Translator, source: str, decoder: str, repeats: int) -> Shown:
    """Traced once, which also warms up, then timed without a trace: the median of a few times."""
    from longstride.cli.demo_page import Shown

    begun = time.perf_counter()
    found = translator.translate([source], decoder, batch=1, trace=True, warn=warn)[0]
    times = [time.perf_counter() - begun]
    for number in range(repeats):
        begun = time.perf_counter()
        translator.translate([source], decoder, batch=1, warn=lambda said: None)
        times[number:] = [time.perf_counter() - begun]
    return Shown(decoder, found, found.trace or Trace(()), 1000 * statistics.median(times))
