"""Options of beam search, for every decoder that searches so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longstride.contract import Limits, OptionError, option
from longstride.contract.options import Options, shown
from longstride.search.beam import LikeHF, Search
from longstride.search.length_penalty import LengthPenalty

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

    def search(self, limits: Limits, eos: int) -> Search:
        """What they mean under these limits."""
        hf = self.length_penalty == "hf"
        return Search(
            self.width,
            self.n_best,
            LengthPenalty("average" if self.length_penalty == "hf" else self.length_penalty, self.strength),
            earliest=limits.min_length,
            eos=eos,
            forced_first=limits.forced_first,
            forced_last=limits.forced_last,
            like_hf=LikeHF(self.early_stopping, self.forced_eos) if hf else None,
        )

    @property
    def unused(self) -> tuple[str, ...]:
        """Those that change nothing."""
        return () if self.length_penalty == "hf" else OF_HF
