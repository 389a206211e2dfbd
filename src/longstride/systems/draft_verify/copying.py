"""The source itself as the draft (aggressive decoding; section 2.3 of the paper on its generalization).

Where outputs are mostly their sources (correction, simplification), the source is the best draft there is, and it costs
nothing. The draft starts at the source's beginning and goes on along it, its EOS included, while all stands. At a
bifurcation the place is lost. It is found again by unique suffix match: where the longest common suffix of the
committed output and a prefix of the source is reached at one place only, the draft is what follows there. Without such
a place there is no draft, and the verifier goes on token by token.

Of suffixes that occur just once in the source all end at one place, the same for each of them; so looking for any is
looking for the longest. Knows no model: source and target ids must mean the same, which the decoder sees to.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longstride.contract import PAD, Source
from longstride.nn.cache import EncoderState
from longstride.verification.drafting import Drafter, Proposal, View

LOST = -1
"""No place in the source."""
NOTHING = -1
"""Stands for no token, and equals none that is looked up."""


@dataclass
class SourcePosition:
    """Where each row stands in its source."""

    source: Tensor
    """[rows, longest source] ids with EOS, PAD beyond"""
    lengths: Tensor
    """[rows] EOS counted"""
    place: Tensor
    """[rows] the source position that the next draft starts from, or LOST"""


class SourceDraft(Drafter):
    """Proposes what follows in the source; no model call."""

    calls = 0

    def __init__(self, block: int, suffix: int) -> None:
        self.block = block
        self._suffix = suffix

    @property
    def key(self) -> Hashable:
        """Its two numbers."""
        return ("source", self.block, self._suffix)

    def buffers(self, state: Any) -> list[Tensor] | None:
        """Sources and places."""
        return [state.source, state.lengths, state.place]

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> SourcePosition:
        """No sources yet, every row at the beginning of its own."""
        zeros = torch.zeros(rows, dtype=torch.int64, device=device)
        source = torch.full((rows, longest_source), PAD, dtype=torch.int64, device=device)
        return SourcePosition(source, zeros, zeros.clone())

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState) -> None:
        """Remember the sources of new rows."""
        state.source.index_fill_(0, rows, PAD)
        state.source[rows, : source.longest] = source.ids
        state.lengths[rows] = source.lengths
        state.place.index_fill_(0, rows, 0)

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """What follows each row's place in the source; where it is lost, it is looked for."""
        found = find_place(state.source, state.lengths, view.tokens, view.length, self._suffix)
        state.place.copy_(torch.where(state.place == LOST, found, state.place))
        return following(state.source, state.lengths, state.place, block)

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        """All of the draft stood and the verifier's own token goes on along the source: so does the next draft."""
        reached = state.place + accepted
        expected = state.source.gather(1, reached.clamp(0, state.source.shape[1] - 1)[:, None])[:, 0]
        goes_on = (state.place != LOST) & (reached < state.lengths) & (view.newest == expected)
        state.place.copy_(torch.where(goes_on, reached + 1, LOST))


def following(source: Tensor, lengths: Tensor, place: Tensor, block: int) -> Proposal:
    """The `block` source tokens from each row's place [rows], EOS the last of them; none where the place is LOST."""
    columns = place[:, None] + torch.arange(block, device=source.device)
    ids = source.gather(1, columns.clamp(0, source.shape[1] - 1))
    count = torch.where(place == LOST, 0, (lengths - place).clamp(0, block))
    return Proposal(ids, count)


def find_place(source: Tensor, lengths: Tensor, tokens: Tensor, committed: Tensor, suffix: int) -> Tensor:
    """[rows] the source position after the one best match of the output's end, or LOST.

    source [rows, longest source]; tokens [rows, longest output], of which `committed` [rows] count. At every source
    position we measure how many tokens up to it equal the output's last ones, up to `suffix` of them.
    """
    longest = source.shape[1]
    ends = committed[:, None] - 1 - torch.arange(suffix, device=source.device)  # newest first
    tail = tokens.gather(1, ends.clamp(min=0))
    tail = torch.where(ends >= 0, tail, NOTHING - 1)  # [rows, suffix]
    before = torch.full((source.shape[0], suffix - 1), NOTHING, dtype=source.dtype, device=source.device)
    # windows[r, j] are the tokens up to source position j, newest first: [rows, longest source, suffix]
    windows = torch.cat([before, source], dim=1).unfold(1, suffix, 1).flip(-1)
    matched = (windows == tail[:, None]).cumprod(dim=2).sum(dim=2)
    matched = torch.where(torch.arange(longest, device=source.device) < lengths[:, None], matched, 0)
    best, where = matched.max(dim=1)
    unique = (matched == best[:, None]).sum(dim=1) == 1
    return torch.where(unique & (best > 0), where + 1, LOST)
