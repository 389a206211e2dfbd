"""Blockwise parallel decoding: predict a block, verify it, accept what stands. With exact acceptance, head 1's greedy
output in fewer calls; head 1 is the model itself unless it was trained with a transform of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from longstride.contract import Limits, OptionError, Runner, option
from longstride.nn.transformer import Transformer
from longstride.systems.blockwise.drafter import HeadsDrafter
from longstride.systems.blockwise.model import Heads
from longstride.systems.blockwise.programs import verify
from longstride.verification.acceptance import EXACT, Rule, SamplingOptions, forbidden_ids
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.session import DecodePlan, VerifyingDecoder
from longstride.verification.step import Acceptance


@dataclass(frozen=True)
class BlockwiseOptions(SamplingOptions):
    """Options of blockwise parallel decoding."""

    k: int | None = option(None, "Block size, at most the heads there are (none: all of them).", least=1, most=1024)
    accept: Rule = option(EXACT, "When a predicted token stands: exact, top:B, top:B,gap:T or distance:E.")
    min_block: int = option(
        1, "Commit at least so many tokens per iteration, whatever the rule says; at most k.", least=1, most=1024
    )
    tree: int = option(
        0,
        "Predict a tree of so many tokens, the likeliest first, at most k - 1 deep (0: a chain).",
        least=0,
        most=512,
    )
    adaptive: bool = option(False, "Measure once how long drafts should be, or whether none are faster.")
    lengths: DraftPolicy | None = option(
        None, "Tokens drafted by how many sentences are decoded side by side, as 1:31tree,8:4,32:0 (none: k)."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.min_block > self.k:
            raise OptionError(f"min_block expects 1 to k ({self.k}), found {self.min_block}.")


class Blockwise(VerifyingDecoder[BlockwiseOptions]):
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
        self._asked = options
        trained = heads.options.k
        if options.k is not None and options.k > trained:
            raise OptionError(f"k expects 1 to {trained}, the heads that this model has, found {options.k}.")
        k = options.k or trained
        super().__init__(model, runner, replace(options, k=k), options.tree if options.tree and k > 1 else k - 1)
        self._heads, self._k = heads, k
        self._acceptance = Acceptance(options.accept, options.min_block, options.sampling)

    def with_options(self, options: BlockwiseOptions) -> Blockwise:
        """The same models, drafting another way."""
        return Blockwise(self._model, self._heads, self._runner, options)

    def plan(self, limits: Limits) -> DecodePlan:
        """The heads draft."""
        model, heads = self._model, self._heads
        forbidden = forbidden_ids(limits, self._runner.device, model.special)
        drafter = HeadsDrafter(model, heads, self._runner, self._k, forbidden, self.options.tree)
        verifier = verify(model, heads)
        return DecodePlan(model, self._runner, drafter, limits, self._acceptance, verifier, self.options.seed)
