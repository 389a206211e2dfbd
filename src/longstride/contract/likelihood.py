"""How probable a model holds outputs that it is given, whatever the order in which it would write them itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from longstride.contract.symbols import DEFAULT_IDS, SpecialIds
from longstride.contract.training import Batch

LEFT_TO_RIGHT = "left-to-right"


@dataclass(frozen=True)
class Factorisation:
    """How the probability of a sentence is made of the probabilities of its tokens."""

    order: str = LEFT_TO_RIGHT
    """which token follows which; models of one order write the same sentence in the same way"""
    together: int = 1
    """tokens of a step, which are taken to be independent of each other, given all earlier steps"""
    linked: bool = False
    """but for neighbours among them, each of which is given the one before it"""

    @property
    def signature(self) -> str:
        """``order:left-to-right|together:2|``, with ``linked|`` behind it where that is so; nothing for what is usual,
        one token after another from left to right"""
        if self == Factorisation():
            return ""
        return f"order:{self.order}|together:{self.together}|{'linked|' if self.linked else ''}"


class Likelihood(ABC):
    """Scores given outputs. Immutable, like a decoder, and built from the same parts."""

    factorisation: Factorisation
    special: SpecialIds = DEFAULT_IDS

    @abstractmethod
    def log_probabilities(self, batch: Batch) -> Tensor:
        """[rows, longest target] float64, on any device: the log-probability, in nats, of every target token.

        Tokens stand in the order in which the model writes them, EOS last, so that a row's sum is the log-probability
        of its target. Beyond a row's length all are 0.
        """
