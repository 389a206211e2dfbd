"""Text as the draft of the ordinary Transformer: its source (copy-verify), or one that was given (text-verify).

Exact acceptance gives greedy's output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from longstride.contract import Decoder, Limits, OptionError, Runner, Source, option
from longstride.nn.transformer import Transformer
from longstride.systems.draft_verify.copying import TextDraft
from longstride.verification.acceptance import EXACT, Rule, SamplingOptions
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.session import DecodePlan, VerifyingDecoder
from longstride.verification.step import Acceptance

UNDRAFTED = DraftPolicy(((1, 0),))
"""From one row on, no draft."""
LONGEST = 1024
"""Tokens drafted per iteration, at most."""
WIDTHS = 16
"""Drafts of whole texts are a multiple of so many tokens, so that few shapes serve all lengths."""


@dataclass(frozen=True)
class CopyVerifyOptions(SamplingOptions):
    """Options of copy-verify."""

    k: int = option(16, "Tokens of the text drafted per iteration; up to k + 1 are committed.", least=1, most=LONGEST)
    accept: Rule = option(EXACT, "When a drafted token stands; exact gives greedy's output.")
    min_block: int = option(
        1, "Commit at least so many tokens per iteration, as far as there is a draft.", least=1, most=1025
    )
    adaptive: bool = option(False, "Measure once how long drafts should be, or whether none are faster.")
    lengths: DraftPolicy | None = option(
        None, "Tokens drafted by how many sentences are decoded side by side, as 1:10,8:4,32:0 (none: k)."
    )
    suffix: int = option(
        8,
        "Tokens at the output's end that are looked up, at most, to find the place in the text.",
        least=1,
        most=1024,
    )
    whole: bool = option(
        False, "Draft all that is left of the text, as the paper does, instead of k tokens; for few rows at a time."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_block > self.k + 1:
            raise OptionError(f"min_block expects 1 to k + 1 ({self.k + 1}), found {self.min_block}.")
        if self.whole and (self.lengths is not None or self.adaptive):
            raise OptionError("whole expects neither lengths nor adaptive, which say how much of a text is drafted.")

    def drafting_all(self, text: Source) -> Self:
        """For these texts, drafts that hold the longest of them, within bounds."""
        k = min(LONGEST, -(-max(1, text.longest) // WIDTHS) * WIDTHS)
        # No iteration commits more than there is a draft for, whatever it is asked for.
        return replace(self, k=k, min_block=min(self.min_block, k + 1), whole=False)


class CopyVerify(VerifyingDecoder[CopyVerifyOptions]):
    """The verification loop with the source as the draft."""

    name = "copy-verify"

    def __init__(self, model: Transformer, runner: Runner, options: CopyVerifyOptions | None = None) -> None:
        size, source_size = model.options.vocabulary, model.options.source_vocabulary
        if source_size not in (None, size):
            raise OptionError(
                f"copy-verify expects one vocabulary for source and target, found {source_size} and {size} ids."
            )
        options = options or CopyVerifyOptions()
        super().__init__(model, runner, options, options.k)
        self._acceptance = Acceptance(options.accept, options.min_block, options.sampling)

    def with_options(self, options: CopyVerifyOptions) -> CopyVerify:
        """The same model, drafting another way."""
        return CopyVerify(self._model, self._runner, options)

    def plan(self, limits: Limits) -> DecodePlan:
        """The source is the draft."""
        o = self.options
        return DecodePlan(self._model, self._runner, TextDraft(o.k, o.suffix), limits, self._acceptance, seed=o.seed)

    def suited(self, source: Source, limits: Limits, rows: int) -> Decoder:
        """With `whole`, drafts are as long as the longest source."""
        if self.options.whole:
            return self.changed(**vars(self.options.drafting_all(source)))
        return super().suited(source, limits, rows)


@dataclass(frozen=True)
class TextVerifyOptions(CopyVerifyOptions):
    """Options of text-verify: those of copy-verify, with shorter drafts, since texts of translations differ sooner."""

    k: int = option(8, "Tokens of the text drafted per iteration; up to k + 1 are committed.", least=1, most=1024)


class TextVerify(VerifyingDecoder[TextVerifyOptions]):
    """The verification loop with a text as the draft that comes with each source (an earlier output, or the
    translation of a source like it); where none comes, greedy search."""

    name = "text-verify"

    def __init__(self, model: Transformer, runner: Runner, options: TextVerifyOptions | None = None) -> None:
        options = options or TextVerifyOptions()
        super().__init__(model, runner, options, options.k)
        self._acceptance = Acceptance(options.accept, options.min_block, options.sampling)

    def with_options(self, options: TextVerifyOptions) -> TextVerify:
        """The same model, drafting another way."""
        return TextVerify(self._model, self._runner, options)

    def plan(self, limits: Limits) -> DecodePlan:
        """The text is the draft."""
        o = self.options
        drafter = TextDraft(o.k, o.suffix, given=True)
        return DecodePlan(self._model, self._runner, drafter, limits, self._acceptance, seed=o.seed)

    def suited(self, source: Source, limits: Limits, rows: int) -> Decoder:
        """Without a draft in any of them, no step has room for one."""
        if source.drafts is None and self.options.lengths != UNDRAFTED:
            return self.changed(lengths=UNDRAFTED, adaptive=False, whole=False)
        if self.options.whole and source.drafts is not None:
            return self.changed(**vars(self.options.drafting_all(source.drafts)))
        return super().suited(source, limits, rows)
