"""Settings of one model scored one after another, greedy first where it is among them. Prints progress, no results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longstride.bench.assessment import NAMED_DIFFERENCES
from longstride.bench.records import Against, Equality, ModelTag, Origin, Quality, WorkloadTag
from longstride.cli.analyses import Analyses
from longstride.cli.assessing import Decoding, decode
from longstride.cli.console import say
from longstride.cli.test_sets import Material
from longstride.contract import Decoder, Limits
from longstride.tasks.bootstrap import Comparison, paired_bootstrap
from longstride.tasks.likelihood import MutualInformation, perplexity
from longstride.tasks.score import LengthBin, Score, word_repetition
from longstride.translator import Translator


@dataclass(frozen=True)
class Setting:
    """One decoder with its options, ready to decode."""

    name: str
    """in records"""
    asked: str | None
    """the decoder by name; none: the model's own"""
    options: dict[str, Any]
    decoder: Decoder
    limits: Limits
    file: Path | None = None
    """where its outputs go"""


@dataclass(frozen=True)
class Rival:
    """Another system to compare with: its outputs, or its model, which decodes as the setting does."""

    name: str
    system: list[str] | Translator

    def outputs(self, setting: Setting, material: Material, batch: int) -> list[str]:
        """Its outputs for the test set."""
        if isinstance(self.system, Translator):
            return decode(self.system, setting.asked, setting.options, material.sources, batch, self.name).texts
        return self.system


@dataclass(frozen=True)
class Evaluation:
    """What one setting's outputs are worth."""

    setting: Setting
    decoding: Decoding
    scores: tuple[Score, ...]
    comparisons: tuple[Comparison, ...] = ()
    """with the rival, one per metric"""
    equality: Equality | None = None
    """with greedy of the same model"""
    difference: Comparison | None = None
    """from greedy of the same model, by the first metric"""
    by_length: tuple[LengthBin, ...] = ()
    information: MutualInformation | None = None

    @property
    def mean_block(self) -> float | None:
        """Tokens per iteration that had a draft to verify, if anything was drafted."""
        counts = self.decoding.counts
        return counts.mean_block if counts is not None and counts.drafted else None


def evaluations(
    translator: Translator,
    line_up: Sequence[Setting],
    greedy: str | None,
    material: Material,
    batch: int,
    files: tuple[str, str],
    rival: Rival | None = None,
    analyses: Analyses | None = None,
) -> Iterator[Evaluation]:
    """Score every setting; `greedy` names the one that others are compared with, `files` source and reference."""
    analyses = analyses or Analyses()
    references, information = analyses.references(translator, material, files[1])
    surprise = [perplexity(references, translator.target_tokenizer.sha256)] if references is not None else []
    surprise += information.scores if information is not None else []
    lengths = [len(ids) - 1 for ids in translator.encode(material.sources, warn=lambda message: None)]
    first: Decoding | None = None
    for number, setting in enumerate(sorted(line_up, key=lambda one: one.name != greedy), start=1):
        if len(line_up) > 1:
            say(f"{setting.name} ({number} of {len(line_up)})")
        found = decode(translator, setting.asked, setting.options, material.sources, batch, files[0])
        scores = [*material.score(found.texts), *analyses.scores(found.texts, material)]
        scores += [word_repetition(found.texts), *surprise]
        comparisons: list[Comparison] = []
        if rival is not None:
            theirs = rival.outputs(setting, material, batch)
            comparisons = [
                paired_bootstrap(metric, material.references, theirs, found.texts) for metric in material.metrics()
            ]
        if setting.name == greedy:
            first = found
        same = difference = None
        if first is not None and greedy is not None:
            same = _equality(greedy, first, found)
            if found is not first:
                leading = material.metrics()[0]
                difference = paired_bootstrap(leading, material.references, first.texts, found.texts)
        bins = analyses.bins(lengths, found.texts, material)
        yield Evaluation(setting, found, tuple(scores), tuple(comparisons), same, difference, bins, information)


def _equality(greedy: str, expected: Decoding, found: Decoding) -> Equality:
    pairs = enumerate(zip(expected.ids, found.ids, strict=True))
    differing = [place for place, (theirs, ours) in pairs if theirs != ours]
    return Equality(greedy, len(found.ids), len(differing), tuple(differing[:NAMED_DIFFERENCES]))


def quality_record(
    result: Evaluation,
    origin: Origin,
    model: ModelTag,
    workload: WorkloadTag,
    translator: Translator,
    order: int = 0,
    greedy: str | None = None,
    rival: Rival | None = None,
    notes: dict[str, Any] | None = None,
) -> Quality:
    """An evaluation as a record."""
    setting = result.setting
    against = [Against(rival.name, workload.size, one) for one in result.comparisons[:1]] if rival else []
    if result.difference is not None and greedy is not None:
        against.append(Against(greedy, workload.size, result.difference))
    return Quality(
        origin=origin,
        candidate=setting.name,
        decoder=setting.decoder.signature,
        model=model,
        workload=workload,
        scores=tuple(score for score in result.scores if math.isfinite(score.value)),
        role="baseline" if setting.name == greedy else "candidate",
        order=order,
        limits=setting.limits,
        precision=translator.runner.precision,
        runtime=translator.runner.name,
        counts=result.decoding.counts,
        equality=result.equality,
        against=tuple(against),
        by_length=result.by_length,
        mutual_information=result.information,
        options=setting.options,
        notes=notes or {},
    )
