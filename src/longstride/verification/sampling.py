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

import torch
from torch import Tensor

from longstride.contract import EOS
from longstride.verification.acceptance import FORBIDDEN, Sampling


def draw(
    sampling: Sampling,
    logits: Tensor,
    streams: Tensor,
    positions: Tensor,
    longest: Tensor,
    forbidden: Tensor,
    min_length: int,
    eos: int = EOS,
) -> Tensor:
    """[rows, step] a token per slot, of logits [rows, step, vocabulary], by each row's random numbers, streams [rows].

    The rest is as in :func:`longstride.verification.acceptance.summarise`: what may not stand is never drawn, and takes
    no place among the likeliest.
    """
    logits = logits.index_fill(-1, forbidden, FORBIDDEN)
    if min_length:
        logits[..., eos].masked_fill_(positions < min_length, FORBIDDEN)
    ids = torch.arange(logits.shape[-1], device=logits.device)
    if sampling.top_k or sampling.top_p < 1:
        # Stable: of equally likely tokens the one with the lower id comes first.
        logits, ids = logits.sort(dim=-1, descending=True, stable=True)
        if sampling.top_k:
            logits, ids = logits[..., : sampling.top_k], ids[..., : sampling.top_k]
    logits = logits.double()
    # From the largest down, so that dividing by next to nothing gives no NaN.
    largest = logits.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float64).min)
    scores = (logits - largest) / sampling.temperature
    if sampling.top_p < 1:
        shares = scores.softmax(dim=-1)
        likelier = shares.cumsum(dim=-1) - shares
        scores = scores.masked_fill(likelier >= sampling.top_p, FORBIDDEN)
    numbers = _number(_number(streams[:, None], positions)[..., None], ids)
    drawn = (scores + _gumbel(numbers)).argmax(dim=-1)
    if ids.dim() > 1:
        drawn = ids.gather(-1, drawn[..., None])[..., 0]
    return torch.where(positions >= longest[:, None], eos, drawn)


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
