"""What evaluate can find out beyond its usual scores, as far as it is asked for. Prints nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longstride.cli.assessing import reference_likelihoods
from longstride.cli.test_sets import Material
from longstride.contract import OptionError
from longstride.tasks.likelihood import Likelihoods, MutualInformation, check_base, mutual_information
from longstride.tasks.ngrams import OverTranslation
from longstride.tasks.score import ExactMatch, LengthBin, Score, score_by_length
from longstride.translator import Translator

OVER_TRANSLATION_ORDERS = (2, 4)


@dataclass(frozen=True)
class Base:
    """The model of one word per step that mutual information is estimated with."""

    name: str
    translator: Translator


@dataclass(frozen=True)
class Analyses:
    """What was asked for."""

    exact_match: bool = False
    over_translation: bool = False
    by_length: int | None = None
    """so many bins"""
    base: Base | None = None

    def check(self, translator: Translator, sentences: int) -> None:
        """Refuse what cannot be done before any work is."""
        if self.by_length is not None and self.by_length > sentences:
            raise OptionError(
                f"--by-length expects at most as many bins as there are sentences, {sentences}, found {self.by_length}."
            )
        if self.base is None:
            return
        found = []
        for model in (translator, self.base.translator):
            likelihood = model.likelihood()
            if likelihood is None:
                raise OptionError(
                    f"--mutual-information expects models that can score references, found {model.folder.path}, which "
                    f"decodes by {', '.join(model.decoders)}."
                )
            found.append(likelihood.factorisation)
        check_base(found[0], found[1], self.base.name)
        if self.base.translator.target_tokenizer.sha256 != translator.target_tokenizer.sha256:
            raise OptionError(
                f"--mutual-information expects one tokenizer: {self.base.name} has another than "
                f"{translator.folder.path}."
            )

    def scores(self, outputs: Sequence[str], material: Material) -> list[Score]:
        """Further scores of outputs."""
        found = [ExactMatch().score(outputs, material.all_references)] if self.exact_match else []
        orders = OVER_TRANSLATION_ORDERS if self.over_translation else ()
        return found + [OverTranslation(order).score(outputs, material.references) for order in orders]

    def bins(self, lengths: Sequence[int], outputs: Sequence[str], material: Material) -> tuple[LengthBin, ...]:
        """Scores by source length, in tokens without EOS."""
        if self.by_length is None:
            return ()
        return score_by_length(lengths, self.by_length, outputs, material.references, material.metrics_of)

    def references(
        self, translator: Translator, material: Material, file: str
    ) -> tuple[Likelihoods | None, MutualInformation | None]:
        """What the model makes of the references, and what its words of one step tell about each other."""
        if self.base is None:
            return reference_likelihoods(translator, material.pairs, file), None
        other = self.base.translator
        room = min(translator.longest, other.longest) - 1  # the very same tokens for both
        mine, theirs = (reference_likelihoods(model, material.pairs, file, room) for model in (translator, other))
        if mine is None or theirs is None:
            return mine, None
        return mine, mutual_information(mine, theirs, self.base.name, translator.target_tokenizer.sha256)
