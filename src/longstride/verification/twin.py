"""Greedy search by another decoder's own steps: what exactness is measured against.

Exact acceptance promises the ids of greedy search at the same step shape. The twin keeps a verifying decoder's table,
its width and its model calls, and takes its drafter away: every iteration commits the verifier's own token, the first
slot of the step, and all other slots hold padding. Whatever differs between the two is then the fault of the loop, or
of kernels in which a slot's result depends on its place (:mod:`longstride.verification.places` asks that alone).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, START, Decoder, Limits, OptionError, Session, Source
from longstride.nn.cache import EncoderState
from longstride.verification.acceptance import FORBIDDEN
from longstride.verification.drafting import Drafter, Proposal, View
from longstride.verification.session import STRICT, VerificationSession

ROWS = 32
"""Sentences whose margins are read at once: logits of whole outputs are large."""


class Idle(Drafter):
    """Room for a draft, and nothing in it."""

    observes = False

    def __init__(self, block: int) -> None:
        self.block = block

    @property
    def key(self) -> Hashable:
        """Those of one block are alike."""
        return ("idle", self.block)

    def buffers(self, state: Any) -> list[Tensor] | None:
        """None of them changes."""
        return []

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> Proposal:
        """The one proposal there is: all padding."""
        ids = torch.full((rows, self.block), PAD, dtype=torch.int64, device=device)
        return Proposal(ids, torch.zeros(rows, dtype=torch.int64, device=device))

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState) -> None:
        """Nothing to remember."""

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """Nothing."""
        assert isinstance(state, Proposal)
        return state

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        """Nothing to learn."""


class SameSteps(Decoder):
    """Greedy search at the step shape of a decoder that verifies drafts exactly."""

    name = "greedy by the same steps"

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    @property
    def signature(self) -> str:
        """``greedy by the steps of blockwise|k:8|...``"""
        return f"greedy by the steps of {self._decoder.signature}"

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """The decoder's own table, without its drafter."""
        session = verifying(self._decoder, capacity, limits, longest_source)
        twin = session.drafted_by(Idle(session.table.drafter.block))
        session.close()
        return twin


def verifying(decoder: Decoder, capacity: int, limits: Limits, longest_source: int) -> VerificationSession:
    """A session of a decoder that promises greedy's output at one step shape; any other decoder is refused."""
    session = decoder.start(capacity, limits, longest_source)
    if not isinstance(session, VerificationSession):
        raise OptionError(f"Exactness expects a decoder that verifies drafts, found {decoder.name}.")
    if session.policy != STRICT:
        raise OptionError(
            f"Exactness expects accept=exact, min_block=1 and adaptive=false, found {decoder.signature}: "
            "no other setting promises greedy's output."
        )
    return session


@torch.inference_mode()
def margins(decoder: Decoder, source: Source, prefixes: Sequence[Sequence[int]], limits: Limits) -> list[float]:
    """Per row, by how much the verifier's best log-probability after a prefix exceeds its second best.

    Only tokens that may stand there count; where EOS alone may, the margin is infinite. Prefixes are read in one pass,
    a third shape beside the two that are compared: the margin is right up to the rounding that made them differ.
    """
    found: list[float] = []
    for first in range(0, source.rows, ROWS):
        part = source.slice(first, first + ROWS)
        found += _margins(decoder, part, [list(prefix) for prefix in prefixes[first : first + ROWS]], limits)
    return found


def _margins(decoder: Decoder, source: Source, prefixes: list[list[int]], limits: Limits) -> list[float]:
    session = verifying(decoder, source.rows, limits, source.longest)
    session.admit(source)
    table = session.table
    device = table.runner.device
    width = max(len(prefix) for prefix in prefixes) + 1
    # A table may have more rows than were asked for; the last ones then read nothing.
    idle: list[list[int]] = [[]] * (len(table.longest) - len(prefixes))
    padded = [[START, *prefix, *[PAD] * (width - 1 - len(prefix))] for prefix in (*prefixes, *idle)]
    at = torch.tensor([len(prefix) for prefix in prefixes], device=device)
    start = torch.zeros(len(padded), dtype=torch.int64, device=device)
    logits, _ = table.runner.call(table.verify, torch.tensor(padded, device=device), start, table.cache, table.memory)
    last = logits[torch.arange(source.rows, device=device), at].double()
    allowed = last.index_fill(-1, table.forbidden, FORBIDDEN)
    if limits.min_length:
        early = (at < limits.min_length)[:, None] & (torch.arange(last.shape[1], device=device) == EOS)
        allowed = allowed.masked_fill(early, FORBIDDEN)
    best = allowed.topk(2, dim=-1).values
    margin = torch.where(at >= table.longest[: source.rows], float("inf"), best[:, 0] - best[:, 1])
    return [float(value) for value in margin.tolist()]
