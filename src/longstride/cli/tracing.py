"""How traces are told: as JSON lines to programs, to people as the papers print their examples.

    3  He go to school yesterday .
       1  drafted   ▁He ▁go   ▁to ▁school ▁yesterday ▁. </s>
          verified  ▁He ▁went
                        ^^^^^
       2  written   ▁to
       3  drafted   ▁school ▁yesterday ▁. </s>
          verified  ▁school ▁yesterday ▁. </s>
       He went to school yesterday .
       3 iterations, 2.33 tokens each; 5 of 11 drafted tokens stood

What stands below each other is the same place of the output. The bifurcation is where the draft and the verifier part:
in colour on a terminal, marked below elsewhere. Iterations without a draft are put together, a bar between two, unless
they write from several ends: then each shows the sentence as far as it stands, so that one can watch it close.

       1  written   He ·    ·  ·      ·         .
       2  written   He went ·  ·      yesterday .
       3  written   He went to school yesterday .
       4  written   He went to school yesterday . </s>

Of a drafted tree that branch is shown so which stood, with what was likeliest behind it; below it the others, each with
the place where it begins.

       1  drafted   He go   to school
          verified  He went
                       ^^^^
          beside    2 goes to | 3 home
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from longstride.contract import EOS, Event, Trace

if TYPE_CHECKING:
    from longstride.translator import Translation, Translator

Pieces = Callable[[Sequence[int]], list[str]]

STOOD = "green"
COMMITTED = "bold"
PARTED = "bold red"
UNREAD = "dim"
"""Styles of drafted tokens that stood, of what is committed, of the draft where the two part, of what lies behind"""
PLAIN_WIDTH = 100
"""Where there is no terminal to fit"""
PER_ROW = 14
"""Places of the block in one row of the summary"""
SHORT, LONG = 7, 12
"""Indents of a sentence's lines: up to the number of the iteration, and up to the name of its line"""


@dataclass(frozen=True)
class Cell:
    """One place of the output in one iteration: what was drafted there and what came of it."""

    drafted: str = ""
    verified: str = ""
    drafted_style: str = ""
    verified_style: str = ""
    parted: bool = False

    @property
    def width(self) -> int:
        """Columns that both need."""
        return max(cell_len(self.drafted), cell_len(self.verified))


class TraceTeller:
    """Shows how each line came about, and at the end what all of them add up to."""

    def __init__(self, translator: Translator, console: Console) -> None:
        self._translator = translator
        self._console = console
        self._traces: list[Trace] = []
        self._tokens: list[tuple[int, ...]] = []

    def tell(self, line: int, source: str, translation: Translation) -> None:
        """One line's iterations; nothing for an empty line."""
        trace = translation.trace
        if trace is None:
            return
        self._traces.append(trace)
        self._tokens.append(translation.tokens)
        coloured = self._console.color_system is not None and not self._console.no_color
        width = self._console.width if self._console.is_terminal else PLAIN_WIDTH
        self._print(Text.assemble((f"{line:>5}", "dim"), "  ", (source, "bold")))
        for row in sentence_rows(trace, self._translator.target_tokenizer.pieces, width, coloured):
            self._print(row)
        self._print(Text(" " * SHORT + translation.text, style="bold"))
        self._print(Text(" " * SHORT + _sentence([trace]), style="dim"))
        self._print(Text())

    def summary(self, calls: int) -> None:
        """What all lines add up to; nothing where there were none."""
        if self._traces:
            for text in summary_lines(self._traces, self._tokens, calls):
                self._print(Text(text))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)


def sentence_rows(trace: Trace, pieces: Pieces, width: int, coloured: bool) -> Iterator[Text]:
    """The iterations of one sentence, in rows of at most `width` columns where pieces allow."""
    room = width - LONG - len("verified  ")
    if _from_several_ends(trace):
        yield from _closing_rows(trace, pieces, room)
        return
    number = 1
    for has_draft, group in groupby(trace.events, key=lambda event: event.drafted > 0):
        events = list(group)
        if has_draft:
            for place, event in enumerate(events):
                yield from _drafted_rows(_gutter(number + place), cells_of(event, pieces, trace.eos), room, coloured)
                yield from _beside_rows(beside(event, pieces, trace.eos), room)
        else:
            last = number + len(events) - 1
            gutter = _gutter(number if last == number else f"{number}-{last}")
            for band in _bands(_undrafted_cells(events, pieces), room):
                yield _row(gutter, "written", [(cell.verified, cell.verified_style) for cell in band])
                gutter = " " * len(gutter)
        number += len(events)


def cells_of(event: Event, pieces: Pieces, eos: int = EOS) -> list[Cell]:
    """The places that one iteration drafted or wrote, in order; of a tree one branch."""
    names, over, parted = pieces(event.draft), _behind_ends(event, eos), event.parted
    drafts = [names[node] for node in event.branch if node not in over and names]
    cells = []
    for place, (drafted, verified) in enumerate(zip_longest(drafts, pieces(event.ids), fillvalue="")):
        stood = place < event.accepted
        style = STOOD if stood else PARTED if place == parted else UNREAD
        cells.append(Cell(drafted, verified, style, f"{COMMITTED} {STOOD}" if stood else COMMITTED, place == parted))
    return cells


def beside(event: Event, pieces: Pieces, eos: int = EOS) -> list[list[str]]:
    """The other branches of a drafted tree, each with the place in the block where it begins, and in brackets what it
    follows where that is no token of the branch in front."""
    parents, names = event.parents, pieces(event.draft)
    front = event.branch
    told = {*front, *_behind_ends(event, eos)}
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent - 1] + 1 if parent else 1)
    found = []
    for first in range(len(parents)):
        if first in told:
            continue
        follows = parents[first] - 1
        branch = [str(depths[first]), *([f"({names[follows]})"] if follows >= 0 and follows not in front else [])]
        node: int | None = first
        while node is not None:
            branch.append(names[node])
            told.add(node)
            node = next((one for one in range(len(parents)) if parents[one] == node + 1 and one not in told), None)
        found.append(branch)
    return found


def _behind_ends(event: Event, eos: int) -> set[int]:
    """Drafted tokens that follow an end: nobody would look at them."""
    found: set[int] = set()
    for node, parent in enumerate(event.parents or range(len(event.draft))):
        if parent and (parent - 1 in found or event.draft[parent - 1] == eos):
            found.add(node)
    return found


def _beside_rows(branches: Sequence[Sequence[str]], room: int) -> Iterator[Text]:
    parts = [" ".join(branch) + (" |" if number < len(branches) else "") for number, branch in enumerate(branches, 1)]
    name = "beside"
    for band in _bands([Cell(verified=part) for part in parts], room):
        yield _row(_gutter(""), name, [(cell.verified, UNREAD) for cell in band])
        name = ""


def _drafted_rows(gutter: str, cells: Sequence[Cell], room: int, coloured: bool) -> Iterator[Text]:
    for band in _bands(cells, room):
        yield _row(gutter, "drafted", [(_padded(cell.drafted, cell.width), cell.drafted_style) for cell in band])
        gutter = " " * len(gutter)
        if any(cell.verified for cell in band):
            yield _row(gutter, "verified", [(_padded(cell.verified, cell.width), cell.verified_style) for cell in band])
        if any(cell.parted for cell in band) and not coloured:
            yield _row(gutter, "", [(("^" if cell.parted else " ") * cell.width, "") for cell in band])


def _undrafted_cells(events: Sequence[Event], pieces: Pieces) -> list[Cell]:
    """Iterations without a draft, one after another, a bar between two."""
    cells = []
    spoken = max((place for place, event in enumerate(events) if event.ids), default=0)
    for place, event in enumerate(events):
        named = zip(pieces(event.ids), event.positions, strict=True)
        names = [name if _in_order(event) else f"{name}@{position}" for name, position in named]
        cells += [Cell(verified=name, verified_style=COMMITTED) for name in names]
        if place < spoken and names:
            cells.append(Cell(verified="|", verified_style=UNREAD))
    return cells


def _from_several_ends(trace: Trace) -> bool:
    """Whether a finished sentence was written in another order than from left to right."""
    ended = any(EOS in event.ids for event in trace.events)
    return ended and not trace.drafted and not all(map(_in_order, trace.events))


def _closing_rows(trace: Trace, pieces: Pieces, room: int) -> Iterator[Text]:
    """The sentence as far as it stands after each iteration, its new tokens in bold, dots where there is none yet.

    Of a sentence that needs several rows only those are shown in which something is new.
    """
    cells: dict[int, Cell] = {}
    for event in trace.events:
        names = zip(event.positions, pieces(event.ids), strict=True)
        cells |= {place: Cell(verified=name) for place, name in names}
    places = iter(sorted(cells))
    bands = [[next(places) for _ in row] for row in _bands([cells[place] for place in sorted(cells)], room)]
    stands: set[int] = set()
    for number, event in enumerate(trace.events, 1):
        stands |= set(event.positions)
        gutter = _gutter(number)
        for band in bands:
            if not set(band) & set(event.positions):
                continue
            shown = []
            for place in band:
                name = cells[place].verified if place in stands else "·"
                style = COMMITTED if place in event.positions else "" if place in stands else UNREAD
                if place <= max(stands):
                    shown.append((_padded(name, cells[place].width), style))
            yield _row(gutter, "written", shown)
            gutter = " " * len(gutter)


def _in_order(event: Event) -> bool:
    """Whether all was written in one run: then places need not be named."""
    first = event.positions[0] if event.positions else 0
    return event.positions == tuple(range(first, first + len(event.ids)))


def _bands(cells: Sequence[Cell], room: int) -> Iterator[list[Cell]]:
    """Cells in rows that fit, at least one in each."""
    band: list[Cell] = []
    used = 0
    for cell in cells:
        if band and used + cell.width > room:
            yield band
            band, used = [], 0
        band.append(cell)
        used += cell.width + 1
    if band:
        yield band


def _gutter(number: int | str) -> str:
    return f"{number:>{SHORT + 1}}".ljust(LONG - 2)


def _row(gutter: str, name: str, parts: Iterable[tuple[str, str]]) -> Text:
    row = Text.assemble(
        (f"{gutter}{name:<10}", "dim"), *(part for text, style in parts for part in ((text, style), " "))
    )
    row.rstrip()
    return row


def _padded(piece: str, width: int) -> str:
    return piece + " " * (width - cell_len(piece))


def _sentence(traces: Sequence[Trace]) -> str:
    """Iterations and tokens, and what became of drafts where there were any."""
    iterations = sum(trace.iterations for trace in traces)
    each = sum(trace.committed for trace in traces) / max(1, iterations)
    told = f"{iterations:,} iteration{'' if iterations == 1 else 's'}, {each:.2f} tokens each"
    drafted, accepted = sum(trace.drafted for trace in traces), sum(trace.accepted for trace in traces)
    return told + (f"; {accepted:,} of {drafted:,} drafted tokens stood" if drafted else "")


def summary_lines(traces: Sequence[Trace], outputs: Sequence[Sequence[int]], calls: int) -> list[str]:
    """What traces add up to, for people."""
    from longstride.bench.traced_pass import count

    counts = count(traces, outputs, calls)
    lines = [
        f"{len(traces):,} sentence{'' if len(traces) == 1 else 's'}: {_sentence(traces)}; "
        f"{counts.tokens_with_eos:,} tokens with the ends, {calls:,} model calls"
    ]
    if counts.drafted:
        lines[0] += f"; mean accepted block {counts.mean_block:.2f}"
        lines.append("how often a drafted token stood where all before it did, by its place in the block:")
        events = [event for trace in traces for event in trace.events if event.drafted]
        parted = Counter(event.parted for event in events)
        most = max((event.accepted + (event.parted is not None) for event in events), default=0)
        stood = [sum(event.accepted > place for event in events) for place in range(most)]
        rates = [100 * each / (each + parted[place]) for place, each in enumerate(stood)]
        for first in range(0, len(rates), PER_ROW):
            few = rates[first : first + PER_ROW]
            lines.append("  place  " + " ".join(f"{place:>5}" for place in range(first + 1, first + len(few) + 1)))
            lines.append("  stood  " + " ".join(f"{rate:>4.0f}%" for rate in few))
    return lines


def trace_json(translator: Translator, line: int, source: str, translation: Translation) -> str:
    """One line of the trace file."""
    found: dict[str, Any] = {"line": line, "source": source, "text": translation.text}
    if translation.trace is not None:
        found["trace"] = translation.trace.as_dict()
        for step in found["trace"]["steps"]:
            step["pieces"] = translator.target_tokenizer.pieces(step["ids"])
            step["draft_pieces"] = translator.target_tokenizer.pieces(step["draft"])
    return json.dumps(found, ensure_ascii=False)
