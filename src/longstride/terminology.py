"""Where a glossary's term goes that an output lacks.

The model decides, by how probable it holds the term at each place of its own output. It is asked about the source in
which the target's term stands in the place of the source's: a model then expects the term where it belongs, and hardly
anywhere else. What it wrote up to there and the term become a prefix that its next output begins with, and so on, from
left to right, until no term is missing. The source that is translated stays as it is.

Knows tokenizers and probabilities; who decodes under a prefix, and when, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Likelihood, OptionError
from longstride.contract.options import shown
from longstride.text.glossary import Glossary, RequiredTerms, joins
from longstride.text.tokenizer import Tokenizer

TERMS = 64
"""Terms that are placed in one line; each costs a decoding of it."""
PLACES = 4096
"""Places of one line that the model is asked about, each with all tokens of a term; then first tokens decide."""
AHEAD = 8
"""Missing terms whose places are compared, the next ones in the source."""
FIRST = 4
"""Places of each term that are asked about first."""
ROWS = 32
"""Places of each term that are asked about after that."""
SLOTS = 256
"""Tokens of terms in one model call; the output's tokens come on top."""
SLACK = 0.05
"""Nats by which the same probability may come out differently in another batch and precision."""

Turn = Callable[[], AbstractContextManager[Any]]
"""Held during one call of the model; it may raise where the search has to stop."""


@dataclass(frozen=True)
class Place:
    """A term in an output."""

    at: int
    """how many tokens stand before it"""
    ids: list[int]
    """its own"""


@dataclass
class Work:
    """The budget of one line's search, and a count of its work."""

    places: int = PLACES
    """that may still be asked about"""
    asked: int = 0
    """places, so far"""
    calls: int = 0
    """of the model, so far"""
    turn: Turn = nullcontext


class Placing:
    """The way of one sentence: an output, what the next one begins with, and so on."""

    def __init__(self, placer: TermPlacer, terms: RequiredTerms, longest: int, first: int = 0) -> None:
        """For outputs of at most `longest` tokens; no term comes before token `first`."""
        self._placer, self._terms, self._longest, self._kept = placer, terms, longest, first
        self._left = min(len(terms.targets), TERMS)  # each prefix holds one more of them than the last
        self.work = Work()
        self.missing: list[str] = []
        """terms that the last output lacks, once there is no next one"""

    def __call__(self, tokens: Sequence[int], turn: Turn = nullcontext) -> list[int] | None:
        """What the next output begins with, by the last one; None: that was it."""
        self.work.turn = turn
        place = None
        if self._left > 0:
            place = self._placer.next_place(self._terms, list(tokens), self._kept, self._longest, self.work)
        if place is None:
            self.missing = self._placer.missing(self._terms, tokens)
            return None
        self._left -= 1
        self._kept = place.at + len(place.ids)
        return [*tokens[: place.at], *place.ids]


class _Search:
    """For the likeliest of a term's places, each of which has a bound on its log-probability."""

    def __init__(self, places: Sequence[Place], bounds: Sequence[float]) -> None:
        self.places, self._bounds = places, bounds
        self._left = sorted(range(len(places)), key=lambda one: (bounds[one], -one))  # the most promising one last
        # The bound of a single token is its log-probability.
        self.scores = {one: bounds[one] for one, place in enumerate(places) if len(place.ids) == 1}

    def next(self, number: int) -> list[int]:
        """So many places, at most, to be asked about."""
        least = max(self.scores.values(), default=-float("inf")) - SLACK
        found: list[int] = []
        while self._left and len(found) < number and self._bounds[self._left[-1]] >= least:
            one = self._left.pop()
            found += [] if one in self.scores else [one]
        return found

    @property
    def best(self) -> tuple[Place, float]:
        """The first of the likeliest; where none was asked about, by the first token."""
        scores = self.scores or dict(enumerate(self._bounds))
        number = min(scores, key=lambda one: (-scores[one], one))
        return self.places[number], scores[number]


class TermPlacer:
    """Places terms for one model and pair of tokenizers."""

    def __init__(
        self, encode: Callable[[list[str]], list[list[int]]], target: Tokenizer, likelihood: Likelihood
    ) -> None:
        """`encode` gives sources as the model reads them."""
        self._encode, self._tokenizer, self._likelihood = encode, target, likelihood
        special = target.special
        self._silent = {special.eos, special.pad, special.start, *target.languages.values()}
        self._spelt = lru_cache(4096)(self._spelling)
        self._read = lru_cache(64)(lambda line: encode([line])[0])

    def check(self, glossary: Glossary) -> None:
        """Refuse terms that the model's vocabulary cannot spell."""
        targets = list(dict.fromkeys(glossary.entries.values()))
        rows = [self._loud(ids) for ids in self._tokenizer.encode_many(targets)]
        for target, ids, text in zip(targets, rows, self._tokenizer.decode_many(rows), strict=True):
            if not ids or text != target:
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

    def missing(self, terms: RequiredTerms, tokens: Sequence[int]) -> list[str]:
        """Terms that an output of these tokens lacks."""
        return terms.missing(self._tokenizer.decode(list(tokens)))

    def next_place(
        self, terms: RequiredTerms, tokens: list[int], kept: int, longest: int, work: Work | None = None
    ) -> Place | None:
        """For an output of these tokens, of which the first `kept` must stay: the next term that is missing, where it
        goes; None: none is, or there is no room within `longest` tokens."""
        if not (missing := self.missing(terms, tokens)):
            return None
        openings = self._openings(tokens, kept)
        every: list[list[Place]] = []
        for target in missing:
            places = [
                Place(at, ids)
                for at, before in openings
                if (ids := self._spelt(before, target if before else terms.at_first(target))) is not None
                and at + len(ids) <= longest
                and tokens[at : at + len(ids)] != ids
            ]
            every += [places] if places else []
            if len(every) == AHEAD:
                break
        if not every:
            return None
        found = self._best(self._read(terms.switched), tokens, every, work or Work())
        return min(found, key=lambda one: (one[0].at, -one[1]))[0]

    def _best(
        self, source: list[int], tokens: list[int], every: Sequence[Sequence[Place]], work: Work
    ) -> list[tuple[Place, float]]:
        """For each term the likeliest of its places, the first one of several, and its log-probability.

        A term is no likelier than its first token, which one pass over the output tells for all places. So they are
        asked about in that order, until none that is left could be likelier than the best.
        """
        bounds = self._bounds(source, tokens, every, work)
        searches = [_Search(places, bound) for places, bound in zip(every, bounds, strict=True)]
        number = FIRST
        while asked := [(search, one) for search in searches for one in search.next(number)][: work.places]:
            scores = self._scores(source, tokens, [search.places[one] for search, one in asked], work)
            for (search, one), score in zip(asked, scores, strict=True):
                search.scores[one] = score
            number = ROWS
        return [search.best for search in searches]

    def _bounds(
        self, source: list[int], tokens: list[int], every: Sequence[Sequence[Place]], work: Work
    ) -> list[list[float]]:
        """The log-probability of the first token in each place."""
        ids = sorted({place.ids[0] for places in every for place in places})
        where = {id: column for column, id in enumerate(ids)}
        work.calls += 1
        with work.turn():
            offers = self._likelihood.offers(source, tokens, ids)
        assert offers is not None, "a model that obeys prefixes writes from left to right"
        told = offers.tolist()
        return [[told[place.at][where[place.ids[0]]] for place in places] for places in every]

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

    def _spelling(self, before: str, target: str) -> list[int] | None:
        """The ids of a term behind nothing, a space or another sign; None: they would not spell it."""
        lead, text = ("a", f"a {target}") if before == " " else (before, before + target)
        start, ids = self._ids(lead) if lead else [], self._ids(text)
        if ids[: len(start)] != start or self._tokenizer.decode(ids) != text:
            return None
        return ids[len(start) :] or None

    def _ids(self, text: str) -> list[int]:
        return self._loud(self._tokenizer.encode(text))

    def _loud(self, ids: list[int]) -> list[int]:
        if not self._tokenizer.complete:
            return ids
        return [id for id in ids if id not in self._silent]  # which come with what models want around them

    def _scores(self, source: list[int], tokens: list[int], places: Sequence[Place], work: Work) -> list[float]:
        """The log-probability of the term in each place."""
        found: list[float] = []
        work.places -= len(places)
        work.asked += len(places)
        many = max(1, SLOTS // max(len(place.ids) for place in places))
        for first in range(0, len(places), many):
            some = places[first : first + many]
            work.calls += 1
            with work.turn():
                found += self._likelihood.continued(
                    source, tokens, [place.at for place in some], [place.ids for place in some]
                )
        return found
