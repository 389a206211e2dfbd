"""How long the next draft should be where any size may be had at any time: as long as pays, and none where none does.

What is known is shared by all sessions of a decoder: how drafts fare (:mod:`longstride.verification.fates`), and what
iterations cost by rows and size (:mod:`longstride.verification.costs`). It begins with no draft at all, which is greedy
search. A size is tried where, by all that is known, it could pay; where it could not, never. What was found is tried
again, as costs and texts change: the next best size, and in between no draft, which must not be faster. The longer an
opinion has held, the rarer such trials are, and of all the time that passes they may lose only a small share: where
a draft costs much more than it brings they are rarer still. One that brought more than was thought possible is repeated
at once, as long as that goes well.

Costs are measured as the loop runs. This changes the shape of steps with the clock, so that in low precision a near-tie
may flip against a fixed block: exact only where kernels do not depend on shapes. Reads no clock and knows no table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from longstride.verification.costs import Costs, about
from longstride.verification.fates import Fates

MEMORY = 0.99
"""What an iteration leaves of what was known of drafts."""
SHARE = 0.005
"""Part of the time that trials may lose."""
MARGIN = 0.05
"""Part by which a longer draft must be better, and"""
JOINING = 0.1
"""the same where a drafter has first to read the sentences."""
REST = 16
"""Iterations between two looks at whether another size is better; fewer after a change of mind."""
APART = 32
"""Iterations between a change of mind and a trial of what was tried before; twice as many before each further one,"""
FARTHEST = 1024
"""up to so many."""
ENOUGH = 64
"""Drafts with one number of rows after which it is known how drafts fare; before, better is hoped."""
DEAREST = 32
"""Trials are charged no more than so many iterations: a machine that stood still says nothing of their cost."""


def sizes(most: int) -> list[int]:
    """0, the powers of two, and `most`."""
    powers = [1 << place for place in range(most.bit_length()) if 1 << place < most]
    return sorted({0, *powers, most})


@dataclass(frozen=True)
class Choice:
    """What an iteration is to draft."""

    block: int
    trial: bool = False
    """it was tried before, and is tried again at the expense of all that is not"""


NOTHING = Choice(0)
JOINED = -1
"""Stands for reading sentences where iterations go by their blocks."""


class _Opinion:
    """Of iterations with one number of rows."""

    def __init__(self) -> None:
        self.block = 0
        """thought best"""
        self.rest = 0
        """iterations before that is asked again"""
        self.calm = 0
        """how many these were"""
        self.pause = APART
        """iterations without a trial before the next"""
        self.looked_on = True
        """the last trial was of another draft: it is the turn of none"""
        self.drafts = 0
        """that were judged, up to enough"""
        self.again: Choice | None = None
        """a trial that went well"""

    def change(self, block: int) -> None:
        """This is better."""
        self.block, self.calm, self.pause = block, 0, APART

    def settle(self) -> None:
        """It still is."""
        self.rest = self.calm = min(2 * self.calm + 1, REST)


class Thrift:
    """What block pays, for all tables of one decoder, for drafts of up to `most` tokens."""

    def __init__(self, most: int) -> None:
        self._sizes = sizes(most)
        self._fates, self._costs = Fates(most, MEMORY), Costs()
        self._opinions: dict[int, _Opinion] = {}
        self._begun: set[tuple[bool, int]] = set()
        self._joining: dict[int, float] = {}
        self._drafts = 0  # that were judged, up to enough
        self._saved = 0.0
        self._since = 0  # iterations since the last trial

    def choose(self, rows: int, joined: bool = True) -> Choice:
        """For the next iteration of a table of so many rows; whether the drafter has read their sentences."""
        opinion = self._opinion(rows)
        again, opinion.again = opinion.again, None
        if opinion.rest and again is None:
            opinion.rest -= 1
            return Choice(opinion.block)
        costs = self._costs
        unsure = not costs.known(rows, 0) if opinion.block == 0 else costs.untried(rows, 0)
        if len(self._sizes) == 1 or unsure:
            return NOTHING
        pays = {size: self._fates.tokens(size) / costs.seconds(rows, size) for size in self._sizes}
        margin = 1 + (MARGIN if joined else JOINING)
        known = [size for size in self._sizes if costs.known(rows, size)]
        best = max(known, key=pays.__getitem__, default=opinion.block)
        if pays[best] > (margin if best > opinion.block else 1) * pays[opinion.block]:
            opinion.change(best)
        if again is not None and again.block != opinion.block:
            return again
        hopes = {
            size: self._hoped(size, opinion.drafts + self._drafts / 4) / costs.seconds(rows, size)
            for size in self._sizes
        }
        hopeful = max(self._sizes, key=hopes.__getitem__)
        open_question = opinion.drafts < ENOUGH or costs.untried(rows, hopeful)
        if open_question and hopes[hopeful] > margin * pays[opinion.block]:
            return Choice(hopeful)
        if self._since >= opinion.pause:
            others = [size for size in self._sizes if size != opinion.block]
            back = opinion.block and opinion.looked_on and costs.old(rows, 0)
            other = 0 if back else max(others, key=pays.__getitem__)
            price = self._lost(rows, other, costs.seconds(rows, other))
            if other and not joined:
                price += self._joining.get(about(rows), 0.0)
            if price <= self._saved:
                return Choice(other, trial=True)
        opinion.settle()
        return Choice(opinion.block)

    def begin(self, rows: int) -> None:
        """A table of so many rows begins with new sentences alone: what steps without a draft took behind long outputs
        is not what they take now, and a draft must not seem cheap beside it."""
        if not self._opinion(rows).block:
            self._costs.set_aside(rows, 0)

    def first(self, rows: int, block: int) -> bool:
        """Whether no iteration of this kind was asked about before: it may have more to do than others will."""
        kind = (rows == 1, block)
        if kind in self._begun:
            return False
        self._begun.add(kind)
        return True

    def observe(self, choice: Choice, rows: int, stood: Sequence[int], seconds: float | None) -> None:
        """What became of an iteration: how many tokens stood in each row that took part; how long it took, if known."""
        if choice.block:
            self._fates.add(choice.block, stood)
            opinion = self._opinion(rows)
            opinion.drafts = min(opinion.drafts + len(stood), ENOUGH)
            self._drafts = min(self._drafts + len(stood), ENOUGH)
        self._since += 1
        if seconds is None:
            return
        self._saved += SHARE * seconds
        if choice.trial:
            self._tried(choice, rows, 1 + sum(stood) / max(1, len(stood)), seconds)
        self._costs.add(rows, choice.block, seconds)

    def _tried(self, choice: Choice, rows: int, tokens: float, seconds: float) -> None:
        opinion = self._opinion(rows)
        lost = seconds - tokens * self._usual(rows)
        self._charge(rows, max(0.0, lost))
        self._since = 0
        opinion.looked_on = choice.block > 0
        if lost < 0 and choice.block != opinion.block:
            opinion.again = choice
        else:
            opinion.pause = min(2 * opinion.pause, FARTHEST)

    def joined(self, choice: Choice, rows: int, seconds: float) -> None:
        """The drafter has read sentences for such an iteration, which took so long."""
        if self.first(rows, JOINED):
            return
        self._joining[about(rows)] = seconds
        if choice.trial:
            self._charge(rows, seconds)

    def in_vain(self, choice: Choice, rows: int, seconds: float) -> None:
        """Before such an iteration there was one with nothing to judge, for the drafter to see the newest tokens."""
        if choice.trial:
            self._charge(rows, self._lost(rows, 0, seconds))

    def _hoped(self, block: int, drafts: float) -> float:
        """Tokens that an iteration may bring: by what few drafts brought, the mean may well be off.

        Those of other numbers of rows count for less: at the beginnings of sentences, where many rows are tried, drafts
        fare otherwise than on the whole.
        """
        tokens = self._fates.tokens(block)
        if drafts >= ENOUGH:
            return tokens
        drafted = tokens - 1
        deviation = min(block / 2, math.sqrt(drafted * (drafted + 1)))  # as if each stood with the same chance
        return min(1.0 + block, tokens + deviation / math.sqrt(drafts + 1))

    def _lost(self, rows: int, block: int, seconds: float) -> float:
        """Seconds that an iteration takes longer than what it should bring would take by the size thought best."""
        return max(0.0, seconds - self._fates.tokens(block) * self._usual(rows))

    def _usual(self, rows: int) -> float:
        """Seconds a token by the size thought best."""
        best = self._opinion(rows).block
        return self._costs.seconds(rows, best) / self._fates.tokens(best)

    def _charge(self, rows: int, seconds: float) -> None:
        most = DEAREST * self._costs.seconds(rows, self._opinion(rows).block)
        self._saved = min(self._saved - min(seconds, most), 0.0)

    def _opinion(self, rows: int) -> _Opinion:
        rows = about(rows)
        found = self._opinions.get(rows)
        if found is None:
            found = self._opinions[rows] = _Opinion()
        return found
