"""What lies between two model calls in two kernels of our own, on a CUDA device where Triton is installed.

A captured step of a base model is some 400 microseconds, of which tensor code over a few numbers a row took eighty:
forty kernels that do little but start. Here one kernel reads logits and one judges and commits. The tensor code is
their slow twin, and what runs everywhere else (:attr:`Runner.fuses`). Kernels are imported when they are first needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from longstride.contract import DEFAULT_IDS, EOS, Limits, SpecialIds
from longstride.engine.outputs import Rows
from longstride.verification.acceptance import LogitSummary, Rule, forbidden_ids
from longstride.verification.drafting import Proposal


@dataclass(frozen=True)
class Bounds:
    """What may be chosen, and how long rows may and must be."""

    permitted: Tensor
    """[vocabulary] uint8, 0 on ids that may never be chosen"""
    start: Tensor
    """[rows] the output position that the first slot predicts"""
    longest: Tensor
    """[rows]"""
    min_length: int
    eos: int = EOS
    depth: Tensor | None = None
    """[rows, step] how far behind the first slot's position each slot's lies, where they are no chain"""

    @property
    def limits(self) -> tuple[Tensor, Tensor, int, Tensor | None]:
        """As the kernel takes them."""
        return self.start, self.longest, self.min_length, self.depth


def permitted_ids(limits: Limits, vocabulary: int, device: torch.device, special: SpecialIds = DEFAULT_IDS) -> Tensor:
    """[vocabulary] uint8, 0 on ids that may never be chosen; the same tensor each time, so that nobody may write it."""
    return permitted(forbidden_ids(limits, device, special), vocabulary)


@cache
def permitted(forbidden: Tensor, vocabulary: int) -> Tensor:
    """The same for forbidden ids [n], as :func:`longstride.verification.acceptance.forbidden_ids` gives them."""
    found = torch.ones(vocabulary, dtype=torch.uint8, device=forbidden.device)
    return found.index_fill_(0, forbidden, 0)


def choose(logits: Tensor, among: Tensor, into: Tensor | None = None, count: Tensor | None = None) -> Tensor:
    """[rows, step] the best permitted id of every slot of logits [rows, step, vocabulary]

    `among` [vocabulary] as :func:`permitted` gives it; `count` [rows] is told how many there are.
    """
    from longstride.ops.cuda import acceptance as triton_kernels

    top: Tensor = triton_kernels.read(logits, among, None, None, False, False, EOS, into, count)[0]
    return top


def choose_within(logits: Tensor, bounds: Bounds, into: Tensor | None = None) -> Tensor:
    """The same under all limits."""
    from longstride.ops.cuda import acceptance as triton_kernels

    top: Tensor = triton_kernels.read(logits, bounds.permitted, bounds.limits, None, False, False, bounds.eos, into)[0]
    return top


def summarise_fused(logits: Tensor, bounds: Bounds, draft: Tensor | None = None, ranked: bool = False) -> LogitSummary:
    """What :func:`longstride.verification.acceptance.read` gives, normalised, in one kernel."""
    from longstride.ops.cuda import acceptance as triton_kernels

    found = triton_kernels.read(logits, bounds.permitted, bounds.limits, draft, ranked, True, bounds.eos)
    top, top_logit, normaliser, draft_logit, draft_rank = found
    assert top_logit is not None
    return LogitSummary(top, top_logit, normaliser, draft_logit, draft_rank)


def settle(
    rule: Rule,
    min_block: int,
    ids: Tensor,
    draft: Proposal,
    reading: LogitSummary,
    hidden: Tensor | None,
    rows: Rows,
    eos: int = EOS,
) -> tuple[tuple[Tensor, ...], Tensor | None, Tensor | None]:
    """Judge a draft and commit what comes of it, in one kernel; what happened, the path of a tree that stands, and the
    state of each newest token.

    ids [rows, step] are newest tokens and the draft; hidden [rows, step, width], or None where nobody wants a state.
    What happened: active [rows], positions, ids, written [rows, step] and the draft. The path [rows, step] names slots
    in order; beyond its end every slot stays where it is.
    """
    from longstride.ops.cuda import acceptance as triton_kernels

    assert reading.top_logit is not None
    assert reading.normaliser is not None
    assert rows.start is not None
    *done, path, told = triton_kernels.settle(
        (rule.kind, rule.top, rule.gap, rule.distance),
        min_block,
        ids,
        draft.count,
        draft.parents,
        (reading.top, reading.top_logit, reading.normaliser, reading.draft_logit, reading.draft_rank),
        hidden,
        rows.tokens,
        (rows.length, rows.newest, rows.done, rows.log_probability, rows.start, rows.drafted, rows.accepted),
        eos,
    )
    return tuple(done), path, told
