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
from longstride.nn.transformer import Transformer
from longstride.systems.blockwise.model import Heads
from longstride.systems.blockwise.programs import predict
from longstride.verification.drafting import Drafter, DrafterGraph, Proposal, View
from longstride.verification.kernels import choose, permitted


@dataclass
class Predicted:
    """What the heads said last, for a table of rows."""

    ids: Tensor
    """[rows, k - 1]"""
    count: Tensor
    """[rows] 0 where a sentence has just begun and no state of it has been seen"""


class HeadsDrafter(Drafter):
    """Proposes k - 1 tokens; with the verifier's own, k are committed at most. Costs no model call of its own."""

    def __init__(self, model: Transformer, heads: Heads, runner: Runner, k: int, forbidden: Tensor) -> None:
        self.block = k - 1
        self._parts = (model, heads, k)
        self._predict = predict(model, heads, k)
        self._fused = runner.fuses
        self._permitted = permitted(forbidden, model.options.vocabulary)
        ids, count = (torch.int64, ("rows", self.block)), (torch.int64, ("rows",))
        self.graph = DrafterGraph(
            (model, heads), {}, {"ids": ids, "count": count}, vars, lambda parts: Predicted(**parts), settings=(k,)
        )

    @property
    def key(self) -> Hashable:
        """What it predicts by, and how many; what is forbidden is the session's."""
        return self._predict.identity

    def buffers(self, state: Any) -> list[Tensor] | None:
        """What was predicted."""
        return [state.ids, state.count]

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> Predicted:
        """Nothing predicted yet."""
        ids = torch.zeros(rows, self.block, dtype=torch.int64, device=device)
        return Predicted(ids, torch.zeros(rows, dtype=torch.int64, device=device))

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState) -> None:
        """A new sentence begins without a draft."""
        state.count.index_fill_(0, rows, 0)

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """The first `block` of what was predicted."""
        whole = block == self.block
        count = state.count if whole else state.count.clamp(max=block)
        if self._places(view):
            assert view.room is not None
            return Proposal(view.room[:, :block], count, placed=True)
        return Proposal(state.ids if whole else state.ids[:, :block], count)

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        """Predict from the states that chose the newest tokens."""
        if not self.block:
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
