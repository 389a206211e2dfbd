"""The shared Transformer's model calls, as programs that a backend carries out.

Each is a function of tensors. Backends that build graphs run the same function on values (longstride.ops.trace); what
they need beside it is here: names, types and shapes of what goes in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from longstride.contract import Feeds, Program
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.transformer import Transformer
from longstride.ops.trace import traced

F32, I64, BOOL = torch.float32, torch.int64, torch.bool

LAYERED = frozenset({"keys", "values", "memory_keys", "memory_values"})
"""What has layers for its first dimension."""


def encode_source(model: Transformer) -> Program:
    """(ids [rows, source], lengths [rows]) -> EncoderState"""
    o = model.options
    return traced(
        "remember",
        model.encode_source,
        (model,),
        {"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",))},
        memory_outputs(o.decoder_layers, o.heads, o.head_width, o.width),
        result=lambda found, feeds: EncoderState(found["keys"], found["values"], found["visible"], found["states"]),
    )


def verify(
    model: Transformer, choose: Callable[[Tensor], Tensor] | None = None, chooser: tuple[nn.Module, ...] = ()
) -> Program:
    """(ids [rows, step], start [rows], cache, memory) -> logits [rows, step, vocabulary], hidden [rows, step, width]

    Slots that are no chain come with a `rule` of who sees whom and a `depth` [rows, step]; see Transformer.extend.
    `choose` changes hidden states before they are projected: a learned first head, say, with the weights of `chooser`.
    """
    o = model.options

    def function(ids: Tensor, start: Tensor, cache: Cache, memory: EncoderState, **tree: Any) -> tuple[Tensor, Tensor]:
        hidden = model.extend(ids, start, cache, memory, **tree)
        return model.logits(hidden if choose is None else choose(hidden)), hidden

    return traced(
        "verify",
        function,
        (model, *chooser),
        step_inputs(model, "rows"),
        {"logits": (F32, ("rows", "step", o.vocabulary)), "hidden": (F32, ("rows", "step", o.width))},
        state=cache_state(o.decoder_layers, o.heads, o.head_width),
        feeds=step_feeds,
        arguments=step_arguments,
        layered=LAYERED,
    )


def extend(model: Transformer) -> Program:
    """(ids [rows, step], start [rows], cache, memory, span) -> logits [rows, step, vocabulary]

    Several rows, side by side, may read one source.
    """
    o = model.options

    def function(ids: Tensor, start: Tensor, cache: Cache, memory: EncoderState, span: int | None = None) -> Tensor:
        return model.logits(model.extend(ids, start, cache, memory, span=span))

    return traced(
        "extend",
        function,
        (model,),
        step_inputs(model, "sources"),
        {"logits": (F32, ("rows", "step", o.vocabulary))},
        state=cache_state(o.decoder_layers, o.heads, o.head_width),
        feeds=step_feeds,
        arguments=step_arguments,
        layered=LAYERED,
    )


# --- what steps take and give ----------------------------------------------------------------------------------------


def memory_outputs(layers: int, heads: int, head: int, width: int) -> dict[str, tuple[torch.dtype, tuple[Any, ...]]]:
    """What makes a memory gives."""
    return {
        "keys": (F32, (layers, "rows", heads, "source", head)),
        "values": (F32, (layers, "rows", heads, "source", head)),
        "visible": (BOOL, ("rows", "source")),
        "states": (F32, ("rows", "source", width)),
    }


def memory_inputs(
    layers: int, heads: int, head: int, sources: str = "sources"
) -> dict[str, tuple[torch.dtype, tuple[Any, ...]]]:
    """What reads a memory takes; `sources` is "rows" where every row has a source of its own."""
    return {
        "memory_keys": (F32, (layers, sources, heads, "source", head)),
        "memory_values": (F32, (layers, sources, heads, "source", head)),
        "visible": (BOOL, (sources, "source")),
    }


def memory_of(given: Mapping[str, Any]) -> EncoderState:
    """The memory that was given under these names."""
    return EncoderState(given["memory_keys"], given["memory_values"], given["visible"])


def memory_feeds(memory: EncoderState) -> dict[str, Tensor]:
    """A memory's tensors under these names."""
    return {"memory_keys": memory.keys, "memory_values": memory.values, "visible": memory.visible}


def cache_state(layers: int, heads: int, head: int) -> dict[str, tuple[torch.dtype, tuple[Any, ...]]]:
    """What keeps keys and values reads and writes."""
    shape = (layers, "rows", heads, "slots", head)
    return {"keys": (F32, shape), "values": (F32, shape)}


def cache_of(given: Mapping[str, Any]) -> Cache:
    """The cache that was given under these names."""
    return Cache(given["keys"], given["values"])


def step_inputs(model: Transformer, sources: str) -> dict[str, tuple[torch.dtype, tuple[Any, ...]]]:
    """What a step takes."""
    o = model.options
    return {
        "ids": (I64, ("rows", "step")),
        "start": (I64, ("rows",)),
        **memory_inputs(o.decoder_layers, o.heads, o.head_width, sources),
    }


def step_arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of a step."""
    return given["ids"], given["start"], cache_of(given), memory_of(given)


def step_feeds(ids: Tensor, start: Tensor, cache: Cache, memory: EncoderState, span: int | None = None) -> Feeds:
    """The arguments of a step by name. A graph finds out by itself how many slots to look at, whatever the `span`."""
    return Feeds({"ids": ids, "start": start, **memory_feeds(memory)}, {"keys": cache.keys, "values": cache.values})
