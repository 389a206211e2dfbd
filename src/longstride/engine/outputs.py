"""The outputs of a table of rows that are written from left to right, each at its own pace, and their copy on the host.

Tensors never move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import START, Finished, Hypothesis
from longstride.engine.pool import Slots

SMALL = 16384
"""Bytes of ids that travel to the host with every look: it takes no longer than a few numbers do."""


@dataclass(frozen=True)
class Rows:
    """What is kept of every row, as tensors or as values of a graph."""

    tokens: Tensor
    """[rows, columns] committed ids, EOS included; beyond a row's length, left-overs"""
    length: Tensor
    """[rows] how many are committed"""
    newest: Tensor
    """[rows] the last committed id, START where there is none"""
    done: Tensor
    """[rows] bool: ended, or never begun"""
    log_probability: Tensor
    """[rows] float64, of all committed tokens"""
    drafted: Tensor
    """[rows] tokens that were proposed in the last iteration"""
    accepted: Tensor
    """[rows] how many of them stood"""
    start: Tensor | None = None
    """[rows] where the next iteration begins, a row's length or 0 where it is done; for kernels, which keep it up"""


class Outputs:
    """What each row has committed so far, on the device, and what the host has seen of it."""

    def __init__(
        self, rows: int, columns: int, device: torch.device, newest: Tensor | None = None, start: int = START
    ) -> None:
        """`newest` [rows] is where to keep the last ids, if not in a tensor of its own; kernels then keep `start`."""
        number, real = (torch.int64, (rows,)), (torch.float64, (rows,))
        ids = (torch.int64, (rows, columns))
        every = {"length": number, "drafted": number, "accepted": number, "likelihood": real}
        every["done"] = (torch.bool, (rows,))
        self._small = rows * columns * 8 <= SMALL
        self._copy = HostCopy({**every, "tokens": ids} if self._small else every, device)
        here = self._copy.here
        self._seen = {name: tensor.numpy() for name, tensor in self._copy.seen.items()}  # faster for single numbers
        fused = newest is not None
        self.rows = Rows(
            here["tokens"] if self._small else torch.zeros(ids[1], dtype=torch.int64, device=device),
            here["length"],
            torch.empty(rows, dtype=torch.int64, device=device) if newest is None else newest,
            here["done"],
            here["likelihood"],
            here["drafted"],
            here["accepted"],
            torch.zeros(rows, dtype=torch.int64, device=device) if fused else None,
        )
        self.rows.newest.fill_(start)
        self._start = start
        self.rows.done.fill_(True)

    @property
    def tokens(self) -> Tensor:
        """[rows, columns]"""
        return self.rows.tokens

    @property
    def length(self) -> Tensor:
        """[rows]"""
        return self.rows.length

    @property
    def done(self) -> Tensor:
        """[rows]"""
        return self.rows.done

    @property
    def buffers(self) -> list[Tensor]:
        """All that changes."""
        rows = self.rows
        whole = [] if self._small else [rows.tokens]
        return [*whole, self._copy.whole, rows.newest, *([] if rows.start is None else [rows.start])]

    def open(self, places: Tensor) -> None:
        """Begin anew in these rows."""
        rows = self.rows
        if len(rows.length) == 1:  # all that is kept side by side, at once
            if not self._small:
                rows.tokens.fill_(0)
            self._copy.whole.fill_(0)
            rows.newest.fill_(self._start)
        else:
            for tensor in (rows.tokens, rows.length, rows.done, rows.log_probability):
                tensor.index_fill_(0, places, 0)
            rows.newest.index_fill_(0, places, self._start)
        if rows.start is not None:
            rows.start.index_fill_(0, places, 0)

    @torch.inference_mode()
    def drop(self, row: int | slice) -> None:
        """The sentence there is given up, or all of them are."""
        self.rows.done[row] = True
        if self.rows.start is not None:
            self.rows.start[row] = 0

    def lengths(self, rows: Sequence[int]) -> list[int]:
        """Of these rows, as the host last saw them."""
        return [int(self._seen["length"][row]) for row in rows]

    def write(self, positions: Tensor, ids: Tensor, written: Tensor, log_probability: Tensor) -> None:
        """Commit, per row, the columns that are `written`: a run of ids [rows, step] from the row's length on."""
        rows = self.rows
        kept = rows.tokens.gather(1, positions)
        rows.tokens.scatter_(1, positions, torch.where(written, ids, kept))
        rows.length.add_(written.sum(dim=1))
        # Not a product: what is not written may be -inf.
        rows.log_probability.add_(torch.where(written, log_probability, 0).sum(dim=1))

    # --- what the host sees ------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Have the host see how things stand when all that was asked for so far has been done."""
        self._copy.send()

    def wait(self) -> None:
        """Until the host sees it."""
        self._copy.wait()

    def most_accepted(self) -> int:
        """Of the last iteration, on a host that sees at once."""
        most: int = max(self._seen["accepted"].tolist())  # numpy's own takes longer for so few
        return most

    def finished(self, slots: Slots) -> list[Finished]:
        """The outputs of the rows that the host has seen done, whose slots become free."""
        seen = self._seen
        done = seen["done"].tolist()
        rows = slots.ready(done) if True in done else []
        if not rows:
            return []
        tokens = seen["tokens"] if self._small else self.rows.tokens.cpu().numpy()
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


# --- tensors side by side in one piece of memory, and the same once more on the host ---------------------------------


ALIGNMENT = 8
"""Bytes that the largest of the numbers has: tensors begin at multiples of it."""

Shapes = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


class HostCopy:
    """Tensors by name, on the device and, as they were when they were last sent, on the host."""

    def __init__(self, shapes: Shapes, device: torch.device) -> None:
        ends = [0]
        for dtype, shape in shapes.values():
            ends.append(ends[-1] + -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT)
        # Ordinary tensors: these may be written within inference mode and without it.
        with torch.inference_mode(False):
            self.whole = torch.zeros(ends[-1], dtype=torch.uint8, device=device)
            """the piece of memory, for who has to name all that changes"""
            on_cuda = device.type == "cuda"
            copied = torch.zeros(ends[-1], dtype=torch.uint8, pin_memory=True) if on_cuda else None
            self.here = _views(self.whole, shapes, ends)
            """on the device"""
            self.seen = self.here if copied is None else _views(copied, shapes, ends)
            """on the host"""
        self._copied = copied
        self._sent = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]
        self._device = device

    def send(self) -> None:
        """Have the host see what is here now, or will be when all that was asked for has been done."""
        if self._copied is not None:
            self._copied.copy_(self.whole, non_blocking=True)
        if self._sent is not None:
            self._sent.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        """Until what was sent has arrived."""
        if self._sent is not None:
            self._sent.synchronize()


def _views(whole: Tensor, shapes: Shapes, ends: list[int]) -> dict[str, Tensor]:
    found = {}
    for first, (name, (dtype, shape)) in zip(ends, shapes.items(), strict=False):
        found[name] = whole[first : first + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
    return found
