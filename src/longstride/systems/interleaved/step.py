"""One step of greedy search: read, choose, commit; for a backend that builds graphs one program, state included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longstride import ops
from longstride.contract import Feeds, Program
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.programs import F32, I64, LAYERED, cache_of, cache_state, memory_feeds, memory_of, step_inputs
from longstride.ops.trace import Specification, traced
from longstride.systems.interleaved.model import InterleavedModel, Layout
from longstride.verification.acceptance import summarise

Choice = tuple[Tensor, ...]
"""[rows, slots] words, and what was found out about them"""


@dataclass(frozen=True)
class RowState:
    """What a step reads and writes of every row."""

    words: Tensor
    """[rows, columns] in the order of writing"""
    filled: Tensor
    """[rows] slots that are written, a whole number of steps"""
    length: Tensor
    """[rows] words before EOS"""
    log_probability: Tensor
    """[rows] of all that counts"""
    done: Tensor
    """[rows] ended, or never begun"""
    ids: Tensor
    """[rows, step] what the next step reads"""
    start: Tensor
    """[rows] where it begins: what is filled, 0 where a row is done"""


@dataclass(frozen=True)
class Committed:
    """What a step has done to every row."""

    active: Tensor
    """[rows] bool: it took part"""
    position: Tensor
    """[rows, step] numbers in the order of the sentence; anything where the row was idle"""
    written: Tensor
    """[rows, step] bool: up to and with the first EOS"""


def in_rounds(
    logits: Tensor,
    factors: Tensor | None,
    h: int,
    tie: Callable[[Tensor, Tensor, Tensor], Tensor] | None,
    choose: Callable[[Tensor, int], Choice],
) -> Choice:
    """The best words of all slots; where neighbours are linked, a word of every direction in each round, given the one
    before it. `choose` gets the logits of some slots, and which is the first of them."""
    if tie is None:
        return choose(logits, 0)
    assert factors is not None
    every = [choose(logits[:, :h], 0)]
    for first in range(h, logits.shape[1], h):
        here = slice(first, first + h)
        every.append(choose(tie(logits[:, here], factors[:, here], every[-1][0]), first))
    return tuple(torch.cat(parts, dim=1) for parts in zip(*every, strict=True))


def greedy_step(model: InterleavedModel, earliest: int, count_dropped: bool) -> Program:
    """(row state, cache, memory, layout, longest [rows], forbidden [n], anchors of slots, that behind all [1]) ->
    what was committed, and the words [rows, step]

    EOS stands at `earliest` or later; with `count_dropped` what follows it in its step counts too.
    """
    base, interleaving, step = model.model, model.interleaving, model.options.step
    o = base.options
    wide = ("rows", step)
    memory = {name: value for name, value in step_inputs(base, "sources").items() if name not in ("ids", "start")}
    inputs: Specification = {
        **memory,
        "places": (F32, ("layout", o.width)),
        "sight": (F32, ("layout", "layout")),
        "longest": (I64, ("rows",)),
        "forbidden": (I64, ("banned",)),
        "anchors": (I64, ("anchors",)),
        "behind": (I64, (1,)),
    }
    rows: Specification = {
        **dict.fromkeys(("filled", "length", "start"), (I64, ("rows",))),
        "words": (I64, ("rows", "columns")),
        "log_probability": (torch.float64, ("rows",)),
        "done": (torch.bool, ("rows",)),
        "ids": (I64, wide),
    }

    def feeds(of: RowState, cache: Cache, memory: EncoderState, layout: Layout, *bounds: Tensor) -> Feeds:
        small = dict(zip(("longest", "forbidden", "anchors", "behind"), bounds, strict=True))
        written = {"keys": cache.keys, "values": cache.values} | {name: getattr(of, name) for name in rows}
        return Feeds({**memory_feeds(memory), "places": layout.places, "sight": layout.sight, **small}, written)

    def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
        of = RowState(**{name: given[name] for name in rows})
        layout = Layout(given["places"], given["sight"])
        return (of, cache_of(given), memory_of(given), layout, *(given[name] for name in tuple(inputs)[-4:]))

    def results(found: tuple[Committed, Tensor]) -> dict[str, Any]:
        return {**vars(found[0]), "top": found[1]}

    return traced(
        "interleaved-step",
        partial(_run, model, earliest, count_dropped),
        (base, interleaving),
        inputs,
        {
            "active": (torch.bool, ("rows",)),
            "position": (I64, wide),
            "written": (torch.bool, wide),
            "top": (I64, wide),
        },
        state={**cache_state(o.decoder_layers, o.heads, o.head_width), **rows},
        feeds=feeds,
        arguments=arguments,
        results=results,
        result=lambda found, feeds: (Committed(found["active"], found["position"], found["written"]), found["top"]),
        layered=LAYERED,
        settings=(model.options, earliest, count_dropped, base.special),
    )


def _run(
    model: InterleavedModel,
    earliest: int,
    count_dropped: bool,
    rows: RowState,
    cache: Cache,
    memory: EncoderState,
    layout: Layout,
    longest: Tensor,
    forbidden: Tensor,
    anchors: Tensor,
    behind: Tensor,
) -> tuple[Committed, Tensor]:
    options, link, eos = model.options, model.interleaving.link, model.model.special.eos
    step = options.step
    slots = ops.slots_from(rows.filled, step)  # beyond a row's end where it is done

    def choose(logits: Tensor, first: int) -> Choice:
        at = slots[:, first : first + logits.shape[1]]
        top = summarise(logits, at, longest, forbidden, earliest, eos=eos).top
        return top, ops.log_shares(logits, top[..., None])[..., 0]

    logits, factors = model.step_logits(rows.ids, rows.start, cache, memory, layout)
    top, shares = in_rounds(logits, factors, options.h, None if link is None else link.tied, choose)
    active = ~rows.done
    ends = top == eos
    # Up to and with the first EOS in the order of writing: no column after one that ends.
    after = ops.arange(step, top)[:, None] > ops.arange(step, top)
    written = ((ends[:, None] & after).sum(dim=-1) == 0) & active[:, None]
    # Not a product: what is not written may be -inf.
    ops.accumulate(rows.log_probability, torch.where(active[:, None] if count_dropped else written, shares, 0.0))
    position = torch.where(ends, behind, F.embedding(slots, anchors[:, None])[..., 0])
    ops.append(rows.words, top, rows.filled)
    ops.assign(rows.ids, top)
    ops.assign(rows.length, rows.length + (written & ~ends).sum(dim=1))
    filled, done = rows.filled + torch.where(active, step, 0), rows.done | (ends.sum(dim=1) > 0)
    ops.assign(rows.filled, filled)
    ops.assign(rows.start, torch.where(done, 0, filled))  # idle rows idle at the front, where there is room
    ops.assign(rows.done, done)
    return Committed(active, position, written), top
