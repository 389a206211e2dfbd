"""Text that is there already as the draft: the source itself, or one that was given with it. It costs no model call.

Where outputs are mostly their sources (correction, simplification), the source is the best draft there is (aggressive
decoding; section 2.3 of the paper on its generalization). Where a text was translated before, or one like it, so is the
translation of then. The draft starts at the text's beginning and goes on along it, its EOS included, while all stands.
At a bifurcation the place is lost. It is found again by the longest suffix of the committed output that the text has:

    unique     where it is reached at one place only, the draft is what follows there, else there is none (the paper).
               Of suffixes that occur just once all end at one place, so looking for any is looking for the longest
    nearest    of several places the one nearest to where the draft would have gone on, had each token that did not
               stand been put in another's stead; without any, just there. A whole step is verified in any case

Knows no model: the text's ids must mean what the output's do, which the decoder sees to.
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
"""No place in the text."""
NOTHING = -1
"""Stands for no token, and equals none that is looked up."""


@dataclass
class TextPosition:
    """Where each row stands in its text."""

    text: Tensor
    """[rows, longest text] ids with EOS, PAD beyond"""
    lengths: Tensor
    """[rows] EOS counted; 0: no text"""
    place: Tensor
    """[rows] the position in the text that the next draft starts from, or LOST"""
    expected: Tensor
    """[rows] where it would start if tokens that did not stand were put in others' stead"""
    begun: Tensor
    """[rows] where the last draft started"""


class TextDraft(Drafter):
    """Proposes what follows in a text: the source, or one that came with it."""

    calls = 0
    queues = True

    def __init__(self, block: int, suffix: int, given: bool = False) -> None:
        """`given`: the text comes with the source, and lost places are the nearest ones; else it is the source, and
        they are the unique ones."""
        self.block, self.reads_drafts = block, given
        self._suffix = suffix

    @property
    def key(self) -> Hashable:
        """Its two numbers, and whose text it is."""
        return ("text", self.block, self._suffix, self.reads_drafts)

    def buffers(self, state: Any) -> list[Tensor] | None:
        """Texts and places."""
        return [state.text, state.lengths, state.place, state.expected, state.begun]

    def per_sentence(self, state: Any) -> list[tuple[Tensor, int]]:
        """The text, and that its beginning is expected."""
        return [(tensor, 0) for tensor in (state.text, state.lengths, state.place, state.expected)]

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> TextPosition:
        """No texts yet, every row at the beginning of its own."""
        longest = longest_output - self.block if self.reads_drafts else longest_source
        text = torch.full((rows, longest), PAD, dtype=torch.int64, device=device)
        return TextPosition(text, *(torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(4)))

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState | None) -> None:
        """Remember the texts of new rows."""
        text = source.drafts if self.reads_drafts else source
        state.text.index_fill_(0, rows, PAD)
        state.lengths.index_fill_(0, rows, 0)
        if text is not None:
            state.text[rows, : text.longest] = text.ids
            state.lengths[rows] = text.lengths
        for places in (state.place, state.expected):
            places.index_fill_(0, rows, 0)

    def resume(self, state: Any, rows: Tensor, source: Source, view: View) -> None:
        """The place is looked for."""
        self.admit(state, rows, source, None)
        state.place.index_fill_(0, rows, LOST)
        state.expected.index_copy_(0, rows, view.length[rows])

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """What follows each row's place in the text; where it is lost, it is looked for."""
        expected = state.expected if self.reads_drafts else None
        found = find_place(state.text, state.lengths, view.tokens, view.length, self._suffix, expected)
        state.begun.copy_(torch.where(state.place == LOST, found, state.place))
        return following(state.text, state.lengths, state.begun, block)

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        """Where the verifier's own token goes on along the text after what stood, so does the next draft."""
        reached = state.begun + accepted
        expected = state.text.gather(1, reached.clamp(0, state.text.shape[1] - 1)[:, None])[:, 0]
        goes_on = (state.begun != LOST) & (reached < state.lengths) & (view.newest == expected)
        state.place.copy_(torch.where(goes_on, reached + 1, LOST))
        # A place at which nothing stood was no better than the one that was expected.
        sound = goes_on | (accepted > 0)
        state.expected.copy_(torch.where(sound, reached, state.expected + accepted) + 1)


def following(text: Tensor, lengths: Tensor, place: Tensor, block: int) -> Proposal:
    """The `block` tokens of the text from each row's place [rows], EOS the last of them; none where that is LOST."""
    columns = place[:, None] + torch.arange(block, device=text.device)
    ids = text.gather(1, columns.clamp(0, text.shape[1] - 1))
    count = torch.where(place == LOST, 0, (lengths - place).clamp(0, block))
    return Proposal(ids, count)


def find_place(
    text: Tensor, lengths: Tensor, tokens: Tensor, committed: Tensor, suffix: int, expected: Tensor | None = None
) -> Tensor:
    """[rows] the position in the text after the best match of the output's end: the one place there is, or LOST; with
    `expected` [rows] the nearest to that, or that.

    text [rows, longest text]; tokens [rows, longest output], of which `committed` [rows] count. At every position of
    the text we measure how many tokens up to it equal the output's last ones, up to `suffix` of them.
    """
    longest = text.shape[1]
    ends = committed[:, None] - 1 - torch.arange(suffix, device=text.device)  # newest first
    tail = tokens.gather(1, ends.clamp(min=0))
    tail = torch.where(ends >= 0, tail, NOTHING - 1)  # [rows, suffix]
    before = torch.full((text.shape[0], suffix - 1), NOTHING, dtype=text.dtype, device=text.device)
    # windows[r, j] are the tokens up to position j, newest first: [rows, longest text, suffix]
    windows = torch.cat([before, text], dim=1).unfold(1, suffix, 1).flip(-1)
    matched = (windows == tail[:, None]).cumprod(dim=2).sum(dim=2)
    positions = torch.arange(longest, device=text.device)
    matched = torch.where(positions < lengths[:, None], matched, 0)
    best, where = matched.max(dim=1)
    if expected is None:
        unique = (matched == best[:, None]).sum(dim=1) == 1
        return torch.where(unique & (best > 0), where + 1, LOST)
    away = (positions + 1 - expected[:, None]).abs()
    far = torch.where(matched == best[:, None], away, torch.iinfo(torch.int64).max)
    return torch.where(best > 0, far.argmin(dim=1) + 1, expected)  # of two that are equally near, the earlier
