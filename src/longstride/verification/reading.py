"""From logits to what rules may look at, with the limits on outputs applied: one place for all that verify."""

from __future__ import annotations

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
    normalised: bool = True,
) -> Reading:
    """The verifier's choice per slot, and what makes log-probabilities under the whole vocabulary of logits.

    logits [rows, step, vocabulary]; positions [rows, step] the output position each slot predicts; longest [rows]. At
    position `longest` only EOS may stand, before `min_length` it may not. With `draft` [rows, step - 1] the drafted
    tokens are read too, and `ranked` among all that may stand. Without `normalised`, normalising is left to
    :func:`normalise`, or to nobody: sums over the vocabulary are what costs here.
    """
    if draft is None and not min_length and not normalised:
        must_end = positions >= longest[:, None]
        top = torch.where(must_end, EOS, ops.best(logits, forbidden))
        return Reading(top, logits.gather(-1, top[..., None])[..., 0])
    wide = logits if logits.dtype == torch.float64 else logits.float()
    # A softmax is one kernel where a sum of exponentials is several.
    scores = wide.log_softmax(dim=-1) if normalised else None
    may_write = wide is not logits
    allowed = wide.index_fill_(-1, forbidden, FORBIDDEN) if may_write else wide.index_fill(-1, forbidden, FORBIDDEN)
    possible = allowed
    if min_length:
        early = (positions < min_length)[..., None] & (torch.arange(wide.shape[-1], device=wide.device) == EOS)
        possible = allowed.masked_fill(early, FORBIDDEN)
    must_end = positions >= longest[:, None]
    top = torch.where(must_end, EOS, possible.argmax(dim=-1))
    top_logit = allowed.gather(-1, top[..., None])[..., 0]
    normaliser = None if scores is None else top_logit - scores.gather(-1, top[..., None])[..., 0]
    if draft is None:
        return Reading(top, top_logit, normaliser)

    block = draft.shape[1]
    must_end, possible = must_end[:, :block], possible[:, :block]
    of_draft = possible.gather(-1, draft[..., None])
    rank = None
    if ranked:
        # In place, as nobody looks at them again, and not as booleans, whose sums take a processor four times as long.
        rank = torch.where(must_end, 0, possible.gt_(of_draft).sum(dim=-1).long())
    of_draft = torch.where(must_end & (draft != EOS), FORBIDDEN, of_draft[..., 0])
    return Reading(top, top_logit, normaliser, of_draft, rank)


def normalise(values: Tensor, logits: Tensor, columns: int) -> Tensor:
    """[rows, step] log-probabilities of the first columns, from values that were read without being normalised."""
    wide = logits[:, :columns] if logits.dtype == torch.float64 else logits[:, :columns].float()
    return torch.cat([values[:, :columns] - wide.logsumexp(dim=-1), values[:, columns:]], dim=1)
