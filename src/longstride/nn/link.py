"""What a token says about the next one, for slots that are filled at once.

Slots of a block that are each filled by themselves do not know what their neighbours hold: where two translations would
do, a draft may begin one and go on with the other. A link adds to the logits of slot i, with state h_i,

    Σ_r before[y_(i-1), r] · (1 + gate(h_i))_r · after[y_i, r]

a table of pairs of low rank, which the state may weigh. In training y_(i-1) is known, and this is nothing but a wider
product. In drafting the slots' best candidates are compared in pairs, all at once, and the best chain is walked from
the left: one look per slot, no model call. DSpark (arXiv 2607.05147) has such a table too, as its Markov head: an
embedding of the token before, projected onto the vocabulary and added to the logits of a block drafter. The papers that
the systems here follow have none; drafts are verified, so that it may be anything.
Decoders whose words nobody verifies choose one after another, each of the whole vocabulary: a small product per slot.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.nn.layers import Linear
from longstride.ops.draft_tree import Shape

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
TREE_CANDIDATES = 64
"""Per slot of a tree: the best of the whole vocabulary, before the link is asked."""
MOST_CANDIDATES = 256
"""Candidates per slot for kernels to which they cost next to nothing: two good words of one class keep each other
out."""


class Link(nn.Module):
    """The table for one vocabulary and the states of one width."""

    def __init__(self, vocabulary: int, width: int, rank: int, candidates: int | None = None) -> None:
        """`candidates`: 0 where no chain is ever walked, because the token before is always known; None for CANDIDATES,
        or up to MOST_CANDIDATES where a kernel can take them."""
        super().__init__()
        few, most = (CANDIDATES, MOST_CANDIDATES) if candidates is None else (candidates, candidates)
        self.candidates, self._most = min(few, vocabulary), min(most, vocabulary)
        self._told = candidates is not None
        self.before = nn.Embedding(vocabulary, rank)
        self.after = nn.Embedding(vocabulary, rank)
        self.gate = Linear(width, rank, bias=False)
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
        return ops.chain_logits(logits, self.gate(hidden), newest, *self._tables, self.candidates, self._most)

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
        few, most, again = self._how
        return ops.chain_tokens(logits, self.gate(hidden), newest, *self._tables, few, most, again, into, count)

    def drafted_from(
        self,
        hidden: Tensor,
        output_weight: Tensor,
        newest: Tensor,
        into: Tensor | None = None,
        count: Tensor | None = None,
    ) -> Tensor:
        """The same where logits are nothing but hidden by output_weight [vocabulary, width]"""
        weights = output_weight, self.gate.weight
        # Part of a longer block: of rows that lie apart PyTorch makes a product each (on an H200, 128 rows of 3: 242 us
        # instead of 13).
        return ops.chain_tokens_of_states(hidden.contiguous(), *weights, newest, *self._tables, *self._how, into, count)

    def grown(
        self,
        logits: Tensor,
        hidden: Tensor,
        newest: Tensor,
        nodes: int,
        into: Tensor | None = None,
        shape: Shape | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits [rows, block, vocabulary] of slots by themselves, from hidden [rows, block, width], after the token
        `newest` [rows] -> tokens and parents [rows, nodes] of the likeliest tree; `into` and `shape` as
        :func:`longstride.ops.tree_tokens` takes them"""
        return ops.tree_tokens(logits, newest, self.gate(hidden), *self._tables, TREE_CANDIDATES, nodes, into, shape)

    def grown_from(
        self,
        hidden: Tensor,
        output_weight: Tensor,
        newest: Tensor,
        nodes: int,
        into: Tensor | None = None,
        shape: Shape | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The same where logits are nothing but hidden by output_weight [vocabulary, width]"""
        given = (hidden.contiguous(), newest, output_weight, self.gate.weight, *self._tables)
        return ops.tree_tokens_of_states(*given, TREE_CANDIDATES, nodes, into, shape)

    def pairs(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What :func:`longstride.ops.best_tree` scores neighbours with, for slots of these states"""
        return self.before.weight, self.factors(hidden), self.after.weight

    @property
    def looks_twice(self) -> bool:
        """Whether candidates are so few that the whole vocabulary is looked at again after the chain, unless somebody
        wanted so many."""
        return not self._told and self.candidates < min(ENOUGH, self.before.weight.shape[0])

    @property
    def _tables(self) -> tuple[Tensor, Tensor]:
        return self.before.weight, self.after.weight

    @property
    def _how(self) -> tuple[int, int, bool]:
        """Candidates, the most of them, and whether to look twice"""
        return self.candidates, self._most, self.looks_twice
