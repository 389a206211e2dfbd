"""The heads as a drafter: what they predict where the newest token was chosen is the next draft.

Verifying one block and predicting the next are one model call (section 4). Only the state at the accepted position is
projected by the heads, after acceptance: projecting every head at every column would cost more than the step itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import Runner, Source
from longstride.nn.cache import EncoderState
from longstride.nn.link import TREE_CANDIDATES
from longstride.nn.transformer import Transformer
from longstride.systems.blockwise.model import Heads
from longstride.systems.blockwise.programs import predict
from longstride.verification.drafting import Drafter, DrafterGraph, Proposal, View
from longstride.verification.kernels import choose, permitted


@dataclass
class Predicted:
    """What the heads said last, for a table of rows."""

    ids: Tensor
    """[rows, k - 1], or as many as a tree has nodes"""
    count: Tensor
    """[rows] 0 where a sentence has just begun and no state of it has been seen"""
    parents: Tensor | None = None
    """like ids, of a tree"""


class HeadsDrafter(Drafter):
    """Proposes k - 1 tokens; with the verifier's own, k are committed at most. Costs no model call of its own."""

    queues = True

    def __init__(
        self, model: Transformer, heads: Heads, runner: Runner, k: int, forbidden: Tensor, nodes: int = 0
    ) -> None:
        """`nodes`: drafts are trees of so many, k - 1 tokens deep at most."""
        self.trees = nodes > 0 and k > 1
        self.block, self.depth = nodes if self.trees else k - 1, k - 1
        self._parts = (model, heads, k)
        self._predict = predict(model, heads, k)
        self._fused = runner.fuses
        self._permitted = permitted(forbidden, model.options.vocabulary)
        candidates = min(TREE_CANDIDATES, model.options.vocabulary)
        self._meant = ops.tree_size(k - 1, candidates, self.block) if self.trees else self.block
        ids, count = (torch.int64, ("rows", self.block)), (torch.int64, ("rows",))
        state = {"ids": ids, "count": count, **({"parents": ids} if self.trees else {})}

        def parts(predicted: Predicted) -> dict[str, Tensor]:
            return {name: tensor for name, tensor in vars(predicted).items() if tensor is not None}

        self.graph = DrafterGraph(
            (model, heads), {}, state, parts, lambda parts: Predicted(**parts), settings=(k, nodes)
        )

    @property
    def key(self) -> Hashable:
        """What it predicts by, and how many; what is forbidden is the session's."""
        return (self._predict.identity, self.trees, self.block)

    def buffers(self, state: Any) -> list[Tensor] | None:
        """What was predicted."""
        return [state.ids, state.count, *(() if state.parents is None else (state.parents,))]

    def per_sentence(self, state: Any) -> list[tuple[Tensor, int]]:
        """That nothing was predicted yet."""
        return [(state.count, 0)]

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> Predicted:
        """Nothing predicted yet."""
        ids = torch.zeros(rows, self.block, dtype=torch.int64, device=device)
        parents = torch.zeros_like(ids) if self.trees else None
        return Predicted(ids, torch.zeros(rows, dtype=torch.int64, device=device), parents)

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState | None) -> None:
        """A new sentence begins without a draft."""
        state.count.index_fill_(0, rows, 0)

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """The first `block` of what was predicted."""
        whole = block == self.block
        count = state.count if whole else state.count.clamp(max=block)
        # Parents come first: whatever a tree begins with is a tree.
        parents = state.parents if whole or state.parents is None else state.parents[:, :block]
        if self._places(view):
            assert view.room is not None
            return Proposal(view.room[:, :block], count, parents, placed=True)
        return Proposal(state.ids if whole else state.ids[:, :block], count, parents)

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        """Predict from the states that chose the newest tokens."""
        if not self.block:
            return
        if self.trees:
            model, heads, k = self._parts
            room = view.room if self._places(view) else None
            ids, parents = heads.grown(hidden, view.newest, k, model, self.block, room)
            if room is None:
                ops.assign(state.ids, ids)
            ops.assign(state.parents, parents)
            ops.assign(state.count, torch.full_like(state.count, self._meant))
            return
        if not self._places(view):
            ops.assign(state.ids, self._predict.function(hidden, view.newest, view.forbidden))
            ops.assign(state.count, torch.full_like(state.count, self.block))
            return
        model, heads, k = self._parts
        if heads.link is not None:
            heads.linked(hidden, view.newest, k, model, view.room, state.count)
        else:
            choose(model.logits(heads.ahead(hidden, k)), self._permitted, into=view.room, count=state.count)

    def _places(self, view: View) -> bool:
        """Whether what is predicted goes straight to where the next proposal is looked for."""
        return self._fused and view.room is not None
