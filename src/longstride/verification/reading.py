"""From logits to what rules may look at, with the limits on outputs applied: one place for all that verify."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import EOS, NEVER_GENERATED, Limits
from longstride.verification.acceptance import FORBIDDEN, Reading


def forbidden_ids(limits: Limits, device: torch.device) -> Tensor:
    """[n] ids that may never be chosen; the same tensor each time, so that nobody may write it."""
    return _forbidden(tuple(sorted({*NEVER_GENERATED, *limits.banned})), device)


@cache
def _forbidden(ids: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(ids, dtype=torch.int64, device=device)


def read(
    logits: Tensor,
    positions: Tensor,
    longest: Tensor,
    forbidden: Tensor,
    min_length: int,
    draft: Tensor | None = None,
    ranked: bool = False,
) -> Reading:
    """The verifier's choice per slot, and what rules ask of drafted tokens.

    logits [rows, step, vocabulary]; positions [rows, step] the output position each slot predicts; longest [rows]. At
    position `longest` only EOS may stand, before `min_length` it may not. With `draft` [rows, step - 1] the drafted
    tokens are read too, and `ranked` among all that may stand.
    """
    must_end = positions >= longest[:, None]
    early = positions < min_length
    top = ops.best(logits, forbidden)
    if min_length:
        without_end = torch.cat([forbidden, ops.full([1], EOS, forbidden)])
        top = torch.where(early, ops.best(logits, without_end), top)
    top = torch.where(must_end, EOS, top)
    if draft is None:
        return Reading(top)
    block = draft.shape[1]
    logits, must_end, early = logits[:, :block], must_end[:, :block], early[:, :block]
    of_draft, of_top = (logits.gather(-1, ids[..., None]) for ids in (draft, top[:, :block]))
    stands = ((draft[..., None] == forbidden).sum(dim=-1) == 0) & ((draft == EOS) | ~must_end)
    if min_length:
        stands = stands & ((draft != EOS) | ~early)
    rank = None
    if ranked:
        rank = (logits > of_draft).sum(dim=-1) - (logits[..., forbidden] > of_draft).sum(dim=-1)
        if min_length:
            rank = rank - (early & (logits[..., EOS : EOS + 1] > of_draft)[..., 0]).long()
        rank = torch.where(must_end, 0, rank)
    of_draft, of_top = (_wide(one)[..., 0] for one in (of_draft, of_top))
    return Reading(top, of_top, None, torch.where(stands, of_draft, FORBIDDEN), rank)


def scored(reading: Reading, logits: Tensor) -> Reading:
    """The same with how likely the verifier's choices are, in logits and what to subtract from them."""
    wide = _wide(logits)
    return replace(reading, top_logit=wide.gather(-1, reading.top[..., None])[..., 0], normaliser=wide.logsumexp(-1))


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
