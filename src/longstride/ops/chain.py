"""The best chain through candidates that are scored in pairs: what a link between neighbouring tokens drafts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops.indexing import arange
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
