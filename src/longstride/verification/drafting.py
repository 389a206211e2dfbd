"""The drafters' seam: propose tokens for every row, then observe what became of them.

A drafter is immutable. What it needs to remember between iterations it keeps in a state of its own that the session
holds for it. Where that state is tensors that stay where they are, and proposing and observing are operations on them
alone, a whole iteration is one program: captured, traced or run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from longstride.contract import Source
from longstride.nn.cache import EncoderState
from longstride.ops.draft_tree import Shape
from longstride.ops.trace import Specification


@dataclass(frozen=True)
class View:
    """What a drafter may look at: the committed outputs so far, and the limits on them."""

    tokens: Tensor
    """[rows, columns] committed ids; beyond a row's length, left-overs"""
    length: Tensor
    """[rows] how many are committed"""
    newest: Tensor
    """[rows] the last of them, START where there is none"""
    done: Tensor
    """[rows] bool: rows that take no part in this iteration"""
    longest: Tensor
    """[rows] how long the output may be"""
    forbidden: Tensor
    """[n] ids that are never chosen"""
    window: int | Tensor | None = None
    """how many tokens a row may have got since the last proposal, at most, or a tensor [1] that says so; None: as many
    as a whole block brings"""
    room: Tensor | None = None
    """[rows, the drafter's block] where ids of a proposal may be put, this one's or the next one's: nobody then has to
    copy them, and what was put there stays until the drafter writes it again"""


@dataclass(frozen=True)
class Proposal:
    """Tokens proposed to follow each row's committed output."""

    ids: Tensor
    """[rows, block]"""
    count: Tensor
    """[rows] how many of them are meant (the first ones); the rest are padding"""
    parents: Tensor | None = None
    """[rows, block] of a draft that is a tree, the slot each token follows: 0 is the newest committed token, j + 1 the
    draft's own token j, which comes before it; None: a chain"""
    placed: bool = False
    """the ids are the first columns of the room that the view had for them"""
    shape: Shape | None = None
    """what :func:`longstride.ops.tree_shape` makes of the parents, where whoever drafted knows it"""


@dataclass(frozen=True)
class DrafterGraph:
    """What backends that build graphs have to know of a drafter whose methods can be traced."""

    modules: tuple[nn.Module, ...]
    """whose weights it reads"""
    inputs: Specification
    """parts of its state that proposing and observing read, by name"""
    state: Specification
    """and those that they write"""
    parts: Callable[[Any], Mapping[str, Tensor]]
    """(state) -> all of these by name"""
    state_of: Callable[[Mapping[str, Any]], Any]
    """(parts by name) -> state"""
    layered: frozenset[str] = frozenset()
    reads_window: bool = False
    """proposing depends on how many tokens came since the last draft"""
    settings: tuple[Hashable, ...] = ()


class Drafter(ABC):
    """Proposes; the verifier decides."""

    block: int
    """How many tokens a proposal holds at most. The step's width is one more: the verifier's own token."""
    calls: int = 0
    """Model calls that one proposal costs, beside the verifier's."""
    depth: int | None = None
    """How many tokens of a proposal may stand one after another, where that is not all of them."""
    trees: bool = False
    """Whether its proposals are trees."""
    observes: bool = True
    """Whether it learns anything by observing."""
    reads_drafts: bool = False
    """Whether it drafts by texts that come with the source (:attr:`longstride.contract.Source.drafts`)."""
    graph: DrafterGraph | None = None
    """for those whose methods can be traced"""

    @property
    def key(self) -> Hashable:
        """Drafters of equal keys propose the same, so that one may use a table that another was given."""
        return self

    @property
    def remembers(self) -> Hashable:
        """Drafters with the same here remember the same of a row, however much they draft."""
        return self.key

    def buffers(self, state: Any) -> list[Tensor] | None:
        """The tensors that a state consists of; None: it is not made of tensors that never move."""
        return None

    queues: bool = False
    """Whether what it makes of new sentences may wait for a free row: then :meth:`per_sentence` says what that is."""

    def per_sentence(self, state: Any) -> list[tuple[Tensor, int]]:
        """The tensors of a state that :meth:`admit` writes, and which of their dimensions is the rows'."""
        raise NotImplementedError(f"{type(self).__name__} makes nothing that may wait for a row (queues).")

    def begin_waiting(self, places: int, longest_source: int, longest_output: int, device: torch.device) -> Any:
        """A state for sentences that wait: :meth:`admit` alone is called with it."""
        return self.begin(places, longest_source, longest_output, device)

    @abstractmethod
    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> Any:
        """An empty state for a table of rows."""

    @abstractmethod
    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState | None) -> None:
        """New sentences were put into rows [n]; `memory`, with its states, is the verifier's of these n, if at hand."""

    def resume(self, state: Any, rows: Tensor, source: Source, view: View) -> None:
        """The same for sentences of which something is committed already, as the view shows: another drafted it."""
        self.admit(state, rows, source, None)

    def follow(self, state: Any, there: list[int], here: list[int], length: int) -> None:  # noqa: B027 (most need not)
        """Rows `there` go on from the first `length` tokens of rows `here`, all of one sentence. On a processor."""

    @abstractmethod
    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """Up to `block` tokens for every row, as a proposal of exactly `block` columns."""

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:  # noqa: B027 (most do not)
        """How many of the proposed tokens stood ([rows]) and the outputs they led to.

        `hidden` [rows, width] is the verifier's last state at the slot that gave each row's newest token.
        """


class NoDraft(Drafter):
    """Proposes nothing: the loop is greedy search."""

    block = 0
    observes = False
    queues = True
    graph = DrafterGraph((), {}, {}, lambda state: {}, lambda parts: None)

    @property
    def key(self) -> Hashable:
        """All are alike."""
        return "nothing"

    def buffers(self, state: Any) -> list[Tensor] | None:
        """None at all."""
        return []

    def per_sentence(self, state: Any) -> list[tuple[Tensor, int]]:
        """Nothing."""
        return []

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> None:
        """Nothing to remember."""

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState | None) -> None:
        """Nothing to remember."""

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """Nothing."""
        return nothing(view)


def tree_room(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors for the shape of a tree of ids [rows, nodes]."""
    rows, step = ids.shape[0], ids.shape[1] + 1
    above = ids.new_empty((rows, step, step), dtype=torch.bool)
    return above, ids.new_empty((rows, step)), ids.new_empty((rows, step, 1 + step), dtype=torch.int32)


def nothing(view: View) -> Proposal:
    """The empty proposal."""
    return Proposal(view.tokens[:, :0], torch.zeros_like(view.length))
