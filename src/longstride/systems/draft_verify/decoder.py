"""GAD and GAD++ (draft-verify), and the drafter alone (draft)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial

from longstride.contract import Limits, Need, OptionError, Runner, Session, option
from longstride.contract.options import Options
from longstride.contract.signatures import Signed
from longstride.nn.transformer import Transformer
from longstride.systems.draft_verify.draft_session import DraftSession
from longstride.systems.draft_verify.drafter import ModelDrafter
from longstride.systems.draft_verify.model import Drafter, check_fit
from longstride.verification.acceptance import EXACT, Rule
from longstride.verification.lease import Lease
from longstride.verification.session import Kind, Kinds, Policy, need


@dataclass(frozen=True)
class DraftVerifyOptions(Options):
    """Options of draft-and-verify."""

    k: int | None = option(
        None, "Tokens drafted per iteration, at most what was trained (none: that).", least=1, most=1024
    )
    accept: Rule = option(
        EXACT, "When a drafted token stands: only the verifier's own choice (GAD) or a near one (GAD++)."
    )
    min_block: int = option(
        1, "Commit at least so many tokens per iteration, the verifier's own included.", least=1, most=1025
    )
    adaptive: bool = option(False, "Let the number of drafted tokens follow how recent drafts fared.")


@dataclass(frozen=True)
class DraftOptions(Options):
    """Options of the drafter alone."""

    k: int | None = option(None, "Tokens per pass, at most what was trained (none: that).", least=1, most=1024)


class DraftVerify(Signed[DraftVerifyOptions]):
    """A drafter proposes k tokens, the verifier accepts a prefix of them and adds its own next one."""

    name = "draft-verify"

    def __init__(
        self, model: Transformer, drafter: Drafter, runner: Runner, options: DraftVerifyOptions | None = None
    ) -> None:
        check_fit(drafter.options, model)
        options = options or DraftVerifyOptions()
        block = _block(options.k, drafter)
        if options.min_block > block + 1:
            raise OptionError(f"min_block expects 1 to k + 1 ({block + 1}), found {options.min_block}.")
        super().__init__(runner, replace(options, k=block))
        self._model = model
        self._drafter = drafter
        self._kinds = Kinds()

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        return self._kinds.of(limits, self._kind).start(capacity, longest_source)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the block and the sentences."""
        return need(self._model, self._runner, limits, longest_source, self.options.k or 1, "k")

    def _kind(self, limits: Limits) -> Kind:
        o = self.options
        drafter = ModelDrafter(self._drafter, self._model, self._runner, _block(o.k, self._drafter), limits)
        return Kind(self._model, self._runner, drafter, limits, Policy(o.accept, o.min_block, o.adaptive))


class Draft(Signed[DraftOptions]):
    """The drafter alone: k tokens per pass, taken as they are, until it ends the sentence."""

    name = "draft"

    def __init__(
        self, model: Transformer, drafter: Drafter, runner: Runner, options: DraftOptions | None = None
    ) -> None:
        check_fit(drafter.options, model)
        options = options or DraftOptions()
        super().__init__(runner, replace(options, k=_block(options.k, drafter)))
        block = _block(self.options.k, drafter)
        self._positions = min(model.options.longest, drafter.options.longest)
        # GraphValue once for the same limits: their programs take as long to make as a pass takes to launch.
        self._drafters = lru_cache(maxsize=16)(partial(ModelDrafter, drafter, model, runner, block))

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        drafter = self._drafters(limits)
        lease = Lease.of(self._runner, ("draft", drafter.key), capacity, longest_source, self._positions)
        return DraftSession(lease, drafter, limits)


def _block(k: int | None, drafter: Drafter) -> int:
    trained = drafter.options.block
    if k is not None and k > trained:
        raise OptionError(f"k expects 1 to {trained}, the block that the drafter was trained with, found {k}.")
    return k or trained
