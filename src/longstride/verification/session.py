"""The ragged session: draft, verify, commit, for a table of rows that each go their own way.

The table keeps, per row, the committed ids and their number; the cache holds keys and values of the input slots, where
slot s holds the token before output position s (START at 0). After an iteration that commits n tokens, the cache is
right up to the new length and left-over beyond it: rewinding is not moving the length further. Between two model calls
there is only tensor code over all rows; the host reads one flag per row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import START, Finished, Limits, Program, Runner, Session, Source, Step
from longstride.contract.slots import Slots
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.verification.acceptance import EXACT, Rule, accept, commit
from longstride.verification.block_size import next_block
from longstride.verification.drafting import Drafter, View
from longstride.verification.outputs import Outputs
from longstride.verification.reading import forbidden_ids, normalise, read


@dataclass(frozen=True)
class Policy:
    """How drafts are judged and how long they are."""

    rule: Rule = EXACT
    min_block: int = 1
    """commit at least so many tokens per iteration, the verifier's own included"""
    adaptive: bool = False
    """let the block follow how recent drafts fared"""


STRICT = Policy()


class VerificationSession(Session):
    """One verifier, one drafter, `capacity` rows."""

    @torch.inference_mode()
    def __init__(
        self,
        model: Transformer,
        runner: Runner,
        drafter: Drafter,
        capacity: int,
        limits: Limits,
        longest_source: int,
        policy: Policy = STRICT,
        verify: Program | None = None,
    ) -> None:
        self.capacity = capacity
        self.calls = 0
        self._runner = runner
        self._drafter = drafter
        self._limits = limits
        self._longest_source = longest_source
        self._remember = programs.remember(model)
        self._verify = verify or programs.verify(model)
        self._policy = policy
        self._block = drafter.block
        # Only a rule that tolerates more than the verifier's own choice needs to read the drafted tokens.
        self._reads_draft = drafter.block > 0 and (policy.rule.kind != "exact" or policy.min_block > 1)
        self._recent: tuple[Tensor, Tensor] | None = None  # accepted and drafted of the last iteration
        # Encoding in equal portions keeps a sentence's bits independent of who is admitted beside it.
        self._portion = max(1, capacity // 4)

        device = runner.device
        longest = int(limits.longest_outputs(torch.tensor(longest_source)))
        self._columns = longest + 1 + drafter.block  # EOS, and a draft that starts at the last position
        self._memory = model.new_memory(capacity, longest_source)
        self._cache = model.new_cache(capacity, self._columns)
        self._state = drafter.begin(capacity, longest_source, self._columns, device)
        self._forbidden = forbidden_ids(limits, device)
        self._outputs = Outputs(capacity, self._columns, device)
        self._longest = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._slots = Slots(capacity)

    @property
    def free(self) -> int:
        """How many rows are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        empty, tickets = self._slots.take(source.rows)
        for first in range(0, source.rows, self._portion):
            self._admit(source.slice(first, first + self._portion), empty[first : first + self._portion])
        device = self._runner.device
        rows = torch.tensor(empty, device=device)
        self._outputs.open(rows)
        self._longest[rows] = self._limits.longest_outputs(source.lengths).to(device)
        self._ticket[rows] = torch.tensor(tickets, device=device)
        return tickets

    def _admit(self, source: Source, rows: list[int]) -> None:
        device = self._runner.device
        ids = torch.zeros(self._portion, self._longest_source, dtype=torch.int64)
        lengths = torch.ones(self._portion, dtype=torch.int64)
        ids[: source.rows, : source.longest] = source.ids
        lengths[: source.rows] = source.lengths
        memory = self._runner.call(self._remember, ids.to(device), lengths.to(device))
        self.calls += 1
        index = torch.tensor(rows, device=device)
        memory = memory.first(source.rows)
        self._memory.put(index, memory)
        here = Source(ids[: source.rows].to(device), lengths[: source.rows].to(device))
        self._drafter.admit(self._state, index, here, memory)

    @torch.inference_mode()
    def advance(self) -> Step:
        """Draft, verify, commit."""
        outputs = self._outputs
        active = ~outputs.done
        before = torch.where(active, outputs.length, 0)  # idle rows idle at the front, where there is room
        proposal = self._drafter.propose(self._state, View(outputs.tokens, before, active), self._block)

        last = outputs.tokens.gather(1, (before - 1).clamp(min=0)[:, None])
        last = torch.where(before[:, None] == 0, START, last)
        ids = torch.cat([last, proposal.ids], dim=1)
        logits, hidden = self._runner.call(self._verify, ids, before, self._cache, self._memory)
        calls = 1 + self._drafter.calls
        self.calls += calls

        columns = torch.arange(ids.shape[1], device=ids.device)
        positions = before[:, None] + columns
        rule = self._policy.rule
        draft = proposal.ids if self._reads_draft else None
        # Where looking at a number costs nothing, only what is committed is normalised: half a step's time in int8.
        later = draft is None and logits.device.type == "cpu"
        reading = read(
            logits, positions, self._longest, self._forbidden, self._limits.min_length, rule, draft, not later
        )
        verdict = commit(proposal, reading, accept(rule, self._policy.min_block, proposal, reading))
        log_probability = verdict.log_probability
        if later:
            log_probability = normalise(log_probability, logits, int(verdict.committed.max()))
        written = (columns < verdict.committed[:, None]) & active[:, None]
        outputs.write(positions, verdict.ids, written, log_probability)
        outputs.done = outputs.done | (active & verdict.ended)
        accepted = torch.where(active, verdict.accepted, 0)
        newest = (verdict.committed - 1)[:, None, None].expand(-1, 1, hidden.shape[2])
        view = View(outputs.tokens, outputs.length, ~outputs.done)
        self._drafter.observe(self._state, accepted, view, hidden.gather(1, newest)[:, 0])
        drafted = torch.where(active, proposal.count, 0)
        self._recent = (accepted, drafted)
        return Step(
            self._ticket, active, positions, verdict.ids, written, drafted, accepted, calls=calls, draft=proposal.ids
        )

    def _adapt(self) -> None:
        """Choose the next block from the last iteration, over the rows that had a draft."""
        if not self._policy.adaptive or self._recent is None:
            return
        accepted, drafted = (tensor.tolist() for tensor in self._recent)
        stood = [count for count, meant in zip(accepted, drafted, strict=True) if meant]
        if stood:
            self._block = next_block(self._block, self._drafter.block, sum(stood) / len(stood))

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all rows, and the outputs of those that are done."""
        self._adapt()
        return self._outputs.take_finished(self._slots)
