"""Which source word each target word of a corpus comes from: learnt here, or read from a file in Pharaoh format.

A Pharaoh file has one line per line of the corpus, of links `source-target` between words counted from 0. Words are the
tokenizer's pieces, EOS left out. The candidate model has one source word per target word; where a file links several
(symmetrised alignments do), the one nearest the diagonal is kept. A target word without a link comes from no word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from longstride.contract import InputError, OptionError
from longstride.text.binarized import BinarizedCorpus
from longstride.text.corpus import read_lines, write_lines
from longstride.text.fast_align import AlignerOptions, Words, align, memory_needed

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Alignment:
    """The links of a corpus."""

    links: npt.NDArray[np.int32]
    """[target words] the source word each comes from, from 0 within its sentence; -1 for none"""
    made_by: str
    """for the manifest"""
    doubled: int = 0
    """target words that had several links, of which one was kept"""


def learn(
    corpus: BinarizedCorpus,
    options: AlignerOptions | None = None,
    *,
    device: torch.device | str = "cpu",
    memory: float = 8.0,
    progress: Progress = lambda done, total: None,
) -> Alignment:
    """Align a corpus with FastAlign's model, in at most `memory` GiB for its probabilities."""
    options = options or AlignerOptions()
    source, target = Words.of(corpus.source), Words.of(corpus.target)
    needed = memory_needed(source, target) / 2**30
    if needed > memory:
        raise OptionError(
            f"--memory expects at least {needed:.1f} GiB to align words as varied as these, found {memory:g}; "
            f"or give alignments made elsewhere with --alignments."
        )
    found = align(source, target, options, device=device, progress=progress)
    said = (
        f"fast_align, {options.iterations} iterations, tension {found.tension:.4f}, perplexity {found.perplexity:.3f}"
    )
    return Alignment(found.links, said)


def read_pharaoh(
    path: str | os.PathLike[str], corpus: BinarizedCorpus, *, progress: Progress = lambda done, total: None
) -> Alignment:
    """The links of a corpus from a file with a line for every line of the text, those that were filtered out too."""
    starts = _starts(corpus)
    links = np.full(int(starts[-1]), -1, np.int32)
    sizes = zip(*((side.lengths - 1).tolist() for side in (corpus.source, corpus.target)), strict=True)
    kept = zip(corpus.lines.tolist(), range(len(corpus)), sizes, strict=True)
    wanted, pair, size = next(kept, (-1, -1, (0, 0)))
    doubled = found = 0
    for found, line in enumerate(read_lines(path), start=1):
        if found - 1 == wanted:
            own = links[starts[pair] : starts[pair + 1]]
            doubled += _fill(own, line, size, f"{path}, line {found}")
            if (pair + 1) % 10_000 == 0:
                progress(pair + 1, len(corpus))
            wanted, pair, size = next(kept, (-1, -1, (0, 0)))
    if found != corpus.report.seen:
        raise InputError(f"{path}: expected as many lines as the corpus has ({corpus.report.seen}), found {found}.")
    return Alignment(links, "Pharaoh file", doubled)


def write_pharaoh(path: str | os.PathLike[str], corpus: BinarizedCorpus, alignment: Alignment) -> None:
    """The links as a file that `read_pharaoh` reads; lines that were filtered out are empty."""

    def lines() -> Iterator[str]:
        starts, written = _starts(corpus), 0
        for pair, line in enumerate(corpus.lines.tolist()):
            yield from ("" for _ in range(written, line))
            own = alignment.links[starts[pair] : starts[pair + 1]].tolist()
            yield " ".join(f"{source}-{target}" for target, source in enumerate(own) if source >= 0)
            written = line + 1
        yield from ("" for _ in range(written, corpus.report.seen))

    write_lines(path, lines())


def _starts(corpus: BinarizedCorpus) -> npt.NDArray[np.int64]:
    """[pairs + 1] where each pair's target words begin among all of them."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(corpus.target.lengths - 1)])


def _fill(own: npt.NDArray[np.int32], line: str, size: tuple[int, int], where: str) -> int:
    """Write the links of one pair into its place; how many target words had several."""
    doubled = set()
    for text in line.split():
        ends = text.split("-")
        if len(ends) != 2 or not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends):
            raise InputError(f"{where}: expected links such as 0-0, found {text[:40]!r}.")
        source, target = map(int, ends)
        if source >= size[0] or target >= size[1]:
            raise InputError(
                f"{where}: expected links between {size[0]} source and {size[1]} target words, counted from 0, "
                f"found {source}-{target}."
            )
        if own[target] >= 0 and own[target] != source:
            doubled.add(target)
            centre = (target + 0.5) * size[0] / size[1] - 0.5
            source = min(int(own[target]), source, key=lambda place: (abs(place - centre), place))
        own[target] = source
    return len(doubled)
