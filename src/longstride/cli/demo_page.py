"""What the demo shows: sentences in the colours of the iterations that wrote them, a table of times, and what it says.

One screen; with everything, each sentence by every decoder, a few traces and a longer table as well. For people on a
terminal in colour, for pipes in plain lines with bars. Translates nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
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

GREEDY = "greedy"
"""The decoder whose outputs and times the others' are compared with."""
OTHER = "CTranslate2"
"""Greedy search by another library, by the same weights."""
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


Columns = Mapping[str, Sequence[Shown]]
"""Decoder -> every sentence by it; greedy's first, another library's last."""


def show(out: Console, translator: Translator, pairs: Sequence[Pair], columns: Columns, everything: bool) -> None:
    """All of it."""
    ours = {name: column for name, column in columns.items() if name != OTHER}
    best = _best(columns)
    by = "" if everything else f"By {best}. "
    out.print(
        f"{by}Each colour was written at once, in one iteration."
        if out.is_terminal
        else f"{by}Each | stands where what one iteration wrote at once ends.",
        markup=False,
    )
    if everything:
        rows = list(zip(*ours.values(), strict=True))
        for pair, row in zip(pairs, rows, strict=True):
            sentence(out, translator, pair, row)
        traces(out, translator, pairs, rows)
        summary(out, [reference for _, reference in pairs], ours)
    else:
        _sentences(out, translator, pairs, ours[best])
    _speeds(out, columns)
    style = "bold" if out.is_terminal else ""
    out.print(_headline(columns, len(pairs)), markup=False, style=style, soft_wrap=not out.is_terminal)


def _best(columns: Columns) -> str:
    """The fastest decoder that wrote greedy's output everywhere; without greedy search the first that there is."""
    exact = [name for name in columns if name != OTHER and _same(columns, name) == len(columns[name])]
    return min(exact, key=lambda name: milliseconds(columns[name]), default=next(iter(columns)))


def _same(columns: Columns, name: str) -> int:
    """Outputs that are greedy's, id by id."""
    if GREEDY not in columns:
        return 0
    pairs = zip(columns[name], columns[GREEDY], strict=True)
    return sum(one.translation.tokens == other.translation.tokens for one, other in pairs)


def _sentences(out: Console, translator: Translator, pairs: Sequence[Pair], column: Sequence[Shown]) -> None:
    """Each sentence and its translation, side by side."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, expand=True)
    table.add_column(ratio=1)
    table.add_column(ratio=1)
    out.print()
    for (source, _), one in zip(pairs, column, strict=True):
        pieces = strides(translator, one.translation, one.trace)
        if out.is_terminal:
            table.add_row(Text(source), coloured(pieces))
        else:
            out.print(source, markup=False)
            out.print(f"  {one.decoder}: {'|'.join(piece for piece, _ in pieces)}", markup=False)
    if out.is_terminal:
        out.print(table)


def _speeds(out: Console, columns: Columns) -> None:
    """The time of a sentence by every decoder that is no slower than greedy search, and over whom it gains."""
    times = {name: milliseconds(column) for name, column in columns.items()}
    greedy, other = times.get(GREEDY), times.get(OTHER)
    slower = [name for name in times if name != OTHER and greedy is not None and times[name] > greedy]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("decoder", no_wrap=True, vertical="bottom")
    for heading in ("ms a\nsentence", "speed over\ngreedy", *([f"speed over\n{OTHER}"] if other is not None else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("\noutput", no_wrap=True)
    for name in sorted(times, key=lambda name: times[name]):
        if name in slower:
            continue
        over = [f"{base / max(times[name], 1e-9):.1f}" for base in (greedy, other) if base is not None]
        table.add_row(
            f"{OTHER}, greedy" if name == OTHER else name,
            f"{times[name]:.1f}",
            *(over if greedy is not None else ["·", *over]),
            _output(columns, name),
        )
    out.print()
    out.print(table)
    if slower:
        out.print(f"No faster than greedy here: {', '.join(slower)} (--all shows them).", style="dim")
    out.print()


def _output(columns: Columns, name: str) -> str:
    """What a decoder wrote, beside what greedy search wrote."""
    if GREEDY not in columns or name == GREEDY:
        return ""
    if _same(columns, name) == len(columns[name]):
        return "greedy's own"
    return f"{_shared(columns, name)} of greedy's words"


def _shared(columns: Columns, name: str) -> str:
    """Words that a decoder has in common with greedy search."""
    pairs = zip(columns[name], columns[GREEDY], strict=True)
    return f"{100 * statistics.mean(agreement(a.translation.text, b.translation.text) for a, b in pairs):.0f} %"


def _headline(columns: Columns, count: int) -> str:
    """What was seen, in a sentence."""
    if GREEDY not in columns:
        return f"{count} sentences, one at a time, on this machine."
    best, greedy = _best(columns), milliseconds(columns[GREEDY])
    if best == GREEDY:
        told = "No decoder that writes what greedy search writes was faster than it here: drafts pay where several "
        told += "words take little longer than one (x86-64 with VNNI, a GPU)"
        if OTHER in columns:
            told += f". Greedy search was {milliseconds(columns[OTHER]) / greedy:.1f} times as fast as {OTHER}"
        return told + "."
    own = milliseconds(columns[best])
    told = f"{best} wrote what greedy search writes, word for word, {greedy / own:.1f} times as fast"
    if OTHER in columns:
        told += f", and {milliseconds(columns[OTHER]) / own:.1f} times as fast as {OTHER} with the same weights"
    return told + f" ({count} sentence{'' if count == 1 else 's'}, one at a time)."


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
    expected = {one.decoder: one.translation.tokens for one in row}.get(GREEDY)
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
        if expected is not None and one.decoder != GREEDY:
            notes.append(f"same as {GREEDY}" if one.translation.tokens == expected else f"differs from {GREEDY}")
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


def summary(out: Console, references: Sequence[str], columns: Columns) -> None:
    """Time and agreement of all decoders."""
    greedy = columns.get(GREEDY)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("decoder", no_wrap=True)
    for heading in ("same", "shared", "chrF", "iterations", "tokens each", "ms", "speed-up"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, column in columns.items():
        same, words, faster = "·", "·", "·"
        if greedy is not None:
            same = f"{_same(columns, name)} of {len(column)}"
            words = _shared(columns, name)
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
        f"same, shared: outputs that are {GREEDY}'s own, and words in common with them; chrF: letters in common "
        f"with a person's translations; ms: a sentence, alone, on this machine; speed-up: over {GREEDY}.",
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
