"""One pass over canvases of all lengths in a window; the best mean log-probability, the length's in it, wins.

Sentences are encoded when they are admitted and filled at the next step. Which lengths are tried is settled on the
host, from source lengths alone, so that nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import Limits, Need, OptionError, Runner, Session, Source, option
from longstride.contract.options import Options
from longstride.contract.signatures import Signed
from longstride.engine.one_step import OneStepSession
from longstride.search.lengths import Window
from longstride.systems.non_autoregressive import programs
from longstride.systems.non_autoregressive.filling import Encoded
from longstride.systems.non_autoregressive.model import OnePass

MAX_NUMBERS = 1 << 28
"""The widest tensor of a pass may hold so many numbers; more sentences go in several passes."""


@dataclass(frozen=True)
class NonAutoregressiveOptions(Options):
    """Options of one-pass decoding."""

    length_window: int = option(
        3, "Try all lengths up to so many tokens shorter or longer than predicted.", least=0, most=1000
    )
    length_weight: float = option(
        1.0,
        "Weight of a length's own probability among those of the tokens; 0 ranks by tokens alone.",
        least=0,
        most=10**6,
    )
    dedup: int = option(
        0, "Take immediate repetitions of up to this many tokens out of outputs (0: leave them).", least=0, most=1000
    )


class NonAutoregressive(Signed[NonAutoregressiveOptions]):
    """Writes a whole sentence per model call."""

    name = "non-autoregressive"

    def __init__(self, model: OnePass, runner: Runner, options: NonAutoregressiveOptions | None = None) -> None:
        super().__init__(runner, options or NonAutoregressiveOptions())
        self._model, self.special = model, model.special

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty session."""
        return _NonAutoregressiveSession(self._model, self._runner, self.options, capacity, limits)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the lengths tried; sentences that do not fit side by side go one after another."""
        columns = min(limits.longest_output(longest_source), longest_source)

        def taken(sentences: int, length_window: int) -> int:
            canvases = min(2 * length_window + 1, columns)
            return canvases * columns * self._model.options.feed_forward * self._runner.dtype.itemsize

        return Need(taken, self._runner.device, "length_window", self.options.length_window)


Portion = tuple[Encoded, Tensor, Tensor, int]
"""Sentences that are filled together: encoded, lengths [rows, n] to be tried, their odds [rows, n], and columns."""


class _NonAutoregressiveSession(OneStepSession[Portion]):
    @torch.inference_mode()
    def __init__(
        self, model: OnePass, runner: Runner, options: NonAutoregressiveOptions, capacity: int, limits: Limits
    ) -> None:
        super().__init__(runner, capacity)
        self._model, self._options, self._limits = model, options, limits
        self._banned = _banned(model, limits, runner.device)
        self._encode = programs.encode(model)
        self._fill = programs.fill(model)

    def prepare(self, source: Source) -> list[tuple[list[int], Portion]]:
        """Encode new sentences together; they are filled in portions that fit into one pass."""
        device, o = self._runner.device, self._model.options
        lengths, odds = self._tried(source.lengths)
        columns, widest = int(lengths.max()), int(source.lengths.max())
        padded = bool((source.lengths != widest).any())
        ids, source_lengths = source.ids[:, :widest].to(device), source.lengths.to(device)
        encoded: Encoded = self._runner.call(self._encode, ids, source_lengths, padded)
        most = max(1, MAX_NUMBERS // (lengths.shape[1] * columns * max(o.feed_forward, 3 * o.width)))
        lengths, odds, rows = lengths.to(device), odds.to(device), range(source.rows)
        parts = [slice(first, first + most) for first in rows[::most]]
        return [(list(rows[part]), (encoded.slice(part), lengths[part], odds[part], columns)) for part in parts]

    def _tried(self, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, n] the lengths to be tried and their odds, -inf where a sentence has fewer of them."""
        o, options = self._model.options, self._options
        predicted = o.length.predict(source_lengths)
        window = Window.around(predicted, options.length_window, self._limits, source_lengths, o.longest)
        longest = window.longest[:, None]
        lengths = window.shortest[:, None] + torch.arange(int((window.longest - window.shortest).max()) + 1)
        odds = options.length_weight * o.length.log_odds(source_lengths, lengths)
        return lengths.minimum(longest), odds.masked_fill(lengths > longest, -torch.inf)

    def decode(self, portions: list[Portion]) -> list[Tensor]:
        """Fill the canvases of these sentences."""
        dedup = self._options.dedup
        return self._runner.fetch(
            *(self._runner.call(self._fill, self._banned, dedup, *portion) for portion in portions)
        )


def _banned(model: OnePass, limits: Limits, device: torch.device) -> Tensor:
    """[vocabulary] bool: which ids may stand in no slot but the last."""
    vocabulary, special = model.options.vocabulary, model.special
    ids = {*special.never_generated, special.eos, *(token for token in limits.banned if 0 <= token < vocabulary)}
    if len(ids) == vocabulary:
        raise OptionError("banned expects to leave at least one id that is a word, found all of them.")
    banned = torch.zeros(vocabulary, dtype=torch.bool)
    banned[list(ids)] = True
    return banned.to(device)
