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
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.contract import DEFAULT_IDS, EOS, Limits, OptionError, SpecialIds, option
from longstride.contract.options import Options, shown
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
class Sampling:
    """How the verifier's own tokens are drawn (:mod:`longstride.verification.sampling`)."""

    temperature: float
    top_k: int
    top_p: float


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Options):
    """Options of all decoders that can draw tokens."""

    temperature: float = option(
        0.0, "Draw tokens at random, with logits divided by this (0: the likeliest token, always).", least=0, most=1000
    )
    top_k: int = option(0, "Draw among the k likeliest tokens alone (0: among all).", least=0, most=10**9)
    top_p: float = option(
        1.0, "Draw among the fewest likeliest tokens whose probabilities add up to this (1: all).", above=0, most=1
    )
    seed: int = option(
        0,
        "Which random numbers: with the same seed, a sentence at the same place of the input gets the same output.",
        least=0,
        most=2**63 - 1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in OF_SAMPLING[1:]:
            if not self.temperature and (found := getattr(self, name)) != getattr(SamplingOptions, name):
                raise OptionError(f"{name} expects a temperature above 0 beside it, found {found} and temperature=0.")

    @property
    def sampling(self) -> Sampling | None:
        """How to draw; None: tokens are not drawn."""
        return Sampling(self.temperature, self.top_k, self.top_p) if self.temperature else None

    @property
    def leave_drafts_open(self) -> bool:
        """Whether these say nothing of how to draft and judge: then outputs are the same however long drafts are."""
        return self == type(self)(**{name: getattr(self, name) for name in OF_SAMPLING})


OF_SAMPLING = ("temperature", "top_k", "top_p", "seed")
"""The names of these options."""
OF_DRAFTS = ("k", "tree")
"""The names of those that say how much is drafted, and change no output."""


@dataclass(frozen=True)
class LogitSummary:
    """What the verifier says of one step's slots: the most a rule may look at.

    It is in logits. Two of a slot are as far apart as their log-probabilities, and whether a draft stands then does not
    hang on how a sum over the vocabulary was rounded: in half precision logits lie on a coarse grid, and one that is
    exactly as far behind as a rule allows is no rare thing.
    """

    top: Tensor
    """[rows, block + 1] the verifier's own choice after each prefix of the draft"""
    top_logit: Tensor | None = None
    """[rows, block or more] and its logit; None where nobody asks"""
    normaliser: Tensor | None = None
    """[rows, block + 1] what makes log-probabilities of logits when it is subtracted; None where nobody asks"""
    draft_logit: Tensor | None = None
    """[rows, block] of the drafted tokens, -inf where one may not stand; None where nobody asks"""
    draft_rank: Tensor | None = None
    """[rows, block] how many tokens that may stand are more likely than the drafted one; None where nobody asks"""

    @property
    def top_log_probability(self) -> Tensor:
        """[rows, block + 1] of the verifier's own choices, where these were asked for."""
        assert self.top_logit is not None
        assert self.normaliser is not None
        return self.top_logit - self.normaliser


@dataclass(frozen=True)
class Verdict:
    """What becomes of one iteration."""

    accepted: Tensor
    """[rows] drafted tokens that stand"""
    ids: Tensor
    """[rows, block + 1] accepted tokens, then the verifier's own"""
    committed: Tensor
    """[rows] how many of ids are committed: accepted + 1, or up to and with the first EOS"""
    newest: Tensor
    """[rows] the last of the committed ids"""


def judge(rule: Rule, min_block: int, proposal: Proposal, reading: LogitSummary, eos: int = EOS) -> Verdict:
    """The longest prefix of the draft that the rule lets pass and the verifier's own next token, cut after an EOS."""
    block = proposal.ids.shape[1]
    if block == 0:
        newest = reading.top[:, 0]
        return Verdict(proposal.count, reading.top, torch.ones_like(newest), newest)
    columns = ops.arange(block, proposal.ids)
    meant = columns < proposal.count[:, None]
    passed = meant & stands(rule, proposal.ids, reading, eos)
    if min_block > 1:
        assert reading.draft_logit is not None
        possible = ops.first_false(meant & (reading.draft_logit > FORBIDDEN)).clamp(max=min_block - 1)
        passed = columns < torch.maximum(ops.first_false(passed), possible)[:, None]
    # What follows is committed as far as tokens stand and do not end the output, and one token more.
    before = ops.first_false(passed & (proposal.ids != eos))
    ids = reading.top
    if rule.kind != "exact" or min_block > 1:  # where it is exact, what stands is the verifier's own choice
        ids = torch.cat([torch.where(passed, proposal.ids, ids[:, :block]), ids[:, block:]], dim=1)
    newest = ids.gather(1, before[:, None])[:, 0]
    last_stands = F.pad(passed, (0, 1)).gather(1, before[:, None])[:, 0]  # an EOS that was drafted
    return Verdict(before + last_stands, ids, before + 1, newest)


def stands(rule: Rule, draft: Tensor, reading: LogitSummary, eos: int = EOS) -> Tensor:
    """[rows, block] bool: whether the rule lets each drafted token pass, by itself."""
    block = draft.shape[1]
    top = reading.top[:, :block]
    if rule.kind == "exact":
        return draft == top
    assert reading.draft_logit is not None
    allowed = reading.draft_logit > FORBIDDEN
    if rule.kind == "distance":
        # The end is a decision, not a point of the ordered space: it must be the verifier's own.
        near = (draft - top).abs() <= rule.distance
        return allowed & ((draft == top) | (near & (draft != eos) & (top != eos)))
    assert reading.draft_rank is not None
    assert reading.top_logit is not None
    among_best = reading.draft_rank < rule.top  # Eq. 6
    close = reading.top_logit[:, :block] - reading.draft_logit <= rule.gap  # Eq. 7
    return allowed & among_best & close


# --- from logits to what rules may look at --------------------------------------------------------------------------


def forbidden_ids(limits: Limits, device: torch.device, special: SpecialIds = DEFAULT_IDS) -> Tensor:
    """[n] ids that may never be chosen; the same tensor each time, so that nobody may write it."""
    return _forbidden(tuple(sorted({*special.never_generated, *limits.banned})), device)


@cache
def _forbidden(ids: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(ids, dtype=torch.int64, device=device)


def summarise(
    logits: Tensor,
    positions: Tensor,
    longest: Tensor,
    forbidden: Tensor,
    min_length: int,
    draft: Tensor | None = None,
    ranked: bool = False,
    eos: int = EOS,
    ends: Tensor | None = None,
) -> LogitSummary:
    """The verifier's choice per slot, and what rules ask of drafted tokens.

    logits [rows, step, vocabulary]; positions [rows, step] the output position each slot predicts; longest [rows]. At
    position `longest` only EOS may stand, before `min_length` it may not. With `draft` [rows, step - 1] the drafted
    tokens are read too, and `ranked` among all that may stand. In slots `ends` [rows, step], too, only EOS may stand.
    """
    must_end = positions >= longest[:, None]
    must_end = must_end if ends is None else must_end | ends
    early = positions < min_length
    top = ops.best(logits, forbidden)
    if min_length:
        without_end = torch.cat([forbidden, ops.full([1], eos, forbidden)])
        top = torch.where(early, ops.best(logits, without_end), top)
    top = torch.where(must_end, eos, top)
    if draft is None:
        return LogitSummary(top)
    block = draft.shape[1]
    logits, must_end, early = logits[:, :block], must_end[:, :block], early[:, :block]
    of_draft, of_top = (logits.gather(-1, ids[..., None]) for ids in (draft, top[:, :block]))
    stands = ((draft[..., None] == forbidden).sum(dim=-1) == 0) & ((draft == eos) | ~must_end)
    if min_length:
        stands = stands & ((draft != eos) | ~early)
    rank = None
    if ranked:
        rank = (logits > of_draft).sum(dim=-1) - (logits[..., forbidden] > of_draft).sum(dim=-1)
        if min_length:
            rank = rank - (early & (logits[..., eos : eos + 1] > of_draft)[..., 0]).long()
        rank = torch.where(must_end, 0, rank)
    of_draft, of_top = (_wide(one)[..., 0] for one in (of_draft, of_top))
    return LogitSummary(top, of_top, None, torch.where(stands, of_draft, FORBIDDEN), rank)


def nothing_left(logits: Tensor, positions: Tensor, forbidden: Tensor, min_length: int, eos: int = EOS) -> Tensor:
    """[rows, step] bool: whether no id may stand in a slot, EOS neither; arguments as :func:`summarise` takes them."""
    logits = logits.index_fill(-1, forbidden, FORBIDDEN)
    if min_length:
        logits[..., eos].masked_fill_(positions < min_length, FORBIDDEN)
    return logits.amax(dim=-1) == FORBIDDEN


def force_ends(
    reading: LogitSummary,
    limits: Limits,
    positions: Tensor,
    longest: Tensor,
    logits: Tensor,
    draft: Tensor | None = None,
) -> LogitSummary:
    """The same with tokens that limits force, at positions [rows, step] 0 and `longest` [rows] - 1."""
    if limits.forced_first is not None:
        tokens = torch.full_like(positions, limits.forced_first)
        reading = force(reading, tokens, positions == 0, logits, draft)
    if limits.forced_last is not None:
        tokens = torch.full_like(positions, limits.forced_last)
        reading = force(reading, tokens, positions == longest[:, None] - 1, logits, draft)
    return reading


def force(reading: LogitSummary, tokens: Tensor, where: Tensor, logits: Tensor, draft: Tensor | None) -> LogitSummary:
    """The same where in some slots, `where` [rows, step], one of tokens [rows, step] stands and no other."""

    def put(numbers: Tensor) -> Tensor:
        width = numbers.shape[1]
        forced = _wide(logits[:, :width].gather(-1, tokens[:, :width, None])[..., 0])
        return torch.where(where[:, :width], forced, numbers)

    logit = reading.top_logit
    reading = replace(
        reading, top=torch.where(where, tokens, reading.top), top_logit=None if logit is None else put(logit)
    )
    if draft is None or reading.draft_logit is None:
        return reading
    drafted = where[:, : draft.shape[1]]
    wrong, rank = drafted & (draft != tokens[:, : draft.shape[1]]), reading.draft_rank
    return replace(
        reading,
        draft_logit=torch.where(wrong, FORBIDDEN, put(reading.draft_logit)),
        draft_rank=None if rank is None else torch.where(drafted, 0, rank),
    )


def scored(reading: LogitSummary, logits: Tensor) -> LogitSummary:
    """The same with how likely the verifier's choices are, in logits and what to subtract from them."""
    wide = _wide(logits)
    return replace(reading, top_logit=wide.gather(-1, reading.top[..., None])[..., 0], normaliser=wide.logsumexp(-1))


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
