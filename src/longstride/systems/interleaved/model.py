"""What interleaving adds to a Transformer: which slot reads what, where it stands and whom it sees. Does not search.

The Transformer itself is untouched, so that any trained one can be begun with. `Interleaving` holds the settings and
the few weights of its own that some of them want; `InterleavedModel` runs the Transformer's decoder by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import OptionError
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.layers import extend_all, lowered
from longstride.nn.link import Link
from longstride.nn.transformer import Transformer
from longstride.ops import BlockCausal, Causal, additive
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.slots import directions, has_neighbour, neighbours, rule_of, signals


class Interleaving(nn.Module):
    """The settings, with direction embeddings for more than two directions; learned start vectors and links between
    the words of a step if asked for."""

    def __init__(self, options: InterleavingOptions) -> None:
        super().__init__()
        self.options = options
        width = options.width
        self.directions = nn.Embedding(options.h, width) if options.embeds_directions else None
        self.starts = nn.Parameter(torch.randn(options.step, width)) if options.start == "learned" else None
        if self.directions is not None:
            nn.init.normal_(self.directions.weight, std=width**-0.5)
        linked = options.link and options.vocabulary
        self.link = Link(linked, width, options.link, candidates=0) if linked else None

    def begin(self, embedded: Tensor, slots: Tensor) -> Tensor:
        """embedded [rows, step, width] with the first step's slots replaced; slots [rows or 1, step]"""
        if self.options.start == "symbol":
            return embedded
        first = (slots < self.options.step)[..., None]
        if self.starts is None:
            return embedded.masked_fill(first, 0)
        own = F.embedding(slots.clamp(max=self.options.step - 1), self.starts)
        return torch.where(first, own.to(embedded.dtype), embedded)


@dataclass(frozen=True)
class Layout:
    """Where every slot stands and whom it sees: what steps would otherwise work out again and again."""

    places: Tensor
    """[slots, width] what is added to the embedded word"""
    sight: Tensor
    """[slots, slots] what attention adds to scores: 0 where a slot sees another, -inf elsewhere"""
    rule: Literal["causal", "together", "other"] = "other"
    """`sight` in a word, where there is one: slots see what is before them, and with `together` their own step"""
    own: bool = False
    """steps are laid out by a kernel of our own"""


class InterleavedModel(nn.Module):
    """A Transformer whose decoder writes several directions and words at once."""

    def __init__(self, model: Transformer, interleaving: Interleaving) -> None:
        super().__init__()
        self.model = model
        self.interleaving = interleaving
        options = interleaving.options
        if options.width != model.options.width:
            raise OptionError(
                f"interleaving expects a Transformer of width {options.width}, found {model.options.width}."
            )
        model.options.refuse_pictures("An interleaved decoder")
        if model.options.positions == "relative":
            raise OptionError("An interleaved decoder expects positions sinusoidal or learned, found relative.")
        if model.options.positions == "learned" and options.h == 2 and options.signal == "interleaved":
            raise OptionError("Two directions expect positions: sinusoidal, found learned, which has no negative ones.")
        if options.link and options.vocabulary != model.options.vocabulary:
            raise OptionError(
                f"interleaving expects a Transformer with a vocabulary of {options.vocabulary}, found "
                f"{model.options.vocabulary}."
            )
        self._rule = rule_of(options)

    @property
    def options(self) -> InterleavingOptions:
        """The settings."""
        return self.interleaving.options

    def begun(self) -> str:
        """Let a link that has not learnt anything begin with what the Transformer knows of likeness among words; says
        what a person should know of a warm start."""
        link = self.interleaving.link
        if link is not None and not link.after.weight.any():
            link.begin_as(self.model.output_weight)
        if self.options.start == "symbol" and self.options.step > 1:
            return (
                "warning: interleaving.start is `symbol`: a Transformer may make one state of that symbol wherever "
                "it stands, and what begins as it may say the same word in every slot of its first step for ever; "
                "`learned` or `zeros` do not. Watch `apart` (0: alike) and `nll_first` when validating."
            )
        return ""

    def places(self, slots: Tensor) -> Tensor:
        """[...] slots -> [..., width] position signals, with direction embeddings where there are any"""
        model, options = self.model, self.options
        # A step may run past the last position there is: no such word is ever kept.
        last = model.options.longest - 1
        found: Tensor = model.target_positions(signals(slots, options).clamp(-last, last))
        own = self.interleaving.directions
        return found if own is None else found + own(directions(slots, options)) * options.direction_scale

    def layout(self, slots: int, own: bool = False) -> Layout:
        """For the first `slots` slots, with the weights as they are; `own`: kernels of our own may be used."""
        options, model = self.options, self.model
        every = torch.arange(slots, device=model.target_embedding.weight.device)
        places = self.places(every)
        sight = additive(self._rule(every[None], every)[0], places)
        if options.independent and options.h > 1:
            return Layout(places, sight, "other", own)
        if options.mask == "vanilla" or options.step == 1:
            return Layout(places, sight, "causal", own)
        return Layout(places, sight, "together", own)

    def embed(self, ids: Tensor, slots: Tensor, places: Tensor) -> Tensor:
        """ids [rows, step] in input slots [rows or 1, step], which stand at `places` -> [rows, step, width]"""
        model = self.model
        embedded = self.interleaving.begin(model.target_embedding(ids) * model.scale, slots)
        return model.dropout(lowered(embedded + places))  # type: ignore[no-any-return]

    def decode(self, ids: Tensor, memory: Tensor, visible: Tensor | None) -> Tensor:
        """All slots at once: inputs [rows, slots], memory [rows, source, width] -> hidden [rows, slots, width]"""
        slots = torch.arange(ids.shape[1], device=ids.device)
        x = self.embed(ids, slots[None], self.places(slots))
        # One step of one word with nothing hidden is plainly causal, which attention knows a faster way for.
        causal = self.options.step == 1 or (self.options.mask == "vanilla" and not self.options.independent)
        mask = None if causal else additive(self._rule(slots[None], slots)[:, None], x)
        memory_mask = None if visible is None else visible[:, None, None, :]
        for layer in self.model.decoder.layers:
            x = layer(x, memory, mask, memory_mask, causal)
        return self.model.closed(x)

    def extend(
        self, ids: Tensor, start: Tensor, cache: Cache, memory: EncoderState, layout: Layout, span: int | None = None
    ) -> Tensor:
        """A step of every row from its own start [rows]: ids [rows, step] -> hidden [rows, step, width]

        Only the first `span` slots of the cache are looked at (default: all), of which the layout has as many or more.
        """
        x, slots = self._laid_out(ids, start, layout) if layout.own else self._embed_step(ids, start, layout)
        seen = layout.sight if span is None else layout.sight[:, :span]
        rule = {"causal": Causal, "together": BlockCausal}.get(layout.rule)
        bias = F.embedding(slots, seen)[:, None] if rule is None else rule(slots, lambda: seen)
        return self.model.closed(extend_all(self.model.decoder_layers(), x, cache, slots, bias, memory))

    def _embed_step(self, ids: Tensor, start: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """What the first layer reads, [rows, step, width], and the slots [rows, step]."""
        slots = ops.slots_from(start, ids.shape[1])
        return self.embed(ids, slots, F.embedding(slots, layout.places)), slots

    def _laid_out(self, ids: Tensor, start: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """The same in one kernel."""
        from longstride.ops.cuda import interleaved_step as kernels

        model, begins = self.model, self.options.start != "symbol"
        tokens, starts = model.target_embedding.weight, self.interleaving.starts
        found: tuple[Tensor, Tensor] = kernels.lay_out(ids, start, tokens, model.scale, layout.places, begins, starts)
        return found

    def step_logits(
        self, ids: Tensor, start: Tensor, cache: Cache, memory: EncoderState, layout: Layout, span: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """:meth:`extend`, projected: -> [rows, step, vocabulary], of every slot by itself; and with a link what it has
        to know of the states, [rows, step, rank]"""
        hidden = self.extend(ids, start, cache, memory, layout, span)
        link = self.interleaving.link
        return self.model.logits(hidden), None if link is None else link.factors(hidden)

    def projection(self, hidden: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """What the logits of known words [rows, slots], in whole steps, are the product of: the states [rows, slots,
        width] and the output weight, both wider where neighbours are linked"""
        weight, link = self.model.output_weight, self.interleaving.link
        if link is None:
            return hidden, weight
        asked = link.asked(hidden, neighbours(words, self.options.h))
        linked = has_neighbour(torch.arange(words.shape[1], device=words.device), self.options)
        widened = torch.cat([hidden, asked.masked_fill(~linked[:, None], 0)], dim=-1)
        return widened, link.widened_weight(weight)
