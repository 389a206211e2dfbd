"""Greedy and beam search with several directions and words per step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from longstride.contract import Limits, Need, OptionError, Runner, Session, option
from longstride.contract.decoding import Signed
from longstride.contract.options import Options
from longstride.engine.pool import PoolKey
from longstride.nn.transformer import Transformer
from longstride.search.beam import Search
from longstride.search.length_penalty import LengthPenalty
from longstride.search.session import BeamSession
from longstride.systems.interleaved.beam import beam_table
from longstride.systems.interleaved.greedy import GreedySession, GreedyTable
from longstride.systems.interleaved.model import InterleavedModel, Interleaving
from longstride.systems.interleaved.slots import sentences_of


@dataclass(frozen=True)
class InterleavedOptions(Options):
    """Options of interleaved search."""

    width: int = option(1, "Hypotheses kept per sentence; 1 is greedy search.", least=1, most=1000)
    end: Literal["any-direction", "paper"] = option(
        "any-direction",
        "The first EOS ends, whichever direction says it, and what it drops is not scored; or as the authors do.",
    )
    dedup: int = option(
        0, "Take immediate repetitions of up to this many tokens out of outputs (0: leave them).", least=0, most=1000
    )
    length_penalty: Literal["gnmt", "average", "none"] = option(
        "gnmt", "Score = log-probability / ((5 + length) / 6)^strength (gnmt) or / length^strength (average)."
    )
    strength: float = option(0.6, "Strength of the length penalty.", least=-10, most=10)
    n_best: int = option(1, "How many hypotheses to return, at most width.", least=1, most=1000)
    h: int | None = option(
        None, "Directions: the model's, and refused where they are not (none: whatever it has).", least=1, most=64
    )
    c: int | None = option(
        None, "Words per direction and step: the model's, and refused where they are not.", least=1, most=64
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.width:
            raise OptionError(f"n_best expects 1 to width ({self.width}), found {self.n_best}.")


class Interleaved(Signed[InterleavedOptions]):
    """Writes h·c words per model call, from all ends of the sentence."""

    name = "interleaved"

    def __init__(
        self, model: Transformer, interleaving: Interleaving, runner: Runner, options: InterleavedOptions | None = None
    ) -> None:
        trained = interleaving.options
        options = options or InterleavedOptions()
        for name in ("h", "c"):
            asked, has = getattr(options, name), getattr(trained, name)
            if asked not in (None, has):
                raise OptionError(f"{name} expects {has}, which the model was trained with, found {asked}.")
        super().__init__(runner, replace(options, h=trained.h, c=trained.c))
        self._model, self.special = InterleavedModel(model, interleaving), model.special

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        o, model, runner = self.options, self._model, self._runner
        step, paper = model.options.step, o.end == "paper"
        penalty = LengthPenalty(o.length_penalty, o.strength)
        earliest = max(limits.min_length, step if paper else 0)  # the authors allow no EOS in the first step
        eos = self.special.eos
        search = Search(o.width, o.n_best, penalty, step, earliest, paper, eos)
        family = ("interleaved", model.model, model.interleaving, search, o.dedup, limits)
        key = PoolKey.of(runner, family, capacity, longest_source, model.model.options.longest)
        if o.width == 1:
            return GreedySession(key, partial(GreedyTable, model, runner, search, o.dedup, limits))
        finish = partial(sentences_of, options=model.options, dedup=o.dedup, eos=eos)
        return BeamSession(key, partial(beam_table, model, runner, search, limits), o.n_best, step, finish, eos)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the width and the sentences."""
        model, step = self._model.model, self._model.options.step
        longest = limits.longest_output(longest_source) + step
        columns = longest if self._runner.records else min(longest, longest_source)

        def taken(sentences: int, width: int) -> int:
            rows = sentences * width
            logits = rows * step * model.options.vocabulary * self._runner.dtype.itemsize
            return logits + rows * 2 * 8 * longest + model.table_bytes(rows, columns, sentences, longest_source)

        return Need(taken, self._runner.device, "width", self.options.width)
