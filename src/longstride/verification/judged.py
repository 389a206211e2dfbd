"""Verify, choose and judge in one program, where acceptance is exact and nothing but small results has to be handed on.

Logits of a whole vocabulary are then never moved, and what follows from them is a handful of nodes in the verifier's
own graph instead of a handful of calls from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.contract import EOS, Feeds, GraphSpec, Program
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.programs import cache_of, memory_of
from longstride.ops.recording import recorded
from longstride.verification.acceptance import EXACT, Verdict, judge
from longstride.verification.drafting import Proposal
from longstride.verification.reading import read

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
        ids: Tensor,
        count: Tensor,
        start: Tensor,
        longest: Tensor,
        forbidden: Tensor,
        cache: Cache,
        memory: EncoderState,
    ) -> Judged:
        logits, hidden = verify.function(ids, start, cache, memory)
        step = ids.shape[1]
        reading = read(logits, ops.slots_from(start, step), longest, forbidden, 0, normalised=False)
        verdict = judge(EXACT, 1, Proposal(ids[:, 1:], count), reading)
        # Sums over the vocabulary are what costs: only of what some row commits.
        most = ops.largest(verdict.committed)
        scores = ops.log_shares(logits[:, :most], verdict.ids[:, :most, None])[..., 0]
        told = ops.take(hidden, verdict.committed[:, None] - 1)[:, 0]
        first = (verdict.committed, verdict.accepted, verdict.newest)
        return Judged(
            torch.cat([*(number[:, None] for number in first), verdict.ids], dim=1),
            F.pad(scores, (0, step - most)),
            told if ahead is None else ahead.function(told, verdict.newest, forbidden),
        )

    spec = None
    if verify.graph is not None and (ahead is None or ahead.graph is not None):
        spec = _spec(function, verify.graph, None if ahead is None else ahead.graph)
    return Program("judge", function, spec)


def _spec(function: Callable[..., Judged], verify: GraphSpec, ahead: GraphSpec | None) -> GraphSpec:
    hidden_type, (_, _, width) = verify.outputs["hidden"]

    def feeds(
        ids: Tensor,
        count: Tensor,
        start: Tensor,
        longest: Tensor,
        forbidden: Tensor,
        cache: Cache,
        memory: EncoderState,
    ) -> Feeds:
        step = verify.feeds(ids, start, cache, memory)
        return Feeds(
            {**step.inputs, "count": count, "longest": longest, "forbidden": forbidden},
            step.state,
            {"numbers": FIRST + ids.shape[1]},
        )

    more = {"count": (I64, ("rows",)), "longest": (I64, ("rows",)), "forbidden": (I64, ("banned",))}
    inputs = {**verify.inputs, **more}
    small = ("ids", "count", "start", "longest", "forbidden")
    return replace(
        verify,
        feeds=feeds,
        inputs=inputs,
        outputs={
            "numbers": (I64, ("rows", "numbers")),
            "log_probability": (torch.float32, ("rows", "step")),
            "told": (hidden_type, ("rows", width)) if ahead is None else ahead.outputs["ids"],
        },
        record=recorded(
            function,
            inputs,
            verify.state,
            lambda given: (*(given[name] for name in small), cache_of(given), memory_of(given)),
            vars,
        ),
        result=lambda found, feeds: Judged(found["numbers"], found["log_probability"], found["told"]),
        modules=verify.modules if ahead is None else (*verify.modules, *ahead.modules),
        settings=verify.settings if ahead is None else (*verify.settings, "ahead", *ahead.settings),
    )
