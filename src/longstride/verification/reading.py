"""From logits to what rules may look at, with the limits on outputs applied: one place for all that verify."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import EOS, NEVER_GENERATED, Limits
from longstride.verification.acceptance import EXACT, FORBIDDEN, Reading, Rule


def forbidden_ids(limits: Limits, device: torch.device) -> Tensor:
    """[n] ids that may never be chosen."""
    return torch.tensor(sorted({*NEVER_GENERATED, *limits.banned}), dtype=torch.int64, device=device)


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
    normaliser = wide.logsumexp(dim=-1) if normalised or draft is not None else torch.zeros_like(wide[..., 0])
    allowed = wide.index_fill(-1, forbidden, FORBIDDEN)
    if min_length:
        early = (positions < min_length)[..., None] & (torch.arange(wide.shape[-1], device=wide.device) == EOS)
        allowed = allowed.masked_fill(early, FORBIDDEN)
    value, top = allowed.max(dim=-1)
    must_end = positions >= longest[:, None]
    top = torch.where(must_end, EOS, top)
    value = torch.where(must_end, wide[..., EOS], value)
    if draft is None:
        return Reading(top, value - normaliser)

    block = draft.shape[1]
    of_draft = allowed[:, :block].gather(-1, draft[..., None]).squeeze(-1)
    at_end = torch.where(draft == EOS, wide[:, :block, EOS], FORBIDDEN)
    of_draft = torch.where(must_end[:, :block], at_end, of_draft) - normaliser[:, :block]
    beta = None
    if rule.kind == "top":
        best = allowed[:, :block].topk(min(rule.beta, wide.shape[-1]), dim=-1).values[..., -1]
        beta = torch.where(must_end[:, :block], wide[:, :block, EOS], best) - normaliser[:, :block]
    return Reading(top, value - normaliser, beta, of_draft)


def normalise(values: Tensor, logits: Tensor, columns: int) -> Tensor:
    """[rows, step] log-probabilities of the first columns, from values that were read without being normalised."""
    wide = logits[:, :columns] if logits.dtype == torch.float64 else logits[:, :columns].float()
    return torch.cat([values[:, :columns] - wide.logsumexp(dim=-1), values[:, columns:]], dim=1)
