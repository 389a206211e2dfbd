"""One random step by our own kernels and by the tensor code they are twins of: where they differ, if anywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import Limits
from longstride.verification.acceptance import Reading, Rule, judge
from longstride.verification.drafting import Proposal
from longstride.verification.kernels import Bounds, permitted_ids, read_fused, settle
from longstride.verification.outputs import Outputs
from longstride.verification.reading import forbidden_ids, read
from longstride.verification.settling import settle as settle_slowly

TOLERANCE = 1e-4
"""For what is a sum over the vocabulary, whose order differs; all else is the same to the bit."""
SETTINGS = ((Rule(), 1), (Rule("top", 3, 1.0), 1), (Rule("distance", distance=2), 2))
"""Rules and least blocks that take every way through the kernels."""


@dataclass(frozen=True)
class Sizes:
    """Of a random step."""

    rows: int = 5
    block: int = 4
    vocabulary: int = 300
    width: int = 48
    banned: tuple[int, ...] = ()
    min_length: int = 1


@torch.inference_mode()
def differing(device: torch.device, dtype: torch.dtype) -> str:
    """What differs for any of the settings, in a word or two; empty where nothing does."""
    found = (differs(rule, least, Sizes(), device, dtype, seed) for seed, (rule, least) in enumerate(SETTINGS))
    return next((wrong for wrong in found if wrong), "")


def differs(rule: Rule, min_block: int, sizes: Sizes, device: torch.device, dtype: torch.dtype, seed: int) -> str:
    """What differs for one setting."""
    rows, block, vocabulary, least = sizes.rows, sizes.block, sizes.vocabulary, sizes.min_length
    generator = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator).to(device)

    limits = Limits(min_length=least, banned=sizes.banned)
    forbidden, permitted = forbidden_ids(limits, device), permitted_ids(limits, vocabulary, device)
    # Many are equal, so that ties count too.
    logits = (torch.randn(rows, block + 1, vocabulary, generator=generator) * 2).round().to(device, dtype)
    hidden = torch.randn(rows, block + 1, sizes.width, generator=generator).to(device, dtype)
    start, longest = integers(0, 4, rows), integers(max(1, least), 4 + block, rows)
    done = integers(0, 5, rows) == 0
    theirs, ours = (_begun(start, done, 8 + block, device) for _ in range(2))
    before = torch.where(done, 0, start)
    positions = before[:, None] + torch.arange(block + 1, device=device)

    # Of a draft's tokens, half are the verifier's own choice, most others among the best six, and some just any.
    top = read(logits.clone(), positions, longest, forbidden, least, normalised=False).top[:, :block]
    near = logits[:, :block].float().topk(6, dim=-1).indices.gather(-1, integers(0, 6, rows, block, 1))[..., 0]
    other = torch.where(integers(0, 4, rows, block) == 0, integers(0, vocabulary, rows, block), near)
    draft = torch.where(integers(0, 2, rows, block) == 0, other, top)
    ids = torch.cat([integers(5, vocabulary, rows, 1), draft], dim=1)
    count = integers(0, block + 1, rows) if block else torch.zeros(rows, dtype=torch.int64, device=device)
    asked = draft if block and (rule.kind != "exact" or min_block > 1) else None

    reading = read(logits.clone(), positions, longest, forbidden, least, asked, rule.kind == "top")
    bounds = Bounds(permitted, before, longest, least)
    fused = read_fused(logits, bounds, asked, rule.kind == "top")
    wrong = _unlike(fused, reading)
    if wrong:
        return wrong
    verdict = judge(rule, min_block, Proposal(draft, count), reading)
    expected = settle_slowly(verdict, ~done, positions, ids, count, theirs)
    found, told = settle(rule, min_block, ids, count, fused, hidden, ours)
    at_newest = (verdict.committed - 1)[:, None, None].expand(-1, 1, sizes.width)
    if told is None or not torch.equal(told, hidden.gather(1, at_newest)[:, 0]):
        return "states"
    for name in ("active", "positions", "written", "drafted", "accepted", "draft"):
        if not torch.equal(getattr(found, name), getattr(expected, name)):
            return name
    if not torch.equal(found.ids[found.written], expected.ids[expected.written]):
        return "ids"
    return _unequal_outputs(ours, theirs)


def _begun(length: Tensor, done: Tensor, columns: int, device: torch.device) -> Outputs:
    outputs = Outputs(len(length), columns, device)
    outputs.length.copy_(length)
    outputs.done.copy_(done)
    return outputs


def _unlike(found: Reading, expected: Reading) -> str:
    for name in ("top", "top_logit", "draft_logit", "draft_rank"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        if (ours is None) != (theirs is None) or (ours is not None and not torch.equal(ours, theirs)):
            return name.replace("_", " ")
    assert found.normaliser is not None
    assert expected.normaliser is not None
    close = (found.normaliser - expected.normaliser).abs().max() <= TOLERANCE
    return "" if close else "normaliser"


def _unequal_outputs(ours: Outputs, theirs: Outputs) -> str:
    for name in ("length", "newest", "done"):
        if not torch.equal(getattr(ours, name), getattr(theirs, name)):
            return name
    committed = ours.steps[: ours.tokens.shape[1]] < ours.length[:, None]
    if not torch.equal(ours.tokens * committed, theirs.tokens * committed):
        return "tokens"
    if not torch.equal(ours.start, torch.where(theirs.done, 0, theirs.length)):
        return "starts"
    close = (ours.log_probability - theirs.log_probability).abs().max() <= len(ours.steps) * TOLERANCE
    return "" if close else "log-probabilities"
