"""Training the scorer as a Markov transformer: label-smoothed cross-entropy of every word, given its segment alone.

Target slots are cut into segments of `order` slots; the first of a segment reads START instead of the word before, and
no slot sees another segment. So the j-th slot learns P(word | the j - 1 words before it, its position, source). Where
segments begin is drawn anew each time. The paper says "bigrams to trigrams" and no more: segments of 3 hold one slot of
each kind from unigram to trigram; with `shortest` their length is drawn too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.contract import Batch, Loss, Objective, OptionError, Prepared, option
from longstride.nn.losses import Smoothing
from longstride.systems.lattice.model import LatticeModel


@dataclass(frozen=True)
class LatticeObjectiveOptions(Smoothing):
    """Options of the scorer's training."""

    shortest: int | None = option(
        None,
        "Draw each sentence's segment length from this to the model's order (none: always its order).",
        least=2,
        most=16,
    )


class LatticeObjective(Objective):
    """−log p(y_t | the words before it in its segment, t, x), smoothed and summed."""

    options: LatticeObjectiveOptions

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """Draw where and how long segments are, as large numbers: the longest there may be, the model knows."""
        tensors = {
            "offset": torch.randint(1 << 40, batch.target_lengths.shape, generator=rng),
            "order": torch.randint(1 << 40, batch.target_lengths.shape, generator=rng),
        }
        return Prepared.of(batch, tensors)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """Summed over all real target tokens; validation tells the likelihood of every order (`nll_1`, ...) too."""
        assert isinstance(model, LatticeModel)
        tensors, scorer = prepared.tensors, model.model
        source, target = tensors["source"], tensors["target"]
        longest = scorer.options.order
        shortest = self.options.shortest or longest
        if shortest > longest:
            raise OptionError(f"shortest expects at most the model's order {longest}, found {shortest}.")
        order = shortest + tensors["order"] % (longest - shortest + 1)
        segment = segments(tensors["offset"] % order, order, target.shape[1])
        visible = prepared.source_mask
        memory = model.encode(source, visible)
        inputs, counted = segment_inputs(target, segment, scorer.special.start), prepared.target_mask
        hidden = scorer.decode(inputs, memory, visible, mask=segment_mask(segment))
        given = (hidden, scorer.output_weight, target)
        total, nll = scorer.token_loss(*given, self.options.label_smoothing, counted=counted)
        figures = {"nll": nll}
        if not model.training:
            place = _place_in_segment(segment)
            for number in range(1, longest + 1):
                of_order = counted & (place == number)
                _, found = scorer.token_loss(*given, 0.0, counted=of_order)
                figures[f"nll_{number}"] = found * (prepared.tokens / of_order.sum().clamp(min=1))
        return Loss(total, figures)


def _place_in_segment(segment: Tensor) -> Tensor:
    """[rows, length] 1 for the first slot of a segment, 2 for the second, ..."""
    same = segment[:, :, None] == segment[:, None, :]
    return same.tril().sum(dim=2)


def segments(offsets: Tensor, order: Tensor | int, length: int) -> Tensor:
    """[rows, length] which segment each slot is in; segments begin at `offsets` [rows] and every `order` slots after.

    The first may be a part of one.
    """
    slots = torch.arange(length, device=offsets.device)
    of_row = order if isinstance(order, int) else order[:, None]
    return torch.div(slots - offsets[:, None], of_row, rounding_mode="floor")


def segment_inputs(target: Tensor, segment: Tensor, start: int) -> Tensor:
    """[rows, length] what the head reads: the word before, or the start symbol where a segment begins."""
    before = F.pad(target[:, :-1], (1, 0), value=start)
    begins = torch.ones_like(segment, dtype=torch.bool)
    begins[:, 1:] = segment[:, 1:] != segment[:, :-1]
    return torch.where(begins, start, before)


def segment_mask(segment: Tensor) -> Tensor:
    """[rows, 1, length, length] who sees whom: a slot itself and what comes before it in its own segment."""
    length = segment.shape[1]
    same = segment[:, :, None] == segment[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool, device=segment.device).tril()
    return (same & causal)[:, None]
