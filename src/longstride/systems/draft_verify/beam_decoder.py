"""Beam search with drafts (draft-beam): what beam search puts out, with fewer model calls."""

from __future__ import annotations

from dataclasses import dataclass

from longstride.contract import Decoder, Limits, Need, Runner, Session, option
from longstride.contract.decoding import signature
from longstride.engine.pool import PoolKey
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.search.beam_table import BeamTable, beam_need, reads_indirection
from longstride.search.drafted import DraftedBeamTable
from longstride.search.options import BeamOptions
from longstride.search.session import BeamSession, Sentences
from longstride.search.table import SearchModel
from longstride.systems.draft_verify.drafter import ModelDrafter
from longstride.systems.draft_verify.model import Drafter, check_fit
from longstride.systems.draft_verify.shortlist import Shortlist

WIDEST, NODES = 2, 6
"""Drafts pay for so many hypotheses at most, with so many tokens behind each (docs/log.md, exact beam search with
drafts): all of them must have been read for a step to need no call, and every slot of a call costs."""
DEPTH = 4
"""How deep these trees are at most: few steps in a row need no call."""


@dataclass(frozen=True)
class DraftBeamOptions(BeamOptions):
    """Options of beam search, and of its drafts."""

    tree: int | None = option(
        None,
        "Draft a tree of so many tokens behind each hypothesis (0: none; none: 6 for a width of 2 or less, else 0). "
        "On a GPU nothing is drafted.",
        least=0,
        most=512,
    )


class DraftBeam(Decoder):
    """Beam search whose model calls read drafts behind all hypotheses, so that most steps need none."""

    name = "draft-beam"
    obeys = frozenset({"forced_first", "forced_last"})

    def __init__(
        self,
        model: Transformer,
        drafter: Drafter,
        runner: Runner,
        options: DraftBeamOptions | None = None,
        shortlist: Shortlist | None = None,
    ) -> None:
        check_fit(drafter.options, model)
        if shortlist is not None:
            shortlist.check_fit(model)
        self.options, self.special = options or DraftBeamOptions(), model.special
        self._model, self._drafter, self._runner, self._shortlist = model, drafter, runner, shortlist
        asked = self.options.tree
        nodes = (NODES if self.options.width <= WIDEST else 0) if asked is None else asked
        self._nodes = nodes if runner.device.type == "cpu" and not runner.records else 0

    @property
    def signature(self) -> str:
        """``draft-beam|width:2|length_penalty:gnmt|strength:0.6|n_best:1|tree:6|eager|fp32|v0.1.0``"""
        return signature(self.name, self.options, self._runner, self.options.unused)

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        o, model, runner, nodes = self.options, self._model, self._runner, self._nodes
        search = o.search(limits, model.special.eos)
        positions = min(model.options.longest, self._drafter.options.longest)
        depth = min(DEPTH, nodes, self._drafter.options.block)
        family = ("draft-beam", model, self._drafter, self._shortlist, nodes, depth, search, limits)
        key = PoolKey.of(runner, family, capacity, longest_source, positions)

        def make(capacity: int, longest_source: int) -> BeamTable:
            columns = limits.longest_output(longest_source) + 1
            sizes = (capacity, longest_source, columns)
            if nodes:
                drafter = ModelDrafter(self._drafter, model, runner, depth, limits, nodes, self._shortlist)
                return DraftedBeamTable(model, drafter, runner, search, limits, *sizes)
            every = [SearchModel(model, programs.extend(model))]
            return BeamTable(every, runner, search, limits, *sizes, indirect=reads_indirection(runner, [model]))

        return BeamSession(key, make, o.n_best, 1, Sentences, model.special.eos)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the width and the sentences."""
        return beam_need([self._model], self._runner, limits, longest_source, self.options.width, self._nodes)
