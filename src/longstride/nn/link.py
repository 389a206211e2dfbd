"""What a token says about the next one, for slots that are filled at once.

Slots of a block that are each filled by themselves do not know what their neighbours hold: where two translations would
do, a draft may begin one and go on with the other. A link adds to the logits of slot i, with state h_i,

    Σ_r before[y_(i-1), r] · (1 + gate(h_i))_r · after[y_i, r]

a table of pairs of low rank, which the state may weigh. In training y_(i-1) is known, and this is nothing but a wider
product. In drafting the slots' best candidates are compared in pairs, all at once, and the best chain is walked from
the left: one look per slot, no model call. None of the papers has it; drafts are verified, so that it may be anything.
Decoders whose words nobody verifies choose one after another, each of the whole vocabulary: a small product per slot.

On a CUDA device candidates and walk can be three kernels of our own (`link_kernels`) instead of some thirty small ones;
who may use them, `fused_trials` finds out.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.nn.decode_product import FEW, StepLinear
from longstride.nn.fused import Fusible, Kernel

CANDIDATES = 64
"""Per slot: the best of so many classes of ids, which ids fall into by turns, since neighbours in a vocabulary are
about as frequent. Finding them is one pass over the logits, where the best 64 of all would be a sort."""
ENOUGH = 128
"""Candidates of a slot with which the best chain of them is as good as, after it, the best of the whole vocabulary. Two
good words of one class keep each other out: of the bundled drafter (160 sentences of debates, lossless) chains of 64,
128, 256 and 512 candidates bring 3.63, 3.78, 3.91 and 3.98 tokens an iteration, and the whole vocabulary after a chain
of 64 brings 3.85; of its heads chains of 64, 128 and 256 bring 1.61, 1.65 and 1.69, and the whole vocabulary 1.70."""
SPREAD = 0.3
"""of the first entries of `before`; `after` begins at zero, so that a new link changes nothing"""
HIGHEST_RANK = 128
"""that the kernels are written for"""
MOST_CANDIDATES = 256
"""likewise, and what they are used with: two good words of one class keep each other out"""


class Link(nn.Module, Fusible):
    """The table for one vocabulary and the states of one width."""

    own = False
    """chains are walked by kernels of our own: see :meth:`use`"""

    def __init__(self, vocabulary: int, width: int, rank: int, candidates: int | None = None) -> None:
        """`candidates`: 0 where no chain is ever walked, because the token before is always known; None for CANDIDATES,
        and MOST_CANDIDATES with kernels of our own."""
        super().__init__()
        few, many = (CANDIDATES, MOST_CANDIDATES) if candidates is None else (candidates, candidates)
        self._few, self._many = min(few, vocabulary), min(many, vocabulary)
        self.candidates = self._few
        self._told = candidates is not None
        self.before = nn.Embedding(vocabulary, rank)
        self.after = nn.Embedding(vocabulary, rank)
        self.gate = StepLinear(width, rank, bias=False)
        nn.init.normal_(self.before.weight, std=SPREAD)
        nn.init.zeros_(self.after.weight)
        nn.init.zeros_(self.gate.weight)

    @torch.no_grad()
    def begin_as(self, embedding: Tensor) -> None:
        """Let tokens begin alike that are alike in a trained embedding [vocabulary, width]."""
        rank = self.before.weight.shape[1]
        found = F.normalize(embedding.float(), dim=1) @ torch.randn(embedding.shape[1], rank, device=embedding.device)
        self.before.weight.copy_(found * SPREAD)

    def asked(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """[..., width] states and the tokens before them [...] -> [..., rank], what meets `after`"""
        found = self.before(previous) * (1 + self.gate(hidden))
        return found.to(hidden.dtype)  # type: ignore[no-any-return]

    # --- the token before is known -----------------------------------------------------------------------------------

    def widened(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """[..., width] -> [..., width + rank], to be multiplied by :meth:`widened_weight`"""
        return torch.cat([hidden, self.asked(hidden, previous)], dim=-1)

    def widened_weight(self, output_weight: Tensor) -> Tensor:
        """[vocabulary, width] -> [vocabulary, width + rank]"""
        return torch.cat([output_weight, self.after.weight.to(output_weight.dtype)], dim=1)

    def factors(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., rank], all that :meth:`tied` has to know of states"""
        return 1 + self.gate(hidden)  # type: ignore[no-any-return]

    def tied(self, logits: Tensor, factors: Tensor, previous: Tensor) -> Tensor:
        """Logits [..., vocabulary] of slots by themselves, with their `factors` [..., rank], and the tokens before them
        [...], several for each slot if need be -> [..., vocabulary] given these tokens"""
        asked = (self.before(previous) * factors).to(logits.dtype)
        return logits + F.linear(asked, self.after.weight)

    # --- the token before is drafted too -----------------------------------------------------------------------------

    def chained(self, logits: Tensor, hidden: Tensor, newest: Tensor) -> Tensor:
        """Logits [rows, block, vocabulary] of slots by themselves, from hidden [rows, block, width], after the token
        `newest` [rows] -> the same, with what each slot's predecessor on the best chain adds"""
        if self.own:
            tables = self.before.weight, self.after.weight
            _, asked = walked(logits, self.gate(hidden), newest, *tables, self.candidates)
            return plus_product(logits, asked, self.after.weight)
        factors = self.factors(hidden)
        chain = self._chain(logits, factors, newest)
        return self.tied(logits, factors, torch.cat([newest[:, None], chain[:, :-1]], dim=1))

    def drafted(
        self,
        logits: Tensor,
        hidden: Tensor,
        newest: Tensor,
        into: Tensor | None = None,
        count: Tensor | None = None,
    ) -> Tensor:
        """Logits [rows, block, vocabulary] of slots by themselves, from hidden [rows, block, width], after the token
        `newest` [rows] -> a draft [rows, block]: the best chain's tokens or, where it is one of few candidates, what is
        best after each of them

        It is put `into` a tensor, if one is given; `count` [rows] is told how many tokens there are.
        """
        if self.own:
            tables = self.before.weight, self.after.weight
            return followed(logits, self.gate(hidden), newest, *tables, self.candidates, into, count)
        if self.looks_twice:
            found = self.chained(logits, hidden, newest).argmax(dim=-1)
        else:
            found = self._chain(logits, self.factors(hidden), newest)
        if count is not None:
            count.fill_(found.shape[1])
        return found if into is None else into.copy_(found)

    @property
    def looks_twice(self) -> bool:
        """Whether candidates are so few that the whole vocabulary is looked at again after the chain, unless somebody
        wanted so many."""
        return not self._told and self.candidates < min(ENOUGH, self.before.weight.shape[0])

    def drafted_from(
        self,
        hidden: Tensor,
        output_weight: Tensor,
        newest: Tensor,
        into: Tensor | None = None,
        count: Tensor | None = None,
    ) -> Tensor:
        """The same where logits are nothing but hidden by output_weight [vocabulary, width]: of few slots, nobody
        writes them"""
        if self.own and hidden[..., 0].numel() <= FEW:
            tables = self.before.weight, self.after.weight
            weights = output_weight, self.gate.weight
            return followed_from(hidden, *weights, newest, *tables, self.candidates, into, count)
        return self.drafted(F.linear(hidden, output_weight), hidden, newest, into, count)

    def walk(self, logits: Tensor, hidden: Tensor, newest: Tensor) -> Tensor:
        """[rows, block] the token before each slot: `newest` before the first, then what the chain has chosen"""
        return torch.cat([newest[:, None], self._chain(logits, self.factors(hidden), newest)[:, :-1]], dim=1)

    def _chain(self, logits: Tensor, factors: Tensor, newest: Tensor) -> Tensor:
        """[rows, block] what each slot has chosen"""
        candidates = ops.best_of_classes(logits, self.candidates)
        return ops.best_chain(*candidates, newest, self.before.weight, factors, self.after.weight)

    # --- kernels of our own ------------------------------------------------------------------------------------------

    def kernels(self) -> list[Kernel]:
        """Where the walk's tiles hold what it gathers."""
        vocabulary, rank = self.before.weight.shape
        fits = rank <= HIGHEST_RANK and 0 < self._many <= MOST_CANDIDATES
        return [Kernel("link", (vocabulary, rank, self._many, self.gate.in_features))] if fits else []

    def use(self, names: Collection[str]) -> None:
        """Use them, if they are among these, and with them more candidates: there they cost next to nothing."""
        self.own = "link" in names
        self.candidates = self._many if self.own else self._few


def walked(
    logits: Tensor, gate: Tensor, newest: Tensor, before: Tensor, after: Tensor, candidates: int
) -> tuple[Tensor, Tensor]:
    """The chain of logits [rows, block, vocabulary] after newest [rows], by kernels of our own

    gate [rows, block, rank] as the states give it; before and after [vocabulary, rank]. -> the token before each slot
    [rows, block], and what it asks for [rows, block, rank]. The kernels are imported here, because they need Triton.
    """
    from longstride.nn import link_kernels as kernels

    dense = logits if logits.stride(-1) == 1 else logits.contiguous()
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        values, ids = kernels.best_of_classes(dense, candidates)
        found: tuple[Tensor, Tensor] = kernels.walk(
            values, ids, gate.contiguous(), newest.contiguous(), before.contiguous(), after.contiguous()
        )
    return found


def followed(
    logits: Tensor,
    gate: Tensor,
    newest: Tensor,
    before: Tensor,
    after: Tensor,
    candidates: int,
    into: Tensor | None = None,
    count: Tensor | None = None,
) -> Tensor:
    """What :func:`walked` takes, whose `newest` need not lie side by side -> the chain's tokens [rows, block]"""
    from longstride.nn import link_kernels as kernels

    dense = logits if logits.stride(-1) == 1 else logits.contiguous()
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        values, ids = (best[:, :, None] for best in kernels.best_of_classes(dense, candidates))
        chain = kernels.pairs(values, ids, gate.contiguous(), newest, before.contiguous(), after.contiguous())
        found: Tensor = kernels.follow(*chain, into, count)
    return found


def followed_from(
    hidden: Tensor,
    weight: Tensor,
    gate_weight: Tensor,
    newest: Tensor,
    before: Tensor,
    after: Tensor,
    candidates: int,
    into: Tensor | None = None,
    count: Tensor | None = None,
) -> Tensor:
    """The same from states [rows, block, width], the output weight [vocabulary, width] and the gate's [rank, width]"""
    from longstride.nn import link_kernels

    best = best_of_states(hidden.flatten(0, 1), weight, gate_weight, candidates)
    values, ids, gate = (one.view(*hidden.shape[:2], *one.shape[1:]) for one in best)
    with torch.cuda.device_of(hidden):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        chain = link_kernels.pairs(values, ids, gate, newest, before.contiguous(), after.contiguous())
        found: Tensor = link_kernels.follow(*chain, into, count)
    return found


def best_of_states(hidden: Tensor, weight: Tensor, gate_weight: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates of states [slots, width], by a kernel of our own: values and ids [slots, chunks, classes], of which
    the best of all chunks are meant, and the gate [slots, rank]"""
    from longstride.nn.link_candidates_kernels import best_products

    with torch.cuda.device_of(hidden):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: tuple[Tensor, Tensor, Tensor] = best_products(
            hidden.contiguous(), weight.contiguous(), gate_weight.contiguous(), classes
        )
    return found


def plus_product(logits: Tensor, asked: Tensor, after: Tensor) -> Tensor:
    """logits [rows, block, vocabulary] + asked [rows, block, rank] by after [vocabulary, rank], in one call"""
    rows, block, _ = logits.shape
    if rows == 1 or logits.stride(0) == block * logits.stride(1):  # slots lie evenly: rows are one longer block
        return torch.addmm(logits.flatten(0, 1), asked.flatten(0, 1), after.t()).view_as(logits)
    return torch.baddbmm(logits, asked, after.t().expand(rows, -1, -1))
