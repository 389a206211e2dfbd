"""Reading a search out: the best of every sentence's hypotheses, in order. Knows no search; works on the host."""

from __future__ import annotations

from torch import Tensor

from longstride.contract import Hypothesis
from longstride.search.beam import DEAD


def best_first(n_best: int, scores: Tensor, *others: Tensor) -> list[Tensor]:
    """Of every sentence the `n_best` by scores [sentences, n], which come first, then others [sentences, n, ...]."""
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :n_best]
    return [one.take_along_dim(order.view(*order.shape, *[1] * (one.dim() - 2)), dim=1) for one in (scores, *others)]


def hypotheses(tokens: Tensor, lengths: Tensor, scores: Tensor, log_probabilities: Tensor) -> list[list[Hypothesis]]:
    """Per sentence what it has, from tokens [sentences, n, columns] and figures [sentences, n]; dead ones left out."""
    every = zip(tokens.tolist(), lengths.tolist(), scores.tolist(), log_probabilities.tolist(), strict=True)
    return [
        [
            Hypothesis(ids[:length], score, log_probability)
            for ids, length, score, log_probability in zip(*sentence, strict=True)
            if score > DEAD
        ]
        for sentence in every
    ]
