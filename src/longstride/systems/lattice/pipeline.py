"""One decoding step: encode, propose candidates, score their edges, search. The stages, and the step made of them.

A step is a function of tensors: run as it is, or captured by runners that record. What it needs to know of lengths is
settled on the host before, from the source lengths alone, so that no stage waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from longstride.contract import Limits, OptionError, Program, Runner, Source, option
from longstride.contract.options import Options
from longstride.engine.one_step import pack
from longstride.search.lengths import LengthRegression, Window
from longstride.systems.lattice import kernels, programs
from longstride.systems.lattice.candidates import (
    Candidates,
    CandidateSource,
    fallback_word,
    from_logits,
    pruned,
    usable,
)
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.scoring import Encoded, Normalise, Scores, fits_kernels
from longstride.systems.lattice.search import Paths, scan, viterbi, viterbi_triples
from longstride.systems.lattice.tables import Tables
from longstride.systems.lattice.window import Lattice, assemble, with_ends

STAGES = ("encode", "candidates", "score", "search")

MAX_NUMBERS = 1 << 28
"""The widest tensor of a step may hold so many numbers; more sentences go in several steps."""
LOOKED_UP = 256
"""Numbers that a look-up in tables holds per column and source word: forty candidates, several numbers each."""


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
        "vocabulary", "Probabilities are shares of the whole vocabulary, or of the column's K candidates, kept or not."
    )
    length_prior: float = option(
        0.0,
        "Weight, in a path's score, of how likely its length is by the regression; 0 is the paper's plain sum.",
        least=0,
        most=10**6,
    )
    kept: int | None = option(
        None,
        "Score edges between so many of the K words, those that tables and the head's unigrams like best (none: all).",
        least=1,
        most=4096,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search == "scan" and (self.order != 2 or self.n_best != 1):
            raise OptionError(
                f"search: scan expects order 2 and n_best 1, found {self.order} and {self.n_best}; use serial."
            )

    @property
    def searched(self) -> int:
        """Words per position that edges lead to."""
        return min(self.candidates, self.kept or self.candidates)


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

    def slice(self, first: int, last: int) -> Sentences:
        """The sentences `first` to `last` (exclusive)."""
        rows, window = slice(first, last), self.window.slice(first, last)
        return Sentences(self.ids[rows], self.lengths[rows], self.padded, window, self.columns)


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
        self.runner = runner
        self._model, self._source, self._regression = model, source, regression
        self._options, self._limits = options, limits
        self.special = model.special
        banned = sorted({*limits.banned, *(model.special.suppress or ())})
        self._banned = torch.tensor(banned, dtype=torch.int64, device=runner.device) if banned else None
        self._fallback = fallback_word(model.special, model.options.vocabulary, banned)
        self._bounds = torch.empty(0, 3, dtype=torch.int64)
        self._encode = programs.encode(model)
        self._unigrams = programs.unigrams(model) if source is None else None
        self._propose = Program("candidates", self._proposed, weightless=True)
        prunes = options.searched < options.candidates
        self._weigh = programs.unigrams_of(model) if prunes else None
        self._prune = Program("prune", self._pruned, weightless=True)
        self._shares_with_rest = prunes and options.normalise == "candidates"
        self._score = programs.score(model, options.order, options.normalise, self._shares_with_rest)
        self._search = Program("search", self._searched, weightless=True)

    # --- lengths, on the host ----------------------------------------------------------------------------------------

    def bounds(self, source: Source) -> Tensor:
        """[rows, 3] of sentences on the host: their length, and the shortest and longest output they may have."""
        return self._bounds_up_to(source.longest)[source.lengths]

    def columns(self, width: int) -> int:
        """Of a lattice that holds the window of a source of `width` tokens."""
        return int(self._bounds_up_to(width)[width, 2])

    def _bounds_up_to(self, longest: int) -> Tensor:
        """[longest + 1 or more, 3] by length: working it out takes thirty operations, looking it up one."""
        if longest >= len(self._bounds):
            lengths = torch.arange(2 * longest + 1)
            predicted = self._regression.predict(lengths)
            window = Window.around(predicted, self._options.length_window, self._limits, lengths, self.longest)
            self._bounds = torch.stack([lengths, window.shortest, window.longest], dim=1)
        return self._bounds

    def read(self, source: Source) -> Sentences:
        """Bring sentences to the device; their lengths and windows are settled before they leave the host."""
        bounds = self.bounds(source)
        widest, columns = int(source.lengths.max()), int(bounds[:, 2].max())
        padded = bool((source.lengths != widest).any())
        lengths, shortest, longest = bounds.to(self.runner.device).unbind(dim=1)
        ids = source.ids[:, :widest].to(self.runner.device)
        return Sentences(ids, lengths, padded, Window(shortest, longest), columns)

    def rows_at_once(self, width: int, columns: int, numbers: int | None = None) -> int:
        """How many sentences of such sources and lattices fit into one step, whose widest tensor holds `numbers`."""
        o = self._options
        before = o.searched if o.order == 2 else o.searched**2
        widest = 2 * (o.candidates + 2)
        # With its kernels, scoring takes portions of its own.
        kernels_score = self.runner.uses("edges") and o.normalise == "vocabulary" and fits_kernels(self._model)
        if not (self.fused and kernels_score):
            widest = max(self._model.options.feed_forward, 3 * self._model.options.width, widest)
        return max(1, (numbers or MAX_NUMBERS) // (columns * max(before * widest, LOOKED_UP * width)))

    # --- the step ----------------------------------------------------------------------------------------------------

    def step(self, sentences: Sentences) -> Tensor:
        """[rows, n, 3 + columns] the best outputs, as :func:`longstride.engine.one_step.pack` has them."""
        found: Tensor
        *_, found = self.stages(sentences)
        return found

    def stages(self, sentences: Sentences) -> Iterator[Any]:
        """The step, one of `STAGES` after the other; the last gives its outputs."""
        encoded: Encoded = self.runner.call(self._encode, sentences.ids, sentences.lengths, sentences.padded)
        yield encoded
        columns = sentences.columns
        logits = None if self._unigrams is None else self.runner.call(self._unigrams, encoded, columns)
        candidates: Candidates = self.runner.call(self._propose, sentences, logits)
        if self._weigh is not None:
            weighed = self.runner.call(self._weigh, encoded, candidates.ids)
            candidates = self.runner.call(self._prune, candidates, weighed)
        yield candidates
        scored = (candidates.ids, candidates.rest) if self._shares_with_rest else (candidates.ids,)
        scores: Scores = self.runner.call(self._score, encoded, *scored)
        yield scores
        yield self.runner.call(self._search, sentences, candidates, scores)

    def _proposed(self, sentences: Sentences, logits: Tensor | None) -> Candidates:
        """K words for every column, at least one."""
        ids, lengths, columns = sentences.ids, sentences.lengths, sentences.columns
        source, k = self._source, self._options.candidates
        if logits is not None:
            return usable(from_logits(logits, k, self.special), self._banned, self._fallback, self.special.pad)
        assert source is not None
        if isinstance(source, Tables) and self._banned is None and source.supports(ids.shape[1], columns):
            return source.proposed(ids, lengths, columns, k, self._fallback)
        found = source.candidates(ids, lengths, columns, k)
        return usable(found, self._banned, self._fallback, self.special.pad)

    def _pruned(self, candidates: Candidates, logits: Tensor) -> Candidates:
        return pruned(candidates, logits, self._options.searched, self.special.pad)

    @property
    def fused(self) -> bool:
        """Whether a kernel searches, which reads edges as they are: for one output that two words decide."""
        o = self._options
        fits = o.order == 2 and o.n_best == 1 and o.search == "serial" and o.searched <= kernels.MAX_CANDIDATES
        return fits and kernels.know(self.special) and self.runner.uses("paths")

    def _searched(self, sentences: Sentences, candidates: Candidates, scores: Scores) -> Tensor:
        if self.fused:
            window, ends = sentences.window, self._ends(sentences)
            return kernels.best_paths(scores.first, scores.edges, candidates.ids, window, ends)
        lattice = self.lattice(sentences, candidates, scores)
        return packed(lattice, self.paths(lattice))

    def lattice(self, sentences: Sentences, candidates: Candidates, scores: Scores) -> Lattice:
        """What is searched."""
        lattice = assemble(candidates, scores, sentences.window, self.special)
        ends = self._ends(sentences)
        return lattice if ends is None else with_ends(lattice, ends)

    def paths(self, lattice: Lattice) -> Paths:
        """The best paths."""
        o = self._options
        if lattice.triples is not None:
            return viterbi_triples(lattice.first, lattice.edges[:, 0], lattice.triples, o.n_best)
        return (
            scan(lattice.first, lattice.edges)
            if o.search == "scan"
            else viterbi(lattice.first, lattice.edges, o.n_best)
        )

    def _ends(self, sentences: Sentences) -> Tensor | None:
        """[rows, columns] float64 what ending in a column adds to a path's score; None where nothing does"""
        if not self._options.length_prior:
            return None
        tried = torch.arange(1, sentences.columns + 1, device=sentences.lengths.device)
        odds = self._regression.log_odds(sentences.lengths, tried.expand(len(sentences.ids), -1))
        return odds * self._options.length_prior


def packed(lattice: Lattice, paths: Paths) -> Tensor:
    """[rows, n, 3 + columns] what paths spell, PAD after EOS, as :func:`longstride.engine.one_step.pack` has it."""
    ids = lattice.ids[:, None].expand(-1, paths.states.shape[1], -1, -1).gather(3, paths.states[..., None])[..., 0]
    lengths = (paths.states != lattice.ids.shape[2] - 1).sum(dim=-1)  # the last state is PAD
    scores = log_probabilities = paths.scores.double()
    if lattice.ends is not None:
        log_probabilities = scores - lattice.ends.gather(1, lengths - 1)
    return pack(lengths, scores, log_probabilities, ids)
