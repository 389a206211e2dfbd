"""The drafter behind the verification loop's seam: one model call drafts a block for every row, wherever each stands.

With a causal prefix the keys and values of committed tokens are kept, and a call runs two groups of slots: the newest
committed tokens of each row, as many as one iteration can commit, and the block of masks. Of the tokens, those that are
cached already come out the same, and those that are not there yet are padding, which the next write covers. The masks'
own keys and values lie in slots of their own behind the canvas, where nothing but the block looks. So lengths may go
back or stand still at will: nothing but committed tokens is ever read.

With a full prefix, the paper's way, the whole canvas is run each time.

Either way there are always as many masks as in training, however few tokens are asked for: the block sees itself, and
from a shorter one the drafter never learnt (of a toy's lines, drafts of half a block were right in 5 % of them, the
first halves of whole blocks in all). Only what is asked for is projected.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import DEFAULT_IDS, Limits, Program, Runner, Source
from longstride.nn.cache import Cache, EncoderState, put_rows, row_index
from longstride.nn.link import TREE_CANDIDATES
from longstride.nn.programs import F32, I64, LAYERED, cache_of, cache_state, memory_feeds, memory_inputs, memory_of
from longstride.nn.transformer import Transformer
from longstride.ops.cuda.table import HEADS
from longstride.systems.draft_verify import passes
from longstride.systems.draft_verify.kept import NEVER_DRAFTED
from longstride.systems.draft_verify.model import Drafter as DrafterModel
from longstride.systems.draft_verify.model import reads_whole_encoder
from longstride.systems.draft_verify.passes import NOTHING, Own
from longstride.systems.draft_verify.programs import draft, encode_source
from longstride.systems.draft_verify.shortlist import Chooser, Shortlist
from longstride.verification.acceptance import LogitSummary, forbidden_ids, scored, summarise
from longstride.verification.drafting import Drafter, DrafterGraph, Proposal, View, tree_room
from longstride.verification.kernels import Bounds, choose_within, permitted_ids, summarise_fused


@dataclass
class DraftState:
    """What one session's drafter remembers."""

    memory: EncoderState
    mask_slots: Tensor
    """[rows, columns, width] what a mask slot reads at each position"""
    cache: Cache
    listed: Tensor | None = None
    """[rows, words] the own ids that each sentence is drafted with, where these are not the whole vocabulary"""
    bound: dict[int, tuple[list[int], Callable[[], tuple[EncoderState, Tensor]]]] = field(default_factory=dict)
    """by width, where a lone sentence lies, and what encodes it"""


class ModelDrafter(Drafter):
    """Drafts with a trained :class:`~longstride.systems.draft_verify.model.Drafter`."""

    calls = 1
    observes = False
    queues = True

    def __init__(
        self,
        drafter: DrafterModel,
        verifier: Transformer,
        runner: Runner,
        block: int,
        limits: Limits,
        nodes: int = 0,
        shortlist: Shortlist | None = None,
    ) -> None:
        """`nodes`: drafts are trees of so many, `block` tokens deep at most, of words of a `shortlist` if need be."""
        self.block, self.trees = nodes or block, nodes > 0
        self.depth: int = block
        self._drafter = drafter
        self._runner = runner
        self._min_length, self.special = limits.min_length, verifier.special
        """its verifier's special ids"""
        self._takes_states = reads_whole_encoder(drafter.options, verifier)
        self._encode_source = {given: encode_source(drafter, verifier, given) for given in (True, False)}
        self._fused = runner.fuses
        self.catches_up = drafter.options.prefix == "causal"
        """whether what a pass runs depends on how many tokens came since the last one"""
        head = drafter.options.width // drafter.options.heads
        own = Own(True, head in HEADS) if self._fused and self.catches_up else NOTHING
        self._pass = passes.of(drafter, own)
        self._draft = draft(drafter, self._pass)
        kept, size = drafter.kept_ids is not None, len(drafter.output_weight)
        limits = Limits(min_length=limits.min_length, banned=_never_drafted(drafter, limits)) if kept else limits
        special = DEFAULT_IDS if kept else verifier.special
        self._eos = special.eos
        self._forbidden = forbidden_ids(limits, runner.device, special) if kept else None
        """of a drafter with own ids, those that are never drafted"""
        self._permitted = permitted_ids(limits, size, runner.device, special) if self._fused else None
        self._shortlist = shortlist if self.trees and lists(runner) else None
        self._chooser, words = None, size
        if self._shortlist is not None:
            self._chooser = Chooser(self._shortlist, drafter.own_ids, size, drafter.special.eos)
            words = self._chooser.size
        self._candidates = min(TREE_CANDIDATES, words)
        self._sizes = torch.arange(self.block + 1, device=runner.device)
        self.graph = drafter_graph(
            drafter,
            (block, nodes, limits.min_length, self.special.eos, *((limits.banned,) if kept else ())),
            None if self._chooser is None else words,
        )

    @property
    def key(self) -> Hashable:
        """The models it drafts with, and how much."""
        return (
            self._draft.identity,
            self._encode_source[False].identity,
            self.block,
            self.depth,
            self.trees,
            self._min_length,
            self._shortlist,
        )

    @property
    def remembers(self) -> Hashable:
        """The models it drafts with."""
        return ("draft", self._draft.identity, self._encode_source[False].identity, self._shortlist)

    def buffers(self, state: Any) -> list[Tensor] | None:
        """Memory, cache, what mask slots read, and what is drafted with."""
        listed = () if state.listed is None else (state.listed,)
        return [*state.memory.buffers, state.mask_slots, *listed, *state.cache.buffers]

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> DraftState:
        """An empty state for a table of rows."""
        model = self._drafter
        trained = model.options.block
        columns = longest_output + trained - self.block
        return DraftState(
            model.new_memory(rows, longest_source),
            model.output_weight.new_zeros(rows, columns, model.options.width),
            model.new_cache(rows, columns + trained),
            self._new_list(rows, device),
        )

    def _new_list(self, rows: int, device: torch.device) -> Tensor | None:
        if self._chooser is None:
            return None
        return torch.zeros(rows, self._chooser.size, dtype=torch.int64, device=device)

    def per_sentence(self, state: Any) -> list[tuple[Tensor, int]]:
        """The memory, what mask slots read, and what is drafted with."""
        memory = [(tensor, 1 if tensor.dim() == 5 else 0) for tensor in state.memory.buffers]
        return [*memory, *((one, 0) for one in (state.mask_slots, state.listed) if one is not None)]

    def begin_waiting(self, places: int, longest_source: int, longest_output: int, device: torch.device) -> DraftState:
        """Without a cache, which nobody writes for a sentence that waits."""
        made, model = self.begin(0, longest_source, longest_output, device), self._drafter
        masks = model.output_weight.new_zeros(places, *made.mask_slots.shape[1:])
        listed = self._new_list(places, device)
        return replace(made, memory=model.new_memory(places, longest_source), mask_slots=masks, listed=listed)

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState | None) -> None:
        """Encode the new sentences, from the verifier's states where the drafter reads these and they are at hand."""
        states = memory.states if memory is not None and self._takes_states else None
        columns = state.mask_slots.shape[1]
        lone = len(state.mask_slots) == 1 and not self._runner.records
        given, program = (source.ids, source.lengths, states, columns), self._encode_source[states is not None]
        found, mask_slots = self._bound(state, program, given)() if lone else self._runner.call(program, *given)
        where = row_index(rows, len(state.mask_slots), self._runner.records)
        state.memory.put(where, found)
        put_rows(state.mask_slots, where, mask_slots)
        if self._chooser is not None:
            put_rows(state.listed, where, self._chooser.choose(source.ids, source.lengths))

    def resume(self, state: Any, rows: Tensor, source: Source, view: View) -> None:
        """Encode their sources, and catch up with all that is committed."""
        self.admit(state, rows, source, None)
        if self.catches_up:
            # By PyTorch: it is done once, and kernels would be compiled for so many tokens.
            committed, tokens = max(1, int(view.length.max())), self._drafter.own(view.tokens)
            catch_up = passes.of(self._drafter)
            catch_up(tokens, view.length, committed, 1, state.mask_slots, state.cache, state.memory)

    def _bound(
        self, state: DraftState, program: Program, given: tuple[Any, ...]
    ) -> Callable[[], tuple[EncoderState, Tensor]]:
        """What encodes the sentence that lies there: a session's lie where its first lay, each in a rectangle of its
        own width."""
        places, width = [tensor.data_ptr() for tensor in given if isinstance(tensor, Tensor)], given[0].shape[1]
        found = state.bound.get(width)
        if found is None or found[0] != places:  # what is bound is held: nothing else lies there
            found = state.bound[width] = (places, self._runner.bound(program, *given))
        return found[1]

    def follow(self, state: Any, there: list[int], here: list[int], length: int) -> None:
        """So do the tokens that are cached."""
        if self.catches_up:
            state.cache.move(there, here, length)

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        """The most likely token of every slot of the block; of a linked drafter, given the one before it.

        A link knows no limits on outputs: they are the verifier's, who keeps no token that breaks them.
        """
        drafter = self._drafter
        # Kernels put own ids into a room: these have to be the verifier's.
        room = None if view.room is None or not self._fused or drafter.kept_ids is not None else view.room[:, :block]
        meant = ops.tree_size(min(block, self.depth), self._candidates, block) if self.trees else block
        count = torch.full_like(view.length, meant) if room is None else self._sizes[meant].expand(len(view.length))
        tokens = drafter.own(view.tokens)
        found = self._pass(tokens, *self._arguments(state, view, min(block, self.depth))[1:])
        if self.trees and state.listed is not None:
            ids, parents = drafter.grown_among(found.hidden, tokens, view.length, found.newest, block, state.listed)
            return Proposal(drafter.verifiers(ids), count, parents)
        if self.trees:
            shape = None if room is None else tree_room(room)
            ids, parents = drafter.grown(found.hidden, tokens, view.length, found.newest, block, room, shape)
            return Proposal(drafter.verifiers(ids), count, parents, room is not None, shape)
        if drafter.link is not None:
            ids = drafter.followed(found.hidden, tokens, view.length, found.newest, room)
        else:
            logits = drafter.drafted(found.hidden, tokens, view.length, found.newest)
            ids = (
                self._summary(logits, view, block).top
                if room is None
                else choose_within(logits, self._bounds(view), room)
            )
        return Proposal(drafter.verifiers(ids), count, placed=room is not None)

    def choose(self, state: DraftState, view: View, block: int) -> LogitSummary:
        """The drafter's choices [rows, block] under the same limits as the verifier's, and how likely they are."""
        logits = self._runner.call(self._draft, *self._arguments(state, view, block))
        if self._fused:
            found = summarise_fused(logits, self._bounds(view))
        else:
            found = scored(self._summary(logits, view, block), logits)
        return replace(found, top=self._drafter.verifiers(found.top))

    def _summary(self, logits: Tensor, view: View, block: int) -> LogitSummary:
        forbidden = view.forbidden if self._forbidden is None else self._forbidden
        positions = ops.slots_from(view.length, block)
        return summarise(logits, positions, view.longest, forbidden, self._min_length, eos=self._eos)

    def _bounds(self, view: View) -> Bounds:
        assert self._permitted is not None
        return Bounds(self._permitted, view.length, view.longest, self._min_length, self._eos)

    def _arguments(self, state: DraftState, view: View, block: int) -> tuple[Any, ...]:
        window = self.depth + 1 if view.window is None else view.window
        return (view.tokens, view.length, window, block, state.mask_slots, state.cache, state.memory)


def lists(runner: Runner) -> bool:
    """Whether few words are worth choosing: to kernels of a GPU the whole vocabulary costs next to nothing."""
    return runner.device.type == "cpu" and not runner.fuses


def _never_drafted(drafter: DrafterModel, limits: Limits) -> tuple[int, ...]:
    """Own ids: those that stand for nothing, and those of ids that the verifier may never choose either."""
    never = forbidden_ids(limits, torch.device("cpu"), drafter.options.special)
    return tuple(sorted({*NEVER_DRAFTED, *drafter.own(never.to(drafter.output_weight.device)).tolist()}))


def drafter_graph(drafter: DrafterModel, settings: tuple[Hashable, ...], words: int | None = None) -> DrafterGraph:
    """What a graph of an iteration reads and writes of a :class:`DraftState`, drafted among so many `words` or all."""
    o = drafter.options
    shape = (o.decoder_layers, o.heads, o.width // o.heads)
    inputs = {"mask_slots": (F32, ("rows", "columns", o.width)), **memory_inputs(*shape, "rows")}
    if words is not None:
        inputs |= {"listed": (I64, ("rows", words))}

    def parts(state: DraftState) -> dict[str, Tensor]:
        cache = {"keys": state.cache.keys, "values": state.cache.values}
        listed = {} if state.listed is None else {"listed": state.listed}
        return {"mask_slots": state.mask_slots, **listed, **memory_feeds(state.memory), **cache}

    def state_of(given: Mapping[str, Any]) -> DraftState:
        return DraftState(memory_of(given), given["mask_slots"], cache_of(given), given.get("listed"))

    settings = (o.prefix, words, *settings)
    return DrafterGraph(
        (drafter,), inputs, cache_state(*shape), parts, state_of, LAYERED, o.prefix == "causal", settings
    )
