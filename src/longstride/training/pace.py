"""How many updates fit into so many seconds: estimated again while a run trains, so that it ends when they are over.

The learning rate follows the share of the work that is done. Whenever the estimate changes, what is left of the
schedule is stretched or shortened, without a jump. Every estimate is handed out to be kept, with the update from which
it holds: a resumed run that is given them makes the same updates at the same rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

LOOKS = 50
"""Estimates of a run, or a few more: one whenever such a share of the time is over, or half of the updates left"""
WINDOW = 0.1
"""Share of the time over which updates are averaged"""


@dataclass(frozen=True)
class Estimate:
    """How many updates a run was thought to have, after some of them."""

    step: int
    """updates made"""
    seconds: float
    """that they took"""
    updates: int
    """of the whole run"""


Keep = Callable[[Sequence[Estimate]], None]


class Pace:
    """The estimates of one run."""

    def __init__(self, seconds: float, estimates: Sequence[Estimate], keep: Keep, fewest: int = 1) -> None:
        """`estimates`: the first one, of update 0, and those that were kept."""
        self._seconds, self._keep, self._fewest = seconds, keep, fewest
        self._estimates = list(estimates)

    @property
    def first(self) -> int:
        """The first estimate, which schedules are made for."""
        return self._estimates[0].updates

    def updates(self, step: int) -> int:
        """Of the whole run, as estimated after `step` updates."""
        return next(one.updates for one in reversed(self._estimates) if one.step <= step)

    def place(self, step: int) -> float:
        """Where update number `step` stands in a run of as many updates as the first estimate says."""
        whole, place = self.first, 0.0
        ends = [one.step for one in self._estimates[1:]]
        for one, end in zip(self._estimates, [*ends, step], strict=True):
            if one.step >= step:
                break
            place += (min(end, step) - one.step) * (whole - place) / (one.updates - one.step)
        return min(place, whole)

    def look(self, step: int, seconds: float) -> None:
        """Estimate again if it is time to: `step` updates took so many seconds, earlier processes' included."""
        last = self._estimates[-1]
        if step <= last.step:  # a resumed run makes again what was estimated then
            return
        halfway = 2 * (step - last.step) >= last.updates - last.step
        if not halfway and seconds - last.seconds < self._seconds / LOOKS:
            return
        earlier = [one for one in self._estimates if one.seconds <= seconds - WINDOW * self._seconds]
        since = (earlier or self._estimates[:1])[-1]
        each = max(seconds - since.seconds, 1e-9) / (step - since.step)
        left = round(max(0.0, self._seconds - seconds) / each)
        self._estimates.append(Estimate(step, seconds, max(step + left, self._fewest)))
        self._keep(self._estimates)
