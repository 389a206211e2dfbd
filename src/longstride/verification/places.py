"""Does a row's result depend on anything but the row? Asked of one verifying step, bit for bit, at one fixed shape.

Exactness rests on three answers: a row's logits may not change with its place in the table, nor with what stands in
other rows, nor with its slots' places in the step (a draft is verified behind other tokens, greedy's own token first).
Encoding is asked along: sentences are admitted anew each time, in the order that their places give.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import RESERVED, START, Decoder, Limits, Source
from longstride.verification.session import VerificationSession
from longstride.verification.twin import verifying


@dataclass(frozen=True)
class Places:
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
def probe_places(decoder: Decoder, source: Source, limits: Limits, seed: int = 0) -> Places:
    """Verify random blocks after these sentences, in several arrangements of the same shape."""
    rows = source.rows
    width, vocabulary = _shape(decoder, source, limits)
    generator = torch.Generator().manual_seed(seed)
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
    return Places(rows, width, moved, neighbours, slots, max(largest, change))


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
