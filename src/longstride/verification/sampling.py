"""Drawing the verifier's token at a slot instead of taking the likeliest, so that drafts change nothing but the time.

The token with the largest logit / temperature + g is a draw from the softmax of these, where every token has its own
g = -log(-log(u)) with u uniform in (0, 1) (Gumbel-max). Here u is a pure function of the seed, the sentence, the output
position and the token. So a slot's token depends on its prefix and on nothing that was drafted: a draft is judged
exactly, as in greedy search, and drafted tokens, chain or tree, stand where the draw is the same. The output is the one
that comes without a draft, token for token, and so is its distribution.

For a draft x that is no draw itself this is speculative rejection sampling: x stands with probability p(x), and the
token that stands in its place otherwise has p without x, normalised. Nothing accepts more: whoever gives outputs of the
model's distribution accepts n drafted tokens at most as often as an output begins with them, which is how often they
stand here. Block verification gains where drafts are drawn; here there is nothing left to gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import EOS, Limits
from longstride.verification.acceptance import FORBIDDEN, LogitSummary, Sampling, force_ends
from longstride.verification.drafting import Proposal
from longstride.verification.prefixes import TablePrefixes


@dataclass(frozen=True)
class Draws:
    """How the tokens of a batch are drawn, and among which."""

    sampling: Sampling
    streams: Tensor
    """[rows] where each row's random numbers come from"""
    longest: Tensor
    """[rows] how long outputs may be"""
    forbidden: Tensor
    """[n] ids that are never chosen"""
    limits: Limits = field(default_factory=Limits)
    eos: int = EOS
    prefixes: TablePrefixes | None = None

    def all(self, logits: Tensor, positions: Tensor) -> Tensor:
        """[rows, step] a token for every slot, of logits [rows, step, vocabulary] for these output positions.

        What may not stand is never drawn, and takes no place among the likeliest; where nothing may, EOS follows.
        """
        sampling, eos = self.sampling, self.eos
        logits = logits.index_fill(-1, self.forbidden, FORBIDDEN)
        if self.limits.min_length:
            logits[..., eos].masked_fill_(positions < self.limits.min_length, FORBIDDEN)
        ids = torch.arange(logits.shape[-1], device=logits.device)
        if sampling.top_k or sampling.top_p < 1:
            logits, ids = _ranked(logits, sampling.top_k)
        logits = logits.double()
        # From the largest down, so that dividing by next to nothing gives no NaN.
        largest = logits.amax(dim=-1, keepdim=True)
        scores = (logits - largest.clamp(min=torch.finfo(torch.float64).min)) / sampling.temperature
        if sampling.top_p < 1:
            shares = scores.softmax(dim=-1)
            likelier = shares.cumsum(dim=-1) - shares
            scores = scores.masked_fill(likelier >= sampling.top_p, FORBIDDEN)
        numbers = _number(_number(self.streams[:, None], positions)[..., None], ids)
        drawn = (scores + _gumbel(numbers)).argmax(dim=-1)
        if ids.dim() > 1:
            drawn = ids.gather(-1, drawn[..., None])[..., 0]
        drawn = torch.where(largest[..., 0] == FORBIDDEN, eos, drawn)
        if self.prefixes is not None:
            prescribed, where = self.prefixes.at(positions)
            drawn = torch.where(where, prescribed, drawn)
        drawn = torch.where(positions >= self.longest[:, None], eos, drawn)
        forced = LogitSummary(drawn)
        return force_ends(forced, self.limits, positions, self.longest, logits).top

    def needed(self, logits: Tensor, positions: Tensor, draft: Proposal) -> Tensor:
        """The same, but -1 in slots that their row does not get to, for hosts that may look at a token: then drawing
        takes as long for a committed token as without a draft."""
        rows, nodes = draft.ids.shape
        parents = torch.arange(nodes) if draft.parents is None else draft.parents
        meant = torch.arange(nodes) < draft.count[:, None]
        drawn, slot, going = torch.full((rows, nodes + 1), -1), torch.zeros(rows, 1, dtype=torch.int64), True
        while going:
            token = self.all(ops.take(logits, slot), positions.gather(1, slot))
            drawn.scatter_(1, slot, token)
            follows = meant & (parents == slot) & (draft.ids == token) & (token != self.eos)
            found = follows.any(dim=1, keepdim=True)
            going = bool(found.any())
            if going:  # rows that end before others draw their last token again
                slot = torch.where(found, follows.long().argmax(dim=1, keepdim=True) + 1, slot)
        return drawn


def _ranked(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of the last dimension (0: all) in order, and their ids: of equals, the lower id first"""
    if not 0 < count < logits.shape[-1]:
        return logits.sort(dim=-1, descending=True, stable=True)
    # Finding the largest takes much less than sorting all, but which of equals it finds is anybody's guess.
    least = logits.topk(count).values[..., -1:]
    above, equal = logits > least, logits == least
    kept = above | (equal & (equal.cumsum(dim=-1) <= count - above.sum(dim=-1, keepdim=True)))
    ids = logits.masked_fill(~kept, FORBIDDEN).topk(count).indices.sort(dim=-1).values
    logits, order = logits.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return logits, ids.gather(-1, order)


def _gumbel(numbers: Tensor) -> Tensor:
    """float64 of 64 random bits each: -log(-log(u)), u in (0, 1) with 52 bits, so that it is neither of these"""
    uniform = (_shifted(numbers, 12).double() + 0.5) * 2.0**-52
    return -(-uniform.log()).log()


# --- random numbers by their places ----------------------------------------------------------------------------------


def streams_of(seed: int, sentences: Sequence[int]) -> list[int]:
    """Where the random numbers of sentences come from, which have these numbers in the input."""
    found: list[int] = _number(torch.tensor(seed), torch.tensor(sentences)).tolist()
    return found


def _signed(number: int) -> int:
    """64 bits as int64 has them."""
    return number - (number >> 63 << 64)


GAMMA = _signed(0x9E3779B97F4A7C15)
MIXING = (30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB))


def _number(seeds: Tensor, places: Tensor) -> Tensor:
    """64 random bits: those at each place, from 0, of the SplitMix64 generator (Steele et al. 2014) with each seed."""
    bits = seeds + (places + 1) * GAMMA  # int64 wraps around
    for shift, factor in MIXING:
        bits = (bits ^ _shifted(bits, shift)) * factor
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, count: int) -> Tensor:
    """To the right, zeros coming in: PyTorch's own shift brings the sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
