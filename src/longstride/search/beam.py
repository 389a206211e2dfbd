"""One step of beam search as pure tensor code over a table of slots, and the state it works on. Knows no model.

Each slot has `width` places, shared by live and finished hypotheses: one that finishes keeps its place, so a slot
whose places are all finished is done, and width 1 is exactly greedy search. A slot may be done earlier, when no live
hypothesis could still enter the n best (an exact bound, see :meth:`LengthPenalty.best`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import EOS, PAD
from longstride.search.length_penalty import LengthPenalty
from longstride.search.rows import Rows

DEAD = float("-inf")


@dataclass
class BeamTable(Rows):
    """The hypotheses of every slot. Live ones of a slot all have the same length."""

    tokens: Tensor
    """[slots, width, longest] live hypotheses"""
    live: Tensor
    """[slots, width] their log-probabilities; -inf: no such hypothesis"""
    length: Tensor
    """[slots] tokens of the live hypotheses so far"""
    finished_tokens: Tensor
    """[slots, width, longest]"""
    finished: Tensor
    """[slots, width] log-probabilities, EOS included; -inf: no such hypothesis"""
    finished_length: Tensor
    """[slots, width] tokens, EOS not counted"""
    longest: Tensor
    """[slots] most tokens, EOS not counted, an output may have"""
    done: Tensor
    """[slots] bool"""

    @staticmethod
    def empty(slots: int, width: int, longest: int, device: torch.device) -> BeamTable:
        """All slots done, waiting for sentences."""
        return BeamTable(
            tokens=torch.full((slots, width, longest), PAD, dtype=torch.int64, device=device),
            live=torch.full((slots, width), DEAD, dtype=torch.float64, device=device),
            length=torch.zeros(slots, dtype=torch.int64, device=device),
            finished_tokens=torch.full((slots, width, longest), PAD, dtype=torch.int64, device=device),
            finished=torch.full((slots, width), DEAD, dtype=torch.float64, device=device),
            finished_length=torch.zeros(slots, width, dtype=torch.int64, device=device),
            longest=torch.zeros(slots, dtype=torch.int64, device=device),
            done=torch.ones(slots, dtype=torch.bool, device=device),
        )

    def open(self, slots: Tensor, longest: Tensor) -> None:
        """Start fresh searches in the given slots: one empty hypothesis each."""
        self.live.index_fill_(0, slots, DEAD)
        self.live[:, 0].index_fill_(0, slots, 0.0)
        self.length.index_fill_(0, slots, 0)
        self.finished.index_fill_(0, slots, DEAD)
        self.finished_length.index_fill_(0, slots, 0)
        self.longest.index_copy_(0, slots, longest)
        self.done.index_fill_(0, slots, False)


@dataclass(frozen=True)
class Candidates:
    """The best continuations of every live hypothesis, as a model scored them."""

    ids: Tensor
    """[slots, width, 2 * width]"""
    log_probabilities: Tensor
    """[slots, width, 2 * width] float64, of the token alone; -inf: forbidden"""
    end: Tensor
    """[slots, width] float64: log-probability of EOS, for hypotheses that must end now"""


def advance(table: BeamTable, candidates: Candidates, penalty: LengthPenalty, n_best: int) -> tuple[Tensor, Tensor]:
    """Extend, finish, prune. Changes the table; returns parents and last tokens of the new live hypotheses.

    Both are [slots, width]; parents index the old places of the same slot.
    """
    slots, width = table.live.shape
    must_end = (table.length >= table.longest)[:, None, None]
    ids = torch.where(must_end, EOS, candidates.ids)
    first = torch.arange(2 * width, device=ids.device) == 0
    forced = torch.where(first, candidates.end[..., None], DEAD)
    token_scores = torch.where(must_end, forced, candidates.log_probabilities)

    scores = (table.live[..., None] + token_scores).view(slots, -1)
    ids = ids.view(slots, -1)
    # The 2·width best of a slot hold at most width that end, so at least width that go on.
    # Among equal scores the first comes first, on every device: `topk` would take any.
    scores, picks = (found[:, : 2 * width] for found in scores.sort(dim=1, descending=True, stable=True))
    ids = ids.gather(1, picks)
    parents = picks // (2 * width)
    possible = (scores > DEAD) & ~table.done[:, None]
    ends = possible & (ids == EOS)

    # A hypothesis finishes only if it ranks among the places that are still open.
    open_places = width - (table.finished > DEAD).sum(1, keepdim=True)
    rank = torch.arange(2 * width, device=ids.device)
    finishing = ends & (rank < open_places)
    _finish(table, finishing, scores, parents)

    still_open = width - (table.finished > DEAD).sum(1, keepdim=True)
    going_on = possible & (ids != EOS)
    place = going_on.cumsum(1) - 1
    going_on &= place < still_open
    order = torch.where(going_on, rank, 2 * width).argsort(dim=1, stable=True)[:, :width]
    alive = going_on.gather(1, order)
    parents = parents.gather(1, order)
    last = torch.where(alive, ids.gather(1, order), PAD)

    moved = table.tokens.gather(1, parents[..., None].expand_as(table.tokens))
    at = table.length.clamp(max=moved.shape[2] - 1)[:, None, None].expand(slots, width, 1)
    table.tokens = moved.scatter(2, at, last[..., None])
    table.live = torch.where(alive, scores.gather(1, order), DEAD)
    table.length = torch.where(table.done, table.length, table.length + 1)
    table.done = table.done | _nothing_can_win(table, penalty, n_best)
    return parents, last


def _finish(table: BeamTable, finishing: Tensor, scores: Tensor, parents: Tensor) -> None:
    """Move finishing candidates into the free places of their slot."""
    width = table.live.shape[1]
    place = (table.finished > DEAD).sum(1, keepdim=True) + finishing.cumsum(1) - 1
    spare = torch.where(finishing, place, width)  # column `width` catches all that do not finish

    def put(into: Tensor, values: Tensor) -> Tensor:
        room = torch.cat([into, into[:, :1]], dim=1)
        index = spare if values.dim() == 2 else spare[..., None].expand_as(values)
        return room.scatter(1, index, values)[:, :width]

    length = table.length[:, None].expand_as(spare)
    tokens = table.tokens.gather(1, parents[..., None].expand(-1, -1, table.tokens.shape[2]))
    table.finished_tokens = put(table.finished_tokens, tokens)
    table.finished_length = put(table.finished_length, length)
    table.finished = put(table.finished, scores)


def final_scores(table: BeamTable, penalty: LengthPenalty) -> Tensor:
    """[slots, width] scores of the finished hypotheses, -inf where there is none."""
    return table.finished / penalty(table.finished_length + 1)


def _nothing_can_win(table: BeamTable, penalty: LengthPenalty, n_best: int) -> Tensor:
    """[slots] bool: no live hypothesis can still rank among the n best."""
    settled = final_scores(table, penalty).topk(n_best, dim=1).values[:, -1]
    bound = table.live.max(dim=1).values / penalty.best(table.length + 1, table.longest + 1)
    return (bound <= settled) | (table.live == DEAD).all(dim=1)
