"""What the demo shows: sentences in the colours of the iterations that wrote them, a few traces, a table of decoders.

For people on a terminal in colour, for pipes in plain lines with bars. Translates nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from longstride.cli.tracing import TraceTeller
from longstride.contract import Trace
from longstride.tasks.translation import score_translations
from longstride.translator import Translation, Translator

REFERENCE = "greedy"
"""The decoder whose outputs the others' are compared with."""
STRIDES = ("green", "cyan", "magenta", "yellow", "blue", "red")
"""Colours that take turns from one iteration to the next."""
TRACED = ("blockwise", "draft-verify", "interleaved")
"""Decoders whose iterations are worth a closer look, where there are any of them."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Shown:
    """One sentence by one decoder."""

    decoder: str
    translation: Translation
    trace: Trace
    milliseconds: float


def introduction(out: Console) -> None:
    """How to read what follows."""
    out.print(
        "Each | stands where what one iteration of the decoder wrote at once ends."
        if not out.is_terminal
        else "One colour was written at once, in one iteration of the decoder; the next iteration has the next colour.",
        markup=False,
    )


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


def coloured(pieces: Sequence[tuple[str, int]]) -> Text:
    """Pieces in the colours of their iterations."""
    return Text.assemble(*((piece, STRIDES[turn % len(STRIDES)]) for piece, turn in pieces))


def sentence(out: Console, translator: Translator, pair: Pair, row: Sequence[Shown]) -> None:
    """One sentence by all decoders."""
    source, reference = pair
    expected = {one.decoder: one.translation.tokens for one in row}.get(REFERENCE)
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    out.print()
    out.print(Text(source, style="bold"))
    for one in row:
        count = one.trace.iterations
        notes = [
            f"{count} iteration{'' if count == 1 else 's'}",
            f"{per_iteration([one]):.1f} tokens each",
            f"{one.milliseconds:.1f} ms",
        ]
        if expected is not None and one.decoder != REFERENCE:
            notes.append(f"same as {REFERENCE}" if one.translation.tokens == expected else f"differs from {REFERENCE}")
        pieces = strides(translator, one.translation, one.trace)
        if out.is_terminal:
            table.add_row(Text(one.decoder, style="bold"), coloured(pieces))
            table.add_row("", Text(", ".join(notes), style="dim"))
        else:
            out.print(f"  {one.decoder}: {'|'.join(piece for piece, _ in pieces)}", markup=False)
            out.print(f"    {', '.join(notes)}", markup=False)
    if out.is_terminal:
        table.add_row(Text("a person", style="dim"), Text(reference, style="dim"))
        out.print(table)
    else:
        out.print(f"  a person: {reference}", markup=False)


def traces(out: Console, translator: Translator, pairs: Sequence[Pair], results: Sequence[Sequence[Shown]]) -> None:
    """How decoders that draft, or write from several ends, came to one of the sentences, step by step."""
    # Of middling length: long enough for something to happen, short enough to fit.
    number = sorted(range(len(pairs)), key=lambda place: len(pairs[place][0]))[(len(pairs) - 1) // 2]
    for one in results[number]:
        if one.decoder in TRACED:
            out.print()
            out.print(Text(f"{one.decoder}, step by step", style="bold"))
            TraceTeller(translator, out).tell(number + 1, pairs[number][0], one.translation)


def summary(out: Console, references: Sequence[str], results: Sequence[Sequence[Shown]]) -> None:
    """Time and agreement of all decoders."""
    columns = {row[0].decoder: list(row) for row in zip(*results, strict=True)}
    greedy = columns.get(REFERENCE)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("decoder", no_wrap=True)
    for heading in ("same", "shared", "chrF", "iterations", "tokens each", "ms", "speed-up"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, column in columns.items():
        same, words, faster = "·", "·", "·"
        if greedy is not None:
            pairs = list(zip(column, greedy, strict=True))
            same = f"{sum(a.translation.tokens == b.translation.tokens for a, b in pairs)} of {len(pairs)}"
            words = (
                f"{100 * statistics.mean(agreement(a.translation.text, b.translation.text) for a, b in pairs):.0f} %"
            )
            faster = f"{milliseconds(greedy) / max(milliseconds(column), 1e-9):.2f}"
        table.add_row(
            name,
            same,
            words,
            _chrf([one.translation.text for one in column], references),
            str(sum(one.trace.iterations for one in column)),
            f"{per_iteration(column):.2f}",
            f"{milliseconds(column):.1f}",
            faster,
        )
    out.print()
    out.print(table)
    out.print(
        f"same, shared: outputs that are {REFERENCE}'s own, and words in common with them; chrF: letters in common "
        f"with a person's translations; ms: a sentence, alone, on this machine; speed-up: over {REFERENCE}.",
        style="dim",
        soft_wrap=False,
    )


def agreement(text: str, other: str) -> float:
    """How much of two texts is the same words in the same order, from 0 to 1."""
    return SequenceMatcher(None, text.split(), other.split(), autojunk=False).ratio()


def milliseconds(column: Sequence[Shown]) -> float:
    """A sentence, in the mean."""
    return statistics.mean(one.milliseconds for one in column)


def per_iteration(column: Sequence[Shown]) -> float:
    """Tokens that an iteration made final."""
    return sum(one.trace.committed for one in column) / max(1, sum(one.trace.iterations for one in column))


def _chrf(outputs: Sequence[str], references: Sequence[str]) -> str:
    scores = score_translations(outputs, references)
    return next((f"{score.value:.0f}" for score in scores if score.name == "chrF"), "·")
