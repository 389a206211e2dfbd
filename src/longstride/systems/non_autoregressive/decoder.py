"""One pass over canvases of all lengths in a window; the best mean log-probability, the length's in it, wins."""

from __future__ import annotations

from dataclasses import dataclass

from longstride.contract import Limits, Need, Runner, Session, option
from longstride.contract.options import Options
from longstride.contract.signatures import Signed
from longstride.systems.non_autoregressive.model import OnePass
from longstride.systems.non_autoregressive.session import NonAutoregressiveSession


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
        self._model = model

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        o = self.options
        return NonAutoregressiveSession(
            self._model, self._runner, o.length_window, o.length_weight, o.dedup, capacity, limits
        )

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the lengths tried; sentences that do not fit side by side go one after another."""
        columns = min(limits.longest_output(longest_source), longest_source)

        def taken(sentences: int, length_window: int) -> int:
            canvases = min(2 * length_window + 1, columns)
            return canvases * columns * self._model.options.feed_forward * self._runner.dtype.itemsize

        return Need(taken, self._runner.device, "length_window", self.options.length_window)
