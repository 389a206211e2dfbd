"""The scorer's model calls, as programs a runner carries out."""

from __future__ import annotations

from functools import partial

from longstride.contract import Program
from longstride.search.lengths import Window
from longstride.systems.lattice import drawn, scoring
from longstride.systems.lattice.candidates import Candidates
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.scoring import Encoded, Normalise
from longstride.systems.lattice.window import Lattice, assemble


def encode(model: Scorer) -> Program:
    """(ids [rows, source], lengths [rows], padded) -> Encoded"""
    return Program("encode", partial(scoring.encode, model), drawn.encode(model))


def unigrams(model: Scorer) -> Program:
    """(encoded, columns) -> logits [rows, columns, vocabulary]"""
    return Program("unigrams", partial(scoring.unigrams, model), drawn.unigrams(model))


def score(model: Scorer, order: int, normalise: Normalise) -> Program:
    """(encoded, candidates, window) -> Lattice"""
    edges = scoring.score_edges if order == 2 else scoring.score_triples

    def function(encoded: Encoded, candidates: Candidates, window: Window) -> Lattice:
        return assemble(candidates, edges(model, encoded, candidates.ids, normalise), window)

    return Program("score", function, drawn.score(model, order, normalise))


def edges(model: Scorer, normalise: Normalise) -> Program:
    """(encoded, words [rows, columns, K]) -> Scores, where no lattice is made of them"""
    return Program("edges", partial(scoring.score_edges, model, normalise=normalise))
