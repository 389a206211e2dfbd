"""Greedy search, sampling and beam search with the ordinary Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from longstride.contract import Decoder, Limits, Need, OptionError, Runner, Session, option
from longstride.contract.decoding import HARD_LIMITS, signature
from longstride.contract.options import Options, shown
from longstride.engine.pool import PoolKey
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.search.beam import LikeHF, Search
from longstride.search.length_penalty import LengthPenalty
from longstride.search.session import BeamSession, Sentences
from longstride.search.table import BeamTable, SearchModel, reads_indirection
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


OF_HF = ("early_stopping", "forced_eos")
"""Options of beams like Hugging Face's alone."""


@dataclass(frozen=True)
class BeamOptions(Options):
    """Options of beam search."""

    width: int = option(5, "Hypotheses kept per sentence.", least=1, most=1000)
    length_penalty: Literal["gnmt", "average", "none", "hf"] = option(
        "gnmt",
        "Score = log-probability / ((5 + length) / 6)^strength (gnmt) or / length^strength (average); hf: the same as "
        "average, and the search as a whole is Hugging Face's.",
    )
    strength: float = option(0.6, "Strength of the length penalty.", least=-10, most=10)
    n_best: int = option(1, "How many hypotheses to return, at most width.", least=1, most=1000)
    early_stopping: bool | Literal["never"] = option(
        False,
        "With length_penalty=hf, when a search is done: at width finished hypotheses (true), or when the best live "
        "one, ending now (false) or as late as it may (never), would not beat the worst of them.",
    )
    forced_eos: bool = option(
        False,
        "With length_penalty=hf, what becomes of outputs of max_length: EOS is put there and costs nothing (true), or "
        "they are cut without one (false).",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.width:
            raise OptionError(f"n_best expects 1 to width ({self.width}), found {self.n_best}.")
        if self.early_stopping not in (True, False, "never"):
            raise OptionError(f"early_stopping expects true, false or never, found {shown(self.early_stopping)}.")
        for name in OF_HF:
            if getattr(self, name) and self.length_penalty != "hf":
                raise OptionError(f"{name} expects length_penalty=hf, found length_penalty={self.length_penalty}.")


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
        return signature(name, self.options, self._runner, () if self.options.length_penalty == "hf" else OF_HF)

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        o, runner, models = self.options, self._runner, self._models
        eos = models[0].special.eos
        search = Search(
            o.width,
            o.n_best,
            LengthPenalty("average" if o.length_penalty == "hf" else o.length_penalty, o.strength),
            earliest=limits.min_length,
            eos=eos,
            forced_first=limits.forced_first,
            like_hf=LikeHF(o.early_stopping, o.forced_eos) if o.length_penalty == "hf" else None,
        )
        positions = min(model.options.longest for model in models)
        key = PoolKey.of(runner, ("beam", models, search, limits), capacity, longest_source, positions)

        def make(capacity: int, longest_source: int) -> BeamTable:
            every = [SearchModel(model, programs.extend(model)) for model in models]
            columns = limits.longest_output(longest_source) + 1
            indirect = reads_indirection(runner, models)
            return BeamTable(every, runner, search, limits, capacity, longest_source, columns, indirect=indirect)

        return BeamSession(key, make, o.n_best, 1, len(models), Sentences, eos)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the width and the sentences."""
        longest = limits.longest_output(longest_source) + 1
        # Caches that grow with their hypotheses seldom get longer than the source.
        columns = longest if self._runner.records else min(longest, longest_source)

        def taken(sentences: int, width: int) -> int:
            rows = sentences * width
            logits = rows * self._models[0].options.vocabulary * self._runner.dtype.itemsize
            hypotheses = rows * 2 * 8 * (longest + width)  # live and finished ones, and what may follow
            tables = sum(model.table_bytes(rows, columns, sentences, longest_source) for model in self._models)
            return logits + hypotheses + tables

        return Need(taken, self._runner.device, "width", self.options.width)
