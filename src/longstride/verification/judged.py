"""Verify, choose and judge in one program, where acceptance is exact and nothing but small results has to be handed on.

Logits of a whole vocabulary are then never moved, and what follows from them is a handful of nodes in the verifier's
own graph instead of a handful of calls from outside. The function is made of :mod:`longstride.verification.reading` and
:mod:`longstride.verification.acceptance`; the drawing is its twin, and tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from longstride.contract import EOS, Drawing, Feeds, Program
from longstride.nn import drawn
from longstride.nn.cache import Cache, Memory
from longstride.nn.pen import Pen, Value
from longstride.verification.acceptance import EXACT, Verdict, judge
from longstride.verification.drafting import Proposal
from longstride.verification.reading import normalise, read

I64 = torch.int64


def judged(verify: Program, ahead: Program | None = None) -> Program:
    """(ids [rows, step], count [rows], start, longest, forbidden, cache, memory) -> Verdict, hidden [rows, width]

    ids are each row's newest token and the draft, of which the first `count` are meant; `longest` and `forbidden` as in
    :func:`longstride.verification.reading.read`, without a least length. The state is that of the slot which chose the
    newest token; with `ahead`, a program (hidden [rows, width], forbidden) -> ids [rows, n], what that makes of it
    takes its place. Log-probabilities are right as far as ids are committed.
    """

    def function(
        ids: Tensor, count: Tensor, start: Tensor, longest: Tensor, forbidden: Tensor, cache: Cache, memory: Memory
    ) -> tuple[Verdict, Tensor]:
        logits, hidden = verify.function(ids, start, cache, memory)
        positions = start[:, None] + torch.arange(ids.shape[1], device=ids.device)
        reading = read(logits, positions, longest, forbidden, 0, normalised=False)
        verdict = judge(EXACT, 1, Proposal(ids[:, 1:], count), reading)
        scores = normalise(verdict.log_probability, logits, int(verdict.committed.max()))
        at_newest = (verdict.committed - 1)[:, None, None].expand(-1, 1, hidden.shape[2])
        told = hidden.gather(1, at_newest)[:, 0]
        return verdict.scored(scores), told if ahead is None else ahead.function(told, forbidden)

    drawing = None
    if verify.drawing is not None and (ahead is None or ahead.drawing is not None):
        drawing = _drawing(verify.drawing, None if ahead is None else ahead.drawing)
    return Program("judge", function, drawing)


def _drawing(verify: Drawing, ahead: Drawing | None) -> Drawing:
    _, (_, _, vocabulary) = verify.outputs["logits"]
    hidden_type, (_, _, width) = verify.outputs["hidden"]
    assert isinstance(vocabulary, int)

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        found = dict(verify.draw(pen, given))
        logits, hidden = found.pop("logits"), found.pop("hidden")
        ids, start = given["ids"], given["start"]
        zero, one, step = pen.integers(0), pen.integers(1), pen.size(ids, 1)
        columns = pen.arange(step)
        positions = pen.node("Add", pen.column(start), columns)
        top = drawn.choices(pen, logits, positions, given["longest"], given["forbidden"], vocabulary)

        # A draft stands as far as it is meant and is the verifier's own; behind its last column nothing does.
        draft = pen.lengthen(pen.cut(ids, one, step, 1), one, 1)
        meant = pen.node("Less", columns, pen.column(given["count"]))
        stands = pen.node("And", meant, pen.node("Equal", draft, top))
        goes_on = pen.node("And", stands, pen.node("Not", pen.node("Equal", draft, pen.integer(EOS))))
        stops = pen.node("Cast", pen.node("Not", goes_on), to=INT32)
        before = pen.node("ArgMax", stops, axis=1, keepdims=0)  # the first of them
        place = pen.column(before)
        ended = pen.node("Cast", pen.node("GatherND", stands, place, batch_dims=1), to=INT64)  # by a drafted EOS
        committed = pen.node("Add", before, pen.integer(1))

        # Sums over the vocabulary are what costs: only of what some row commits.
        most = pen.node("ReduceMax", committed, zero, keepdims=1)
        scores = pen.node("LogSoftmax", pen.cut(logits, zero, most, 1), axis=-1)
        of_top = pen.node("GatherElements", scores, pen.column(pen.cut(top, zero, most, 1)), axis=2)
        of_top = pen.node("Squeeze", of_top, pen.integers(2))
        told = pen.node("GatherND", hidden, place, batch_dims=1)
        if ahead is not None:
            told = ahead.draw(pen, {"hidden": told, "forbidden": given["forbidden"]})["ids"]
        return {
            "top": top,
            "log_probability": pen.lengthen(of_top, pen.node("Sub", step, most), 1),
            "committed": committed,
            "accepted": pen.node("Add", before, ended),
            "newest": pen.node("GatherND", top, place, batch_dims=1),
            "told": told,
            **found,
        }

    def feeds(
        ids: Tensor, count: Tensor, start: Tensor, longest: Tensor, forbidden: Tensor, cache: Cache, memory: Memory
    ) -> Feeds:
        step = verify.feeds(ids, start, cache, memory)
        return Feeds({**step.inputs, "count": count, "longest": longest, "forbidden": forbidden}, step.state)

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> tuple[Verdict, Tensor]:
        newest = found["newest"]
        verdict = Verdict(
            found["accepted"], found["top"], found["log_probability"], found["committed"], newest == EOS, newest
        )
        return verdict, found["told"]

    more = {"count": (I64, ("rows",)), "longest": (I64, ("rows",)), "forbidden": (I64, ("banned",))}
    return replace(
        verify,
        feeds=feeds,
        inputs={**verify.inputs, **more},
        outputs={
            "top": (I64, ("rows", "step")),
            "log_probability": (torch.float32, ("rows", "step")),
            "committed": (I64, ("rows",)),
            "accepted": (I64, ("rows",)),
            "newest": (I64, ("rows",)),
            "told": (hidden_type, ("rows", width)) if ahead is None else ahead.outputs["ids"],
        },
        draw=draw,
        result=result,
        modules=verify.modules if ahead is None else (*verify.modules, *ahead.modules),
        settings=verify.settings if ahead is None else (*verify.settings, "ahead", *ahead.settings),
    )


INT32, INT64 = 6, 7
"""As ONNX numbers its types."""
