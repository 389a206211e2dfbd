"""longstride evaluate: how good a model's translations are, and whether they are better than another's."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from longstride.bench.assessment import count
from longstride.bench.records import Against, Counts, Quality, WorkloadTag, append_records
from longstride.bench.workload import Workload as TestSet
from longstride.cli.console import Bar, bar, out, say, warn
from longstride.cli.options import (
    DecoderName,
    Device,
    Experiment,
    Model,
    Precision,
    Runtime,
    Set,
    Source,
    Workload,
    open_model,
    settings,
)
from longstride.cli.provenance import data_name, model_tag, origin_of
from longstride.contract import Decoded, InputError, OptionError
from longstride.registry import OBJECTIVES
from longstride.systems.autoregressive.objective import AutoregressiveObjectiveOptions
from longstride.tasks.bootstrap import Comparison, paired_bootstrap
from longstride.tasks.correction import read_corrections, score_corrections
from longstride.tasks.perplexity import perplexity
from longstride.tasks.repetition import word_repetition
from longstride.tasks.score import Metric, Score
from longstride.tasks.translation import score_translations, translation_metrics
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus
from longstride.text.corpus import read_lines, read_parallel, write_lines
from longstride.translator import BUNDLED, Translator

AUTOREGRESSIVE = "autoregressive"
PERPLEXITY_TOKENS = 8192
"""Target tokens scored at once: bounded memory, whatever --batch says."""


@dataclass(frozen=True)
class Evaluation:
    """One model's outputs for a test set and what they are worth."""

    outputs: list[str]
    scores: tuple[Score, ...]
    counts: Counts | None
    seconds: float
    """wall-clock of tokenizing and decoding, loading excluded"""


@dataclass(frozen=True)
class Material:
    """A test set and how outputs for it are scored."""

    pairs: Sequence[tuple[str, str]]
    """sources, each with its first reference"""
    all_references: Sequence[str]
    """per source: several are joined by line breaks, which no line holds"""
    score: Callable[[list[str]], list[Score]]
    metrics: Callable[[], Sequence[Metric]]
    """what is compared between two systems"""


def evaluate(
    source: Source,
    reference: Annotated[
        list[Path],
        typer.Option("-r", "--reference", help="References, one per source line; for correction several files."),
    ],
    model: Model = BUNDLED,
    task: Annotated[str, typer.Option(help="What the model does: translation or correction.")] = "translation",
    decoder: DecoderName = None,
    set: Set = None,
    runtime: Runtime = "eager",
    precision: Precision = "fp32",
    device: Device = "auto",
    batch: Annotated[int, typer.Option(min=1, help="Sentences decoded side by side.")] = 32,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Compare with another system by paired bootstrap: a file of its outputs, or a model folder, decoded "
            "with the same --decoder and --set."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the translations here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON also on a terminal.")] = False,
    record: Annotated[Path | None, typer.Option(help="Append a record of quality to this file (JSON lines).")] = None,
    name: Annotated[str | None, typer.Option(help="Names the system in the record (default: the decoder).")] = None,
    experiment: Experiment = None,
    workload: Workload = None,
) -> None:
    """Score a model's translations (or corrections) of a test set.

    BLEU and chrF are sacreBLEU's, each with its signature. Corrections are scored with GLEU, over words between white
    space: sources, outputs and references must be tokenized alike, as JFLEG is. Repetition is the share of words, in
    percent, that equal the word right before them. Perplexity is exp of the mean negative log-likelihood of the
    references' tokens (the model's own, end of sentence included), for models that can score token after token; of
    several references, of the first. A table on a terminal, one JSON object otherwise.
    """
    material = _material(task, source, reference)
    pairs = material.pairs
    if not pairs:
        raise InputError(f"{source}: expected at least one sentence to translate, found none.")
    if output is not None and not output.parent.is_dir():
        raise InputError(f"{output}: expected a folder to write in, found none at {output.parent}.")
    if name is not None and record is None:
        raise OptionError("--name expects --record FILE beside it, found none.")
    options = settings(set)
    translator = open_model(model, runtime, precision, device)
    chosen, limits = translator.decoder(decoder, **options)
    rival = _rival(against, decoder, options, pairs, (runtime, precision, device))

    result = _evaluate(translator, decoder, options, material, batch, str(source), str(reference[0]))
    references = [target for _, target in pairs]
    comparisons: list[Comparison] = []
    if against is not None and rival is not None:
        theirs = rival if isinstance(rival, list) else _decode(rival, decoder, options, pairs, batch, str(against))[0]
        comparisons = [paired_bootstrap(metric, references, theirs, result.outputs) for metric in material.metrics()]
    if output is not None:
        write_lines(output, result.outputs)
    tag = model_tag(translator)
    if record is not None:
        sources = translator.encode([line for line, _ in pairs], warn=lambda message: None)
        test_set = TestSet.of(
            workload or data_name(source), sources, material.all_references, lambda ids: translator.text([ids])[0]
        )
        append_records(
            record,
            [
                Quality(
                    origin=origin_of(experiment or tag.name, translator),
                    candidate=name or chosen.name,
                    decoder=chosen.signature,
                    model=tag,
                    workload=WorkloadTag(test_set.name, test_set.data_hash, test_set.size),
                    scores=tuple(score for score in result.scores if math.isfinite(score.value)),
                    limits=limits,
                    precision=precision,
                    runtime=runtime,
                    counts=result.counts,
                    against=tuple(Against(str(against), len(pairs), one) for one in comparisons[:1]),
                    options=options,
                )
            ],
        )
        say(f"Record appended to {record}.")
    if as_json or not out.is_terminal:
        _json(tag.name, chosen.signature, result, against, comparisons)
    else:
        _tables(tag.name, chosen.signature, result, against, comparisons)


def _material(task: str, source: Path, references: Sequence[Path]) -> Material:
    """Read a test set as the task wants it."""
    if task == "correction":
        corrections = read_corrections(source, references)
        return Material(
            list(zip(corrections.sources, corrections.references[0], strict=True)),
            ["\n".join(lines) for lines in zip(*corrections.references, strict=True)],
            lambda outputs: score_corrections(outputs, corrections),
            lambda: (corrections.metric,),
        )
    if task != "translation":
        raise OptionError(f"--task expects translation or correction, found {task!r}.")
    if len(references) != 1:
        raise OptionError(f"--task translation expects one --reference, found {len(references)}.")
    pairs = list(read_parallel(source, references[0]))
    targets = [target for _, target in pairs]
    return Material(pairs, targets, lambda outputs: score_translations(outputs, targets), translation_metrics)


def _rival(
    against: Path | None,
    decoder: str | None,
    options: dict[str, Any],
    pairs: Sequence[tuple[str, str]],
    how: tuple[str, str, str],
) -> list[str] | Translator | None:
    """The other system, refused before any work is done: its outputs, or its model."""
    if against is None:
        return None
    if against.is_dir():
        translator = open_model(str(against), *how)
        translator.decoder(decoder, **options)
        return translator
    lines = list(read_lines(against))
    if len(lines) != len(pairs):
        raise InputError(f"{against}: expected {len(pairs)} outputs, one per source line, found {len(lines)}.")
    return lines


def _evaluate(
    translator: Translator,
    decoder: str | None,
    options: dict[str, Any],
    material: Material,
    batch: int,
    source: str,
    reference: str,
) -> Evaluation:
    begun = time.perf_counter()
    outputs, counts = _decode(translator, decoder, options, material.pairs, batch, source)
    seconds = time.perf_counter() - begun
    scores = [*material.score(outputs), word_repetition(outputs)]
    surprise = _perplexity(translator, material.pairs, reference)
    return Evaluation(outputs, (*scores, *([surprise] if surprise else [])), counts, seconds)


def _decode(
    translator: Translator,
    decoder: str | None,
    options: dict[str, Any],
    pairs: Sequence[tuple[str, str]],
    batch: int,
    name: str,
) -> tuple[list[str], Counts | None]:
    lines = [line for line, _ in pairs]
    with bar("decoding", sum(1 for line in lines if line.strip())) as shown:
        watch = _Watch(shown)
        done = translator.translate(
            lines, decoder, batch=batch, trace=True, watch=watch, warn=lambda said: warn(f"{name}, {said}"), **options
        )
    found = [one for one in done if one.trace is not None]
    counts = None
    if found:
        traces = [one.trace for one in found if one.trace is not None]
        counts = count(traces, [one.tokens for one in found], watch.calls)
    return [one.text for one in done], counts


class _Watch:
    """Adds up model calls and shows how many lines are done."""

    def __init__(self, shown: Bar) -> None:
        self._shown = shown
        self._lines = 0
        self.calls = 0

    def __call__(self, decoded: Decoded) -> None:
        self._lines += len(decoded.hypotheses)
        self.calls += decoded.calls
        self._shown.to(self._lines)


def _perplexity(translator: Translator, pairs: Sequence[tuple[str, str]], reference: str) -> Score | None:
    """Of the references, empty lines aside; none for a model that cannot score token after token."""
    scoring = [name for name in OBJECTIVES[AUTOREGRESSIVE].decoders if name in translator.decoders]
    full = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    if not scoring or not full:
        return None
    model = translator.parts_of(scoring[0])["model"]
    objective = OBJECTIVES[AUTOREGRESSIVE].build(AutoregressiveObjectiveOptions(label_smoothing=0.0))
    sources = translator.encode([source for source, _ in full], warn=lambda message: None)
    targets = translator.target_tokenizer.encode_many([target for _, target in full])
    room = translator.longest - 1
    cut = sum(len(target) > room for target in targets)
    if cut:
        warn(f"{reference}: {cut} references were cut at the model's limit of {room} tokens for perplexity.")
    corpus = BinarizedCorpus.from_pairs(zip(sources, [target[:room] for target in targets], strict=True))
    tokens = max(PERPLEXITY_TOKENS, translator.longest)
    batches = TokenBatches(corpus, BatchOptions(tokens=tokens, shuffle=False))
    with bar("reading references", batches.batches_in(0)) as shown:
        return perplexity(
            model,
            objective,
            batches,
            translator.runner.device,
            translator.target_tokenizer.sha256,
            lambda done, total: shown.to(done),
        )


def _json(
    model: str, signature: str, result: Evaluation, against: Path | None, comparisons: Sequence[Comparison]
) -> None:
    found: dict[str, Any] = {
        "model": model,
        "decoder": signature,
        "sentences": len(result.outputs),
        "scores": [
            {**asdict(score), "value": score.value if math.isfinite(score.value) else None} for score in result.scores
        ],
        "seconds": round(result.seconds, 3),
        "sentences_per_second": round(len(result.outputs) / max(result.seconds, 1e-9), 2),
    }
    if result.counts is not None:
        found["iterations"] = result.counts.iterations
        found["tokens_per_iteration"] = result.counts.tokens_with_eos / max(1, result.counts.iterations)
    if against is not None:
        found["against"] = {"system": str(against), "comparisons": [asdict(one) for one in comparisons]}
    sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")


def _tables(
    model: str, signature: str, result: Evaluation, against: Path | None, comparisons: Sequence[Comparison]
) -> None:
    out.print(f"{model}, {signature}", markup=False)
    table = Table(box=None, padding=(0, 2))
    for heading in ("score", "value", "signature"):
        table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
    for score in result.scores:
        table.add_row(score.name, f"{score.value:.2f}", score.signature)
    out.print(table)
    speed = len(result.outputs) / max(result.seconds, 1e-9)
    line = f"{len(result.outputs):,} sentences in {result.seconds:.1f} s, {speed:,.1f} a second"
    if result.counts is not None and result.counts.iterations:
        line += f"; {result.counts.tokens_with_eos / result.counts.iterations:.2f} tokens per iteration"
    out.print(line, markup=False)
    for one in comparisons:
        out.print(
            f"{one.metric} {one.difference:+.2f} over {against} ({one.baseline:.2f}), 95 % interval "
            f"{one.low:+.2f} to {one.high:+.2f}, p = {one.p_value:.3f}",
            markup=False,
        )
