"""What a verdict does to a table's outputs, and what a step says of it: the end of an iteration, as tensor code."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.verification.acceptance import Verdict
from longstride.verification.outputs import Outputs


@dataclass(frozen=True)
class Iteration:
    """What one iteration did, in the terms of :class:`longstride.contract.Step`."""

    active: Tensor
    positions: Tensor
    ids: Tensor
    written: Tensor
    drafted: Tensor
    accepted: Tensor
    draft: Tensor


def settle(
    verdict: Verdict, active: Tensor, positions: Tensor, ids: Tensor, count: Tensor, outputs: Outputs
) -> Iteration:
    """Commit for the `active` [rows]; positions [rows, step]; ids [rows, step] are newest tokens and the draft,
    of which the first `count` [rows] were meant."""
    block = ids.shape[1] - 1
    committed = torch.where(active, verdict.committed, 0)
    written = outputs.steps[: block + 1] < committed[:, None]
    outputs.append(verdict.ids, committed, written, verdict.log_probability)
    outputs.close(verdict.newest, verdict.ended)
    accepted = torch.where(active, verdict.accepted, 0) if block else count
    drafted = torch.where(active, count, 0) if block else count
    return Iteration(active, positions, verdict.ids, written, drafted, accepted, ids[:, 1:])
