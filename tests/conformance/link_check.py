"""Whether kernels choose the best chain through the slots' candidates, where equal scores may be chosen either way."""

from __future__ import annotations

import torch

from longstride import ops
from longstride.ops.cuda.self_test import ROWS, STEP, Random, apart


@torch.inference_mode()
def link(random: Random, vocabulary: int, rank: int, candidates: int, width: int) -> float:
    """How far the choices of chains are from the best there are, and what they ask for from what it should be"""
    from longstride.ops.cuda.link_candidates import best_products
    from longstride.ops.cuda.link_chain import chain_tokens, walked

    classes = torch.arange(candidates)
    turns = (vocabulary - classes + candidates - 1) // candidates
    ids = classes + candidates * (random(ROWS, 1 + STEP, candidates).double().cpu().abs() % 1 * turns).long()
    ids, best = ids.to(random(1).device), 2 + random(ROWS, 1 + STEP, candidates).abs()
    logits = random(ROWS, 1 + STEP, vocabulary).clamp(max=1).scatter(2, ids, best)[:, 1:]  # no ties within a class
    ids, best, gate = ids[:, 1:], best[:, 1:], random(ROWS, STEP, rank)
    before, after = (random(vocabulary, rank) for _ in range(2))
    newest = ids[:, 0, 0]
    previous, asked = walked(logits, gate, newest, before, after, candidates)
    chosen = ids[:, :-1] == previous[:, 1:, None]
    if not (torch.equal(previous[:, 0], newest) and chosen.any(dim=2).all()):
        raise ArithmeticError("it chooses what is no candidate")
    scores = (best.double() + (after[ids].double() @ asked.double()[..., None])[..., 0])[:, :-1]
    tokens = chain_tokens(logits, gate, newest, before, after, candidates, candidates)

    hidden = random(STEP, width)
    weight, gate_weight = (random(size, width) * width**-0.5 for size in (vocabulary, rank))
    values, names, said = best_products(hidden, weight, gate_weight, candidates)
    exact = hidden.double() @ weight.double().t()
    right, _ = ops.best_of_classes(exact, candidates)
    value, chunk = values.max(dim=1)
    found = names.gather(1, chunk[:, None])[:, 0].long()
    if not torch.equal(found % candidates, classes.to(found.device).expand_as(found)):
        raise ArithmeticError("it takes a candidate for one of another class")
    return max(
        apart(asked, before[previous].double() * (1 + gate.double())),
        apart(scores[chosen], scores.amax(dim=2).flatten()),
        apart(tokens[:, :-1], previous[:, 1:]),
        apart(value, right),
        apart(exact.gather(1, found), right),
        apart(said, hidden.double() @ gate_weight.double().t()),
    )
