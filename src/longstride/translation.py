"""What comes out of translating a text, and texts of several lines: split, drafted line by line, and joined again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from longstride.contract import Event, Hypothesis, OptionError, Trace
from longstride.contract.options import shown
from longstride.text.tokenizer import Tokenizer

BREAK = re.compile(r"(\r?\n)")
"""What lines are split at; the breaks are kept."""
_UNFINISHED = re.compile(r"(?: (?:'[rv]?|n'?)?)?\ufffd*\Z")
"""What may yet change at an output's end: a character of which only some bytes are there, and a space that a tokenizer
takes out which cleans up before signs and contractions (do n't)."""


@dataclass(frozen=True)
class Translation:
    """One translated line, or the lines of one text: tokens joined, scores added up, n-best lists rank by rank."""

    text: str
    score: float | None = None
    tokens: tuple[int, ...] = ()
    n_best: tuple[Hypothesis, ...] = ()
    trace: Trace | None = None
    decoder: str = ""
    """name of the decoder that ran; "" where there was nothing to decode"""

    def __str__(self) -> str:
        return self.text


class GrowingText:
    """Makes text, which only grows, of the tokens of an output that is written from left to right."""

    def __init__(self, write: Callable[[list[list[int]]], list[str]], eos: int) -> None:
        """`write` makes lines of tokens."""
        self._write, self._eos = write, eos
        self.tokens: list[int] = []
        self.text = ""
        """what was given so far"""

    def add(self, event: Event) -> tuple[list[int], str]:
        """The tokens that an iteration made final at the end of the output, and the text that is new by them; none of
        outputs that are written elsewhere first."""
        if not event.final or event.positions != tuple(range(len(self.tokens), len(self.tokens) + len(event.ids))):
            return [], ""
        new = [token for token in event.ids if token != self._eos]
        self.tokens += new
        return new, self._grown(self._write([self.tokens])[0])

    def end(self, tokens: list[int]) -> tuple[list[int], str]:
        """The rest, once all tokens are known."""
        new, self.tokens = tokens[len(self.tokens) :], tokens
        return new, self._grown(self._write([tokens])[0], whole=True)

    def _grown(self, text: str, whole: bool = False) -> str:
        stable = text if whole else _UNFINISHED.sub("", text)
        if not stable.startswith(self.text):
            return ""
        new, self.text = stable[len(self.text) :], stable
        return new


def joined(lines: Sequence[Translation], breaks: Sequence[str]) -> Translation:
    """The lines of one text as one translation."""
    full = [line for line in lines if line.score is not None]
    events, shift = [], 0
    for line in full:
        for event in line.trace.events if line.trace is not None else ():
            events.append(replace(event, positions=tuple(place + shift for place in event.positions)))
        shift += len(line.tokens)
    return Translation(
        "".join(line.text + end for line, end in zip(lines, [*breaks, ""], strict=True)),
        sum(line.score for line in full if line.score is not None) if full else None,
        tuple(token for line in full for token in line.tokens),
        tuple(
            Hypothesis(
                [token for one in rank for token in one.tokens],
                sum(one.score for one in rank),
                sum(one.log_probability for one in rank),
            )
            for rank in zip(*(line.n_best for line in full), strict=False)
        ),
        Trace(tuple(events)) if any(line.trace is not None for line in full) else None,
        next((line.decoder for line in full), ""),
    )


def given_drafts(
    texts: Sequence[Sequence[str]], drafts: Sequence[str | None], tokenizer: Tokenizer, longest: int
) -> dict[int, list[int]]:
    """Number of a line -> its draft as ids, for lines that have one; texts are split into lines and breaks."""
    if isinstance(drafts, str):
        raise OptionError(f"drafts expects a list of one for each text, found {shown(drafts)}.")
    if len(drafts) != len(texts):
        raise OptionError(f"drafts expects one for each of {len(texts)} texts or none, found {len(drafts)}.")
    lines: list[str] = []
    for number, (parts, draft) in enumerate(zip(texts, drafts, strict=True), start=1):
        wanted, found = len(parts[::2]), [""] if draft is None else BREAK.split(draft)[::2]
        if draft is None or not draft.strip():
            found = [""] * wanted
        if len(found) != wanted:
            raise OptionError(f"drafts expects as many lines as text {number} has, {wanted}, found {len(found)}.")
        lines += found
    given = [index for index, line in enumerate(lines) if line.strip()]
    encoded = tokenizer.encode_many([lines[index] for index in given])
    return {index: tokenizer.ended(row, longest) for index, row in zip(given, encoded, strict=True)}
