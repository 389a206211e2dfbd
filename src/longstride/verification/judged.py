"""Verify, choose and judge in one program, where acceptance is exact and nothing but small results has to be handed on.

Logits of a whole vocabulary are then never moved, and what follows from them is a handful of nodes in the verifier's
own graph instead of a handful of calls from outside. The function is made of :mod:`longstride.verification.reading` and
:mod:`longstride.verification.acceptance`; the drawing is its twin, and tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Judged:
    """What comes of one step, in few tensors: handing on many small ones takes as long as making them."""

    numbers: Tensor
    """[rows, 3 + step] how many ids are committed, how many of the draft were accepted, the newest id, and all ids"""
    log_probability: Tensor
    """[rows, step] of these ids, as far as they are committed"""
    told: Tensor
    """[rows, width] the state that chose the newest token, or what a drafter's program makes of it"""

    @property
    def verdict(self) -> Verdict:
        """The same as rules give it."""
        committed, accepted, newest = self.numbers[:, :FIRST].unbind(dim=1)
        return Verdict(accepted, self.numbers[:, FIRST:], self.log_probability, committed, newest == EOS, newest)


FIRST = 3
"""The column of `numbers` where ids begin."""


def judged(verify: Program, ahead: Program | None = None) -> Program:
    """(ids [rows, step], count [rows], start, longest, forbidden, cache, memory) -> Judged

    ids are each row's newest token and the draft, of which the first `count` are meant; `longest` and `forbidden` as in
    :func:`longstride.verification.reading.read`, without a least length. The state is that of the slot which chose the
    newest token; with `ahead`, a program (hidden [rows, width], newest [rows], forbidden) -> ids [rows, n], what that
    makes of it takes its place.
    """

    def function(
        ids: Tensor, count: Tensor, start: Tensor, longest: Tensor, forbidden: Tensor, cache: Cache, memory: Memory
    ) -> Judged:
        logits, hidden = verify.function(ids, start, cache, memory)
        positions = start[:, None] + torch.arange(ids.shape[1], device=ids.device)
        reading = read(logits, positions, longest, forbidden, 0, normalised=False)
        verdict = judge(EXACT, 1, Proposal(ids[:, 1:], count), reading)
        scores = normalise(verdict.log_probability, logits, int(verdict.committed.max()))
        at_newest = (verdict.committed - 1)[:, None, None].expand(-1, 1, hidden.shape[2])
        told = hidden.gather(1, at_newest)[:, 0]
        first = (verdict.committed, verdict.accepted, verdict.newest)
        numbers = torch.cat([torch.stack(first, dim=1), verdict.ids], dim=1)
        return Judged(numbers, scores, told if ahead is None else ahead.function(told, verdict.newest, forbidden))

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
        of_top = pen.node("GatherElements", scores, pen.column(pen.cut(top, zero, most, 1)), axis=-1)
        of_top = pen.node("Squeeze", of_top, pen.integers(2))
        accepted, newest = pen.node("Add", before, ended), pen.node("GatherND", top, place, batch_dims=1)
        told = pen.node("GatherND", hidden, place, batch_dims=1)
        if ahead is not None:
            told = ahead.draw(pen, {"hidden": told, "newest": newest, "forbidden": given["forbidden"]})["ids"]
        first = (pen.column(value) for value in (committed, accepted, newest))
        return {
            "numbers": pen.node("Concat", *first, top, axis=1),
            "log_probability": pen.lengthen(of_top, pen.node("Sub", step, most), 1),
            "told": told,
            **found,
        }

    def feeds(
        ids: Tensor, count: Tensor, start: Tensor, longest: Tensor, forbidden: Tensor, cache: Cache, memory: Memory
    ) -> Feeds:
        step = verify.feeds(ids, start, cache, memory)
        return Feeds(
            {**step.inputs, "count": count, "longest": longest, "forbidden": forbidden},
            step.state,
            {"numbers": FIRST + ids.shape[1]},
        )

    more = {"count": (I64, ("rows",)), "longest": (I64, ("rows",)), "forbidden": (I64, ("banned",))}
    return replace(
        verify,
        feeds=feeds,
        inputs={**verify.inputs, **more},
        outputs={
            "numbers": (I64, ("rows", "numbers")),
            "log_probability": (torch.float32, ("rows", "step")),
            "told": (hidden_type, ("rows", width)) if ahead is None else ahead.outputs["ids"],
        },
        draw=draw,
        result=lambda found, feeds: Judged(found["numbers"], found["log_probability"], found["told"]),
        modules=verify.modules if ahead is None else (*verify.modules, *ahead.modules),
        settings=verify.settings if ahead is None else (*verify.settings, "ahead", *ahead.settings),
    )


INT32, INT64 = 6, 7
"""As ONNX numbers its types."""
