"""Training the heads (section 6): each predicts its own place ahead, by label-smoothed cross-entropy.

The paper's loss is the mean of the heads' losses, each a mean over its own targets; for want of memory it draws one of
them for every batch, which is the mean in expectation. Both are here. A head that looks further ahead has fewer
targets: none past the end. Which heads take part follows from what is trained: all of them, but for a head 1 that is an
identity on a frozen model, which nothing could change.

Ten heads have ten times the logits of one model, and those cost more than the model itself. So the heads after the
first may be trained at a share of the slots alone, drawn anew for every batch: the mean in expectation again, at the
price of few heads, and with all of them in every update. Head 1, which verifies, is trained at every slot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import PAD, Batch, Loss, Objective, OptionError, Prepared, option
from longstride.nn.losses import Smoothing
from longstride.systems.blockwise.model import BlockwiseModel


@dataclass(frozen=True)
class BlockwiseObjectiveOptions(Smoothing):
    """Options of the heads' objective."""

    sub_loss: Literal["one", "mean"] = option(
        "one", "Train one head per batch, drawn at random (little memory), or the mean of all heads' losses."
    )
    decay: float = option(
        1.0, "With the mean: what a head counts, times what the head before it does.", above=0, most=1
    )
    slots: float = option(
        1.0,
        "With the mean: the share of a batch's slots, drawn at random, at which heads after the first are trained.",
        above=0,
        most=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slots < 1 and self.sub_loss == "one":
            raise OptionError("slots expects 1 with sub_loss: one, which trains a head everywhere; use sub_loss: mean.")


def targets_of(head: Tensor, target: Tensor, k: int) -> Tensor:
    """What head 1..k is to predict at every slot: the targets shifted left by head - 1, PAD (or any id) at the tail.

    head [] and target [rows, length] int64 -> [rows, length]
    """
    length = target.shape[1]
    columns = torch.arange(length, device=target.device) + head - 1
    return F.pad(target, (0, k - 1), value=PAD).index_select(1, columns)


class BlockwiseObjective(Objective):
    """−log p_i(y_{t+i−1} | y_<t, x) for one drawn head i, or the mean over heads."""

    options: BlockwiseObjectiveOptions

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """Draw the batch's head, as a large number: how many heads there are, the model knows."""
        tensors = {"draw": torch.randint(1 << 40, (), generator=rng)}
        if self.options.slots < 1:
            count = batch.target.numel()
            chosen = torch.randperm(count, generator=rng)[: math.ceil(self.options.slots * count)]
            tensors["chosen"] = chosen.sort().values
        return Prepared.of(batch, tensors)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """One head's loss or the mean of all, over its real targets, times the batch's tokens.

        Validation always takes the mean, and tells head 1's likelihood (`nll`) beside the mean one (`nll_mean`).
        """
        assert isinstance(model, BlockwiseModel)
        tensors, heads = prepared.tensors, model.heads
        source = tensors["source"]
        visible = prepared.source_mask
        hidden = model(source, visible, F.pad(tensors["target"][:, :-1], (1, 0), value=model.model.special.start))
        fixed = heads.options.fixed if model.frozen else 0
        if self.options.sub_loss == "one" and model.training:
            head = 1 + fixed + tensors["draw"] % (heads.options.k - fixed)
            total, nll = self._sub_loss(model, heads(hidden, head), head, prepared)
            return Loss(total, {"nll_mean": nll})
        # What nothing could change is worth its logits in validation only.
        silent = bool(fixed) and model.training
        sums = [] if silent else [self._sub_loss(model, heads.first(hidden), self._at(1, hidden), prepared)]
        chosen = tensors.get("chosen") if model.training else None
        states = hidden if chosen is None else hidden.flatten(0, 1).index_select(0, chosen)[None]
        outputs = heads.ahead(states, heads.options.k).unbind(dim=-2) if heads.options.k > 1 else ()
        for number, output in enumerate(outputs, start=2):
            sums.append(self._sub_loss(model, output, self._at(number, hidden), prepared, chosen))
        trained = sums if model.training else sums[fixed:]
        totals = torch.stack([total for total, _ in trained])
        weights = self.options.decay ** torch.arange(len(totals), device=totals.device) if model.training else None
        mean = totals.mean() if weights is None else (totals * weights).sum() / weights.sum()
        figures = {"nll_mean": torch.stack([nll for _, nll in trained]).mean()}
        return Loss(mean, figures if silent else {"nll": sums[0][1], **figures})

    @staticmethod
    def _at(head: int, like: Tensor) -> Tensor:
        return torch.tensor(head, device=like.device)

    def _sub_loss(
        self, model: BlockwiseModel, output: Tensor, head: Tensor, prepared: Prepared, chosen: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One head's mean loss and likelihood over its real targets, each times the batch's tokens.

        `chosen` [count] are the slots, rows laid end to end, that `output` [1, count, width] is of; None: all slots.
        """
        base = model.model
        target, ahead = targets_of(head, prepared.tensors["target"], model.heads.options.k), head - 1
        counted = ops.arange(target.shape[1], target) + ahead < prepared.tensors["target_lengths"][:, None]
        output_weight, link = base.output_weight, model.heads.link
        if link is not None:
            # What heads after the first are told: the target of the head before.
            previous = targets_of(ahead.clamp(min=1), prepared.tensors["target"], model.heads.options.k)
            previous = previous if chosen is None else previous.flatten().index_select(0, chosen)[None]
            output = torch.cat([output, link.asked(output, previous) * (head > 1)], dim=-1)
            output_weight = link.widened_weight(output_weight)
        if chosen is not None:
            target, counted = (each.flatten().index_select(0, chosen)[None] for each in (target, counted))
        given = (output, output_weight, target, self.options.label_smoothing)
        total, nll = base.token_loss(*given, bias=base.logits_bias, counted=counted)
        # The loop will divide by all tokens of the batch; a head has only those that are not past the end.
        scale = prepared.tokens / counted.sum().clamp(min=1)
        return total * scale, nll * scale
