"""Beam search of a single sentence in plain numbers: extend, finish, prune. Knows no model.

On a processor some hundred tensor operations on a handful of numbers take longer than a small model's step between
them. What is done here is :func:`longstride.search.beam.advance` for a table of one slot, in the same order and to the
last bit; tests hold it to that. Only hypotheses that are there are kept: the first places of such a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from longstride.contract import EOS, Hypothesis
from longstride.search.beam import DEAD


@dataclass(frozen=True)
class Continuations:
    """Of one live hypothesis, as a model scored them: a row of :class:`longstride.search.beam.Candidates`."""

    ids: Sequence[int]
    """[n] the 2 * width best, or those among them that can still be among the 2 * width best of all hypotheses"""
    log_probabilities: Sequence[float]
    """[n] of the token alone, falling; -inf: forbidden"""
    end: float
    """log-probability of EOS, for a hypothesis that must end now"""


@dataclass
class LoneBeam:
    """The hypotheses of one sentence."""

    width: int
    n_best: int
    divisors: Sequence[float]
    """by length, EOS counted: what a length penalty gives"""
    longest: int = 0
    """most tokens, EOS not counted, an output may have"""
    length: int = 0
    """tokens of the live hypotheses so far"""
    live: list[float] = field(default_factory=list)
    """[n] log-probabilities of the live hypotheses, falling"""
    tokens: list[list[int]] = field(default_factory=list)
    """[n][length] what they consist of"""
    finished: list[Hypothesis] = field(default_factory=list)
    """in the order in which they ended"""
    done: bool = True

    def open(self, longest: int) -> None:
        """Start a fresh search: one empty hypothesis."""
        self.longest, self.length = longest, 0
        self.live, self.tokens, self.finished = [0.0], [[]], []
        self.done = False

    @property
    def places(self) -> int:
        """How many hypotheses may be live: one that finishes keeps its place."""
        return self.width - len(self.finished)

    def advance(self, every: Sequence[Continuations]) -> list[int]:
        """Extend, finish, prune, by the continuations of each live hypothesis; the parents of the new live ones."""
        best, count = self._ranked(every), self.length + 1
        open_places = self.places
        # A hypothesis finishes only if it ranks among the places that are still open.
        for score, token, parent in best[:open_places]:
            if token == EOS:
                self.finished.append(Hypothesis(self.tokens[parent], score / self.divisors[count], score))
        going_on = [one for one in best if one[1] != EOS][: self.places]
        self.live = [score for score, _, _ in going_on]
        self.tokens = [[*self.tokens[parent], token] for _, token, parent in going_on]
        self.length = count
        self.done = self._nothing_can_win()
        return [parent for _, _, parent in going_on]

    def _ranked(self, every: Sequence[Continuations]) -> list[tuple[float, int, int]]:
        """The 2 * width best: score, token, parent. Of equal scores the first comes first, as sorting is stable."""
        live = enumerate(zip(self.live, every, strict=True))
        if self.length >= self.longest:
            found = [(so_far + one.end, EOS, parent) for parent, (so_far, one) in live]
        else:
            found = [
                (so_far + gained, token, parent)
                for parent, (so_far, one) in live
                for gained, token in zip(one.log_probabilities, one.ids, strict=True)
            ]
        found.sort(key=itemgetter(0), reverse=True)
        return [one for one in found[: 2 * self.width] if one[0] > DEAD]

    def _nothing_can_win(self) -> bool:
        """No live hypothesis can still rank among the n best: see :meth:`LengthPenalty.best` for the bound."""
        if not self.live:
            return True
        if len(self.finished) < self.n_best:
            return False
        settled = sorted((one.score for one in self.finished), reverse=True)[self.n_best - 1]
        bound = self.live[0] / max(self.divisors[self.length + 1], self.divisors[self.longest + 1])
        return bound <= settled

    def outputs(self) -> list[Hypothesis]:
        """The n best that have finished, best first."""
        return sorted(self.finished, key=attrgetter("score"), reverse=True)[: self.n_best]
