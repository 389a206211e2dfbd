"""Copy-verify: the ordinary Transformer with its source as the draft. Exact acceptance gives greedy's output."""

from __future__ import annotations

from dataclasses import dataclass

from longstride.contract import Limits, Need, OptionError, Runner, Session, option
from longstride.contract.options import Options
from longstride.contract.signatures import Signed
from longstride.nn.transformer import Transformer
from longstride.systems.draft_verify.copying import SourceDraft
from longstride.verification.acceptance import EXACT, Rule
from longstride.verification.session import Kind, Kinds, Policy, need


@dataclass(frozen=True)
class CopyVerifyOptions(Options):
    """Options of copy-verify."""

    k: int = option(16, "Source tokens drafted per iteration; up to k + 1 are committed.", least=1, most=1024)
    accept: Rule = option(EXACT, "When a drafted token stands; exact gives greedy's output.")
    min_block: int = option(
        1, "Commit at least so many tokens per iteration, as far as there is a draft.", least=1, most=1025
    )
    adaptive: bool = option(False, "Let the number of drafted tokens follow how recent drafts fared, up to k.")
    suffix: int = option(
        8,
        "Tokens at the output's end that are looked up, at most, to find the place in the source.",
        least=1,
        most=1024,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_block > self.k + 1:
            raise OptionError(f"min_block expects 1 to k + 1 ({self.k + 1}), found {self.min_block}.")


class CopyVerify(Signed[CopyVerifyOptions]):
    """The verification loop with the source as the draft."""

    name = "copy-verify"

    def __init__(self, model: Transformer, runner: Runner, options: CopyVerifyOptions | None = None) -> None:
        size, source_size = model.options.vocabulary, model.options.source_vocabulary
        if source_size not in (None, size):
            raise OptionError(
                f"copy-verify expects one vocabulary for source and target, found {source_size} and {size} ids."
            )
        super().__init__(runner, options or CopyVerifyOptions())
        self._model = model
        self._kinds = Kinds()

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        return self._kinds.of(limits, self._kind).start(capacity, longest_source)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the block and the sentences."""
        return need(self._model, self._runner, limits, longest_source, self.options.k, "k")

    def _kind(self, limits: Limits) -> Kind:
        o = self.options
        policy = Policy(o.accept, o.min_block, o.adaptive)
        return Kind(self._model, self._runner, SourceDraft(o.k, o.suffix), limits, policy)
