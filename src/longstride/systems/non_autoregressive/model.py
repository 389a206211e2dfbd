"""The one-pass model: a Transformer whose decoder reads a canvas of empty slots and fills all of them at once.

A canvas for an output of length T, EOS counted, has T slots; slot t predicts token t, the last one EOS. A slot reads
the mask's embedding and its position and, if told to, the source word or words that would stand there if order were
kept.
All slots of a canvas see each other, so each knows how long the output is, and none knows what another says:

    P(y | x, T) = Π_t P(y_t | x, t, T)

There are no weights that an ordinary Transformer does not have, so the model can begin as one. Which lengths are tried,
and which of their outputs is chosen, is none of this file's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import OptionError, option
from longstride.nn.layers import lowered
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.search.lengths import LengthRegression


@dataclass(frozen=True)
class OnePassOptions(TransformerOptions):
    """A Transformer's options, what slots read of the source, and how long outputs are."""

    copy: Literal["none", "uniform", "soft"] = option(
        "none", "Slots also read the source word at their place (uniform) or those around it (soft)."
    )
    copy_spread: float = option(
        1.0, "With copy: soft, the distance in words over which a word's weight falls to 1/e.", above=0, most=10**6
    )
    length: LengthRegression = option(
        factory=LengthRegression, help="Target words by source words; fitted to the training pairs unless set."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_beyond_marian("A one-pass model")
        if self.special.mask is None:
            raise OptionError("A one-pass model expects a mask among the special ids, for its empty slots, found none.")


class OnePass(Transformer):
    """Encoder, embeddings, and a decoder without a causal mask."""

    options: OnePassOptions

    def __init__(self, options: OnePassOptions) -> None:
        super().__init__(options)

    def forward(
        self,
        memory: Tensor,
        visible: Tensor | None,
        source: Tensor,
        source_lengths: Tensor,
        lengths: Tensor,
        columns: int,
        copied: Tensor | None = None,
    ) -> Tensor:
        """Hidden states of all slots, [canvases, columns, width].

        memory [sources, source, width] and visible [sources, source] (None: nothing is padded) are of the sources
        [sources, source] with `source_lengths` [sources]. lengths [canvases] are those of the canvases, of which every
        source has equally many side by side. Slots at or beyond a canvas's length are seen by none; they themselves see
        the canvas. `copied`: what :meth:`copying` gives, where somebody has it already.
        """
        copied = self.copying(source, source_lengths, lengths, columns) if copied is None else copied
        x = lowered(self._canvas(source, lengths, columns, copied))
        x = self.dropout(x)
        mask = ops.real(lengths, columns)[:, None, None, :]
        memory = ops.to_border(memory, 1)
        memory_mask = None if visible is None else ops.to_border(visible, 1)[:, None, None, :]
        for layer in self.decoder.layers:
            x = layer(x, memory, mask, memory_mask, False)
        return self.closed(x)

    def copying(self, source: Tensor, source_lengths: Tensor, lengths: Tensor, columns: int) -> Tensor | None:
        """Which words of the source slots read: their ids (uniform) or weights (soft), from lengths alone; or None"""
        if self.options.copy == "none":
            return None
        given = source, source_lengths, lengths, columns
        return nearest_words(*given) if self.options.copy == "uniform" else near_words(*given, self.options.copy_spread)

    def _canvas(self, source: Tensor, lengths: Tensor, columns: int, copied: Tensor | None) -> Tensor:
        """[canvases, columns, width] what the slots read."""
        slots = ops.arange(columns, lengths)
        positions: Tensor = self.target_positions(slots.clamp(max=self.options.longest - 1))
        empty = positions + self.target_embedding.weight[self.options.special.mask] * self.scale
        if copied is None:
            return empty.expand(lengths.shape[0], -1, -1)
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        if self.options.copy == "uniform":
            return empty + table(copied) * self.scale  # type: ignore[no-any-return]
        embedded: Tensor = table(source) * self.scale
        return empty + (copied.to(embedded.dtype) @ embedded).view(lengths.shape[0], columns, self.options.width)


def nearest_words(source: Tensor, source_lengths: Tensor, lengths: Tensor, columns: int) -> Tensor:
    """[canvases, columns] for every slot, the source word at its place; arguments as of :meth:`OnePass.forward`."""
    places = _places_of_all(source, source_lengths, lengths, columns)
    nearest = (places + 0.5).floor().long().view(len(source), -1)
    return source.gather(1, nearest).view(-1, columns)


def near_words(source: Tensor, source_lengths: Tensor, lengths: Tensor, columns: int, spread: float) -> Tensor:
    """[sources, canvases of each · columns, source] float64: for every slot, the weights of the source's words."""
    places = _places_of_all(source, source_lengths, lengths, columns)
    words = torch.arange(source.shape[1], device=source.device)
    apart = (places.view(len(source), -1, 1) - words).abs() / spread
    return (-apart.masked_fill(words >= source_lengths[:, None, None], torch.inf)).softmax(dim=-1)


def _places_of_all(source: Tensor, source_lengths: Tensor, lengths: Tensor, columns: int) -> Tensor:
    each = lengths.view(len(source), -1)
    return places_in_source(source_lengths[:, None].expand_as(each).flatten(), lengths, columns)


def places_in_source(source_lengths: Tensor, lengths: Tensor, columns: int) -> Tensor:
    """[rows, columns] float64: where in the source each slot would come from if order were kept and EOS met EOS."""
    slots = torch.arange(columns, device=lengths.device, dtype=torch.float64)
    last = (source_lengths - 1).double()[:, None]
    return (slots * last / (lengths - 1).clamp(min=1)[:, None]).minimum(last)
