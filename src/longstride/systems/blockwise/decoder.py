"""Blockwise parallel decoding: predict a block, verify it, accept what stands. With exact acceptance, head 1's greedy
output in fewer calls; head 1 is the model itself unless it was trained with a transform of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from longstride.contract import Limits, Need, OptionError, Runner, Session, option
from longstride.contract.options import Options
from longstride.contract.signatures import Signed
from longstride.nn.transformer import Transformer
from longstride.systems.blockwise.drafter import HeadsDrafter
from longstride.systems.blockwise.model import Heads
from longstride.systems.blockwise.programs import verify
from longstride.verification.acceptance import EXACT, Rule
from longstride.verification.reading import forbidden_ids
from longstride.verification.session import Kind, Kinds, Policy, need


@dataclass(frozen=True)
class BlockwiseOptions(Options):
    """Options of blockwise parallel decoding."""

    k: int | None = option(None, "Block size, at most the heads there are (none: all of them).", least=1, most=1024)
    accept: Rule = option(EXACT, "When a predicted token stands: exact, top:B, top:B,gap:T or distance:E.")
    min_block: int = option(
        1, "Commit at least so many tokens per iteration, whatever the rule says; at most k.", least=1, most=1024
    )
    adaptive: bool = option(False, "Let the block shrink and grow with recent acceptance.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.min_block > self.k:
            raise OptionError(f"min_block expects 1 to k ({self.k}), found {self.min_block}.")


class Blockwise(Signed[BlockwiseOptions]):
    """Heads draft, the model verifies."""

    name = "blockwise"

    def __init__(
        self, model: Transformer, heads: Heads, runner: Runner, options: BlockwiseOptions | None = None
    ) -> None:
        options = options or BlockwiseOptions()
        if heads.options.width != model.options.width:
            raise OptionError(
                f"heads expect the model's width {model.options.width}, found heads of width {heads.options.width}."
            )
        trained = heads.options.k
        if options.k is not None and options.k > trained:
            raise OptionError(f"k expects 1 to {trained}, the heads that this model has, found {options.k}.")
        super().__init__(runner, replace(options, k=options.k or trained))
        self._model = model
        self._heads = heads
        self._kinds = Kinds()

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        return self._kinds.of(limits, self._kind).start(capacity, longest_source)

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the block and the sentences."""
        return need(self._model, self._runner, limits, longest_source, self.options.k or 1, "k")

    def _kind(self, limits: Limits) -> Kind:
        o = self.options
        assert o.k is not None
        forbidden = forbidden_ids(limits, self._runner.device)
        drafter = HeadsDrafter(self._model, self._heads, self._runner, o.k, forbidden)
        policy = Policy(o.accept, o.min_block, o.adaptive)
        return Kind(self._model, self._runner, drafter, limits, policy, verify(self._model, self._heads))
