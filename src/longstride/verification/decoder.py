"""What decoders that verify have in common: plans by limits, what memory they take, and how long drafts are."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import TypeVar
from weakref import WeakKeyDictionary

from longstride.contract import Decoded, Limits, Need, Runner, Session, Source
from longstride.contract.decoding import HARD_LIMITS
from longstride.contract.options import as_dict
from longstride.contract.signatures import Signed
from longstride.nn.transformer import Transformer
from longstride.verification.draft_policy import DraftPolicy, LengthFile, candidates, fastest
from longstride.verification.session import DecodePlan, PlanCache, need

Options = TypeVar("Options")

_MEASURED: WeakKeyDictionary[Transformer, dict[str, dict[Limits, DraftPolicy]]] = WeakKeyDictionary()
"""How long drafts should be, by model, decoder and runner (both in the signature) and limits."""


class VerifyingDecoder(Signed[Options]):
    """A drafter proposes, the model verifies."""

    obeys = HARD_LIMITS

    def __init__(self, model: Transformer, runner: Runner, options: Options, block: int = 0) -> None:
        super().__init__(runner, options)
        self._model, self._block, self.special = model, block, model.special
        self._plans = PlanCache()
        # With the model: decoders are made anew, what was measured of them stays.
        self._measured = _MEASURED.setdefault(model, {}).setdefault(self.signature, {})
        self._file: LengthFile | None = None

    def keep_lengths(self, file: LengthFile) -> None:
        """Read what was measured before from a file, and write there what is measured now."""
        self._file = file

    @abstractmethod
    def plan(self, limits: Limits) -> DecodePlan:
        """Who drafts, and how drafts are judged."""

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        plan = self._plans.of(limits, self.plan)
        policy = self._known(limits) or getattr(self.options, "lengths", None)
        return plan.start(capacity, longest_source, policy)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the block and the sentences."""
        return need(self._model, self._runner, limits, longest_source, self._block, "k" if self._block else "")

    def decode(
        self, source: Source, limits: Limits | None = None, capacity: int | None = None, trace: bool = False
    ) -> Decoded:
        """Decode all rows; with `adaptive`, how long drafts are is measured first, once for so many rows."""
        if getattr(self.options, "adaptive", False) and source.rows:
            self._measure(source, limits or Limits(), min(capacity or source.rows, source.rows))
        return super().decode(source, limits, capacity, trace)

    def _measure(self, source: Source, limits: Limits, rows: int) -> None:
        """Time a batch of these sentences with drafts of several lengths and with none."""
        known = self._known(limits) or DraftPolicy()
        if known.knows(rows):
            return
        sample = source.slice(0, rows)

        def run(length: int) -> None:
            self._measured[limits] = known.with_length(rows, length)
            super(VerifyingDecoder, self).decode(sample, limits)

        best: int | None = None
        try:
            best = fastest(candidates(self._block), run)
        finally:  # a trial that was interrupted says nothing
            self._measured[limits] = known if best is None else known.with_length(rows, best)
        if self._file is not None:
            self._file.write(self._key(limits), self._measured[limits])

    def _known(self, limits: Limits) -> DraftPolicy | None:
        """What was measured, in this process or before."""
        if self._file is not None and limits not in self._measured and (kept := self._file.read(self._key(limits))):
            self._measured[limits] = kept
        return self._measured.get(limits)

    def _key(self, limits: Limits) -> str:
        return f"{self.signature}|{json.dumps(as_dict(limits))}"
