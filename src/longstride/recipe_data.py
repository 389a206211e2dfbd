"""What a recipe learns from: its tokenizer and corpora, read or generated, made once and kept. Knows no model.

The training half is in :mod:`longstride.recipe`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from longstride import model_folder
from longstride.contract import InputError, Limits, OptionError, option
from longstride.contract.options import Options
from longstride.search.lengths import LengthRegression
from longstride.tasks.toys import Task, generate
from longstride.text.batches import BatchOptions
from longstride.text.binarized import BinarizedCorpus, binarize
from longstride.text.corpus import read_lines
from longstride.text.filtering import LengthFilter
from longstride.text.pixels import PixelTokenizer
from longstride.text.tokenizer import Tokenizer, build_words, load_tokenizer, train_sentencepiece
from longstride.training.metrics import Reporter


@dataclass(frozen=True)
class DataOptions(Options):
    """What is learnt from."""

    task: Literal["files", "copy", "reverse"] = option("files", "Text files, or a task the project generates.")
    pairs: int = option(20_000, "Training pairs to generate (not for files).", least=1, most=10**9)
    valid_pairs: int = option(500, "Validation pairs to generate (not for files).", least=1, most=10**9)
    train_source: str = option("", "Source text, one sentence per line (.gz and .xz too).")
    train_target: str = option("", "Target text.")
    valid_source: str = option("", "Source text to validate on.")
    valid_target: str = option("", "Target text to validate on.")
    tokenizer: str = option(
        "", "Tokenizer file; made from the training text where it is missing, never beside a base or warm_start."
    )
    vocabulary: int = option(16_000, "Size of a tokenizer to be made, the reserved ids included.", least=1, most=10**7)
    tokenizer_kind: Literal["bpe", "unigram", "words", "pixels"] = option(
        "bpe", "Kind of a tokenizer to be made; pixels for lines that are pictures (text/pixels.py)."
    )
    cache: str = option("", "Folder for the binarized corpus (default: the run's own).")
    filter: LengthFilter = option(factory=LengthFilter, help="Which pairs are left out of training.")
    batches: BatchOptions = option(factory=BatchOptions, help="How pairs are put together.")


def tokenizer_path(data: DataOptions, folder: Path) -> Path:
    """Where the recipe's tokenizer is, or will be."""
    return Path(data.tokenizer) if data.tokenizer else folder / model_folder.TOKENIZER


def tokenizer_of(data: DataOptions, folder: Path, tell: Reporter, base: Tokenizer | None = None) -> Tokenizer:
    """The recipe's; where its file is missing that of the model it builds on, or else one made of its training text."""
    path = tokenizer_path(data, folder)
    if path.exists():
        return load_tokenizer(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if base is not None:
        base.save(path)
        return load_tokenizer(path)
    if data.tokenizer_kind == "pixels":
        pixels = PixelTokenizer()
        pixels.save(path)
        return pixels
    if data.task == "files":
        required(data, "train")
        lines: Any = (line for file in (data.train_source, data.train_target) for line in read_lines(file))
    else:
        lines = [line for pair in generated(data, "train") for line in pair]
    tell.message(f"Making a tokenizer of {data.vocabulary:,} pieces: {path}")
    if data.tokenizer_kind == "words":
        return build_words(lines, path, data.vocabulary, called="data.vocabulary")
    return train_sentencepiece(lines, data.vocabulary, path, data.tokenizer_kind, called="data.vocabulary")


def generated(data: DataOptions, split: Literal["train", "valid"]) -> Sequence[tuple[str, str]]:
    """Pairs of a task that the project makes."""
    assert data.task != "files"
    return _generate(data.task, data.pairs if split == "train" else data.valid_pairs, split)


@lru_cache(maxsize=4)
def _generate(task: Task, count: int, split: Literal["train", "valid"]) -> Sequence[tuple[str, str]]:
    """Kept, because tokenizer, corpus and validation each ask for the same pairs."""
    return tuple(generate(task, count, seed=1, split=split))


def required(data: DataOptions, split: str) -> tuple[str, str]:
    """The two text files of a split."""
    source, target = getattr(data, f"{split}_source"), getattr(data, f"{split}_target")
    if not source or not target:
        raise OptionError(
            f"data.{split}_source and data.{split}_target expect text files, found {source or 'nothing'!r}."
        )
    return source, target


def corpus_of(
    data: DataOptions, split: Literal["train", "valid"], tokenizer: Tokenizer, folder: Path, tell: Reporter, leads: bool
) -> BinarizedCorpus:
    """A split as ids; text files are binarized by the process that leads, unless that was done before."""
    if data.task != "files":
        pairs = generated(data, split)
        sources = tokenizer.encode_for_batches([source for source, _ in pairs])
        targets = tokenizer.encode_for_batches([target for _, target in pairs])
        return BinarizedCorpus.from_pairs(zip(sources, targets, strict=True), tokenizer.special)
    source, target = required(data, split)
    cache = Path(data.cache or folder) / f"{split}.ids"
    filter = data.filter if split == "train" else LengthFilter(max_tokens=0, cut_source=data.filter.cut_source)
    if leads and _cached(cache, tokenizer, source, target, filter) is None:
        tell.message(f"Binarizing {source} and {target} into {cache}")
        cache.parent.mkdir(parents=True, exist_ok=True)
        corpus = binarize(source, target, tokenizer, cache, filter)
        tell.message(corpus.report.sentence)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
    corpus = BinarizedCorpus.load(cache, tokenizer.sha256, special=tokenizer.special)
    corpus.check_ids(tokenizer.size, cache)
    return corpus


def _cached(
    cache: Path, tokenizer: Tokenizer, source: str, target: str, filter: LengthFilter
) -> BinarizedCorpus | None:
    """The binarized corpus, if there is one and it was made from just these files with this tokenizer and filter."""
    if not cache.exists():
        return None
    try:
        corpus = BinarizedCorpus.load(cache, tokenizer.sha256)
        corpus.check_files(source, target)
    except InputError:
        return None
    return corpus if corpus.manifest is not None and corpus.manifest.filter == filter else None


def readable(corpus: BinarizedCorpus, split: str, longest: int, tell: Reporter) -> BinarizedCorpus:
    """The pairs that the model has positions for."""
    fits = np.maximum(corpus.source.lengths, corpus.target.lengths) <= longest
    if fits.all():
        return corpus
    tell.message(f"{int((~fits).sum()):,} {split} pairs are longer than the model's {longest} positions: left out.")
    kept = corpus.take(np.flatnonzero(fits).astype(np.int64))
    kept.manifest = corpus.manifest
    return kept


def limits_of(corpus: BinarizedCorpus, tokenizer: Tokenizer) -> Limits | None:
    """What outputs are held to where nobody says: pictures are all as large as those learnt from."""
    if tokenizer.kind != PixelTokenizer.kind or len(corpus) == 0:
        return None
    sizes = np.unique(corpus.target.lengths)
    if len(sizes) > 1:
        raise InputError(f"Expected pictures of one size to learn from, found lines of {sizes[0] - 1} and of others.")
    values = int(sizes[0]) - 1  # EOS is none
    return Limits(max_length=values, min_length=values)


def lengths_of(corpus: BinarizedCorpus) -> LengthRegression:
    """Target words by source words; EOS is none."""
    if len(corpus) == 0:
        return LengthRegression()
    return LengthRegression.fit(corpus.source.lengths - 1, corpus.target.lengths - 1)
