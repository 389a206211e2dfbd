"""Test sets as the command line names them: files in, sentence pairs out, with the scores that their task has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from longstride.contract import InputError, OptionError

if TYPE_CHECKING:
    from longstride.bench.workload import Workload
    from longstride.tasks.correction import Corrections
    from longstride.tasks.score import Metric, Score
    from longstride.translator import Translator


@dataclass(frozen=True)
class Material:
    """A test set and how outputs for it are scored."""

    pairs: Sequence[tuple[str, str]]
    """sources, each with its first reference"""
    all_references: Sequence[str]
    """per source: several are joined by line breaks, which no line holds"""
    score: Callable[[list[str]], list[Score]]
    metrics_of: Callable[[Sequence[int]], Sequence[Metric]]
    """what is compared between two systems, for the sentences at these places"""
    whole: bool = False
    """these metrics know each sentence by its place"""

    def metrics(self) -> Sequence[Metric]:
        """What is compared between two systems."""
        return self.metrics_of(range(len(self.pairs)))

    @property
    def sources(self) -> list[str]:
        """The lines to be decoded."""
        return [source for source, _ in self.pairs]

    @property
    def references(self) -> list[str]:
        """The first of each line's references."""
        return [reference for _, reference in self.pairs]

    def workload(self, translator: Translator, name: str) -> Workload:
        """The test set as ids, under the name that records have for it."""
        sources = translator.encode(self.sources, warn=lambda message: None)
        return in_ids(translator, name, sources, self.all_references)


def in_ids(
    translator: Translator,
    name: str,
    sources: Sequence[Sequence[int]],
    references: Sequence[str],
    warmup: Sequence[Sequence[int]] = (),
    metrics: Sequence[Metric] | None = None,
    whole: bool = False,
) -> Workload:
    """A test set in a model's own ids, which end as its tokenizer ends them."""
    from longstride.bench.workload import Workload

    eos, own_endings = translator.folder.special.eos, translator.source_tokenizer.complete

    def detokenize(ids: list[int]) -> str:
        return translator.text([ids])[0]

    return Workload.of(name, sources, references, detokenize, warmup, metrics, whole, eos, own_endings)


def read_material(task: str, source: Path, references: Sequence[Path], scored: bool = True) -> Material:
    """Read a test set as the task wants it; an empty one is refused. One that is not `scored` may lack references."""
    if task not in TASKS:
        raise OptionError(f"--task expects {', '.join(list(TASKS)[:-1])} or {list(TASKS)[-1]}, found {task!r}.")
    found = TASKS[task](source, references) if references or scored else _unscored(source)
    if not found.pairs:
        raise InputError(f"{source}: expected at least one sentence to translate, found none.")
    return found


def _unscored(source: Path) -> Material:
    """Sentences with empty references."""
    from longstride.text.corpus import read_lines

    pairs = [(line, "") for line in read_lines(source)]
    return Material(pairs, [""] * len(pairs), lambda outputs: [], lambda places: ())


def _translations(source: Path, references: Sequence[Path]) -> Material:
    from longstride.tasks.translation import score_translations, translation_metrics

    return _single("translation", source, references, score_translations, translation_metrics)


def _summaries(source: Path, references: Sequence[Path]) -> Material:
    from longstride.tasks.summarization import score_summaries, summary_metrics

    return _single("summarization", source, references, score_summaries, lambda targets: summary_metrics())


def _single(
    task: str,
    source: Path,
    references: Sequence[Path],
    score: Callable[[Sequence[str], Sequence[str]], list[Score]],
    metrics: Callable[[Sequence[str]], Sequence[Metric]],
) -> Material:
    """A test set with one reference per source, scored by `score` (outputs, references) and compared by `metrics`."""
    from longstride.text.corpus import read_parallel

    if len(references) != 1:
        raise OptionError(f"--task {task} expects one --reference, found {len(references)}.")
    pairs = list(read_parallel(source, references[0]))
    targets = [target for _, target in pairs]
    return Material(pairs, targets, lambda outputs: score(outputs, targets), lambda places: metrics(targets))


def _corrections(source: Path, references: Sequence[Path]) -> Material:
    from longstride.tasks.correction import read_corrections, score_corrections

    test_set = read_corrections(source, references)
    return Material(
        list(zip(test_set.sources, test_set.references[0], strict=True)),
        ["\n".join(lines) for lines in zip(*test_set.references, strict=True)],
        lambda outputs: score_corrections(outputs, test_set),
        lambda places: (_at(test_set, places).metric,),
        whole=True,
    )


def _at(test_set: Corrections, places: Sequence[int]) -> Corrections:
    """The sentences at these places."""
    from longstride.tasks.correction import Corrections

    sources, *references = (
        tuple(lines[place] for place in places) for lines in (test_set.sources, *test_set.references)
    )
    return Corrections(sources, tuple(references))


def _pictures(source: Path, references: Sequence[Path]) -> Material:
    from longstride.tasks.pictures import picture_metrics, score_pictures
    from longstride.text.corpus import read_parallel

    if len(references) != 1:
        raise OptionError(f"--task super-resolution expects one --reference, found {len(references)}.")
    pairs = list(read_parallel(source, references[0]))
    sources, targets = [one for one, _ in pairs], [target for _, target in pairs]
    return Material(
        pairs, targets, lambda outputs: score_pictures(outputs, sources, targets), lambda places: picture_metrics()
    )


TASKS: dict[str, Callable[[Path, Sequence[Path]], Material]] = {
    "translation": _translations,
    "correction": _corrections,
    "summarization": _summaries,
    "super-resolution": _pictures,
}
"""How a test set is read and scored, by the name of its task: (source file, reference files) -> material."""
