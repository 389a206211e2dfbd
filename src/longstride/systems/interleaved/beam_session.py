"""Algorithm 1 over a table of sentences: `width` hypotheses each, all extended by a step at once.

All rows of the table are hypotheses; those of one sentence lie side by side and share its memory. Caches follow their
hypotheses by reordering, and only as many slots of them are looked at as the longest live hypothesis has written.
"""

from __future__ import annotations

import torch

from longstride.contract import EOS, START, Finished, Hypothesis, Limits, Runner, Session, Source, Step
from longstride.contract.slots import Slots
from longstride.nn import programs
from longstride.nn.cache import aligned
from longstride.search import multiword
from longstride.search.beam import DEAD
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.programs import extend
from longstride.systems.interleaved.sentences import closing_step, sentences_of, silent_step
from longstride.verification.reading import forbidden_ids


class BeamSession(Session):
    """`capacity` sentences of `width` hypotheses."""

    @torch.inference_mode()
    def __init__(
        self,
        model: InterleavedModel,
        runner: Runner,
        width: int,
        n_best: int,
        penalty: LengthPenalty,
        count_dropped: bool,
        dedup: int,
        capacity: int,
        limits: Limits,
        longest_source: int,
    ) -> None:
        self.capacity = capacity
        self.calls = 0
        self._options = model.options
        self._runner = runner
        self._width = width
        self._n_best = n_best
        self._penalty = penalty
        self._count_dropped = count_dropped
        self._dedup = dedup
        self._limits = limits
        step = self._options.step
        self._earliest = max(limits.min_length, step if count_dropped else 0)
        self._remember = programs.remember(model.model)
        self._extend = extend(model)

        device = runner.device
        room = int(limits.longest_outputs(torch.tensor(longest_source)))
        self._memory = model.model.new_memory(capacity, longest_source)
        self._cache = model.model.new_cache(capacity * width, 1)
        self._table = multiword.MultiWordTable.empty(capacity, width, room + step, device)
        self._last = torch.full((capacity, width, step), START, dtype=torch.int64, device=device)
        never = forbidden_ids(limits, device)
        self._no_words = torch.cat([never, torch.tensor([EOS], device=device)])
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._slots = Slots(capacity)
        # How many slots the live hypotheses of a sentence have filled, known without asking the device.
        self._filled = [0] * capacity
        self._done = [True] * capacity  # the table's flags, as they were read after the last iteration

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences together and open a search for each."""
        empty, tickets = self._slots.take(source.rows)
        for slot in empty:
            self._filled[slot] = 0
            self._done[slot] = False
        device = self._runner.device
        slots = torch.tensor(empty, device=device)
        self._memory.put(slots, self._runner.call(self._remember, source.ids.to(device), source.lengths.to(device)))
        self.calls += 1
        self._table.open(slots, self._limits.longest_outputs(source.lengths).to(device))
        self._last[slots] = START
        self._ticket[slots] = torch.tensor(tickets, device=device)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """A step of every live hypothesis. Reads the flags of all slots: most iterations then need write nothing."""
        table, step = self._table, self._options.step
        active = ~table.done
        held = zip(self._filled, self._slots.held, strict=True)
        span = aligned(step + max((filled for filled, ticket in held if ticket is not None), default=0))
        parents, self._last = multiword.advance(
            table, self._score(span), self._penalty, self._n_best, self._earliest, self._count_dropped
        )
        first = torch.arange(len(parents), device=parents.device)[:, None] * self._width
        self._cache.reorder((first + parents).view(-1), span)
        self._filled = [filled + step for filled in self._filled]
        before, self._done = self._done, table.done.tolist()
        if before == self._done:
            return silent_step(self._ticket, active)
        best = table.scores(self._penalty).argmax(dim=1, keepdim=True)
        words = table.finished_words.gather(1, best[..., None].expand(-1, 1, table.words.shape[2]))[:, 0]
        lengths = table.finished_length.gather(1, best)[:, 0]
        found = sentences_of(words, lengths, self._options, self._dedup)
        return closing_step(found, self._ticket, active, active & table.done)

    def _score(self, span: int) -> multiword.SlotScores:
        table = self._table
        sentences, width = table.live.shape
        step = self._options.step
        start = torch.where(table.done, 0, table.length).repeat_interleave(width)
        self._cache.grow(span)
        ids = self._last.view(-1, step)
        logits = self._runner.call(self._extend, ids, start, self._cache, self._memory, span)
        self.calls += 1
        wide = logits if logits.dtype == torch.float64 else logits.float()
        normaliser = wide.logsumexp(dim=-1)
        end = (wide[..., EOS] - normaliser).double()
        best, picked = wide.index_fill(-1, self._no_words, DEAD).topk(min(width, wide.shape[-1]), dim=-1)
        scores = (best - normaliser[..., None]).double()
        shape = (sentences, width, step, -1)
        return multiword.SlotScores(picked.view(shape), scores.view(shape), end.view(sentences, width, step))

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the hypotheses of the sentences that are done."""
        ready = self._slots.ready(self._done)
        if not ready:
            return []
        table = self._table.select(torch.tensor(ready, device=self._runner.device))
        ranked = table.scores(self._penalty)
        order = ranked.argsort(dim=1, descending=True, stable=True)[:, : self._n_best]
        scores, totals = ranked.gather(1, order).tolist(), table.finished.gather(1, order).tolist()
        columns = table.words.shape[2]
        words = table.finished_words.gather(1, order[..., None].expand(-1, -1, columns))
        lengths = table.finished_length.gather(1, order)
        found = sentences_of(words.view(-1, columns), lengths.view(-1), self._options, self._dedup)
        outputs, kept = found.tokens.view(words.shape).tolist(), found.lengths.view(lengths.shape).tolist()
        taken = []
        for row, slot in enumerate(ready):
            every = zip(outputs[row], kept[row], scores[row], totals[row], strict=True)
            hypotheses = [
                Hypothesis(tokens[:length], score, total) for tokens, length, score, total in every if score > DEAD
            ]
            taken.append(Finished(self._slots.release(slot), hypotheses))
        return taken

    @torch.inference_mode()
    def settle(self) -> None:
        """Drop empty slots once half of the table is empty, so that finished sentences stop costing."""
        held = self._slots.held
        kept = [slot for slot, ticket in enumerate(held) if ticket is not None]
        if not kept or len(kept) * 2 > len(held):
            return
        slots = torch.tensor(kept, device=self._runner.device)
        rows = (slots[:, None] * self._width + torch.arange(self._width, device=slots.device)).view(-1)
        self._cache.keep(rows)
        self._memory = self._memory.select(slots)
        self._table = self._table.select(slots)
        self._last = self._last[slots]
        self._ticket = self._ticket[slots]
        self._slots.keep(kept)
        self._filled = [self._filled[slot] for slot in kept]
        self._done = [self._done[slot] for slot in kept]
        self.capacity = len(kept)
