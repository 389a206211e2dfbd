"""From a model's logits to the candidates of a beam, and from a beam to what a step says: tensor code, for all runners.

Knows no caches and no kernels; `beam_kernels` has its twins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from longstride.contract import EOS
from longstride.search import beam
from longstride.search.length_penalty import LengthPenalty


def candidates(
    logits: Sequence[Tensor], start: Tensor, forbidden: Tensor, min_length: int, shape: tuple[int, int]
) -> beam.Candidates:
    """By the mean of the models' probabilities: logits [slots * width, vocabulary] each, output positions start
    [slots * width]; `shape`: slots and width."""
    every = [one.log_softmax(dim=-1, dtype=_wide(one)) for one in logits]
    scores = every[0] if len(every) == 1 else torch.stack(every).logsumexp(dim=0).sub_(math.log(len(every)))
    end = scores[:, EOS].double()
    scores.index_fill_(-1, forbidden, beam.DEAD)
    if min_length:
        scores[:, EOS] = torch.where(start < min_length, beam.DEAD, scores[:, EOS])
    count = 2 * shape[1]
    best, picked = _topk(scores, count)
    return beam.Candidates(picked.view(*shape, count), best.double().view(*shape, count), end.view(shape))


def of_row(
    logits: Tensor, forbidden: Tensor, early: bool, count: int, least: float = beam.DEAD
) -> tuple[list[int], list[float], float]:
    """The same for one hypothesis and one model, in plain numbers: logits [vocabulary]; `early`: it may not end yet.

    Continuations below `least` may be left out, which saves looking for the `count` best in all of the vocabulary.
    """
    scores = logits.log_softmax(dim=-1, dtype=_wide(logits))
    end = float(scores[EOS])
    scores.index_fill_(-1, forbidden, beam.DEAD)
    if early:
        scores[EOS] = beam.DEAD
    if least > beam.DEAD:
        numbers = scores.numpy()
        reaching = (numbers >= least).nonzero()[0]
        by_score = dict(zip(numbers[reaching].tolist(), reaching.tolist(), strict=True))
        # Among equal ones `topk` takes what it likes: whoever wants the same has to ask it.
        if len(by_score) == len(reaching) <= count:
            ranked = sorted(by_score, reverse=True)
            return [by_score[score] for score in ranked], ranked, end
    best, picked = _topk(scores, count)
    return picked.tolist(), best.tolist(), end


def told(table: beam.BeamTable, penalty: LengthPenalty, active: Tensor) -> tuple[Tensor, Tensor]:
    """Ids [slots, columns] of the best outputs and which of these count: the whole output is written when its search
    ends, of those that were active [slots]."""
    best = beam.final_scores(table, penalty).argmax(dim=1, keepdim=True)
    length = table.finished_length.gather(1, best)
    tokens = table.finished_tokens.gather(1, best[..., None].expand(-1, 1, table.tokens.shape[2]))[:, 0]
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    ids = torch.where(columns < length, tokens, EOS)
    return ids, (columns <= length) & (active & table.done)[:, None]


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best per row; a vocabulary smaller than k is filled up with dead entries."""
    missing = k - scores.shape[-1]
    if missing > 0:
        scores = torch.nn.functional.pad(scores, (0, missing), value=beam.DEAD)
    best, picked = scores.topk(k, dim=-1)
    return best, picked
