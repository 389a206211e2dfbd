"""The drafter's model calls, as programs a backend carries out: read a sentence, draft a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import Feeds, Program
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.programs import (
    F32,
    I64,
    LAYERED,
    cache_of,
    cache_state,
    memory_feeds,
    memory_inputs,
    memory_of,
    memory_outputs,
)
from longstride.nn.transformer import Transformer
from longstride.ops.trace import Specification, traced
from longstride.systems.draft_verify import passes
from longstride.systems.draft_verify.model import Drafter, verifier_states
from longstride.systems.draft_verify.passes import Pass


def encode_source(drafter: Drafter, verifier: Transformer, from_states: bool) -> Program:
    """(ids [rows, source], lengths [rows], verifier's states or None, columns) -> EncoderState, mask slots"""
    o = drafter.options

    def function(ids: Tensor, lengths: Tensor, states: Tensor | None, columns: int) -> tuple[EncoderState, Tensor]:
        if states is None and o.encoder != "own":
            states = verifier_states(verifier, o, ids, ops.real(lengths, ids.shape[1]))
        return drafter.encode_source(ids, lengths, states), drafter.mask_slots(ids, lengths, columns)

    reads_states = from_states and o.encoder != "own"
    inputs: dict[str, Any] = {"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",)), "columns": (I64, (1,))}
    if reads_states:
        inputs["states"] = (F32, ("rows", "source", verifier.options.width))
    outputs = memory_outputs(o.decoder_layers, o.heads, o.width // o.heads, o.width)
    del outputs["states"]
    outputs["mask_slots"] = (F32, ("rows", "columns", o.width))

    def feeds(ids: Tensor, lengths: Tensor, states: Tensor | None, columns: int) -> Feeds:
        given = {"ids": ids, "lengths": lengths, "columns": _number(columns)}
        if reads_states and states is not None:
            given["states"] = states
        return Feeds(given, sizes={"columns": columns})

    def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
        return given["ids"], given["lengths"], given.get("states"), ops.length(given["columns"])

    def results(found: tuple[EncoderState, Tensor]) -> dict[str, Any]:
        memory, mask_slots = found
        return {"keys": memory.keys, "values": memory.values, "visible": memory.visible, "mask_slots": mask_slots}

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> tuple[EncoderState, Tensor]:
        return EncoderState(found["keys"], found["values"], found["visible"]), found["mask_slots"]

    return traced(
        "remember-draft",
        function,
        (drafter, verifier),
        inputs,
        outputs,
        feeds=feeds,
        arguments=arguments,
        results=results,
        result=result,
        settings=(reads_states,),
    )


def draft(drafter: Drafter, run: Pass | None = None) -> Program:
    """(tokens, length [rows], window, block, mask slots, cache, memory) -> logits [rows, block, own vocabulary]

    The window is a number, or a tensor [1] that holds one.
    """

    run = run or passes.of(drafter)

    def function(tokens: Tensor, length: Tensor, *rest: Any) -> Tensor:
        tokens = drafter.own(tokens)
        found = run(tokens, length, *rest)
        return drafter.drafted(found.hidden, tokens, length, found.newest)

    return traced_pass("draft", drafter, function, {"logits": (F32, ("rows", "block", len(drafter.output_weight)))})


def traced_pass(name: str, drafter: Drafter, function: Callable[..., Tensor], output: Specification) -> Program:
    """A program of a function of such arguments, with one output."""
    o = drafter.options
    shape = (o.decoder_layers, o.heads, o.width // o.heads)
    inputs: Specification = {
        "tokens": (I64, ("rows", "room")),
        "length": (I64, ("rows",)),
        "block": (I64, (1,)),
        "mask_slots": (F32, ("rows", "columns", o.width)),
        **({"window": (I64, (1,))} if o.prefix == "causal" else {}),
        **memory_inputs(*shape, "rows"),
    }

    def feeds(
        tokens: Tensor,
        length: Tensor,
        window: int | Tensor,
        block: int,
        mask_slots: Tensor,
        cache: Cache,
        memory: EncoderState,
    ) -> Feeds:
        given = {"tokens": tokens, "length": length, "block": _number(block), "mask_slots": mask_slots}
        if o.prefix == "causal":  # a graph has no inputs that it does not read
            given["window"] = _number(window) if isinstance(window, int) else window
        kept = {"keys": cache.keys, "values": cache.values}
        return Feeds({**given, **memory_feeds(memory)}, kept, {"block": block})

    def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
        block = ops.length(given["block"], o.block)
        small = (given["tokens"], given["length"], given.get("window"), block, given["mask_slots"])
        return (*small, cache_of(given), memory_of(given))

    return traced(
        name,
        function,
        (drafter,),
        inputs,
        output,
        state=cache_state(*shape),
        feeds=feeds,
        arguments=arguments,
        layered=LAYERED,
        settings=(o.prefix,),
    )


@cache
def _number(number: int) -> Tensor:
    """[1] the same tensor each time: what is bound stays bound"""
    return torch.tensor([number])
