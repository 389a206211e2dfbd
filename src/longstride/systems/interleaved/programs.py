"""The model calls of an interleaved decoder, as programs a backend carries out.

Where slots stand and whom they see comes in with the layout, so that one graph serves every variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from longstride.contract import Feeds, Program
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.link import Link
from longstride.nn.programs import F32, I64, LAYERED, cache_state, step_arguments, step_feeds, step_inputs
from longstride.ops.trace import Specification, traced
from longstride.systems.interleaved.model import InterleavedModel, Layout


def extend(model: InterleavedModel) -> Program:
    """(ids [rows, step], start [rows], cache, memory, layout, span) -> logits [rows, step, vocabulary], and with a link
    its factors [rows, step, rank], else None"""
    base, link = model.model, model.interleaving.link
    o = base.options
    inputs: Specification = {
        **step_inputs(base, "sources"),
        "places": (F32, ("layout", o.width)),
        "sight": (F32, ("layout", "layout")),
    }

    def feeds(
        ids: Tensor, start: Tensor, cache: Cache, memory: EncoderState, layout: Layout, span: int | None = None
    ) -> Feeds:
        step = step_feeds(ids, start, cache, memory, span)
        return Feeds({**step.inputs, "places": layout.places, "sight": layout.sight}, step.state)

    def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
        return (*step_arguments(given), Layout(given["places"], given["sight"]))

    def results(found: tuple[Tensor, Tensor | None]) -> dict[str, Any]:
        logits, factors = found
        return {"logits": logits} if factors is None else {"logits": logits, "factors": factors}

    return traced(
        "interleaved",
        model.step_logits,
        (base, model.interleaving),
        inputs,
        {
            "logits": (F32, ("rows", "step", o.vocabulary)),
            **({} if link is None else {"factors": (F32, ("rows", "step", model.options.link))}),
        },
        state=cache_state(o.decoder_layers, o.heads, o.head_width),
        feeds=feeds,
        arguments=arguments,
        results=results,
        result=lambda found, feeds: (found["logits"], found.get("factors")),
        layered=LAYERED,
    )


def tie(link: Link) -> Program:
    """(logits [rows, slots or 1, vocabulary], factors [rows, slots or 1, rank], words before them [rows, slots]) ->
    logits [rows, slots, vocabulary] given these words"""
    vocabulary, rank = link.after.weight.shape
    inputs: Specification = {
        "logits": (F32, ("rows", "alike", vocabulary)),  # one of them may stand for several slots
        "factors": (F32, ("rows", "alike", rank)),
        "previous": (I64, ("rows", "slots")),
    }
    return traced("link", link.tied, (link,), inputs, {"tied": (F32, ("rows", "slots", vocabulary))})
