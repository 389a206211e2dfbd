"""The statistical model alone: the likeliest word at each place of a translation of the likeliest length.

What the lattice is without scores and search, or with K = 1 (Table 2): poor, and quick. It needs tables alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import Limits, Program, Runner, Session, Source
from longstride.contract.decoding import Signed
from longstride.contract.options import Options
from longstride.engine.one_step import OneStepSession, pack
from longstride.systems.lattice.candidates import fallback_word
from longstride.systems.lattice.tables import ONE, Tables


@dataclass(frozen=True)
class CountsOptions(Options):
    """There is nothing to choose."""


class CountsDecoder(Signed[CountsOptions]):
    """One lookup per sentence."""

    name = "counts"

    def __init__(self, tables: Tables, runner: Runner, options: CountsOptions | None = None) -> None:
        super().__init__(runner, options or CountsOptions())
        self._tables, self.special = tables, tables.options.special

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty session."""
        return _CountsSession(self._tables, self._runner, capacity, limits)


class _CountsSession(OneStepSession[Tensor]):
    """Words are looked up when sentences are admitted."""

    step_calls = 0

    def __init__(self, tables: Tables, runner: Runner, capacity: int, limits: Limits) -> None:
        super().__init__(runner, capacity)
        self._tables, self._limits = tables, limits
        o, self._banned = tables.options, sorted({*limits.banned, *(tables.options.special.suppress or ())})
        self._eos, self._fallback = o.special.eos, fallback_word(o.special, o.vocabulary, self._banned)
        self._look_up = Program("candidates", self._best, weightless=True)

    def prepare(self, source: Source) -> list[tuple[list[int], Tensor]]:
        """Look all words of new sentences up together."""
        words = self._tables.options.length.predict(source.lengths) - 1
        words = words.clamp(min=max(1, self._limits.min_length)).minimum(self._limits.longest_outputs(source.lengths))
        there = (tensor.to(self._runner.device) for tensor in (source.ids, source.lengths, words))
        return [(list(range(source.rows)), self._runner.call(self._look_up, *there, int(words.max())))]

    def decode(self, portions: list[Tensor]) -> list[Tensor]:
        """They are decoded already."""
        return self._runner.fetch(*portions)

    def _best(self, source: Tensor, lengths: Tensor, words: Tensor, columns: int) -> Tensor:
        """The likeliest words that are allowed, `words` [rows] of them, unk (if that is) where there is none; as `pack`
        has it."""
        found = self._tables.candidates(source, lengths, columns, 1 + len(self._banned))
        scores = found.log_scores.double()
        if self._banned:
            banned = torch.tensor(self._banned, device=source.device)
            scores = scores.masked_fill(torch.isin(found.ids, banned), -torch.inf)
        best = scores.max(-1)
        none = best.values == -torch.inf
        ids = found.ids.gather(-1, best.indices[..., None])[..., 0].masked_fill(none, self._fallback)
        each = best.values.masked_fill(none, -math.log(ONE))
        beyond = torch.arange(columns + 1, device=source.device) >= words[:, None]
        ids = torch.nn.functional.pad(ids, (0, 1)).masked_fill(beyond, self._eos)
        total = torch.nn.functional.pad(each, (0, 1)).masked_fill(beyond, 0.0).sum(dim=1)
        return pack(words + 1, total, total, ids)[:, None]
