"""GAD and GAD++ (draft-verify), and the drafter alone (draft)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial

from longstride.contract import Limits, OptionError, Runner, Session, option
from longstride.contract.decoding import Signed
from longstride.contract.options import Options
from longstride.engine.pool import PoolKey
from longstride.nn.transformer import Transformer
from longstride.systems.draft_verify.draft_session import DraftSession
from longstride.systems.draft_verify.drafter import ModelDrafter, lists
from longstride.systems.draft_verify.model import Drafter, check_fit
from longstride.systems.draft_verify.shortlist import Shortlist
from longstride.verification.acceptance import EXACT, Rule, SamplingOptions
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.session import DecodePlan, VerifyingDecoder
from longstride.verification.step import Acceptance


@dataclass(frozen=True)
class DraftVerifyOptions(SamplingOptions):
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
    tree: int = option(
        0, "Draft a tree of so many tokens, the likeliest first, at most k deep (0: a chain).", least=0, most=512
    )
    adaptive: bool = option(False, "Measure once how long drafts should be, or whether none are faster.")
    lengths: DraftPolicy | None = option(
        None, "Tokens drafted by how many sentences are decoded side by side, as 1:31tree,8:4,32:0 (none: k)."
    )
    shortlist: bool = option(
        True,
        "Draft trees among the words of the folder's shortlist alone, where it has one and accept is exact; on a "
        "processor. Outputs are the same.",
    )


@dataclass(frozen=True)
class DraftOptions(Options):
    """Options of the drafter alone."""

    k: int | None = option(None, "Tokens per pass, at most what was trained (none: that).", least=1, most=1024)


class DraftVerify(VerifyingDecoder[DraftVerifyOptions]):
    """A drafter proposes k tokens, the verifier accepts a prefix of them and adds its own next one."""

    name = "draft-verify"

    def __init__(
        self,
        model: Transformer,
        drafter: Drafter,
        runner: Runner,
        options: DraftVerifyOptions | None = None,
        shortlist: Shortlist | None = None,
    ) -> None:
        check_fit(drafter.options, model)
        if shortlist is not None:
            shortlist.check_fit(model)
        options = options or DraftVerifyOptions()
        block = _block(options.k, drafter)
        self._asked = options
        if options.min_block > block + 1:
            raise OptionError(f"min_block expects 1 to k + 1 ({block + 1}), found {options.min_block}.")
        self._acceptance = Acceptance(options.accept, options.min_block, options.sampling)
        # Where drafts decide outputs, no folder has other ones for having a shortlist.
        listed = options.shortlist and shortlist is not None and lists(runner) and not self._acceptance.reads_draft
        super().__init__(model, runner, replace(options, k=block, shortlist=listed), options.tree or block)
        self._drafter, self._depth, self._shortlist = drafter, block, shortlist

    def with_options(self, options: DraftVerifyOptions) -> DraftVerify:
        """The same models, drafting another way."""
        return DraftVerify(self._model, self._drafter, self._runner, options, self._shortlist)

    def plan(self, limits: Limits) -> DecodePlan:
        """The drafter drafts."""
        given = (self._depth, limits, self.options.tree, self._shortlist if self.options.shortlist else None)
        drafter = ModelDrafter(self._drafter, self._model, self._runner, *given)
        positions = min(self._model.options.longest, self._drafter.options.longest)
        judging = (limits, self._acceptance, None, self.options.seed, positions)
        return DecodePlan(self._model, self._runner, drafter, *judging)


class Draft(Signed[DraftOptions]):
    """The drafter alone: k tokens per pass, taken as they are, until it ends the sentence."""

    name = "draft"

    def __init__(
        self, model: Transformer, drafter: Drafter, runner: Runner, options: DraftOptions | None = None
    ) -> None:
        check_fit(drafter.options, model)
        options = options or DraftOptions()
        super().__init__(runner, replace(options, k=_block(options.k, drafter)))
        self.special = model.special
        block = _block(self.options.k, drafter)
        self._positions = min(model.options.longest, drafter.options.longest)
        # Made once for the same limits: their programs take as long to make as a pass takes to launch.
        self._drafters = lru_cache(maxsize=16)(partial(ModelDrafter, drafter, model, runner, block))

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        drafter = self._drafters(limits)
        key = PoolKey.of(self._runner, ("draft", drafter.key, limits), capacity, longest_source, self._positions)
        return DraftSession(key, drafter, limits)


def _block(k: int | None, drafter: Drafter) -> int:
    trained = drafter.options.block
    if k is not None and k > trained:
        raise OptionError(f"k expects 1 to {trained}, the block that the drafter was trained with, found {k}.")
    return k or trained
