"""What models and those who train or score them agree on. The loop knows no system; an objective knows no loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from longstride.contract.decoding import Source
from longstride.contract.running import Program, Runner
from longstride.contract.symbols import DEFAULT_IDS, SpecialIds


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as ids, padded on the right; every sentence ends in EOS, which its length counts.

    Lengths alone tell what is padding: in vocabularies of others, any id may be a word's or EOS's.
    """

    source: Tensor
    """[rows, longest source] int64"""
    target: Tensor
    """[rows, longest target] int64"""
    source_lengths: Tensor
    """[rows] int64"""
    target_lengths: Tensor
    """[rows] int64"""
    index: Tensor
    """[rows] int64: which pairs of the corpus these are"""


@dataclass(frozen=True)
class Prepared:
    """A batch made ready for the loss: tensors only, so that it can be sent to a device and compiled over."""

    tensors: dict[str, Tensor]
    tokens: int
    """how many target tokens carry loss; the loop divides the summed loss by the tokens of the whole update"""
    source_padded: bool = True
    """False where all sources are equally long: attention then needs no padding mask, which is faster"""

    @staticmethod
    def of(batch: Batch, tensors: dict[str, Tensor] | None = None) -> Prepared:
        """A batch whose target tokens all carry loss, and what the objective adds to it."""
        every = {name: getattr(batch, name) for name in ("source", "source_lengths", "target", "target_lengths")}
        padded = bool((batch.source_lengths != batch.source.shape[1]).any())
        return Prepared({**every, **(tensors or {})}, int(batch.target_lengths.sum()), padded)

    @property
    def source_mask(self) -> Tensor | None:
        """[rows, longest source]: True on real source tokens; None where all are, which is faster."""
        return _within(self.tensors["source_lengths"], self.tensors["source"]) if self.source_padded else None

    @property
    def target_mask(self) -> Tensor:
        """[rows, longest target]: True on real target tokens, whatever ids stand beyond them."""
        return _within(self.tensors["target_lengths"], self.tensors["target"])

    def to(self, device: torch.device) -> Prepared:
        """The same on another device, copied asynchronously where the memory is pinned."""
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in self.tensors.items()}
        return Prepared(moved, self.tokens, self.source_padded)

    def pinned(self) -> Prepared:
        """The same in page-locked memory."""
        return Prepared(
            {name: tensor.pin_memory() for name, tensor in self.tensors.items()}, self.tokens, self.source_padded
        )


def _within(lengths: Tensor, ids: Tensor) -> Tensor:
    """[rows, longest]; the first column is always visible: a softmax over nothing is not a number"""
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None].clamp(min=1)


@dataclass(frozen=True)
class Loss:
    """Sums over the batch's tokens: what is minimised, and figures to report (each divided by tokens when shown)."""

    total: Tensor
    figures: dict[str, Tensor] = field(default_factory=dict)


class Objective(ABC):
    """How a system is trained. `prepare` is the random, data-side part, seeded and resumable; `loss` is compilable."""

    special: SpecialIds = DEFAULT_IDS
    """of the batches, set by whoever makes them"""

    def __init__(self, options: Any) -> None:
        self.options = options

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """Everything that can be done on the host, all randomness included; by default there is none.

        `progress` is how much of the training is done, from 0 to 1, for objectives that change on the way.
        """
        return Prepared.of(batch)

    @abstractmethod
    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """The summed loss: a function of tensors and weights alone."""


class BatchSource(ABC):
    """Training data in an order fixed by seed and epoch, so that training can stop and go on anywhere."""

    @abstractmethod
    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, leaving out the first `skip` without reading them."""

    @abstractmethod
    def batches_in(self, number: int) -> int:
        """How many batches that epoch has."""


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


@dataclass(frozen=True)
class Likelihood:
    """Scores given outputs. Immutable, like a decoder, and built from the same parts."""

    score: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """(source, its lengths, target, its lengths) -> what :meth:`log_probabilities` gives"""
    runner: Runner
    special: SpecialIds = DEFAULT_IDS
    factorisation: Factorisation = Factorisation()
    offer: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    """(source [1, tokens], target [1, tokens], ids [number]) -> what :meth:`offers` gives, where that can be said"""
    follow: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] | None = None
    """(source [1, tokens], target [1, tokens], ids [number, longest], their lengths, places) -> [number] what
    :meth:`continued` gives; there where :attr:`offer` is"""

    def offers(self, source: Sequence[int], target: Sequence[int], ids: Sequence[int]) -> Tensor | None:
        """[target tokens + 1, ids] float64: the log-probability of each of some ids before every token of a target,
        and at its end, from one pass; None for models that write in another order."""
        if self.offer is None:
            return None
        given = [torch.tensor(one, dtype=torch.int64, device=self.runner.device) for one in (source, target, ids)]
        found: Tensor = self.runner.call(Program("offers", self.offer), given[0][None], given[1][None], given[2])
        return found

    def continued(
        self, source: Sequence[int], target: Sequence[int], places: Sequence[int], rows: Sequence[Sequence[int]]
    ) -> list[float]:
        """Return the log-probability of each row of ids behind its place, a number of tokens of the target, from one
        pass. It requires a model that has :attr:`offer`."""
        assert self.follow is not None
        padded = Source.of(rows)
        given = [torch.tensor(one, dtype=torch.int64) for one in ([source], [target], places)]
        tensors = (given[0], given[1], padded.ids, padded.lengths, given[2])
        call = Program("continued", self.follow)
        found: list[float] = self.runner.call(call, *(one.to(self.runner.device) for one in tensors)).tolist()
        return found

    def log_probabilities(self, batch: Batch) -> Tensor:
        """[rows, longest target] float64, on any device: the log-probability, in nats, of every target token. Of models
        that can :meth:`offers`, targets may share one source.

        Tokens stand in the order in which the model writes them, EOS last, so that a row's sum is the log-probability
        of its target. Beyond a row's length all are 0.
        """
        tensors = (batch.source, batch.source_lengths, batch.target, batch.target_lengths)
        given = (tensor.to(self.runner.device) for tensor in tensors)
        found: Tensor = self.runner.call(Program("likelihood", self.score), *given)
        return found
