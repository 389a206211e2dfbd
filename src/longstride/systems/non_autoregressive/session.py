"""One-pass decoding as a session: sentences are encoded when they are admitted and filled at the next step.

Which lengths are tried is settled on the host, from source lengths alone, so that nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import EOS, NEVER_GENERATED, Limits, OptionError, Runner, Source
from longstride.search.lengths import Window
from longstride.search.one_step import OneStepSession
from longstride.systems.non_autoregressive import programs
from longstride.systems.non_autoregressive.filling import Encoded
from longstride.systems.non_autoregressive.model import OnePass

MAX_NUMBERS = 1 << 28
"""The widest tensor of a pass may hold so many numbers; more sentences go in several passes."""


@dataclass(frozen=True)
class Portion:
    """Encoded sentences that are filled together."""

    encoded: Encoded
    lengths: Tensor
    """[sentences, n] to be tried"""
    odds: Tensor
    """[sentences, n] how likely these are, -inf where a sentence has fewer of them"""
    columns: int


class NonAutoregressiveSession(OneStepSession[Portion]):
    """Canvases of all lengths in the window, filled in one pass."""

    @torch.inference_mode()
    def __init__(
        self,
        model: OnePass,
        runner: Runner,
        length_window: int,
        length_weight: float,
        dedup: int,
        capacity: int,
        limits: Limits,
    ) -> None:
        super().__init__(runner, capacity)
        self._model = model
        self._limits = limits
        self._length_window = length_window
        self._length_weight = length_weight
        self._dedup = dedup
        self._banned = _banned(model, limits, runner.device)
        self._encode = programs.encode(model)
        self._fill = programs.fill(model)

    def prepare(self, source: Source) -> list[tuple[list[int], Portion]]:
        """Encode new sentences together; they are filled in portions that fit into one pass."""
        device = self._runner.device
        lengths, odds = self._tried(source.lengths)
        columns, widest = int(lengths.max()), int(source.lengths.max())
        padded = bool((source.lengths != widest).any())
        ids, source_lengths = source.ids[:, :widest].to(device), source.lengths.to(device)
        encoded: Encoded = self._runner.call(self._encode, ids, source_lengths, padded)
        there = lengths.to(device), odds.to(device)
        o = self._model.options
        most = max(1, MAX_NUMBERS // (lengths.shape[1] * columns * max(o.feed_forward, 3 * o.width)))
        rows = [list(range(source.rows))[first : first + most] for first in range(0, source.rows, most)]
        parts = (slice(some[0], some[-1] + 1) for some in rows)
        return [
            (some, Portion(encoded.slice(part), there[0][part], there[1][part], columns))
            for some, part in zip(rows, parts, strict=True)
        ]

    def _tried(self, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, n] the lengths to be tried and their odds."""
        options = self._model.options
        predicted = options.length.predict(source_lengths)
        window = Window.around(predicted, self._length_window, self._limits, source_lengths, options.longest)
        longest = window.longest[:, None]
        lengths = window.shortest[:, None] + torch.arange(int((window.longest - window.shortest).max()) + 1)
        odds = self._length_weight * options.length.log_odds(source_lengths, lengths)
        return lengths.minimum(longest), odds.masked_fill(lengths > longest, -torch.inf)

    def decode(self, portions: list[Portion]) -> list[Tensor]:
        """Fill the canvases of these sentences."""
        given = ((one.encoded, one.lengths, one.odds, one.columns) for one in portions)
        found = [self._runner.call(self._fill, self._banned, self._dedup, *one) for one in given]
        return self._runner.fetch(*found)


def _banned(model: OnePass, limits: Limits, device: torch.device) -> Tensor:
    """[vocabulary] bool: which ids may stand in no slot but the last."""
    vocabulary = model.options.vocabulary
    ids = {*NEVER_GENERATED, EOS, *(token for token in limits.banned if 0 <= token < vocabulary)}
    if len(ids) == vocabulary:
        raise OptionError("banned expects to leave at least one id that is a word, found all of them.")
    banned = torch.zeros(vocabulary, dtype=torch.bool)
    banned[list(ids)] = True
    return banned.to(device)
