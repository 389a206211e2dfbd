"""longstride demo: a few sentences by every decoder the bundled model has, and how each of them got there."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.table import Table
from rich.text import Text

from longstride.cli.console import out, stages
from longstride.cli.options import Model, open_model
from longstride.contract import Trace
from longstride.tasks.toys import generate
from longstride.translator import BUNDLED, Translation, Translator

WRITTEN = (
    (
        "The train to Vienna leaves at half past six from platform eighteen.",
        "Der Zug nach Wien fährt um halb sieben von Gleis achtzehn ab.",
    ),
    (
        "Vienna has one hundred and fifteen thousand inhabitants.",
        "Wien hat einhundertfünfzehntausend Einwohner.",
    ),
    (
        "My sister has been living in Hamburg for fifty-eight years.",
        "Meine Schwester wohnt seit achtundfünfzig Jahren in Hamburg.",
    ),
)
"""By hand, in the domain of the bundled model and held out from its training."""
GENERATED = 5
SEED = 7
REFERENCE = "greedy"
"""The decoder whose outputs the others' are compared with."""
REPEATS = 3
STRIDES = ("green", "cyan")
"""Colours that take turns from one iteration to the next."""


@dataclass(frozen=True)
class Shown:
    """One sentence by one decoder."""

    decoder: str
    translation: Translation
    trace: Trace
    milliseconds: float


def demo(model: Model = BUNDLED) -> None:
    """Translate a handful of sentences by every decoder of the bundled model."""
    translator = open_model(model, device="cpu")
    pairs = sentences()
    decoders = translator.decoders
    results: list[list[Shown]] = []
    with stages() as shown:
        for number, (source, _) in enumerate(pairs):
            shown.to("translating", number, len(pairs))
            results.append([_show(translator, source, decoder) for decoder in decoders])
    out.print(
        "Each | ends an iteration of the decoder; what stands between two was written at once."
        if not out.is_terminal
        else "Each change of colour is another iteration of the decoder; one colour was written at once.",
        markup=False,
    )
    for (source, reference), row in zip(pairs, results, strict=True):
        _print(translator, source, reference, row)
    _summary(decoders, [reference for _, reference in pairs], results)


def sentences() -> list[tuple[str, str]]:
    """The demo's sentences with their translations: some by hand, some of the task's own test split."""
    return [*WRITTEN, *generate("numbers", GENERATED, seed=SEED, split="test")]


def _show(translator: Translator, source: str, decoder: str) -> Shown:
    """Traced once, which also warms up, then timed without a trace: the median of a few times."""
    found = translator.translate([source], decoder, batch=1, trace=True)[0]
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        translator.translate([source], decoder, batch=1)
        times.append(1000 * (time.perf_counter() - begun))
    return Shown(decoder, found, found.trace or Trace(()), statistics.median(times))


def strides(translator: Translator, translation: Translation, trace: Trace) -> list[tuple[str, int]]:
    """The text in pieces, each with the iteration that wrote it; one piece where ids cannot be told apart in it."""
    written = {place: turn for turn, event in enumerate(trace.events) if event.final for place in event.positions}
    ids = translation.tokens
    runs = [(turn, len(list(group))) for turn, group in groupby(written.get(place, 0) for place in range(len(ids)))]
    pieces: list[tuple[str, int]] = []
    end, before = 0, ""
    for turn, length in runs:
        end += length
        text = translator.text([ids[:end]])[0]
        if not text.startswith(before):  # a letter spread over several ids
            return [(translation.text, 0)]
        pieces.append((text[len(before) :], turn))
        before = text
    return pieces if before == translation.text else [(translation.text, 0)]


def _print(translator: Translator, source: str, reference: str, row: Sequence[Shown]) -> None:
    expected = {one.decoder: one.translation.tokens for one in row}.get(REFERENCE)
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    out.print()
    out.print(Text(source, style="bold"))
    for one in row:
        notes = [
            f"{one.trace.iterations} iterations",
            f"{_per_iteration([one]):.1f} tokens each",
            f"{one.milliseconds:.1f} ms",
        ]
        if expected is not None and one.decoder != REFERENCE:
            notes.append(f"same as {REFERENCE}" if one.translation.tokens == expected else f"differs from {REFERENCE}")
        if one.translation.text != reference:
            notes.append("not the reference")
        pieces = strides(translator, one.translation, one.trace)
        if out.is_terminal:
            table.add_row(Text(one.decoder, style="bold"), _coloured(pieces))
            table.add_row("", Text(", ".join(notes), style="dim"))
        else:
            out.print(f"  {one.decoder}: {'|'.join(piece for piece, _ in pieces)}", markup=False)
            out.print(f"    {', '.join(notes)}", markup=False)
    if out.is_terminal:
        out.print(table)


def _coloured(pieces: Sequence[tuple[str, int]]) -> Text:
    return Text.assemble(*((piece, STRIDES[place % len(STRIDES)]) for place, (piece, _) in enumerate(pieces)))


def _summary(decoders: Sequence[str], references: Sequence[str], results: Sequence[Sequence[Shown]]) -> None:
    table = Table(box=None, padding=(0, 3, 0, 0))
    table.add_column("decoder")
    headings = ["as the reference", f"same as {REFERENCE}", "iterations", "tokens per iteration", "ms per sentence"]
    for heading in headings:
        table.add_column(heading, justify="right")
    expected = [row[decoders.index(REFERENCE)] for row in results] if REFERENCE in decoders else None
    for place, name in enumerate(decoders):
        column = [row[place] for row in results]
        right = sum(one.translation.text == text for one, text in zip(column, references, strict=True))
        same = "·"
        if expected is not None:
            equal = [a.translation.tokens == b.translation.tokens for a, b in zip(column, expected, strict=True)]
            same = f"{sum(equal)} of {len(column)}"
        table.add_row(
            name,
            f"{right} of {len(column)}",
            same,
            str(sum(one.trace.iterations for one in column)),
            f"{_per_iteration(column):.2f}",
            f"{statistics.mean(one.milliseconds for one in column):.1f}",
        )
    out.print()
    out.print(table)


def _per_iteration(column: Sequence[Shown]) -> float:
    return sum(one.trace.committed for one in column) / max(1, sum(one.trace.iterations for one in column))
