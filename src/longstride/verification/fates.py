"""How drafts fare: from how many of their tokens stood, what a draft of any length may be expected to bring.

Later tokens of a draft stand more rarely than the first, and a draft of four says nothing of a fifth token. So what is
kept is how many drafts came as far as each place, and how many went on from there. Knows no clock and no model.
"""

from __future__ import annotations

from collections.abc import Sequence

PRIOR = 1.0
"""Iterations that what is known of all places counts for at each of them."""
LARGE = 1e9


class Fates:
    """Of drafts of up to `most` tokens; an iteration leaves `memory` of what was known before it."""

    def __init__(self, most: int, memory: float) -> None:
        self._memory = memory
        self._weight = 1.0  # of an iteration: it grows, which is less work than making all earlier ones lighter
        self._fell = [0.0] * (most + 1)  # by how many tokens stood: the next one did not
        self._whole = [0.0] * (most + 1)  # by how many tokens stood: there was no next one

    def add(self, block: int, stood: Sequence[int]) -> None:
        """An iteration of drafts of `block` tokens: per row, how many stood. Fewer drafted count as fallen."""
        if not stood:
            return
        self._weight /= self._memory
        if self._weight > LARGE:
            self._lighten()
        share = self._weight / len(stood)
        for length in stood:
            (self._whole if length >= block else self._fell)[length] += share

    def tokens(self, block: int) -> float:
        """Tokens that an iteration with a draft of `block` brings, the verifier's own included."""
        far, near = sum(self._whole), sum(self._fell)
        prior = PRIOR * self._weight
        stood = sum(length * (self._whole[length] + self._fell[length]) for length in range(len(self._fell)))
        overall = (stood + prior) / (stood + near + prior)
        reached = far + near
        likely, expected = 1.0, 1.0
        for place in range(block):
            reached -= self._whole[place]  # these had no token there
            went_on = reached - self._fell[place]
            likely *= (went_on + prior * overall) / (reached + prior)
            expected += likely
            reached = went_on
        return expected

    def _lighten(self) -> None:
        for counts in (self._fell, self._whole):
            counts[:] = [count / self._weight for count in counts]
        self._weight = 1.0
