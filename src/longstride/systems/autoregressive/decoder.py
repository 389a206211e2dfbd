"""Greedy search, sampling and beam search with the ordinary Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longstride.contract import Decoder, Limits, Need, OptionError, Runner, Session, option
from longstride.contract.decoding import HARD_LIMITS, signature
from longstride.contract.options import Options
from longstride.engine.pool import PoolKey
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.search.beam_table import BeamTable, beam_need, reads_indirection
from longstride.search.options import BeamOptions
from longstride.search.session import BeamSession, Sentences
from longstride.search.table import SearchModel
from longstride.verification.acceptance import SamplingOptions
from longstride.verification.drafting import NoDraft
from longstride.verification.session import DecodePlan, VerifyingDecoder
from longstride.verification.step import Acceptance


@dataclass(frozen=True)
class GreedyOptions(Options):
    """Greedy search has no options of its own."""


class Greedy(VerifyingDecoder[GreedyOptions]):
    """The most likely token, one after another: the verification loop with no draft."""

    name = "greedy"

    def __init__(self, model: Transformer, runner: Runner, options: GreedyOptions | None = None) -> None:
        super().__init__(model, runner, options or GreedyOptions())

    def plan(self, limits: Limits) -> DecodePlan:
        """Nobody drafts."""
        return DecodePlan(self._model, self._runner, NoDraft(), limits)


@dataclass(frozen=True, kw_only=True)
class SampleOptions(SamplingOptions):
    """Options of sampling."""

    temperature: float = option(
        1.0, "Logits are divided by this before a token is drawn (0: the likeliest token, always).", least=0, most=1000
    )


class Sample(VerifyingDecoder[SampleOptions]):
    """Tokens drawn from the model's distribution, one after another: the verification loop with no draft."""

    name = "sample"

    def __init__(self, model: Transformer, runner: Runner, options: SampleOptions | None = None) -> None:
        super().__init__(model, runner, options or SampleOptions())

    def plan(self, limits: Limits) -> DecodePlan:
        """Nobody drafts."""
        o = self.options
        acceptance = Acceptance(sampling=o.sampling)
        return DecodePlan(self._model, self._runner, NoDraft(), limits, acceptance, seed=o.seed)


class Beam(Decoder):
    """Beam search with exact early stopping, or Hugging Face's; several models are averaged as an ensemble."""

    name = "beam"
    obeys = HARD_LIMITS

    def __init__(self, models: Sequence[Transformer], runner: Runner, options: BeamOptions | None = None) -> None:
        if len({model.options.vocabulary for model in models}) != 1:
            sizes = ", ".join(str(model.options.vocabulary) for model in models)
            raise OptionError(f"An ensemble expects models of one vocabulary, found sizes {sizes}.")
        self.options = options or BeamOptions()
        self._models, self.special = tuple(models), models[0].special
        self._runner = runner

    @property
    def signature(self) -> str:
        """``beam|width:5|length_penalty:gnmt|strength:0.6|n_best:1|eager|fp32|v0.1.0``"""
        name = self.name if len(self._models) == 1 else f"{self.name}|ensemble:{len(self._models)}"
        return signature(name, self.options, self._runner, self.options.unused)

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        o, runner, models = self.options, self._runner, self._models
        eos = models[0].special.eos
        search = o.search(limits, eos)
        positions = min(model.options.longest for model in models)
        key = PoolKey.of(runner, ("beam", models, search, limits), capacity, longest_source, positions)

        def make(capacity: int, longest_source: int) -> BeamTable:
            every = [SearchModel(model, programs.extend(model)) for model in models]
            columns = limits.longest_output(longest_source) + 1
            indirect = reads_indirection(runner, models)
            return BeamTable(every, runner, search, limits, capacity, longest_source, columns, indirect=indirect)

        return BeamSession(key, make, o.n_best, 1, Sentences, eos)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the width and the sentences."""
        return beam_need(self._models, self._runner, limits, longest_source, self.options.width)
