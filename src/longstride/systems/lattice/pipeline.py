"""The stages of one sentence batch: encode, propose candidates, score their edges, search. Each is one call.

The stages are apart so that a session can run them in turn and a stopwatch can stand between them. What they need to
know of lengths is settled on the host before, from the source lengths alone, so that no stage waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, UNK, Limits, OptionError, Program, Runner, Source, option
from longstride.contract.options import Options
from longstride.search.lengths import LengthRegression, Window
from longstride.systems.lattice import kernels, programs
from longstride.systems.lattice.candidates import Candidates, CandidateSource, from_logits
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.scan import scan
from longstride.systems.lattice.scoring import Encoded, Normalise, Scores
from longstride.systems.lattice.tables import Tables
from longstride.systems.lattice.viterbi import Paths, viterbi, viterbi_triples
from longstride.systems.lattice.window import Lattice, usable, with_ends

AT_ONCE = 1 << 28
"""Numbers that the widest tensor of a pass may hold; more sentences go in several passes."""

LOOKED_UP = 256
"""What tables hold for a while per column and source word: forty candidates, several numbers each."""


@dataclass(frozen=True)
class LatticeOptions(Options):
    """Options of lattice decoding."""

    candidates: int = option(64, "K: words per position.", least=1, most=4096)
    length_window: int = option(
        3, "Outputs may be so many tokens shorter or longer than predicted.", least=0, most=1000
    )
    order: int = option(2, "A word's score depends on one word before it (2) or on two (3).", least=2, most=3)
    construction: Literal["tables", "shared", "model"] = option(
        "tables", "Who proposes words: aligned counts, one reduced vocabulary per sentence, the scorer's own unigrams."
    )
    search: Literal["serial", "scan"] = option("serial", "Column by column, or in O(log length) parallel steps.")
    n_best: int = option(1, "How many outputs to return.", least=1, most=1000)
    normalise: Normalise = option(
        "vocabulary", "Probabilities are shares of the whole vocabulary, or of the column's candidates alone."
    )

    length_prior: float = option(
        0.0,
        "Weight, in a path's score, of how likely its length is by the regression; 0 is the paper's plain sum.",
        least=0,
        most=10**6,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search == "scan" and (self.order != 2 or self.n_best != 1):
            raise OptionError(
                f"search: scan expects order 2 and n_best 1, found {self.order} and {self.n_best}; use serial."
            )


@dataclass(frozen=True)
class Sentences:
    """Sources on the device, with what the host knows of them."""

    ids: Tensor
    """[rows, longest] no wider than it has to be"""
    lengths: Tensor
    """[rows]"""
    padded: bool
    window: Window
    columns: int
    """of a lattice that holds every length of every window"""

    @property
    def rows(self) -> int:
        """How many sentences there are."""
        return self.ids.shape[0]

    def slice(self, first: int, last: int) -> Sentences:
        """The sentences `first` to `last` (exclusive)."""
        rows = slice(first, last)
        return Sentences(self.ids[rows], self.lengths[rows], self.padded, self.window.slice(first, last), self.columns)


class Pipeline:
    """A scorer, a source of candidates and a runner, put together for certain limits. Immutable."""

    def __init__(
        self,
        model: Scorer,
        source: CandidateSource | None,
        regression: LengthRegression,
        runner: Runner,
        options: LatticeOptions,
        limits: Limits,
    ) -> None:
        self.identity: tuple[Any, ...] = (model, source, regression, options, limits)
        """what tells it from others: equal ones do the same"""
        self.longest = model.options.longest
        """positions there are"""
        self._model = model
        self._regression = regression
        self._runner = runner
        self._options = options
        self._limits = limits
        banned = sorted(set(limits.banned))
        self._banned = torch.tensor(banned, dtype=torch.int64, device=runner.device) if banned else None
        words = (UNK, *range(EOS + 2, model.options.vocabulary))
        self._fallback = next((word for word in words if word not in banned), UNK)
        self._bounds = torch.empty(0, 3, dtype=torch.int64)
        self._columns: dict[int, int] = {}
        self._encode = programs.encode(model)
        self._unigrams = programs.unigrams(model) if source is None else None
        self._propose = Program("candidates", self._proposer(source), weightless=True)
        self._score = programs.score(model, options.order, options.normalise)
        self._edges = programs.edges(model, options.normalise)
        self._search = Program("search", partial(_searched, options), weightless=True)

    def bounds(self, source: Source) -> Tensor:
        """[rows, 3] of sentences on the host: their length, and the lengths that outputs may have, at least and at
        most."""
        if source.longest >= len(self._bounds):  # working it out takes thirty operations, looking it up one
            self._bounds = self._worked_out(torch.arange(2 * source.longest + 1))
        return self._bounds[source.lengths]

    def _worked_out(self, lengths: Tensor) -> Tensor:
        predicted = self._regression.predict(lengths)
        window = Window.around(predicted, self._options.length_window, self._limits, lengths, self.longest)
        return torch.stack([lengths, window.shortest, window.longest], dim=1)

    def columns(self, width: int) -> int:
        """Of a lattice that holds the window of a source of `width` tokens."""
        if width not in self._columns:
            self._columns[width] = int(self._worked_out(torch.tensor([width]))[0, 2])
        return self._columns[width]

    def read(self, source: Source) -> Sentences:
        """Bring sentences to the device; their lengths and windows are settled before they leave the host."""
        bounds = self.bounds(source)
        widest, columns = int(source.lengths.max()), int(bounds[:, 2].max())
        lengths, shortest, longest = bounds.to(self._runner.device).unbind(dim=1)
        return Sentences(
            source.ids[:, :widest].to(self._runner.device),
            lengths,
            bool((source.lengths != widest).any()),
            Window(shortest, longest),
            columns,
        )

    def rows_at_once(self, width: int, columns: int, numbers: int | None = None) -> int:
        """How many sentences of such sources and lattices fit into one pass, whose widest tensor holds so many
        numbers."""
        o = self._options
        before = o.candidates if o.order == 2 else o.candidates**2
        widest = 2 * (o.candidates + 2)
        if not (
            self.at_once and self._runner.uses("edges") and o.normalise == "vocabulary"
        ):  # which takes portions itself
            widest = max(self._model.options.feed_forward, 3 * self._model.options.width, widest)
        looked_up = LOOKED_UP * width
        return max(1, (numbers or AT_ONCE) // (columns * max(before * widest, looked_up)))

    def encode(self, sentences: Sentences) -> Encoded:
        """Stage 1: the encoder."""
        encoded: Encoded = self._runner.call(self._encode, sentences.ids, sentences.lengths, sentences.padded)
        return encoded

    def candidates(self, sentences: Sentences, encoded: Encoded) -> Candidates:
        """Stage 2: K words for every column, at least one."""
        columns = sentences.columns
        logits = None if self._unigrams is None else self._runner.call(self._unigrams, encoded, columns)
        found: Candidates = self._runner.call(self._propose, sentences, logits)
        return found

    def score(self, sentences: Sentences, encoded: Encoded, candidates: Candidates) -> Lattice:
        """Stage 3: the edges."""
        lattice: Lattice = self._runner.call(self._score, encoded, candidates, sentences.window)
        ends = self._ends(sentences)
        return lattice if ends is None else with_ends(lattice, ends)

    def search(self, lattice: Lattice) -> Paths:
        """Stage 4: the best paths."""
        paths: Paths = self._runner.call(self._search, lattice)
        return paths

    # --- stages 3 and 4 without a lattice between them ---------------------------------------------------------------

    @property
    def at_once(self) -> bool:
        """Whether kernels of our own search, which read edges as they are: for one output that two words decide."""
        o = self._options
        fits = o.order == 2 and o.n_best == 1 and o.search == "serial" and o.candidates <= kernels.MOST_SEARCHED
        return fits and self._runner.uses("paths")

    def edges(self, encoded: Encoded, candidates: Candidates) -> Scores:
        """Stage 3, as those kernels read it."""
        scores: Scores = self._runner.call(self._edges, encoded, candidates.ids)
        return scores

    def found(self, sentences: Sentences, candidates: Candidates, scores: Scores) -> Tensor:
        """Stage 4 by them: what :func:`packed` says of the best paths."""
        ends = self._ends(sentences)
        return kernels.best_paths(scores.first, scores.edges, candidates.ids, sentences.window, ends)

    def outputs(self, sentences: Sentences, encoded: Encoded) -> Tensor:
        """Stages 2 to 4, and what :func:`packed` says of what they give."""
        candidates = self.candidates(sentences, encoded)
        if self.at_once:
            return self.found(sentences, candidates, self.edges(encoded, candidates))
        lattice = self.score(sentences, encoded, candidates)
        return packed(lattice, self.search(lattice))

    def _ends(self, sentences: Sentences) -> Tensor | None:
        """[rows, columns] float64 what ending in a column adds to a path's score; None where nothing does"""
        if not self._options.length_prior:
            return None
        tried = torch.arange(1, sentences.columns + 1, device=sentences.lengths.device)
        odds = self._regression.log_odds(sentences.lengths, tried.expand(sentences.rows, -1))
        return odds * self._options.length_prior

    def _proposer(self, source: CandidateSource | None) -> Callable[[Sentences, Tensor | None], Candidates]:
        k = self._options.candidates

        def propose(sentences: Sentences, logits: Tensor | None) -> Candidates:
            if logits is not None:
                found = from_logits(logits, k)
            elif isinstance(source, Tables) and self._banned is None and _serves(source, sentences):
                return source.proposed(sentences.ids, sentences.lengths, sentences.columns, k, self._fallback)
            else:
                assert source is not None
                found = source.candidates(sentences.ids, sentences.lengths, sentences.columns, k)
            return usable(found, self._banned, self._fallback)

        return propose


def _serves(tables: Tables, sentences: Sentences) -> bool:
    return tables.serves(sentences.ids.shape[1], sentences.columns)


def emitted(lattice: Lattice, paths: Paths) -> tuple[Tensor, Tensor]:
    """What paths spell: ids [rows, n, columns], PAD after EOS, and lengths [rows, n], EOS counted."""
    ids = lattice.ids[:, None].expand(-1, paths.states.shape[1], -1, -1).gather(3, paths.states[..., None])[..., 0]
    return ids, (ids != PAD).sum(dim=-1)


def packed(lattice: Lattice, paths: Paths) -> Tensor:
    """[rows, n, 3 + columns] int64, for one copy: length (EOS counted), score and log-probability (the bits of a
    float64 each), ids."""
    ids, lengths = emitted(lattice, paths)
    scores = log_probabilities = paths.scores.double()
    if lattice.ends is not None:
        log_probabilities = scores - lattice.ends.gather(1, lengths - 1)
    numbers = torch.stack([scores, log_probabilities], dim=-1).view(torch.int64)
    return torch.cat([lengths[..., None], numbers, ids], dim=-1)


def _searched(options: LatticeOptions, lattice: Lattice) -> Paths:
    if lattice.triples is not None:
        return viterbi_triples(lattice.first, lattice.edges[:, 0], lattice.triples, options.n_best)
    if options.search == "scan":
        return scan(lattice.first, lattice.edges)
    return viterbi(lattice.first, lattice.edges, options.n_best)
