"""What a beam keeps on the device for a batch of sentences, and one step of it. The same for one word a step and for
bundles of words.

All rows are hypotheses; those of one sentence lie side by side and read one source. Where kernels of our own can read
it so, a cache stays as it was written: an indirection says in which row each slot of a hypothesis's past lies, and
hypotheses change places there. Elsewhere the rows of a cache follow their hypotheses.

A step is a function of tensors alone. Where the runner records, tensors have their full size from the start and never
move, so that it is recorded once and repeated; where it binds, so it is for a single sentence. Elsewhere caches grow as
hypotheses do, and empty places can be dropped. On a processor hypotheses are NumPy's arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import Limits, Need, Runner, Source
from longstride.engine.outputs import HostCopy
from longstride.nn.transformer import Transformer
from longstride.ops import aligned
from longstride.search.beam import Beam, BeamState, Search
from longstride.search.candidates import averaged, best_allowed_words, best_words, with_best_words
from longstride.search.continuations import Array, SlotScores, StepScores, library
from longstride.search.kernels import FusedBeam, usable
from longstride.search.table import SearchModel, SearchTable
from longstride.verification.ngrams import within
from longstride.verification.prefixes import TablePrefixes

SHORTEST_SPAN = 64
"""Where every span of a cache is recorded by itself, none is shorter."""
FINISHED = ("finished", "finished_length", "finished_words")
"""What a host reads of a search that has ended, beside scores."""


class BeamTable(SearchTable):
    """Sentences of `search.width` hypotheses."""

    def __init__(
        self,
        models: Sequence[SearchModel],
        runner: Runner,
        search: Search,
        limits: Limits,
        capacity: int,
        longest_source: int,
        columns: int,
        scores: Callable[[Tensor, Any, Tensor, bool], StepScores] | None = None,
        indirect: bool = False,
    ) -> None:
        """`scores`: (logits [sentences, width, step, vocabulary], what else the model call gives, no_words, whether
        hypotheses are NumPy's arrays) -> scores, where slots depend on each other; `indirect`: model calls read caches
        through an indirection."""
        bound = runner.binds and capacity == 1
        super().__init__(
            models, runner, limits, capacity, longest_source, columns, search.width, not (runner.records or bound)
        )
        device, width, step = runner.device, search.width, search.step
        special = models[0].model.special
        self._search, self._scores, self._limits = search, scores, limits
        vocabulary = models[0].model.options.vocabulary
        self._prefixes = TablePrefixes.empty(capacity, columns, vocabulary, device) if limits.prefixes else None
        self._by_prefix = limits.watches_repeats or limits.prefixes
        """whether what may follow hangs on what came before"""
        # Where steps are recorded they may not depend on numbers; elsewhere a processor may look at them.
        self._looks = device.type == "cpu" and not runner.records
        self._beam = Beam(search, columns, None if self._looks else device)
        state = BeamState.empty(capacity, width, columns, device)
        self.state = state.numpy() if self._looks else state
        self._last = torch.full((capacity, width, step), special.start, dtype=torch.int64, device=device)
        self._start = torch.zeros(capacity * width, dtype=torch.int64, device=device)
        self._no_words = torch.cat([self._forbidden, torch.tensor([special.eos], device=device)])
        self._first = self._array(torch.arange(capacity, device=device)[:, None] * width)
        self._candidates = with_best_words(models[0].extend, vocabulary, width, special.eos)
        self._bound: Callable[[], Any] | None = None
        self._binds = bound and len(models) == 1 and scores is None and not self._by_prefix
        self._indirection = self._share_pasts() if indirect and runner.records else None
        self._found: Any = None
        self._seen: HostCopy | None
        self._ended: HostCopy | None
        self._seen, self._ended = self._mirrors() if runner.records else (None, None)
        self._fused: FusedBeam | None = None
        fits = scores is None and search.plain and not self._by_prefix
        if self._ended is not None and fits and usable(runner, search, self._indirection is not None):
            self._fused = FusedBeam(self.state, search, self._forbidden, vocabulary, self._ended.here["scores"])
            self._last, self._start = self._fused.last, self._fused.start
        self._stage()

    def _stage(self) -> None:
        """What the next model call reads, as steps write it: the same memory."""
        self._staged = self._array(self._last), self._array(self._start.view(self._last.shape[:2]))

    def _array(self, tensor: Tensor) -> Array:
        """As hypotheses are kept here; the same memory."""
        return tensor.numpy() if self._looks else tensor

    def _share_pasts(self) -> Tensor:
        """[rows, slots of a cache] int32, one for all models: the row in which each slot of a hypothesis's past lies"""
        cache = self._caches[0]
        indirection = torch.zeros(cache.rows, cache.longest, dtype=torch.int32, device=self._runner.device)
        for cache in self._caches:
            cache.indirection = indirection
        return indirection

    def _mirrors(self) -> tuple[HostCopy, HostCopy]:
        """What the host reads, in memory that is made once: some of the state's tensors move there."""
        state, device = self.state, self._runner.device
        kept = {name: (getattr(state, name).dtype, tuple(getattr(state, name).shape)) for name in ("done", *FINISHED)}
        flags = HostCopy({"done": kept.pop("done")}, device)
        ended = HostCopy({"scores": kept["finished"], **kept}, device)
        for name, here in {**flags.here, **ended.here}.items():
            if name != "scores":
                setattr(state, name, here.copy_(getattr(state, name)))
        return flags, ended

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        own = [*self.state.buffers, self._last, self._start]
        own += [] if self._indirection is None else [self._indirection]
        own += [] if self._prefixes is None else self._prefixes.buffers
        return [*own, *([] if self._fused is None else self._fused.buffers), *super().buffers]

    def admit(self, source: Source, slots: list[int], tickets: list[int]) -> int:
        """With what their outputs begin with."""
        if self._prefixes is not None:
            self._prefixes.put(slots, source.prefixes)
        return super().admit(source, slots, tickets)

    def _open(self, slots: Tensor, longest: Tensor) -> None:
        self.state.open(self._array(slots), self._array(longest))
        self._last.index_fill_(0, slots, self._models[0].model.special.start)
        self._start.view(-1, self._search.width).index_fill_(0, slots, 0)

    @torch.inference_mode()
    def drop(self, slot: int) -> None:
        """Its search is over, whatever it has found; its rows idle at the front, where there is room."""
        self.state.done[slot] = True
        self._start.view(-1, self._search.width)[slot] = 0

    # --- a step ------------------------------------------------------------------------------------------------------

    def step(self, needed: int) -> Tensor:
        """A step of every live hypothesis, none of which fills more than `needed` slots with it.

        -> [sentences] bool: those that took part
        """
        if not self._runner.records:
            return self._step(aligned(needed))
        longest = self._caches[0].longest
        # Kernels that follow an indirection look no further than a row has come, whatever the span.
        span = longest if self._indirection is not None else min(longest, self._runner.round_up(needed, SHORTEST_SPAN))
        if span not in self._recorded:
            for cache, one in zip(self._caches, self._models, strict=True):
                cache.prepare(span, one.model.options.local_attention)
            self._recorded[span] = self._runner.record(f"beam {span}", partial(self._step, span), self.buffers)
        found: Tensor = self._recorded[span]()
        return found

    def _step(self, span: int) -> Tensor:
        fused, start = self._fused, self._start
        if fused is not None and self._search.step == 1 and self._indirection is not None:
            one = len(self._models) == 1
            logits = self._logits(span)[0].flatten(0, 1) if one else None
            return fused.advance_words(logits, None if one else self._score(span), self._indirection)  # type: ignore[arg-type]
        if fused is not None:
            rows, active = fused.advance_bundles(self._score(span), self._indirection)  # type: ignore[arg-type]
            if self._indirection is not None:
                return active
        else:
            active, state = ~self.state.done, replace(self.state)
            parents, last = self._beam.advance(state, self._score(span))
            start = start.clone() if self._indirection is not None else start
            if self._runner.records:
                self.state.become(state)
            else:
                self.state = state
            last_there, start_there = self._staged
            last_there[:] = last
            start_there[:] = library(start_there).where(state.done, 0, state.length)[:, None]
            rows = (self._first + parents).reshape(-1)
        self._follow(rows, start, span)
        return torch.from_numpy(active) if self._looks else active

    def _score(self, span: int) -> StepScores:
        """The best continuations of every row."""
        sentences, width, step = self._last.shape
        if self._fused is not None and len(self._models) == 1:
            return self._fused.best_words(self._logits(span)[0].flatten(0, 1))
        if self._scores is not None or len(self._models) > 1 or self._runner.records or self._by_prefix:
            logits, others = self._logits(span)
            if self._scores is not None:
                return self._scores(logits, others, self._no_words, self._looks)
            given = (self._no_words, width, self._search.eos)
            if self._by_prefix:
                found: Any = best_allowed_words(logits.flatten(0, 1), *given, self._allowed)
            else:
                found = best_words(logits, *given)
        elif self._binds:
            if self._bound is None:
                self._bound = self._runner.bound(self._candidates, self._no_words, *self._arguments(0, None))
            found = self._bound()
        else:
            found = self._runner.call(self._candidates, self._no_words, *self._arguments(0, span))
        if found is not self._found:  # a bound call gives the same tensors each time
            self._found = found
            shape = (sentences, width, step, -1)
            ids, words, *ends = (self._array(one) for one in found)
            self._made = SlotScores(ids.reshape(shape), words.reshape(shape), *(one.reshape(shape[:3]) for one in ends))
            if self._prefixes is not None:
                ids, where = (self._array(one[:, 0]) for one in self._prefixes.at(self._lengths[:, None]))
                self._made = self._made.prescribed(where & (self.state.length < self.state.longest), ids)
        return self._made

    @property
    def _lengths(self) -> Tensor:
        """[sentences] words of live hypotheses"""
        return torch.from_numpy(self.state.length) if self._looks else self.state.length

    def _allowed(self, shares: Tensor) -> Tensor:
        """Log-probabilities [rows, 1, vocabulary] without what may not follow what came before."""
        if self._limits.watches_repeats:
            shares = within(self._limits, shares, *self._inputs())
        if self._prefixes is None:
            return shares
        by_sentence = shares.view(len(self._lengths), -1, shares.shape[-1])
        return self._prefixes.allowed(by_sentence, self._lengths[:, None]).view_as(shares)

    def _inputs(self) -> tuple[Tensor, Tensor]:
        """The decoder's inputs of every row [rows, 1, columns], and how many there are; none where EOS alone may stand:
        it then may whatever it repeats."""
        words, length, longest = (
            torch.from_numpy(one) if self._looks else one
            for one in (self.state.words, self.state.length, self.state.longest)
        )
        inputs = F.pad(words.flatten(0, 1), (1, 0), value=self._models[0].model.special.start)
        filled = torch.where(length >= longest, 0, length + 1)
        return inputs[:, None], filled[:, None].expand(words.shape[:2]).reshape(-1, 1)

    def _logits(self, span: int) -> tuple[Tensor, Any]:
        """[sentences, width, step, vocabulary] of all models together, and what else the last one gives"""
        every, others = [], None
        for number, one in enumerate(self._models):
            found = self._runner.call(one.extend, *self._arguments(number, span))
            logits, others = found if isinstance(found, tuple) else (found, None)
            every.append(logits)
        return averaged(every).view(*self._last.shape, -1), others

    def _arguments(self, number: int, span: int | None) -> tuple[Any, ...]:
        cache, more = self._caches[number], self._models[number].more
        if span is not None:
            cache.grow(span)
        ids = self._last.view(-1, self._search.step)
        return (ids, self._start, cache, self._memories[number], *more, cache.longest if span is None else span)

    def _follow(self, rows: Array, start: Tensor, span: int) -> None:
        """Hypotheses come from rows [rows] now, which have just written the step from slots start [rows] on."""
        if self._indirection is not None:
            moved = self._indirection.index_select(0, rows)
            slots = start[:, None] + torch.arange(self._search.step, device=start.device)
            here = rows[:, None].expand_as(slots).to(moved.dtype)
            self._indirection.copy_(moved.scatter_(1, slots, here))
            return
        if self._looks:
            parents: list[int] = rows.tolist()
            there = [row for row, parent in enumerate(parents) if row != parent]
            for cache in self._caches if there else ():
                cache.move(there, [parents[row] for row in there], span)
            return
        for cache in self._caches:
            cache.shuffle(rows, span)

    # --- what the host sees ------------------------------------------------------------------------------------------

    def done(self) -> list[bool]:
        """Per slot, whether its search has ended or it is empty; waits for the device."""
        if self._seen is None:
            done = self.state.done if self._looks else self._runner.fetch(self.state.done)[0]
            return done.tolist()
        self._seen.send()
        self._seen.wait()
        return self._seen.seen["done"].tolist()

    def finished(self) -> list[Tensor]:
        """Of finished hypotheses: scores, log-probabilities and lengths [slots, width], words [slots, width, columns].

        On the host, after waiting for the device; good until it is asked again, and where a search is done.
        """
        if self._looks:
            found = (self._beam.scores(self.state), *(getattr(self.state, name) for name in FINISHED))
            return [torch.from_numpy(one) for one in found]
        if self._ended is None:
            return self._runner.fetch(self._beam.scores(self.state), *(getattr(self.state, name) for name in FINISHED))
        if self._fused is None:
            self._ended.here["scores"].copy_(self._beam.scores(self.state))
        self._ended.send()
        self._ended.wait()
        return [self._ended.seen[name] for name in ("scores", *FINISHED)]

    def keep(self, slots: Tensor) -> None:
        """Drop all sentences but these [n]; not where the table keeps its shape."""
        width = self._search.width
        rows = (slots[:, None] * width + torch.arange(width, device=slots.device)).view(-1)
        for cache in self._caches:
            cache.keep(rows)
        self._memories = [memory.select(slots) for memory in self._memories]
        self.state = self.state.select(self._array(slots))
        self._last, self._start = self._last[slots], self._start[rows]
        self._prefixes = None if self._prefixes is None else self._prefixes.select(slots)
        self._first, self.ticket = self._first[: len(slots)], self.ticket[slots]
        self._stage()


def reads_indirection(runner: Runner, models: Sequence[Transformer]) -> bool:
    """Whether steps of all models find a row's past in other rows by themselves, so that caches need not move."""
    options = [model.options for model in models]
    plain = all(o.scale_attention and o.positions != "relative" and not o.local_attention for o in options)
    return plain and all(runner.uses("lines", o.head_width) for o in options)


def beam_need(
    models: Sequence[Transformer], runner: Runner, limits: Limits, longest_source: int, width: int, drafted: int = 0
) -> Need:
    """What a beam takes by its width and the sentences, with so many `drafted` tokens behind each hypothesis."""
    longest = limits.longest_output(longest_source) + 1
    # Caches that grow with their hypotheses seldom get longer than the source.
    columns = longest + drafted if runner.records or drafted else min(longest, longest_source)

    def taken(sentences: int, width: int) -> int:
        rows = sentences * width
        logits = rows * (1 + drafted) * models[0].options.vocabulary * runner.dtype.itemsize
        hypotheses = rows * 2 * 8 * (longest + width)  # live and finished ones, and what may follow
        sources = rows if drafted else sentences
        tables = sum(model.table_bytes(rows, columns, sources, longest_source) for model in models)
        return logits + hypotheses + tables

    return Need(taken, runner.device, "width", width)
