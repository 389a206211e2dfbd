"""The drafters' seam: propose tokens for every row, then observe what became of them.

A drafter is immutable. What it needs to remember between iterations it keeps in a state of its own that the session
holds for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Program, Source
from longstride.nn.cache import EncoderState


@dataclass(frozen=True)
class View:
    """What a drafter may look at: the committed outputs so far."""

    tokens: Tensor
    """[rows, longest] committed ids; beyond a row's length, left-overs"""
    length: Tensor
    """[rows] how many are committed"""
    done: Tensor
    """[rows] bool: rows that take no part in this iteration"""
    window: int | None = None
    """how many tokens a row may have got since the last proposal, at most; None: as many as ever"""
    room: Tensor | None = None
    """[rows, the drafter's block] where ids of a proposal may be put, this one's or the next one's: nobody then has to
    copy them, and what was put there stays until the drafter writes it again"""
    newest: Tensor | None = None
    """[rows] the newest committed id of each row; a drafter that observes is always told"""

    @property
    def active(self) -> Tensor:
        """[rows] bool: rows that take part in it."""
        return torch.logical_not(self.done)


@dataclass(frozen=True)
class Proposal:
    """Tokens proposed to follow each row's committed output."""

    ids: Tensor
    """[rows, block]"""
    count: Tensor
    """[rows] how many of them are meant (the first ones); the rest are padding"""
    placed: bool = False
    """the ids are the first columns of the room that the view had for them"""


class Drafter(ABC):
    """Proposes; the verifier decides.

    One whose state is tensors that never move, and whose methods look at no number on the host, says which tensors
    these are: its proposals can then be recorded along with the verifier's steps.
    """

    block: int
    """How many tokens a proposal holds at most. The step's width is one more: the verifier's own token."""
    calls: int = 0
    """Model calls that one proposal costs, beside the verifier's."""
    observes: bool = True
    """Whether it learns anything by observing."""
    ahead: Program | None = None
    """What an observing drafter makes of the state that chose a row's newest token and of that token, (hidden [rows,
    width], newest [rows], forbidden) -> ids [rows, n], if that is all it observes. A table may run it along with the
    verifier, and then tells the result to :meth:`learn` instead of calling :meth:`observe`."""

    @property
    def key(self) -> Hashable:
        """Drafters of equal keys propose the same, so that one may use a table that another was given."""
        return self

    def buffers(self, state: Any) -> list[Tensor] | None:
        """The tensors that a state consists of; None: it is not made of tensors that never move."""
        return None

    @abstractmethod
    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> Any:
        """An empty state for a table of rows."""

    @abstractmethod
    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState) -> None:
        """New sentences were put into rows [n]; `memory`, with its states, is the verifier's of these n."""

    @abstractmethod
    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """Up to `block` tokens for every row, as a proposal of exactly `block` columns."""

    def asked(self, state: Any, view: View, window: Tensor, block: int) -> tuple[Program, tuple[Any, ...]] | None:
        """The program that :meth:`propose` calls, and with what, where its ids [rows, block] are the whole proposal.

        They may then be asked for again and again without the drafter. Tensors of the view stay where they are, and
        `window` [1] holds what the view's would say. None: ask for proposals.
        """
        return None

    @abstractmethod
    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        """How many of the proposed tokens stood ([rows]) and the outputs they led to.

        `hidden` [rows, width] is the verifier's last state at the slot that gave each row's newest token.
        """

    def learn(self, state: Any, ids: Tensor) -> None:
        """What the program `ahead` gave; only where there is one."""
        raise NotImplementedError(f"{type(self).__name__} has no program `ahead`: there is nothing to learn.")

    def learn_nothing(self, state: Any) -> None:
        """The program `ahead` was left out, since no draft is wanted next; should one be, there is none."""
        raise NotImplementedError(f"{type(self).__name__} has no program `ahead`: it cannot be left out.")


class NoDraft(Drafter):
    """Proposes nothing: the loop is greedy search."""

    block = 0
    observes = False

    @property
    def key(self) -> Hashable:
        """All are alike."""
        return "nothing"

    def buffers(self, state: Any) -> list[Tensor] | None:
        """None of them changes."""
        return []

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> Proposal:
        """The one empty proposal there is."""
        return Proposal(
            torch.zeros(rows, 0, dtype=torch.int64, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
        )

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState) -> None:
        """Nothing to remember."""

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """Nothing."""
        assert isinstance(state, Proposal)
        return state

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        """Nothing to learn."""
