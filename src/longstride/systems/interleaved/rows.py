"""What greedy search has written: a table of rows, each from all ends of its sentence. Knows no model.

Words lie in the order of writing, slot after slot. All that a host asks for after a step lies side by side, so that one
copy brings it; tensors never move.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import EOS, START
from longstride.systems.interleaved import kernels
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.orders import after_all, anchors
from longstride.verification.acceptance import Reading
from longstride.verification.mirror import Mirror

SMALL = 16384
"""Bytes of words that travel to the host with every look: it takes no longer than a few numbers do."""


@dataclass(frozen=True)
class Committed:
    """What a step has done to every row."""

    active: Tensor
    """[rows] bool: it took part"""
    position: Tensor
    """[rows, step] numbers in the order of the sentence; anything where the row was idle"""
    written: Tensor
    """[rows, step] bool: up to and with the first EOS"""


class Rows:
    """`count` rows of sentences of at most `room` words."""

    def __init__(self, count: int, room: int, options: InterleavingOptions, device: torch.device) -> None:
        step = options.step
        self.columns = room + step  # the last step may begin where only EOS is left
        number, real = (torch.int64, (count,)), (torch.float64, (count,))
        # Rows that are done are written to as well, behind their end: full ones need a step more.
        ids = (torch.int64, (count, self.columns + step))
        every = {"length": number, "filled": number, "likelihood": real, "done": (torch.bool, (count,))}
        self._small = count * ids[1][1] * 8 <= SMALL
        self._mirror = Mirror({**every, "words": ids} if self._small else every, device)
        here = self._mirror.here
        self._whole = here["words"] if self._small else torch.zeros(ids[1], dtype=torch.int64, device=device)
        self.words = self._whole[:, : self.columns]
        """[rows, columns] in the order of writing; beyond what a row has filled, left-overs"""
        self.filled = here["filled"]
        """[rows] slots that are written, a whole number of steps"""
        self.length = here["length"]
        """[rows] words before EOS"""
        self.log_probability = here["likelihood"]
        """[rows] of all that counts"""
        self.done = here["done"].fill_(True)
        """[rows] ended, or never begun"""
        self.ids = torch.full((count, step), START, dtype=torch.int64, device=device)
        """[rows, step] what the next step reads"""
        self.start = torch.zeros(count, dtype=torch.int64, device=device)
        """[rows] where it begins: what is filled, 0 where a row is done; for those who use kernels of our own"""
        self._steps = torch.arange(step, device=device)
        slots = torch.arange(self.columns + step, device=device)
        self._anchors = anchors(slots, room, options.h, options.order)
        self._behind = after_all(room, options.h)

    @property
    def buffers(self) -> list[Tensor]:
        """All that changes."""
        return [*([] if self._small else [self._whole]), self._mirror.whole, self.ids, self.start]

    def open(self, rows: Tensor) -> None:
        """Begin anew in these rows [n]."""
        if len(self.length) == 1:  # all that is kept side by side, at once
            self._mirror.whole.fill_(0)
            self.ids.fill_(START)
            self.start.fill_(0)
            return
        for zeroed in (self.filled, self.length, self.log_probability, self.done, self.start):
            zeroed.index_fill_(0, rows, 0)
        self.ids.index_fill_(0, rows, START)

    @property
    def slots(self) -> Tensor:
        """[rows, step] those that the next step fills; beyond a row's end where it is done"""
        return self.filled[:, None] + self._steps

    def commit(self, found: Reading, slots: Tensor, count_dropped: bool) -> Committed:
        """Write what was chosen into `slots`. With `count_dropped`, what stands after EOS counts too."""
        active = self.done.logical_not()
        ends = found.top == EOS
        # Up to and with the first EOS in the order of writing: no column after one that ends.
        written = (ends.cumsum(dim=1) <= ends) & active[:, None]
        scored = active[:, None] if count_dropped else written
        # Not a product: what is not written may be -inf.
        self.log_probability += torch.where(scored, found.top_log_probability, 0).sum(dim=1, dtype=torch.float64)
        self._whole.scatter_(1, slots, found.top)
        self.ids.copy_(found.top)
        self.length += (written > ends).sum(dim=1)
        self.filled.add_(active, alpha=len(self._steps))
        self.done |= ends.any(dim=1)
        return Committed(active, torch.where(ends, self._behind, self._anchors[slots]), written)

    def commit_fused(self, found: Reading, count_dropped: bool) -> Committed:
        """The same in one kernel of our own; `start` is kept up."""
        assert found.top_logit is not None
        assert found.normaliser is not None
        reading = (found.top, found.top_logit, found.normaliser)
        state = (self.ids, self.filled, self.length, self.log_probability, self.done, self.start)
        return Committed(*kernels.commit(reading, self._anchors, self._whole, state, self._behind, count_dropped))

    # --- what the host sees ------------------------------------------------------------------------------------------

    def look(self) -> Seen:
        """How things stand when all that was asked for has been done."""
        self._mirror.send()
        self._mirror.wait()
        return Seen(self._mirror.seen, None if self._small else self._whole)


class Seen:
    """What the host sees of the rows."""

    def __init__(self, seen: dict[str, Tensor], apart: Tensor | None) -> None:
        self._seen, self._apart = seen, apart

    @property
    def done(self) -> list[bool]:
        """Per row, whether it is."""
        done: list[bool] = self._seen["done"].tolist()
        return done

    def of(self, row: int) -> tuple[list[int], int, float]:
        """Its words before EOS in the order of writing, the slots that are filled and its log-probability."""
        if self._apart is not None:
            self._seen, self._apart = {**self._seen, "words": self._apart.cpu()}, None
        length = int(self._seen["length"][row])
        words: list[int] = self._seen["words"][row, :length].tolist()
        return words, int(self._seen["filled"][row]), float(self._seen["likelihood"][row])
