"""One random iteration by our own kernels and by the tensor code they are twins of: where they differ, if anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Limits, Program
from longstride.engine.outputs import Outputs
from longstride.nn.cache import Cache
from longstride.verification.acceptance import Rule, forbidden_ids, summarise
from longstride.verification.drafting import Drafter, Proposal, View
from longstride.verification.kernels import permitted_ids
from longstride.verification.step import Acceptance, Batch, VerifyStep
from longstride.verification.tree import Tree

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
    forced_first: int | None = None
    forced_last: int | None = None
    tree: bool = False
    """whether the draft is one"""


class _Told(Drafter):
    """Proposes what it was given, and keeps the state that it is told."""

    def __init__(self, proposal: Proposal) -> None:
        self.block, self._proposal = proposal.ids.shape[1], proposal
        self.hidden: Tensor | None = None

    def begin(self, *_: Any) -> None:
        """Nothing to remember."""

    def admit(self, *_: Any) -> None:
        """Nothing to remember."""

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """The same each time."""
        return self._proposal

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        """Keep it."""
        self.hidden = hidden


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

    limits = Limits(
        min_length=least, banned=sizes.banned, forced_first=sizes.forced_first, forced_last=sizes.forced_last
    )
    forbidden = forbidden_ids(limits, device)
    # Many are equal, so that ties count too.
    logits = (torch.randn(rows, block + 1, vocabulary, generator=generator) * 2).round().to(device, dtype)
    hidden = torch.randn(rows, block + 1, sizes.width, generator=generator).to(device, dtype)
    start, longest = integers(0, 4, rows), integers(max(1, least), 4 + block, rows)
    done, newest = integers(0, 5, rows) == 0, integers(5, vocabulary, rows)
    positions = torch.where(done, 0, start)[:, None] + torch.arange(block + 1, device=device)

    # Of a draft's tokens, half are the verifier's own choice, most others among the best six, and some just any.
    top = summarise(logits, positions, longest, forbidden, least).top[:, :block]
    near = logits[:, :block].float().topk(6, dim=-1).indices.gather(-1, integers(0, 6, rows, block, 1))[..., 0]
    other = torch.where(integers(0, 4, rows, block) == 0, integers(0, vocabulary, rows, block), near)
    draft = torch.where(integers(0, 2, rows, block) == 0, other, top)
    count = integers(0, block + 1, rows) if block else torch.zeros(rows, dtype=torch.int64, device=device)

    parents = None
    if sizes.tree:
        parents = torch.stack([integers(0, node + 1, rows) for node in range(block)], dim=1)
        positions = positions[:, :1] + Tree.of(parents).depth
        top = summarise(logits, positions, longest, forbidden, least).top
        draft = torch.where(integers(0, 2, rows, block) == 0, draft, top.gather(1, parents))
    written = torch.randn(2, 2, rows, 2, 8 + block, 4, generator=generator).to(device, dtype)

    verify = Program("verify", lambda *_, **__: (logits.clone(), hidden))
    results = []
    for fused in (True, False):
        drafter, cache = _Told(Proposal(draft, count, parents)), Cache(*written.clone())
        outputs = Outputs(rows, 8 + block, device, newest.clone() if fused else None)
        kept = outputs.rows
        for tensor, value in ((kept.length, start), (kept.done, done), (kept.newest, newest)):
            tensor.copy_(value)
        if kept.start is not None:
            kept.start.copy_(positions[:, 0])
        batch = Batch(kept, longest, forbidden, block + 1, cache, None, None, looks=False)  # type: ignore[arg-type]
        if fused:
            batch = replace(batch, permitted=permitted_ids(limits, vocabulary, device))
        found = VerifyStep(verify, drafter, Acceptance(rule, min_block), limits).run(batch, block)
        results.append((found, kept, drafter.hidden, cache))
    (ours, our_rows, our_state, our_cache), (theirs, their_rows, their_state, their_cache) = results
    for name in ("active", "positions", "written", "draft"):
        if not torch.equal(getattr(ours, name), getattr(theirs, name)):
            return name
    if not torch.equal(ours.ids[ours.written], theirs.ids[theirs.written]):
        return "ids"
    for name in ("length", "newest", "done", "drafted", "accepted"):
        if not torch.equal(getattr(our_rows, name), getattr(their_rows, name)):
            return name
    committed = torch.arange(our_rows.tokens.shape[1], device=device) < our_rows.length[:, None]
    if not torch.equal(our_rows.tokens * committed, their_rows.tokens * committed):
        return "tokens"
    # A slot holds the token before the position: of those that end, the last is never read.
    read = (torch.arange(8 + block, device=device) < our_rows.length[:, None]) & ~our_rows.done[:, None]
    for mine, right in ((our_cache.keys, their_cache.keys), (our_cache.values, their_cache.values)):
        if not torch.equal(mine * read[:, None, :, None], right * read[:, None, :, None]):
            return "caches"
    if our_state is None or their_state is None or not torch.equal(our_state, their_state):
        return "states"
    close = (our_rows.log_probability - their_rows.log_probability).abs().max() <= (8 + block) * TOLERANCE
    return "" if close else "log-probabilities"
