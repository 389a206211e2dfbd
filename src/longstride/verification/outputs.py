"""The outputs of a table of rows that are written from left to right, each at its own pace. Tensors never move."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import START, Finished, Hypothesis
from longstride.contract.slots import Slots
from longstride.verification.mirror import Mirror

SMALL = 16384
"""Bytes of ids that travel to the host with every look: it takes no longer than a few numbers do."""


class Outputs:
    """What each row has committed so far, on the device, and what the host has seen of it."""

    def __init__(self, rows: int, columns: int, device: torch.device, newest: Tensor | None = None) -> None:
        """`newest` [rows] is where to keep the last ids, if not in a tensor of its own."""
        number, real = (torch.int64, (rows,)), (torch.float64, (rows,))
        # Rows that are done are appended to as well, behind their end: a full one needs a column more.
        ids = (torch.int64, (rows, columns + 1))
        every = {"length": number, "drafted": number, "accepted": number, "likelihood": real}
        every["done"] = (torch.bool, (rows,))
        self._small = rows * (columns + 1) * 8 <= SMALL
        self._mirror = Mirror({**every, "tokens": ids} if self._small else every, device)
        here = self._mirror.here
        self._seen = {name: tensor.numpy() for name, tensor in self._mirror.seen.items()}  # faster for single numbers
        self.whole = here["tokens"] if self._small else torch.zeros(ids[1], dtype=torch.int64, device=device)
        """[rows, columns + 1] the ids with that column"""
        self.tokens = self.whole[:, :columns]
        """[rows, columns] committed ids, EOS included; beyond a row's length, left-overs"""
        self.length = here["length"]
        """[rows]"""
        self.newest = torch.empty(rows, dtype=torch.int64, device=device) if newest is None else newest
        self.newest.fill_(START)
        """[rows] the last committed id, START where there is none; for who calls :meth:`close`"""
        self.done = here["done"].fill_(True)
        """[rows] ended, or never begun"""
        self.log_probability = here["likelihood"]
        """[rows] of all committed tokens"""
        self.drafted = here["drafted"]
        """[rows] tokens that were proposed in the last iteration, and"""
        self.accepted = here["accepted"]
        """[rows] how many of them stood; for who says so"""
        self.start = torch.zeros(rows, dtype=torch.int64, device=device)
        """[rows] where the next iteration begins: a row's length, 0 where it is done; for who keeps it up"""
        self.steps = torch.arange(columns + 1, device=device)
        """[columns + 1] 0, 1, 2, ..., for who would make them anew in every iteration"""

    @property
    def buffers(self) -> list[Tensor]:
        """All that changes."""
        return [*([] if self._small else [self.whole]), self._mirror.whole, self.newest, self.start]

    def open(self, rows: Tensor) -> None:
        """Begin anew in these rows."""
        if len(self.length) == 1:  # all that is kept side by side, at once
            self._open_all()
            return
        self.whole.index_fill_(0, rows, 0)
        self.length.index_fill_(0, rows, 0)
        self.newest.index_fill_(0, rows, START)
        self.done.index_fill_(0, rows, False)
        self.log_probability.index_fill_(0, rows, 0.0)
        self.start.index_fill_(0, rows, 0)

    def _open_all(self) -> None:
        if not self._small:
            self.whole.fill_(0)
        self._mirror.whole.fill_(0)
        self.start.fill_(0)
        self.newest.fill_(START)

    def write(self, positions: Tensor, ids: Tensor, written: Tensor, log_probability: Tensor) -> None:
        """Commit, per row, the columns that are `written`: a run of ids [rows, step] from the row's length on."""
        kept = self.tokens.gather(1, positions)
        self.tokens.scatter_(1, positions, torch.where(written, ids, kept))
        self.length += written.sum(dim=1)
        # Not a product: what is not written may be -inf.
        self.log_probability += torch.where(written, log_probability, 0).sum(dim=1)

    def append(self, ids: Tensor, count: Tensor, written: Tensor, log_probability: Tensor) -> None:
        """Commit, per row, the first `count` [rows] of ids [rows, step]; `written` [rows, step] is True on these.

        The rest of them is written too, beyond the row's new length, where nobody looks: that takes no choosing.
        """
        places = self.length[:, None] + self.steps[: ids.shape[1]]
        self.whole.scatter_(1, places, ids)
        self.length += count
        self.log_probability += torch.where(written, log_probability, 0).sum(dim=1, dtype=torch.float64)

    def close(self, newest: Tensor, ended: Tensor) -> None:
        """After :meth:`append`: the last id of each row [rows], and whether it ends the row. Done rows stay done."""
        self.newest.copy_(newest)
        self.done |= ended

    # --- what the host sees ------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Have the host see how things stand when all that was asked for so far has been done."""
        self._mirror.send()

    def wait(self) -> None:
        """Until the host sees it."""
        self._mirror.wait()

    @property
    def stood(self) -> list[int]:
        """Per row, as the host has seen it: how many drafted tokens stood."""
        stood: list[int] = self._seen["accepted"].tolist()
        return stood

    def finished(self, slots: Slots) -> list[Finished]:
        """The outputs of the rows that the host has seen done, whose slots become free."""
        seen = self._seen
        done = seen["done"].tolist()
        rows = slots.ready(done) if True in done else []
        if not rows:
            return []
        tokens = seen["tokens"] if self._small else self.whole.cpu().numpy()
        taken = []
        for row in rows:
            score = float(seen["likelihood"][row])
            ids = tokens[row, : int(seen["length"][row]) - 1].tolist()
            taken.append(Finished(slots.release(row), [Hypothesis(ids, score, score)]))
        return taken

    def take_finished(self, slots: Slots) -> list[Finished]:
        """Look, and take what is done."""
        self.send()
        self.wait()
        return self.finished(slots)
