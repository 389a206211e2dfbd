"""What exactness is measured against: greedy search by another decoder's own steps, and whether rows are independent.

Exact acceptance promises the ids of greedy search at the same step shape. The twin keeps a verifying decoder's table,
its width and its model calls, and takes its drafter away: every iteration commits the verifier's own token, the first
slot of the step, and all other slots hold padding. Whatever differs between the two is then the fault of the loop, or
of kernels in which a slot's result depends on its place.

That is asked by itself, of one verifying step, bit for bit, at one fixed shape: a row's logits may not change with its
place in the batch, nor with what stands in other rows, nor with its slots' places in the step (a draft is verified
behind other tokens, greedy's own token first). Encoding is asked along: sentences are admitted anew each time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import PAD, RESERVED, START, Decoder, Limits, OptionError, Session, Source
from longstride.verification.acceptance import FORBIDDEN
from longstride.verification.drafting import DrafterGraph, NoDraft, Proposal, View
from longstride.verification.ngrams import within
from longstride.verification.session import DecodePlan, VerificationSession
from longstride.verification.step import Acceptance

ROWS = 32
"""Sentences whose margins are read at once: logits of whole outputs are large."""


class PaddingDrafter(NoDraft):
    """Room for a draft, and nothing in it."""

    def __init__(self, block: int, trees: bool = False) -> None:
        self.block, self.trees = block, trees
        self.graph = DrafterGraph((), {}, {}, lambda state: {}, lambda parts: None, settings=("idle", trees))

    @property
    def key(self) -> Hashable:
        """Those of one block are alike."""
        return ("idle", self.block, self.trees)

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """All padding, of which nothing is meant."""
        ids = ops.full([view.length.shape[0], block], PAD, view.length)
        return Proposal(ids, torch.zeros_like(view.length), torch.zeros_like(ids) if self.trees else None)


class SameShapeGreedy(Decoder):
    """Greedy search at the step shape of a decoder that verifies drafts exactly."""

    name = "greedy by the same steps"

    def __init__(self, decoder: Decoder) -> None:
        self._decoder, self.special, self.obeys = decoder, decoder.special, decoder.obeys

    @property
    def signature(self) -> str:
        """``greedy by the steps of blockwise|k:8|...``"""
        return f"greedy by the steps of {self._decoder.signature}"

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """The decoder's own table, without its drafter."""
        return self._plan(capacity, limits, longest_source).start(capacity, longest_source)

    def start_refilled(self, capacity: int, limits: Limits, longest_source: int, arriving: bool = False) -> Session:
        """The same with the decoder's own queue, where it has one."""
        return self._plan(capacity, limits, longest_source).start(capacity, longest_source, refilled=True)

    def _plan(self, capacity: int, limits: Limits, longest_source: int) -> DecodePlan:
        session = verifying(self._decoder, capacity, limits, longest_source)
        session.close()
        drafter = session.plan.drafter
        return session.plan.drafted_by(PaddingDrafter(drafter.block, drafter.trees))


def verifying(decoder: Decoder, capacity: int, limits: Limits, longest_source: int) -> VerificationSession:
    """A session of a decoder that promises greedy's output at one step shape; any other decoder is refused."""
    session = decoder.start(capacity, limits, longest_source)
    if not isinstance(session, VerificationSession):
        raise OptionError(f"Exactness expects a decoder that verifies drafts, found {decoder.name}.")
    options = getattr(decoder, "options", None)
    follows_rows = getattr(options, "adaptive", False) or getattr(options, "lengths", None) is not None
    if session.plan.acceptance != Acceptance() or follows_rows:
        raise OptionError(
            "Exactness expects accept=exact, min_block=1, temperature=0 and adaptive=false, found "
            f"{decoder.signature}: no other setting promises greedy's output."
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
    table, batch = session.table, session.table.batch
    device = table.runner.device
    width = max(len(prefix) for prefix in prefixes) + 1
    # A table may have more rows than were asked for; the last ones then read nothing.
    idle: list[list[int]] = [[]] * (len(table.ticket) - len(prefixes))
    special = session.plan.model.special
    padded = [[special.start, *prefix, *[special.pad] * (width - 1 - len(prefix))] for prefix in (*prefixes, *idle)]
    at = torch.tensor([len(prefix) for prefix in prefixes], device=device)
    start = torch.zeros(len(padded), dtype=torch.int64, device=device)
    logits, _ = table.runner.call(table.verify, torch.tensor(padded, device=device), start, batch.cache, batch.memory)
    last = logits[torch.arange(source.rows, device=device), at].double()
    allowed = last
    if limits.watches_repeats:
        inputs = torch.tensor(padded[: source.rows], device=device)[:, None]
        allowed = within(limits, last[:, None], inputs, at[:, None] + 1)[:, 0]
    allowed = allowed.index_fill(-1, batch.forbidden, FORBIDDEN)
    if limits.min_length:
        early = (at < limits.min_length)[:, None] & (torch.arange(last.shape[1], device=device) == special.eos)
        allowed = allowed.masked_fill(early, FORBIDDEN)
    best = allowed.topk(2, dim=-1).values
    certain = (at >= batch.longest[: source.rows]) | (best[:, 0] == FORBIDDEN)  # where nothing may stand, EOS follows
    if limits.forced_first is not None:
        certain = certain | (at == 0)
    if limits.forced_last is not None:
        certain = certain | (at == batch.longest[: source.rows] - 1)
    margin = torch.where(certain, float("inf"), best[:, 0] - best[:, 1])
    return [float(value) for value in margin.tolist()]


# --- does a row depend on anything but itself? -----------------------------------------------------------------------


@dataclass(frozen=True)
class BatchInvarianceReport:
    """Whether a row's bits depend on anything but itself, at one fixed shape of a verifying step.

    Each count is over the rows (or slots) that were looked at; 0 is what exactness rests on.
    """

    rows: int
    """of the table"""
    width: int
    """slots per row and step"""
    moved: int
    """rows whose logits changed when they stood elsewhere in the table"""
    neighbours: int
    """rows whose logits changed when half of the other rows held other sentences"""
    slots: int
    """slots, of rows * width, whose logits changed when they were first in their step instead of behind others"""
    largest: float
    """the largest change of a logit in all of these"""


@torch.inference_mode()
def probe_batch_invariance(decoder: Decoder, source: Source, limits: Limits) -> BatchInvarianceReport:
    """Verify random blocks after these sentences, in several arrangements of the same shape."""
    rows = source.rows
    width, vocabulary = _shape(decoder, source, limits)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(len(RESERVED), vocabulary, (2, rows, width), generator=generator)
    ids[:, :, 0] = START
    mine, others = ids
    straight = _logits(decoder, source, mine, limits)  # [rows, width, vocabulary]
    largest = 0.0

    order = torch.randperm(rows, generator=generator)
    moved, change = _changed(straight[order], _logits(decoder, _taken(source, order), mine[order], limits))
    largest = max(largest, change)

    neighbours = 0
    for parity in (0, 1):
        kept = torch.arange(rows) % 2 == parity
        if not kept.any() or kept.all():
            continue
        # The other half changes places among itself, and reads other tokens too.
        place = torch.arange(rows)
        place[~kept] = place[~kept].roll(1)
        mixed = _logits(decoder, _taken(source, place), torch.where(kept[:, None], mine, others), limits)
        differing, change = _changed(straight[kept], mixed[kept])
        neighbours, largest = neighbours + differing, max(largest, change)

    slots, change = _one_by_one(decoder, source, mine, others, straight, limits)
    return BatchInvarianceReport(rows, width, moved, neighbours, slots, max(largest, change))


def _shape(decoder: Decoder, source: Source, limits: Limits) -> tuple[int, int]:
    """Slots per step, and how many ids there are."""
    session = verifying(decoder, source.rows, limits, source.longest)
    width = session.table.drafter.block + 1
    probe = _step(session, torch.full((source.rows, width), START), torch.zeros(source.rows, dtype=torch.int64))
    return width, probe.shape[-1]


def _logits(decoder: Decoder, source: Source, ids: Tensor, limits: Limits) -> Tensor:
    """[rows, width, vocabulary] of one step at the front of a new table, on the device."""
    session = verifying(decoder, source.rows, limits, source.longest)
    session.admit(source)
    return _step(session, ids, torch.zeros(source.rows, dtype=torch.int64))


def _one_by_one(
    decoder: Decoder, source: Source, ids: Tensor, others: Tensor, straight: Tensor, limits: Limits
) -> tuple[int, float]:
    """The same tokens again, each first in a step of its own, with others behind it."""
    session = verifying(decoder, source.rows, limits, source.longest)
    session.admit(source)
    differing, largest = 0, 0.0
    for slot in range(ids.shape[1]):
        step = others.clone()
        step[:, 0] = ids[:, slot]
        logits = _step(session, step, torch.full((source.rows,), slot))
        changed, change = _changed(straight[:, slot], logits[:, 0])
        differing, largest = differing + changed, max(largest, change)
    return differing, largest


def _step(session: VerificationSession, ids: Tensor, start: Tensor) -> Tensor:
    table = session.table
    device = table.runner.device
    logits: Tensor
    logits, _ = table.runner.call(table.verify, ids.to(device), start.to(device), table.batch.cache, table.batch.memory)
    return logits.clone()  # a runner may give the same buffer to the next call


def _taken(source: Source, order: Tensor) -> Source:
    return Source(source.ids[order], source.lengths[order])


def _changed(before: Tensor, after: Tensor) -> tuple[int, float]:
    """How many rows differ in any bit, and the largest difference."""
    rows = (before != after).flatten(1).any(dim=1).nonzero()[:, 0].tolist()
    # Row by row: all at once, differences of so many logits would take gigabytes.
    changes = (float((before[row].double() - after[row].double()).abs().max()) for row in rows)
    return len(rows), max(changes, default=0.0)
