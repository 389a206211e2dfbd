"""The number of updates that fit into a time, estimated again and again while a run trains.

The learning rate follows the share of the work that is done. When the estimate changes, the rest of the schedule is
stretched or shortened, without a jump. The caller keeps every estimate, with the update from which it holds: a resumed
run that is given the estimates makes the same updates at the same rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

LOOKS = 50
"""Estimates of a run, or a few more: the next one is made after this share of the time, or half of the updates left"""
WINDOW = 0.1
"""Share of the time over which updates are averaged"""


@dataclass(frozen=True)
class Estimate:
    """An estimate of the updates of a run."""

    step: int
    """updates made before it"""
    seconds: float
    """time of these updates"""
    updates: int
    """estimated, for the whole run"""


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
        """Return the updates of the whole run, as estimated after `step` of them."""
        return next(one.updates for one in reversed(self._estimates) if one.step <= step)

    def place(self, step: int) -> float:
        """Return the place of update number `step` in a schedule made for the first estimate."""
        whole, place = self.first, 0.0
        ends = [one.step for one in self._estimates[1:]]
        for one, end in zip(self._estimates, [*ends, step], strict=True):
            if one.step >= step:
                break
            place += (min(end, step) - one.step) * (whole - place) / (one.updates - one.step)
        return min(place, whole)

    def look(self, step: int, seconds: float) -> None:
        """Estimate again if it is time to. `seconds`: the time of `step` updates, in this and in earlier processes."""
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
