"""What `evaluate` does to each setting of a model: decode a test set, score it, compare it. Prints progress alone."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from longstride.bench.record_parts import Against, Counts, Equality
from longstride.bench.records import Quality
from longstride.bench.traced_pass import NAMED_DIFFERENCES, count
from longstride.cli.console import Bar, say, warn
from longstride.cli.lineup import Setting
from longstride.cli.test_sets import Material
from longstride.contract import Decoded, Likelihood, OptionError
from longstride.tasks.bootstrap import Comparison, Interval, paired_bootstrap, score_interval
from longstride.tasks.likelihood import (
    Likelihoods,
    MutualInformation,
    check_base,
    likelihoods,
    mutual_information,
    perplexity,
)
from longstride.tasks.ngrams import OverTranslation
from longstride.tasks.score import ExactMatch, LengthBin, Score, score_by_length, word_repetition
from longstride.tasks.translation import Bleu
from longstride.translator import Translator

OVER_TRANSLATION_ORDERS = (2, 4)
NAMED_WARNINGS = 3
"""Lines that are too long are named up to so many, and counted beyond: of documents there are hundreds."""


@dataclass(frozen=True)
class Decoding:
    """One decoder's outputs for a test set."""

    texts: list[str]
    ids: list[tuple[int, ...]]
    """without EOS; of an empty line, none"""
    counts: Counts | None
    seconds: float
    """wall-clock of tokenizing and decoding, loading excluded"""


@dataclass(frozen=True)
class Evaluation:
    """What one setting's outputs are worth."""

    setting: Setting
    decoding: Decoding
    scores: tuple[Score, ...]
    comparisons: tuple[Comparison, ...] = ()
    """with the other system, one per metric"""
    equality: Equality | None = None
    """with greedy of the same model"""
    difference: Comparison | None = None
    """from greedy of the same model, by the first metric"""
    by_length: tuple[LengthBin, ...] = ()
    information: MutualInformation | None = None
    intervals: tuple[Interval, ...] = ()
    """of the scores that systems are compared by, if asked for"""

    @property
    def mean_block(self) -> float | None:
        """Tokens per iteration that had a draft to verify, if anything was drafted."""
        counts = self.decoding.counts
        return counts.mean_block if counts is not None and counts.drafted else None


@dataclass(frozen=True)
class Rival:
    """Another system to compare with: its outputs, or its model, which decodes as the setting does."""

    name: str
    system: list[str] | Translator


@dataclass(frozen=True)
class Analyses:
    """What was asked for beyond the usual scores."""

    exact_match: bool = False
    over_translation: bool = False
    by_length: int | None = None
    """so many bins"""
    base: Translator | None = None
    """the model of one word per step that mutual information is estimated with"""
    base_name: str = ""
    tokenized: bool = False
    """BLEU over words between white space too"""
    intervals: bool = False

    def check(self, translator: Translator, sentences: int) -> None:
        """Refuse what cannot be done before any work is."""
        if self.by_length is not None and self.by_length > sentences:
            raise OptionError(
                f"--by-length expects at most as many bins as there are sentences, {sentences}, found {self.by_length}."
            )
        if self.base is None:
            return
        found = []
        for model in (translator, self.base):
            likelihood = model.likelihood()
            if likelihood is None:
                raise OptionError(
                    f"--mutual-information expects models that can score references, found {model.folder.path}, which "
                    f"decodes by {', '.join(model.decoders)}."
                )
            found.append(likelihood.factorisation)
        check_base(found[0], found[1], self.base_name)
        if self.base.target_tokenizer.sha256 != translator.target_tokenizer.sha256:
            raise OptionError(
                f"--mutual-information expects one tokenizer: {self.base_name} has another than "
                f"{translator.folder.path}."
            )

    def scores(self, outputs: Sequence[str], material: Material) -> list[Score]:
        """Further scores of outputs."""
        found = [ExactMatch().score(outputs, material.all_references)] if self.exact_match else []
        if self.tokenized:
            found.append(Bleu(tokenize="none").score(outputs, material.references))
        orders = OVER_TRANSLATION_ORDERS if self.over_translation else ()
        return found + [OverTranslation(order).score(outputs, material.references) for order in orders]

    def of_references(
        self, translator: Translator, material: Material, file: str
    ) -> tuple[list[Score], MutualInformation | None]:
        """Perplexity, and what words of one step tell about each other: the same for every setting of a model."""
        models = [translator] if self.base is None else [translator, self.base]
        room = min(model.longest for model in models) - 1  # the very same tokens for all
        pairs = [pair for pair in material.pairs if pair[0].strip() and pair[1].strip()]
        scored = [score_pairs(one, found, pairs, file, room) for one in models if (found := one.likelihood()) and pairs]
        if not scored:
            return [], None
        tokenizer = translator.target_tokenizer.sha256
        scores, information = [perplexity(scored[0], tokenizer)], None
        if len(scored) > 1:
            information = mutual_information(scored[0], scored[1], self.base_name, tokenizer)
            scores += information.scores
        return scores, information


def evaluations(
    translator: Translator,
    line_up: Sequence[Setting],
    greedy: str | None,
    material: Material,
    batch: int,
    files: tuple[str, str],
    rival: Rival | None,
    analyses: Analyses,
) -> Iterator[Evaluation]:
    """Score every setting, first `greedy`, which others are compared with; `files` are source and reference."""
    of_references, information = analyses.of_references(translator, material, files[1])
    lengths = [len(ids) - 1 for ids in translator.encode(material.sources, warn=lambda message: None)]
    first: Decoding | None = None
    for number, setting in enumerate(sorted(line_up, key=lambda one: one.name != greedy), start=1):
        if len(line_up) > 1:
            say(f"{setting.name} ({number} of {len(line_up)})")
        found = decode(translator, setting, material.sources, batch, files[0])
        scores = [*material.score(found.texts), *analyses.scores(found.texts, material)]
        scores += [word_repetition(found.texts), *of_references]
        comparisons: list[Comparison] = []
        if rival is not None:
            theirs = rival.system
            if isinstance(theirs, Translator):
                theirs = decode(theirs, setting, material.sources, batch, rival.name).texts
            comparisons = [
                paired_bootstrap(metric, material.references, theirs, found.texts) for metric in material.metrics()
            ]
        if setting.name == greedy:
            first = found
        same = difference = None
        if first is not None and greedy is not None:
            differing = [place for place, ids in enumerate(found.ids) if ids != first.ids[place]]
            same = Equality(greedy, len(found.ids), len(differing), tuple(differing[:NAMED_DIFFERENCES]))
            if found is not first:
                difference = paired_bootstrap(material.metrics()[0], material.references, first.texts, found.texts)
        bins: tuple[LengthBin, ...] = ()
        if analyses.by_length is not None:
            bins = score_by_length(lengths, analyses.by_length, found.texts, material.references, material.metrics_of)
        intervals: tuple[Interval, ...] = ()
        if analyses.intervals:
            intervals = tuple(score_interval(one, material.references, found.texts) for one in material.metrics())
        yield Evaluation(
            setting, found, tuple(scores), tuple(comparisons), same, difference, bins, information, intervals
        )


def quality_record(
    result: Evaluation, translator: Translator, order: int, greedy: str | None, rival: Rival | None, **about: Any
) -> Quality:
    """An evaluation as a record; `about` has its origin, model, workload and notes."""
    setting, size = result.setting, about["workload"].size
    against = [Against(rival.name, size, one) for one in result.comparisons[:1]] if rival else []
    if result.difference is not None and greedy is not None:
        against.append(Against(greedy, size, result.difference))
    return Quality(
        candidate=setting.name,
        decoder=setting.decoder.signature,
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
        intervals=result.intervals,
        options=setting.options,
        **about,
    )


def decode(translator: Translator, setting: Setting, lines: Sequence[str], batch: int, name: str) -> Decoding:
    """Decode all lines with traces; `name` says in warnings which file they are from."""
    begun = time.perf_counter()
    calls = done = 0
    warnings: list[str] = []
    with Bar("decoding", sum(1 for line in lines if line.strip())) as shown:

        def watch(decoded: Decoded) -> None:
            nonlocal calls, done
            calls, done = calls + decoded.calls, done + len(decoded.hypotheses)
            shown.to(done)

        outputs = translator.translate(
            list(lines),
            setting.asked,
            batch=batch,
            trace=True,
            watch=watch,
            warn=warnings.append,
            whole=True,  # a line of a test set has a reference
            **setting.options,
        )
    seconds = time.perf_counter() - begun
    for said in warnings[:NAMED_WARNINGS]:
        warn(f"{name}, {said}")
    if (more := len(warnings) - NAMED_WARNINGS) > 0:
        warn(f"{name}, {more:,} further lines were cut.")
    traces = {place: one.trace for place, one in enumerate(outputs) if one.trace is not None}
    counts = count(list(traces.values()), [outputs[place].tokens for place in traces], calls) if traces else None
    return Decoding([one.text for one in outputs], [one.tokens for one in outputs], counts, seconds)


def score_pairs(
    translator: Translator, model: Likelihood, pairs: Sequence[tuple[str, str]], name: str, room: int | None = None
) -> Likelihoods:
    """How probable targets are, given their sources; `name` says in warnings where they are from.

    Targets of more than `room` tokens, EOS not counted, are cut (default: the model's limit).
    """
    sources = translator.encode([source for source, _ in pairs], warn=lambda message: None)
    targets = translator.target_tokenizer.encode_for_batches([target for _, target in pairs])
    room = translator.longest - 1 if room is None else room
    cut = sum(len(target) > room for target in targets)
    if cut:
        warn(f"{name}: {cut} references were cut at the model's limit of {room} tokens.")
    ids = [
        (source, [*target[:room], translator.folder.special.eos])
        for source, target in zip(sources, targets, strict=True)
    ]
    with Bar("reading references", None) as shown:
        return likelihoods(model, ids, shown.to)
