"""Acceptance rules and verdicts as pure functions of tensors: how many drafted tokens stand, and what is committed.

A rule looks, per slot, at the verifier's choice, at how likely that and the drafted token are, and at how many tokens
are more likely than the drafted one: nothing more leaves the model.

    exact           the drafted token is the verifier's own choice: the output is greedy's, whatever was drafted
    top:B           it is among the verifier's B best (blockwise, section 5.1)
    top:B,gap:T     and no more than T less likely, in log-probability, than the best (GAD++, Eq. 6 and 7)
    distance:E      it is no further than E from the verifier's choice in an ordered vocabulary (blockwise, section 5.2)

Eq. 6 is "not less likely than the β-th": ties pass, and fewer than β tokens are more likely. On top of any rule a
minimum block ℓ commits at least ℓ tokens per iteration, the verifier's own included (blockwise, section 5.3), as far as
there is a draft.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.contract import EOS, OptionError, option
from longstride.contract.options import Options
from longstride.contract.ranges import shown
from longstride.verification.drafting import Proposal

FORBIDDEN = float("-inf")


@dataclass(frozen=True)
class Rule(Options):
    """When a drafted token stands."""

    kind: Literal["exact", "top", "distance"] = "exact"
    top: int = option(1, "How many of the verifier's best it may be among.", least=1, most=10**6)
    gap: float = option(math.inf, "How much less likely it may be, in log-probability.", least=0, most=math.inf)
    distance: int = option(0, "How far it may be from the verifier's choice.", least=0, most=10**6)

    form = "exact, top:B, top:B,gap:T or distance:E"

    @staticmethod
    def from_text(text: str) -> Rule:
        """Read ``exact``, ``top:3``, ``top:3,gap:1.0`` or ``distance:2``."""
        parts = dict(part.strip().partition(":")[::2] for part in text.split(","))
        try:
            if set(parts) == {"exact"} and not parts["exact"]:
                return Rule()
            if set(parts) in ({"top"}, {"top", "gap"}):
                return Rule("top", top=int(parts["top"]), gap=float(parts.get("gap", "inf")))
            if set(parts) == {"distance"}:
                return Rule("distance", distance=int(parts["distance"]))
        except ValueError:
            pass
        raise OptionError(f"expected {Rule.form}, found {shown(text)}.")

    def __str__(self) -> str:
        if self.kind == "top":
            return f"top:{self.top}" if math.isinf(self.gap) else f"top:{self.top},gap:{self.gap}"
        return f"distance:{self.distance}" if self.kind == "distance" else "exact"


EXACT = Rule()


@dataclass(frozen=True)
class Reading:
    """What the verifier says of one step's slots: the most a rule may look at.

    It is in logits. Two of a slot are as far apart as their log-probabilities, and whether a draft stands then does not
    hang on how a sum over the vocabulary was rounded: in half precision logits lie on a coarse grid, and one that is
    exactly as far behind as a rule allows is no rare thing.
    """

    top: Tensor
    """[rows, block + 1] the verifier's own choice after each prefix of the draft"""
    top_logit: Tensor
    """[rows, block + 1] and its logit"""
    normaliser: Tensor | None = None
    """[rows, block + 1] what makes log-probabilities of logits when it is subtracted; None where nobody asked"""
    draft_logit: Tensor | None = None
    """[rows, block] of the drafted tokens, -inf where one may not stand; None where nobody asks"""
    draft_rank: Tensor | None = None
    """[rows, block] how many tokens that may stand are more likely than the drafted one; None where nobody asks"""

    @property
    def top_log_probability(self) -> Tensor:
        """[rows, block + 1] of the verifier's own choices; their logits where these were not normalised."""
        return self.normalised(self.top_logit)

    def normalised(self, logit: Tensor) -> Tensor:
        """[rows, block + 1] log-probabilities, as far as it is known how to make them."""
        return logit if self.normaliser is None else logit - self.normaliser


@dataclass(frozen=True)
class Verdict:
    """What becomes of one iteration."""

    accepted: Tensor
    """[rows] drafted tokens that stand"""
    ids: Tensor
    """[rows, block + 1] accepted tokens, then the verifier's own"""
    log_probability: Tensor
    """[rows, block + 1] of ids, as far as they are committed"""
    committed: Tensor
    """[rows] how many of ids are committed: accepted + 1, or up to and with the first EOS"""
    ended: Tensor
    """[rows] bool: EOS was committed"""
    newest: Tensor
    """[rows] the last of the committed ids"""

    def scored(self, log_probability: Tensor) -> Verdict:
        """The same with other log-probabilities [rows, block + 1]."""
        return replace(self, log_probability=log_probability)


def judge(rule: Rule, min_block: int, proposal: Proposal, reading: Reading) -> Verdict:
    """What becomes of an iteration: :func:`accept`, then :func:`commit`; by fewer operations where that can be."""
    block = proposal.ids.shape[1]
    if block == 0:
        newest = reading.top[:, 0]
        one = torch.ones_like(newest)
        return Verdict(proposal.count, reading.top, reading.top_log_probability, one, newest == EOS, newest)
    if min_block > 1:
        return commit(proposal, reading, accept(rule, min_block, proposal, reading))
    meant = ops.arange(block, proposal.ids) < proposal.count[:, None]
    stands = meant & _stands(rule, proposal.ids, reading)
    # What follows is committed as far as tokens stand and do not end the output, and one token more.
    before = _prefix(stands & (proposal.ids != EOS))
    ids, logit = reading.top, reading.top_logit
    if rule.kind != "exact":  # where it is exact, what stands is the verifier's own choice
        ids = torch.cat([torch.where(stands, proposal.ids, ids[:, :block]), ids[:, block:]], dim=1)
    if reading.draft_logit is not None:
        of_draft = torch.where(stands, reading.draft_logit, logit[:, :block])
        logit = torch.cat([of_draft, logit[:, block:]], dim=1)
    newest = ids.gather(1, before[:, None])[:, 0]
    last_stands = F.pad(stands, (0, 1)).gather(1, before[:, None])[:, 0]  # an EOS that was drafted
    scores = reading.normalised(logit)
    return Verdict(before + last_stands, ids, scores, before + 1, newest == EOS, newest)


def accept(rule: Rule, min_block: int, proposal: Proposal, reading: Reading) -> Tensor:
    """[rows] how many drafted tokens stand: the longest prefix of the draft that the rule lets pass."""
    block = proposal.ids.shape[1]
    meant = ops.arange(block, proposal.ids) < proposal.count[:, None]
    accepted = _prefix(meant & _stands(rule, proposal.ids, reading))
    if min_block > 1:
        assert reading.draft_logit is not None
        possible = _prefix(meant & (reading.draft_logit > FORBIDDEN))
        accepted = torch.maximum(accepted, possible.clamp(max=min_block - 1))
    return accepted


def _stands(rule: Rule, draft: Tensor, reading: Reading) -> Tensor:
    """[rows, block] bool, each slot by itself."""
    block = draft.shape[1]
    top = reading.top[:, :block]
    if rule.kind == "exact":
        return draft == top
    assert reading.draft_logit is not None
    allowed = reading.draft_logit > FORBIDDEN
    if rule.kind == "distance":
        # The end is a decision, not a point of the ordered space: it must be the verifier's own.
        near = (draft - top).abs() <= rule.distance
        return allowed & torch.where((draft == EOS) | (top == EOS), draft == top, near)
    assert reading.draft_rank is not None
    among_best = reading.draft_rank < rule.top  # Eq. 6
    close = reading.top_logit[:, :block] - reading.draft_logit <= rule.gap  # Eq. 7
    return allowed & among_best & close


def _prefix(flags: Tensor) -> Tensor:
    """[rows, block] bool -> [rows] how many are True before the first that is not"""
    return ops.first_false(flags)


def commit(proposal: Proposal, reading: Reading, accepted: Tensor) -> Verdict:
    """The accepted tokens and the verifier's own next one, cut after the first EOS."""
    block = proposal.ids.shape[1]
    columns = torch.arange(block + 1, device=accepted.device)
    drafted = torch.cat([proposal.ids, reading.top[:, block:]], dim=1)
    from_draft = columns < accepted[:, None]
    ids = torch.where(from_draft, drafted, reading.top)
    logit = reading.top_logit
    if reading.draft_logit is not None:
        of_draft = torch.cat([reading.draft_logit, logit[:, block:]], dim=1)
        logit = torch.where(from_draft, of_draft, logit)
    ends = (ids == EOS) & (columns <= accepted[:, None])
    ended = ends.any(dim=1)
    first = ends.to(torch.int64).argmax(dim=1)
    committed = torch.where(ended, first, accepted) + 1
    # What lies behind an EOS inside the draft was never accepted.
    newest = ids.gather(1, committed[:, None] - 1)[:, 0]
    scores = reading.normalised(logit)
    return Verdict(torch.minimum(accepted, committed), ids, scores, committed, ended, newest)
