"""Where a glossary's term goes that an output lacks.

The model decides, by how probable it holds the term at each place of its own output. It is asked about the source in
which the target's term stands in the place of the source's: a model then expects the term where it belongs, and hardly
anywhere else. What it wrote up to there and the term become a prefix that its next output begins with, and so on, from
left to right, until no term is missing. The source that is translated stays as it is.

Knows tokenizers and probabilities; who decodes under a prefix, and when, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from longstride.contract import Batch, Likelihood, OptionError
from longstride.contract.decoding import Source
from longstride.contract.options import shown
from longstride.text.glossary import Glossary, RequiredTerms, joins
from longstride.text.tokenizer import Tokenizer

ROWS = 32
"""Places of an output that are asked about at once."""
FIRST = 4
"""Places of each term that are asked about first."""
SLACK = 0.05
"""Nats by which the same probability may come out differently in another batch and precision."""


@dataclass(frozen=True)
class Place:
    """A term in an output: what it would begin with."""

    at: int
    """how many tokens stand before it"""
    prefix: list[int]
    """these, and the term's"""


class Placing:
    """The way of one sentence: an output, what the next one begins with, and so on."""

    def __init__(self, placer: TermPlacer, terms: RequiredTerms, longest: int, first: int = 0) -> None:
        """For outputs of at most `longest` tokens; no term comes before token `first`."""
        self._placer, self._terms, self._longest, self._kept = placer, terms, longest, first
        self._left = len(terms.targets)  # each prefix holds one more of them than the last

    def __call__(self, tokens: Sequence[int]) -> list[int] | None:
        """What the next output begins with, by the last one; None: that was it."""
        self._left -= 1
        place = None
        if self._left >= 0:
            place = self._placer.next_place(self._terms, list(tokens), self._kept, self._longest)
        if place is None:
            return None
        self._kept = len(place.prefix)
        return place.prefix


class _Search:
    """For the likeliest of a term's places, each of which has a bound on its log-probability."""

    def __init__(self, places: Sequence[Place], bounds: Sequence[float]) -> None:
        self.places, self._bounds = places, bounds
        self._left = sorted(range(len(places)), key=lambda one: (bounds[one], -one))  # the most promising one last
        self.scores: dict[int, float] = {}

    def next(self, number: int) -> list[int]:
        """So many places, at most, to be asked about."""
        least = max(self.scores.values(), default=-float("inf")) - SLACK
        found: list[int] = []
        while self._left and len(found) < number and self._bounds[self._left[-1]] >= least:
            found.append(self._left.pop())
        return found

    @property
    def best(self) -> tuple[Place, float]:
        """The first of the likeliest."""
        number = min(self.scores, key=lambda one: (-self.scores[one], one))
        return self.places[number], self.scores[number]


class TermPlacer:
    """Places terms for one model and pair of tokenizers."""

    def __init__(
        self, encode: Callable[[list[str]], list[list[int]]], target: Tokenizer, likelihood: Likelihood
    ) -> None:
        """`encode` gives sources as the model reads them."""
        self._encode, self._tokenizer, self._likelihood = encode, target, likelihood
        special = target.special
        self._silent = {special.eos, special.pad, special.start, *target.languages.values()}

    def check(self, glossary: Glossary) -> None:
        """Refuse terms that the model's vocabulary cannot spell."""
        for target in dict.fromkeys(glossary.entries.values()):
            if self._spelt("", target) is None:
                raise OptionError(
                    f"A glossary expects terms that the model's vocabulary can spell, found {shown(target)}."
                )

    @cached_property
    def never_next(self) -> Tensor:
        """[vocabulary] bool: ids that would go on with a word, and so may not stand right behind a term"""
        tokenizer = self._tokenizer
        base = self._ids("a")
        [word, *others] = tokenizer.decode_many([base, *([*base, id] for id in range(tokenizer.size))])
        behind = [text[len(word) :] if text.startswith(word) else "" for text in others]
        return torch.tensor([joins(word, text) or text[:1] == "\ufffd" for text in behind])

    def next_place(self, terms: RequiredTerms, tokens: list[int], kept: int, longest: int) -> Place | None:
        """For an output of these tokens, of which the first `kept` must stay: the next term that is missing, where it
        goes; None: none is, or there is no room within `longest` tokens."""
        [text] = self._tokenizer.decode_many([tokens])
        if not (missing := terms.missing(text)):
            return None
        openings = self._openings(tokens, kept)
        every = [
            [
                Place(at, [*tokens[:at], *ids])
                for at, before in openings
                if (ids := self._spelt(before, target if before else terms.at_first(target))) is not None
                and at + len(ids) <= longest
                and tokens[at : at + len(ids)] != ids
            ]
            for target in missing
        ]
        if not any(every):
            return None
        [source] = self._encode([terms.switched])
        found = self._best(source, tokens, [places for places in every if places])
        return min(found, key=lambda one: (one[0].at, -one[1]))[0]

    def _best(
        self, source: list[int], tokens: list[int], every: Sequence[Sequence[Place]]
    ) -> list[tuple[Place, float]]:
        """For each term the likeliest of its places, the first one of several, and its log-probability.

        A term is no likelier than its first token, which one pass over the output tells for all places. So they are
        asked about in that order, until none that is left could be likelier than the best.
        """
        bounds = self._bounds(source, tokens, every)
        searches = [_Search(places, bound) for places, bound in zip(every, bounds, strict=True)]
        number = ROWS if self._likelihood.offer is None else FIRST
        while asked := [(search, one) for search in searches for one in search.next(number)]:
            scores = self._scores(source, [search.places[one] for search, one in asked])
            for (search, one), score in zip(asked, scores, strict=True):
                search.scores[one] = score
            number = ROWS
        return [search.best for search in searches]

    def _bounds(self, source: list[int], tokens: list[int], every: Sequence[Sequence[Place]]) -> list[list[float]]:
        """The log-probability of the first token in each place; 0, which is no less, where that is not known."""
        ids = sorted({place.prefix[place.at] for places in every for place in places})
        offers = self._likelihood.offers(source, tokens, ids)
        if offers is None:
            return [[0.0] * len(places) for places in every]
        told = offers.tolist()
        return [[told[place.at][ids.index(place.prefix[place.at])] for place in places] for places in every]

    def _openings(self, tokens: list[int], first: int) -> list[tuple[int, str]]:
        """Places where a word may begin, from a token on, and what stands before it: nothing, a space or another sign
        that no space follows."""
        texts = self._tokenizer.decode_many([tokens[:count] for count in range(len(tokens) + 1)])
        found = []
        for at in range(first, len(tokens) + 1):
            before, after = texts[at], texts[at + 1] if at < len(tokens) else texts[at] + " "
            new = after[len(before) :] if after.startswith(before) else ""
            if not before:
                found.append((at, ""))
            elif new and not joins(before, new):
                # A sign behind a term, such as a full stop, has no space before it, but the term has.
                glued = not new[0].isspace() and (new[0].isalnum() or not before[-1].isalnum())
                found.append((at, before[-1] if glued else " "))
        return found

    def _spelt(self, before: str, target: str) -> list[int] | None:
        """The ids of a term behind nothing, a space or another sign; None: they would not spell it."""
        lead, text = ("a", f"a {target}") if before == " " else (before, before + target)
        start, ids = self._ids(lead) if lead else [], self._ids(text)
        if ids[: len(start)] != start or self._tokenizer.decode(ids) != text:
            return None
        return ids[len(start) :] or None

    def _ids(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text)
        if self._tokenizer.complete:  # which come with what models want around them
            ids = [id for id in ids if id not in self._silent]
        return ids

    def _scores(self, source: list[int], places: Sequence[Place]) -> list[float]:
        """The log-probability of the term in each place."""
        found: list[float] = []
        for first in range(0, len(places), ROWS):
            some = places[first : first + ROWS]
            shared = 1 if self._likelihood.offer is not None else len(some)
            read, written = Source.of([source] * shared), Source.of([place.prefix for place in some])
            index = torch.arange(len(some))
            batch = Batch(read.ids, written.ids, read.lengths, written.lengths, index)
            shares = self._likelihood.log_probabilities(batch)
            found += [float(row[place.at :].sum()) for row, place in zip(shares, some, strict=True)]
        return found
