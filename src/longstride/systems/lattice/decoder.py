"""Sequence to lattice: candidates for every position, all edges scored in one pass, the best path found exactly."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from longstride.contract import Limits, Need, OptionError, Runner, Session, Source
from longstride.contract.decoding import Signed
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice.candidates import CandidateSource
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.pipeline import LatticeOptions, Pipeline
from longstride.systems.lattice.search import Paths
from longstride.systems.lattice.session import CapturedLatticeSession, LatticeSession
from longstride.systems.lattice.tables import SharedVocabulary, Tables
from longstride.systems.lattice.window import Lattice


class LatticeDecoder(Signed[LatticeOptions]):
    """A scorer over the candidates of one source, with a regression of target on source length."""

    name = "lattice"

    def __init__(
        self,
        model: Scorer,
        source: CandidateSource | None,
        regression: LengthRegression,
        runner: Runner,
        options: LatticeOptions | None = None,
    ) -> None:
        """Without a source of candidates the scorer's own unigrams propose them."""
        super().__init__(runner, options or LatticeOptions())
        if self.options.order > model.options.order:
            raise OptionError(
                f"order expects at most {model.options.order}, what the scorer was trained with, "
                f"found {self.options.order}."
            )
        self._model, self.special = model, model.special
        self._source = source
        self._regression = regression
        self._pipelines: dict[Limits, Pipeline] = {}

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty session."""
        session = CapturedLatticeSession if self._runner.records else LatticeSession
        return session(self.pipeline(limits), capacity)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the candidates; sentences that do not fit side by side go one after another."""
        o = self.options
        columns = self.pipeline(limits).columns(longest_source)

        def taken(sentences: int, candidates: int) -> int:
            candidates = min(candidates, self._model.options.vocabulary, o.kept or candidates)
            edges: int = candidates**o.order
            return 4 * edges * (columns + o.n_best - 1)  # of every column, and paths along them

        return Need(taken, self._runner.device, "candidates", o.candidates)

    def pipeline(self, limits: Limits) -> Pipeline:
        """The stages one by one, for whoever wants to look between them; the same each time for the same limits."""
        if limits not in self._pipelines:
            self._pipelines.clear()  # nobody takes turns
            # No column has more words than there are.
            most = min(self.options.candidates, self._model.options.vocabulary)
            options = replace(self.options, candidates=most)
            made = Pipeline(self._model, self._source, self._regression, self._runner, options, limits)
            self._pipelines[limits] = made
        return self._pipelines[limits]

    def lattices(self, source: Source, limits: Limits | None = None) -> tuple[Lattice, Paths]:
        """The sentences' lattices with all their scores, and the best paths through them: to be looked at."""
        pipeline = self.pipeline(limits or Limits())
        sentences = pipeline.read(source)
        _, candidates, scores = islice(pipeline.stages(sentences), 3)
        lattice = pipeline.lattice(sentences, candidates, scores)
        return lattice, pipeline.paths(lattice)


def with_tables(model: Scorer, tables: Tables, runner: Runner, options: LatticeOptions) -> LatticeDecoder:
    """The decoder of a model folder: the tables predict lengths and, unless told otherwise, propose words."""
    if tables.options.vocabulary != model.options.vocabulary:
        raise OptionError(
            f"A lattice expects tables of the scorer's vocabulary of {model.options.vocabulary} pieces, "
            f"found tables of {tables.options.vocabulary}."
        )
    sources: dict[str, CandidateSource | None] = {
        "tables": tables,
        "shared": SharedVocabulary(tables),
        "model": None,
    }
    return LatticeDecoder(model, sources[options.construction], tables.options.length, runner, options)
