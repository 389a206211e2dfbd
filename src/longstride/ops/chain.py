"""The best chain through candidates that are scored in pairs: what a link between neighbouring tokens drafts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops.indexing import arange
from longstride.ops.kernels import operation
from longstride.ops.layers import linear
from longstride.ops.size import Size
from longstride.ops.trace import INTEGER, Tracer, Value, lifted, tracer_of


def best_of_classes(logits: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """[..., vocabulary] -> values and ids [..., classes] of the largest of each class of ids that are equal modulo
    `classes`, at most as many as there are ids"""
    spare = -logits.shape[-1] % classes
    padded = F.pad(logits, (0, spare), value=float("-inf")) if spare else logits
    values, which = padded.view(*padded.shape[:-1], padded.shape[-1] // classes, classes).max(dim=-2)
    return values, which * classes + arange(classes, logits)


def best_chain(values: Tensor, ids: Tensor, newest: Tensor, before: Tensor, factors: Tensor, after: Tensor) -> Tensor:
    """What each slot of a block chooses after what the slot before it has chosen, the first after `newest` [rows].

    Candidates of each slot: values and ids [rows, block, n]. A pair of neighbours y, z adds Σ_r before[y, r] ·
    factors[slot, r] · after[z, r] to z's value; before and after [vocabulary, rank], factors [rows, block, rank].
    -> [rows, block] ids
    """
    tracer = tracer_of(values, ids)
    if tracer is not None:
        return _traced(tracer, values, ids, newest, before, factors, after)  # type: ignore[arg-type, return-value]
    earlier = torch.cat([newest[:, None, None].expand(-1, 1, ids.shape[2]), ids[:, :-1]], dim=1)
    # From every candidate of a slot, whichever of the next one's is best: [rows, block, n]
    left = F.embedding(earlier, before) * factors[:, :, None]
    onward = (values[:, :, None] + left @ F.embedding(ids, after).transpose(-1, -2)).argmax(dim=-1)
    places = [onward[:, 0, :1]]
    for slot in range(1, onward.shape[1]):
        places.append(onward[:, slot].gather(1, places[-1]))
    return ids.gather(2, torch.stack(places, dim=1))[..., 0]


def _traced(
    tracer: Tracer, values: Value, ids: Any, newest: Any, before: Tensor, factors: Value, after: Tensor
) -> Value:
    block, candidates = ids.size(1), ids.size(2)
    assert isinstance(candidates, int)
    first = newest[:, None, None].expand(-1, 1, candidates)
    earlier: Any = torch.cat([first, ids], dim=1)[:, :block]
    handle = tracer.builder.link_steps(
        before, earlier.handle, lifted(tracer, factors).handle, after, ids.handle, values.handle
    )
    onward: Any = tracer.value(handle, INTEGER, ids.sizes)
    # Where a chain stands after each slot: steps put together, then pairs of them, then fours, ...
    longest = block.most if isinstance(block, Size) else block
    assert longest is not None, "a block whose length differs from call to call needs a bound"
    still = onward[:, :1] * 0 + torch.arange(candidates)
    reach = 1
    while reach < longest:
        moved: Any = torch.cat([still.expand(-1, reach, -1), onward], dim=1)[:, :block]
        onward = onward.gather(2, moved)
        reach *= 2
    return ids.gather(2, onward[:, :, :1]).squeeze(2)  # type: ignore[no-any-return]


# --- drafts of linked slots ------------------------------------------------------------------------------------------


@operation
def chain_logits(
    logits: Tensor, gate: Tensor, newest: Tensor, before: Tensor, after: Tensor, few: int, many: int
) -> Tensor:
    """Logits [rows, block, vocabulary] of slots by themselves, plus what each slot's predecessor on the best chain adds

    A pair of neighbours is scored as in :func:`best_chain`, with factors 1 + gate [rows, block, rank]. Candidates of
    each slot are the best of `few` classes of ids; a kernel to which they cost little takes `many`.
    """
    factors = 1 + gate
    chain = best_chain(*best_of_classes(logits, few), newest, before, factors, after)
    previous = torch.cat([newest[:, None], chain[:, :-1]], dim=1)
    return logits + F.linear((F.embedding(previous, before) * factors).to(logits.dtype), after)


@operation
def chain_tokens(
    logits: Tensor,
    gate: Tensor,
    newest: Tensor,
    before: Tensor,
    after: Tensor,
    few: int,
    many: int,
    again: bool = False,
    into: Tensor | None = None,
    count: Tensor | None = None,
) -> Tensor:
    """The best chain's tokens [rows, block]; with `again`, of few candidates what is best after each of them

    They are put `into` a tensor, if one is given; `count` [rows] is told how many there are.
    """
    if again:
        found = chain_logits(logits, gate, newest, before, after, few, many).argmax(dim=-1)
    else:
        found = best_chain(*best_of_classes(logits, few), newest, before, 1 + gate, after)
    if count is not None:
        count.fill_(found.shape[1])
    return found if into is None else into.copy_(found)


@operation
def chain_tokens_of_states(
    hidden: Tensor, weight: Tensor, gate_weight: Tensor, newest: Tensor, before: Tensor, after: Tensor, *rest: Any
) -> Tensor:
    """:func:`chain_tokens` where logits and gate are nothing but hidden [rows, block, width] by weight [vocabulary,
    width] and gate_weight [rank, width]"""
    gate = linear(hidden, gate_weight)
    return chain_tokens(F.linear(hidden, weight), gate, newest, before, after, *rest)


def plus_product(logits: Tensor, asked: Tensor, after: Tensor) -> Tensor:
    """logits [rows, block, vocabulary] + asked [rows, block, rank] by after [vocabulary, rank], in one call"""
    rows, block, _ = logits.shape
    if rows == 1 or logits.stride(0) == block * logits.stride(1):  # slots lie evenly: rows are one longer block
        return torch.addmm(logits.flatten(0, 1), asked.flatten(0, 1), after.t()).view_as(logits)
    return torch.baddbmm(logits, asked, after.t().expand(rows, -1, -1))
