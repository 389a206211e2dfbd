"""From logits to what rules may look at, with the limits on outputs applied: one place for all that verify."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from longstride.contract import EOS, NEVER_GENERATED, Limits
from longstride.verification.acceptance import EXACT, FORBIDDEN, Reading, Rule


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
    rule: Rule = EXACT,
    draft: Tensor | None = None,
    normalised: bool = True,
) -> Reading:
    """The verifier's choice per slot and its log-probability under the whole vocabulary.

    logits [rows, step, vocabulary]; positions [rows, step] the output position each slot predicts; longest [rows]. At
    position `longest` only EOS may stand, before `min_length` it may not. With `draft` [rows, step - 1] the drafted
    tokens are read too, and for a rule that asks for it the β-th best. Without `normalised`, which a draft needs,
    log-probabilities are left to :func:`normalise`, or to nobody: sums over the vocabulary are what costs here.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    normalised = normalised or draft is not None
    # A softmax is one kernel where a sum of exponentials is several.
    scores = wide.log_softmax(dim=-1) if normalised else wide
    may_write = wide is not logits
    allowed = wide.index_fill_(-1, forbidden, FORBIDDEN) if may_write else wide.index_fill(-1, forbidden, FORBIDDEN)
    early = None
    if min_length:
        early = (positions < min_length)[..., None] & (torch.arange(wide.shape[-1], device=wide.device) == EOS)
        allowed = allowed.masked_fill(early, FORBIDDEN)
    top = allowed.argmax(dim=-1)
    must_end = positions >= longest[:, None]
    top = torch.where(must_end, EOS, top)
    value = scores.gather(-1, top[..., None])[..., 0]
    if draft is None:
        return Reading(top, value)

    block = draft.shape[1]
    end, must_end = scores[:, :block, EOS].clone(), must_end[:, :block]
    possible = scores[:, :block].index_fill_(-1, forbidden, FORBIDDEN)
    if early is not None:
        possible = possible.masked_fill(early[:, :block], FORBIDDEN)
    at_end = torch.where(draft == EOS, end, FORBIDDEN)
    of_draft = torch.where(must_end, at_end, possible.gather(-1, draft[..., None])[..., 0])
    beta = None
    if rule.kind == "top":
        best = possible.topk(min(rule.beta, wide.shape[-1]), dim=-1).values[..., -1]
        beta = torch.where(must_end, end, best)
    return Reading(top, value, beta, of_draft)


def normalise(values: Tensor, logits: Tensor, columns: int) -> Tensor:
    """[rows, step] log-probabilities of the first columns, from values that were read without being normalised."""
    wide = logits[:, :columns] if logits.dtype == torch.float64 else logits[:, :columns].float()
    return torch.cat([values[:, :columns] - wide.logsumexp(dim=-1), values[:, columns:]], dim=1)
