"""The non-autoregressive drafter: a decoder over a canvas of committed tokens and k mask slots.

Slot i predicts token i itself: there is no shift and no start symbol. A mask slot reads the MASK embedding, its
position and, with soft copy, a mix of source embeddings that the position chooses (the paper says no more than
"[MASK]"; the copy is from its authors' code). Who sees whom is one of two rules: with `full`, the paper's, every slot
sees the whole canvas; with `causal`, prefix slots see earlier prefix slots alone and block slots see everything, so
that keys and values of the prefix never change and can be kept.

The decoder reads an encoder of its own, the verifier's output, or layers of its own on top of the verifier's. This file
knows neither training nor sessions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import EOS, RESERVED, OptionError
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.layers import DecoderLayer, EncoderLayer, extend_all, lowered
from longstride.nn.link import TREE_CANDIDATES, Link
from longstride.nn.losses import TokenLoss
from longstride.nn.positions import make_positions
from longstride.nn.transformer import Stack, Transformer
from longstride.ops import additive, aligned
from longstride.ops.draft_tree import Shape
from longstride.systems.draft_verify.kept import most_frequent, own_ids_of, reserved_ids
from longstride.systems.draft_verify.options import DrafterOptions


class Drafter(nn.Module):
    """Embeddings (one table for source, target and output), encoder layers if it has any, and a decoder.

    Sources are given in the verifier's ids; all other ids, in and out, are its own, which :meth:`own` and
    :meth:`verifiers` translate.
    """

    kept_ids: Tensor | None
    own_ids: Tensor | None

    def __init__(self, options: DrafterOptions) -> None:
        super().__init__()
        self.options = options
        self.special = options.own_special
        """its own special ids"""
        layers = options.layers()
        self.target_embedding = nn.Embedding(options.own_vocabulary, options.width)
        nn.init.normal_(self.target_embedding.weight, std=options.width**-0.5)
        positions = options.longest + options.block  # the last block may begin at the last position
        self.source_positions = make_positions(options.positions, options.width, positions)
        self.target_positions = make_positions(options.positions, options.width, positions)
        own = 0 if options.encoder == "shared" else options.encoder_layers
        self.encoder = Stack([EncoderLayer(layers) for _ in range(own)], layers) if own else None
        self.bridge = nn.Linear(options.verifier_width or options.width, options.width) if self._bridged else None
        self.decoder = Stack([DecoderLayer(layers) for _ in range(options.decoder_layers)], layers)
        self.copy = nn.Linear(options.width, options.width, bias=False) if options.soft_copy else None
        self.link = Link(options.own_vocabulary, options.width, options.link) if options.link else None
        self.dropout = nn.Dropout(options.dropout)
        self.token_loss = TokenLoss()
        self.scale = math.sqrt(options.width) if options.scale_embeddings else 1.0
        kept = None if options.kept is None else torch.zeros(options.kept, dtype=torch.int64)
        every = None if options.kept is None else torch.zeros(options.vocabulary, dtype=torch.int64)
        self.register_buffer("kept_ids", kept)
        self.register_buffer("own_ids", every, persistent=False)
        self.register_load_state_dict_post_hook(_map_ids)  # type: ignore[no-untyped-call]
        if kept is not None and every is not None and not kept.is_meta:
            self.keep(most_frequent(every, options.special).ids[: len(kept) - len(RESERVED)])

    # --- ids of its own ----------------------------------------------------------------------------------------------

    def keep(self, ids: Tensor) -> None:
        """Draft these ids of the verifier, int64 [kept - 5], and its EOS."""
        kept, expected = self.kept_ids, (self.options.kept or 0) - len(RESERVED)
        if kept is None or ids.shape != (expected,):
            raise OptionError(f"A drafter of {self.options.kept} own ids expects {expected} to keep, found {len(ids)}.")
        reserved = torch.tensor(reserved_ids(self.options.special), device=kept.device)
        kept.copy_(torch.cat([reserved, ids.to(kept.device)]))
        self.check_weights()
        _map_ids(self)

    def check_weights(self) -> None:
        """Refuse kept ids that the verifier does not have."""
        if self.kept_ids is None:
            return
        least, most = (int(found) for found in self.kept_ids.aminmax())
        if least < 0 or most >= self.options.vocabulary or int(self.kept_ids[EOS]) != self.options.special.eos:
            raise OptionError(
                f"kept_ids expects ids from 0 to {self.options.vocabulary - 1}, {self.options.special.eos} (eos) in "
                f"place {EOS}, found {least} to {most}, {int(self.kept_ids[EOS])} in that place."
            )

    def own(self, ids: Tensor) -> Tensor:
        """The verifier's ids -> its own [...]"""
        return ids if self.own_ids is None else ops.look_up(self.own_ids, ids)

    def verifiers(self, ids: Tensor) -> Tensor:
        """Its own ids -> the verifier's [...]"""
        return ids if self.kept_ids is None else ops.look_up(self.kept_ids, ids)

    @property
    def _bridged(self) -> bool:
        o = self.options
        return o.encoder != "own" and o.verifier_width not in (None, o.width)

    @property
    def output_weight(self) -> Tensor:
        """[vocabulary, width] the output projection"""
        return self.target_embedding.weight

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., vocabulary], each slot by itself"""
        return ops.linear(hidden, self.output_weight)

    def drafted(self, hidden: Tensor, tokens: Tensor, length: Tensor, newest: Tensor | None = None) -> Tensor:
        """[rows, block, width] -> [rows, block, vocabulary], the logits of a block after `length` [rows] of the tokens
        [rows, columns], of which `newest` [rows] are the last, if somebody knows them; with a link, each slot's given
        those that are drafted before it"""
        logits = self.logits(hidden)
        if self.link is None:
            return logits
        return self.link.chained(
            logits, hidden, newest_of(tokens, length, self.special.start) if newest is None else newest
        )

    def followed(
        self, hidden: Tensor, tokens: Tensor, length: Tensor, newest: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        """[rows, block, width] -> [rows, block], what a link drafts after these tokens, put `into` a tensor if one
        is given; for drafters with a link. Limits on outputs it does not know: whoever verifies does."""
        assert self.link is not None
        given = newest_of(tokens, length, self.special.start) if newest is None else newest
        return self.link.drafted_from(hidden, self.output_weight, given, into)

    def grown(
        self,
        hidden: Tensor,
        tokens: Tensor,
        length: Tensor,
        newest: Tensor | None,
        nodes: int,
        into: Tensor | None = None,
        shape: Shape | None = None,
    ) -> tuple[Tensor, Tensor]:
        """[rows, block, width] -> tokens and parents [rows, nodes] of the likeliest tree after these tokens; `into` and
        `shape` as :func:`longstride.ops.tree_tokens` takes them"""
        given = newest_of(tokens, length, self.special.start) if newest is None else newest
        if self.link is not None:
            return self.link.grown_from(hidden, self.output_weight, given, nodes, into, shape)
        return ops.tree_tokens(self.logits(hidden), given, None, None, None, TREE_CANDIDATES, nodes, into, shape)

    def grown_among(
        self, hidden: Tensor, tokens: Tensor, length: Tensor, newest: Tensor | None, nodes: int, listed: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As :meth:`grown`, of listed words [rows, words] alone"""
        given = newest_of(tokens, length, self.special.start) if newest is None else newest
        values, places = ops.listed(hidden, self.output_weight, listed).topk(min(TREE_CANDIDATES, listed.shape[1]))
        found = listed[:, None].expand(-1, hidden.shape[1], -1).gather(2, places)
        return ops.best_tree(values, found, given, nodes, None if self.link is None else self.link.pairs(hidden))

    def projection(self, hidden: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        """States and output weight whose product are a block's logits where the tokens before its slots are known

        hidden [rows, block, width], previous [rows, block] -> [rows, block, n], [vocabulary, n]
        """
        if self.link is None:
            return hidden, self.output_weight
        return self.link.widened(hidden, previous), self.link.widened_weight(self.output_weight)

    @property
    def mask(self) -> int:
        """The id that stands for tokens yet to be drafted."""
        mask = self.special.mask
        if mask is None:
            raise OptionError("A drafter expects a vocabulary with a mask id, found none.")
        return mask

    def decoder_layers(self) -> list[DecoderLayer]:
        """The decoder's layers, with their type known."""
        return [layer for layer in self.decoder.layers if isinstance(layer, DecoderLayer)]

    # --- the source --------------------------------------------------------------------------------------------------

    def encode(self, ids: Tensor, visible: Tensor | None, states: Tensor | None) -> Tensor:
        """What the decoder reads, [rows, source, width]: from the verifier's ids [rows, source], or its states."""
        if states is None:
            positions = ops.arange(ids.shape[1], ids)
            x = self._enter(self.target_embedding(self.own(ids)) * self.scale + self.source_positions(positions))
        else:
            x = states if self.bridge is None else self.bridge(states)
        if self.encoder is None:
            return x
        mask = None if visible is None else visible[:, None, None, :]
        for layer in self.encoder.layers:
            x = layer(x, mask)
        return self.encoder.norm(x)  # type: ignore[no-any-return]

    def copied(self, ids: Tensor, visible: Tensor | None, columns: int) -> Tensor | None:
        """[rows, columns, width] what a mask slot at each position takes from the source, or None."""
        if self.copy is None:
            return None
        source = self.target_embedding(self.own(ids)) * self.scale
        keys = source + self.source_positions(ops.arange(ids.shape[1], ids))
        copy, last = self.copy, self.options.longest + self.options.block

        def ask(positions: Tensor) -> Tensor:
            places = self.target_positions(positions.clamp(max=last - 1))
            return copy(places) / math.sqrt(self.options.width)  # type: ignore[no-any-return]

        asked = ops.by_position(ask, columns, last, ids)
        scores = asked @ keys.to(asked.dtype).transpose(1, 2)
        if visible is not None:
            scores = scores.masked_fill(~visible[:, None, :], float("-inf"))
        return scores.softmax(dim=-1).to(source.dtype) @ source  # type: ignore[no-any-return]

    # --- all at once -------------------------------------------------------------------------------------------------

    def forward(
        self, canvas: Tensor, prefix: Tensor, block: int, source: Tensor, visible: Tensor | None, states: Tensor | None
    ) -> Tensor:
        """Hidden states of every row's block, [rows, block, width].

        canvas [rows, slots] holds `prefix` [rows] tokens, then a block of MASK, or of tokens that are revealed; what
        follows is not seen; all of them own ids. source (the verifier's ids) and visible [rows, source]; states as in
        :meth:`encode`.
        """
        memory = self.encode(source, visible, states)
        slots = torch.arange(canvas.shape[1], device=canvas.device)
        embedded = self.target_embedding(canvas) * self.scale
        copied = self.copied(source, visible, canvas.shape[1])
        if copied is not None:
            embedded = embedded + torch.where((canvas == self.mask)[..., None], copied, 0)
        # A canvas is aligned and may so run past the last position there is: no such slot is seen.
        place = self.target_positions(slots.clamp(max=self.options.longest + self.options.block - 1))
        x = self._enter(embedded + place)
        mask = self._sight(slots[None], slots, prefix, block)
        memory_mask = None if visible is None else visible[:, None, None, :]
        for number, layer in enumerate(self.decoder.layers):
            x = layer(self._place(x, place, number), memory, mask, memory_mask, False)
        hidden = self.decoder.norm(x)
        columns = prefix[:, None] + torch.arange(block, device=canvas.device)
        return hidden.gather(1, columns[..., None].expand(-1, -1, hidden.shape[2]))  # type: ignore[no-any-return]

    def several(
        self,
        tokens: Tensor,
        cuts: Tensor,
        filled: Tensor,
        source: Tensor,
        visible: Tensor | None,
        states: Tensor | None,
    ) -> Tensor:
        """Hidden states of several blocks after several prefixes of the same text, [rows, blocks * block, width].

        tokens [rows, length] the whole text; cuts [rows, blocks] where each block begins; filled [rows, blocks * block]
        MASK, or tokens that are revealed. Each block sees the tokens before its cut and itself, so that its states are
        those of :meth:`forward` with that prefix; tokens never see a block, and so their states serve all of them. For
        `prefix: causal` alone: with `full`, tokens see the block.
        """
        rows, length = tokens.shape
        blocks, block = cuts.shape[1], filled.shape[1] // cuts.shape[1]
        ahead = (cuts[..., None] + torch.arange(block, device=cuts.device)).flatten(1)
        spare = aligned(length + blocks * block) - length - blocks * block  # slots that nobody sees
        ids = F.pad(torch.cat([tokens, filled], dim=1), (0, spare), value=self.special.pad)
        every = torch.arange(length, device=tokens.device)
        places = F.pad(torch.cat([every.expand(rows, -1), ahead], dim=1), (0, spare))
        memory = self.encode(source, visible, states)
        embedded = self.target_embedding(ids) * self.scale
        copied = self.copied(source, visible, length + block)
        if copied is not None:
            mixed = copied.gather(1, ahead[..., None].expand(-1, -1, copied.shape[2]))
            mixed = torch.where((filled == self.mask)[..., None], mixed, 0)
            embedded = embedded + F.pad(mixed, (0, 0, length, spare))
        place = self.target_positions(places)
        x = self._enter(embedded + place)
        # To which block a slot belongs: 0 for tokens, 1 and on for blocks, the spare ones one more.
        of = torch.arange(blocks, device=tokens.device).repeat_interleave(block) + 1
        of = torch.cat([torch.zeros_like(every), of, of.new_full((spare,), blocks + 1)])
        of_token = torch.arange(len(of), device=tokens.device) < length
        # So many tokens a slot sees: those up to itself, those before its cut, or one, since none is not to be had.
        upto = torch.cat([(every + 1).expand(rows, -1), cuts.repeat_interleave(block, dim=1)], dim=1)
        upto = F.pad(upto, (0, spare), value=1)
        sees_token = (torch.arange(len(of), device=tokens.device) < upto[..., None]) & of_token
        mask = (sees_token | ((of[:, None] == of) & ~of_token))[:, None]
        # A mask even where nothing is padded: layers that are compiled are compiled for half as many kinds of batches.
        real = torch.ones_like(source, dtype=torch.bool) if visible is None else visible
        for number, layer in enumerate(self.decoder.layers):
            x = layer(self._place(x, place, number), memory, mask, real[:, None, None, :], False)
        return self.decoder.norm(x)[:, length : length + blocks * block]  # type: ignore[no-any-return]

    def _sight(self, queries: Tensor, keys: Tensor, prefix: Tensor, block: int) -> Tensor:
        """Who sees whom, [rows, 1, queries (or 1), keys]: slots [rows or 1, queries] and [keys]."""
        on_canvas = keys < (prefix + block)[:, None]
        if self.options.prefix == "full":
            return on_canvas[:, None, None, :]
        of_block = (queries >= prefix[:, None])[..., None] & on_canvas[:, None, :]
        return (ops.causal(queries, keys) | of_block)[:, None]

    def _enter(self, x: Tensor) -> Tensor:
        return self.dropout(lowered(x))  # type: ignore[no-any-return]

    def _place(self, x: Tensor, place: Tensor, number: int) -> Tensor:
        """What a layer reads: positions are said again before every layer but the first, which has heard them."""
        if number == 0 or self.options.add_positions == "first":
            return x
        return self.dropout(x + place.to(x.dtype))  # type: ignore[no-any-return]

    # --- step by step ------------------------------------------------------------------------------------------------

    def new_cache(self, rows: int, columns: int) -> Cache:
        """Room for the keys and values of `columns` slots."""
        o = self.options
        head = o.width // o.heads
        return Cache.empty(o.decoder_layers, rows, o.heads, aligned(columns), head, self.output_weight)

    def new_memory(self, rows: int, source: int) -> EncoderState:
        """Room for the memory of `rows` sources of at most `source` tokens."""
        o = self.options
        head = o.width // o.heads
        return EncoderState.empty(o.decoder_layers, rows, o.heads, aligned(source), head, self.output_weight)

    def encode_source(self, ids: Tensor, lengths: Tensor, states: Tensor | None) -> EncoderState:
        """Encode sources and project them once for every decoder layer."""
        visible = ops.real(lengths, ids.shape[1])
        memory = self.encode(ids, visible, states)
        projections = [layer.cross.kv for layer in self.decoder_layers()]
        return EncoderState(*ops.project_layers(memory, projections, self.options.heads), visible, memory)

    def mask_slots(self, ids: Tensor, lengths: Tensor, columns: int) -> Tensor:
        """[rows, columns, width] what a mask slot reads at each position, the position itself left out."""
        embedded = self.target_embedding.weight[self.mask] * self.scale
        copied = self.copied(ids, ops.real(lengths, ids.shape[1]), columns)
        if copied is None:
            return ops.repeated(embedded, ids, ids.shape[0], columns)
        return embedded + copied

    def run(
        self, embedded: Tensor, positions: Tensor, slots: Tensor, mask: Tensor, cache: Cache, memory: EncoderState
    ) -> Tensor:
        """Run some slots of every row through the decoder, [rows, step, width] -> [rows, step, width].

        Each slot has its position [rows, step] on the canvas and the slot of the cache [rows, step] that keeps its keys
        and values; mask [rows, step, cache slots] says which of these it sees.
        """
        place = self.target_positions(positions)
        x = embedded + place
        return self.run_placed(x, place, slots, additive(mask[:, None], x), cache, memory)

    def run_placed(
        self,
        x: Tensor,
        place: Tensor,
        slots: Tensor,
        seen: Tensor,
        cache: Cache,
        memory: EncoderState,
        asked: tuple[ops.Length, ops.Length] | None = None,
    ) -> Tensor:
        """The same for slots that have heard their positions, x and place [rows, step, width].

        seen [rows, 1, step, cache slots] is what attention adds to scores. With `asked`, first and end, hidden states
        of these slots alone are given: of the others, the last layer needs no more than keys and values.
        """
        said_again = None if self.options.add_positions == "first" else place.to(x.dtype)
        x = extend_all(self.decoder_layers(), x, cache, slots, seen, memory, said_again, asked)
        return self.decoder.norm(x)  # type: ignore[no-any-return]


def _map_ids(drafter: Drafter, _: object = None) -> None:
    """Make the table from the verifier's ids to the drafter's of that which was set or loaded."""
    if drafter.kept_ids is not None and drafter.own_ids is not None:
        drafter.own_ids.copy_(own_ids_of(drafter.kept_ids, drafter.options.vocabulary, drafter.options.special))


def newest_of(tokens: Tensor, length: Tensor, start: int) -> Tensor:
    """[rows] the last of the first `length` [rows] of tokens [rows, columns], `start` where there is none"""
    last = tokens.gather(1, (length - 1).clamp(min=0)[:, None])[:, 0]
    return torch.where(length > 0, last, start)


# --- the verifier's share --------------------------------------------------------------------------------------------


def verifier_states(verifier: Transformer, options: DrafterOptions, ids: Tensor, visible: Tensor | None) -> Tensor:
    """[rows, source, verifier's width] what a drafter with this kind of encoder reads of the verifier's."""
    below = options.shared_layers
    if below is None or below == verifier.options.encoder_layers:
        return verifier.encode(ids, visible)
    x = verifier.embed_source(ids)
    mask = verifier.source_mask(visible, x)
    for layer in list(verifier.encoder.layers)[:below]:
        x = layer(x, mask)
    return x


def reads_whole_encoder(options: DrafterOptions, verifier: Transformer) -> bool:
    """Whether it is the verifier's encoder output itself that the drafter reads."""
    return options.encoder != "own" and options.shared_layers in (None, verifier.options.encoder_layers)


def check_fit(drafter: DrafterOptions, verifier: Transformer) -> None:
    """Refuse a drafter that cannot work with this verifier."""
    own = verifier.options
    if drafter.vocabulary != own.vocabulary:
        raise OptionError(
            f"A drafter expects a verifier with its own vocabulary of {drafter.vocabulary} pieces, "
            f"found one with {own.vocabulary}."
        )
    if own.source_vocabulary not in (None, own.vocabulary) and (drafter.encoder == "own" or drafter.soft_copy):
        raise OptionError(
            "A drafter with an encoder of its own or soft copy expects one vocabulary for source and target, found two."
        )
    if drafter.kept is not None and drafter.special != own.special:
        raise OptionError(
            f"A drafter with ids of its own expects its verifier's special ids, {own.special}, found {drafter.special}."
        )
    check_encoder(drafter, verifier)


def check_encoder(drafter: DrafterOptions, verifier: Transformer) -> None:
    """Refuse a drafter that reads another encoder than this one."""
    own = verifier.options
    if drafter.encoder == "own":
        return
    expected = drafter.verifier_width or drafter.width
    if expected != own.width:
        raise OptionError(f"The drafter reads an encoder of width {expected}, found a verifier of width {own.width}.")
    if (drafter.shared_layers or 0) > own.encoder_layers:
        raise OptionError(
            f"shared_layers expects 1 to the verifier's {own.encoder_layers} encoder layers, "
            f"found {drafter.shared_layers}."
        )


@torch.no_grad()
def begin_as(drafter: Drafter, verifier: Transformer) -> int:
    """Copy the verifier's weights wherever name and shape agree; how many were.

    Own layers on top of some of the verifier's begin as those that they stand in for.
    """
    o = drafter.options
    below = 0 if o.encoder == "own" else o.shared_layers or verifier.options.encoder_layers
    given = verifier.state_dict()
    if drafter.kept_ids is not None:
        # Its one table is the output projection first of all; what a verifier divides by is divided by here too.
        projection = verifier.output_weight * (verifier.options.width**-0.5 if verifier.options.scale_logits else 1.0)
        given["target_embedding.weight"] = projection[drafter.kept_ids]
    copied = 0
    for name, weight in drafter.state_dict().items():
        head, _, rest = name.removeprefix("encoder.layers.").partition(".")
        if name == "kept_ids":
            continue
        other = given.get(f"encoder.layers.{int(head) + below}.{rest}" if name.startswith("encoder.layers.") else name)
        if other is not None and other.shape == weight.shape:
            weight.copy_(other)
            copied += 1
    if drafter.link is not None:
        drafter.link.begin_as(drafter.target_embedding.weight)
    return copied
