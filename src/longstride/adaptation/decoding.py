"""Stage 1: the model decodes the lines by its own greedy search, which is what a drafter has to foresee.

The last lines are held out: they are judged on later and never trained on, nor is any earlier line that equals one.
Outputs are kept as ids, so that nothing is lost between decoding and training.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from longstride.adaptation.further_lines import further_lines
from longstride.adaptation.options import AdaptOptions
from longstride.contract import InputError
from longstride.distillation.decoding import Teacher
from longstride.distillation.distill import Progress, distill_lines
from longstride.distillation.options import DistillOptions
from longstride.text.binarized import BinarizedCorpus, Side, offsets_of
from longstride.text.corpus import read_lines
from longstride.translator import Translator

FURTHER = "further"
"""Folder of the outputs for lines that are made of the user's own, within the folder of those for these"""
LONGEST_SOURCE = 1_024
"""Tokens, EOS counted: longer sources are left out of training."""


@dataclass(frozen=True)
class Text:
    """The user's lines, of one pair of languages where a model has several."""

    lines: Sequence[str]
    languages: tuple[str | None, str | None] = (None, None)
    """of sources and outputs"""
    pair: str = ""
    """both, where there may be several"""

    def of(self, translator: Translator) -> Translator:
        """The model as it reads and writes this pair."""
        return translator.with_languages(*self.languages) if self.pair else translator

    def under(self, name: str) -> str:
        """A name for what belongs to this pair."""
        return f"{name}, {self.pair}" if self.pair else name

    def divided(self, options: AdaptOptions, texts: int = 1) -> Lines:
        """Its lines for training and for judging, where there are so many texts to learn from."""
        what = f"--pair {self.pair}" if self.pair else "--source"
        full = [line for line in self.lines if line.strip()]
        found = divide(full, options.held_out_of(len(full)), what)
        if options.decoding_seconds < math.inf:
            return found.shuffled(options.seed)
        return found.of_training(-(-options.lines // texts))


@dataclass(frozen=True)
class Lines:
    """The user's lines, divided."""

    training: tuple[str, ...]
    held_out: tuple[str, ...]
    left_out: int = 0
    """lines that a short training has no time for"""

    def shuffled(self, seed: int) -> Lines:
        """With those for training in a random order, so that however many are decoded are a sample of them all."""
        return replace(self, training=tuple(random.Random(seed).sample(self.training, len(self.training))))

    def of_training(self, most: int) -> Lines:
        """With so many lines for training, if there are more, taken evenly: texts often come in order (0: all)."""
        there = len(self.training)
        if not most or there <= most:
            return self
        kept = tuple(self.training[place * there // most] for place in range(most))
        return Lines(kept, self.held_out, there - most)


def divide(lines: Sequence[str], held_out: int, what: str = "--source") -> Lines:
    """The last lines for judging, all others that do not equal one of them for training; empty ones are left out."""
    full = [line for line in lines if line.strip()]
    if len(full) < 2 * held_out:
        raise InputError(
            f"{what} expects at least {2 * held_out} lines that are not empty, {held_out} of them to be held out, "
            f"found {len(full)}."
        )
    kept = tuple(full[-held_out:])
    unseen = set(kept)
    training = tuple(line for line in full[:-held_out] if line not in unseen)
    if not training:
        raise InputError(f"{what} expects lines besides those held out, found none that differ from them.")
    return Lines(training, kept)


def own_greedy(translator: Translator) -> Teacher:
    """The model as its own teacher, whose outputs are written as ids."""
    decoder, limits = translator.decoder("greedy")
    eos = translator.folder.special.eos

    def write(rows: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(str(token) for token in row if token != eos) for row in rows]

    return Teacher(
        decoder,
        lambda lines: translator.encode(lines, warn=lambda said: None),
        write,
        (translator.folder.sha256,),
        translator.target_tokenizer.sha256,
        limits,
        translator.longest,
        translator.folder.special,
        whole=True,
    )


def decode(
    translator: Translator,
    lines: Lines,
    folder: Path,
    options: AdaptOptions,
    progress: Callable[[Progress], None] | None = None,
    texts: int = 1,
) -> dict[str, Any]:
    """Decode what is trained on, of so many texts, going on with the shards that are there; what the manifest says of
    it."""
    how = DistillOptions(
        keep_all=True,  # loops and the like too: a drafter is to foresee whatever the model writes
        shard_lines=options.shard_lines,
        capacity=options.side_by_side,
        longest_source=translator.longest,
    )
    teacher = own_greedy(translator)
    distilled = partial(distill_lines, teacher, options=how, resume=True, progress=progress, name="own greedy")
    manifest = distilled(lines.training, folder, seconds=options.decoding_seconds / texts).manifest
    assert manifest is not None
    told = {name: manifest[name] for name in ("kept", "dropped", "degenerate", "tokens")}
    found = {
        **told,
        "left_out": lines.left_out + len(lines.training) - told["kept"] - told["dropped"],
        "further": 0,
        "decoder": manifest["decoder"],
        "seconds": round(60 * manifest["minutes"], 1),
    }
    spare = options.further_seconds / texts - found["seconds"]
    count = int(spare * manifest["sentences_per_second"])
    if found["left_out"] or count < 1:
        return found
    more = further_lines(lines.training, count, options.seed, frozenset(lines.held_out))
    if not more:
        return found
    manifest = distilled(more, folder / FURTHER, seconds=spare).manifest
    assert manifest is not None
    sums = {name: found[name] + manifest[name] for name in ("kept", "dropped", "tokens")}
    seconds = round(found["seconds"] + 60 * manifest["minutes"], 1)
    return {**found, **sums, "further": manifest["kept"], "seconds": seconds}


def corpus(decoded: Sequence[tuple[Translator, Path]], longest_target: int) -> BinarizedCorpus:
    """What was decoded, by whom and into which folder, as pairs of ids that both sides can be trained on."""
    pairs = []
    folders = [(translator, place) for translator, folder in decoded for place in (folder, folder / FURTHER)]
    for translator, folder in folders:
        if folder.name == FURTHER and not folder.is_dir():
            continue
        sources = translator.encode(list(read_lines(folder / "train.src")), warn=lambda said: None)
        targets = [[int(token) for token in line.split()] for line in read_lines(folder / "train.tgt")]
        pairs += [
            (source, target)
            for source, target in zip(sources, targets, strict=True)
            if len(source) <= LONGEST_SOURCE and len(target) < longest_target
        ]
    if not pairs:
        raise InputError("--source expects lines that the model has outputs for, found none that can be learnt from.")
    special = decoded[0][0].folder.special
    rows = [source for source, _ in pairs]  # as they are: some models' sources end in a language, not in EOS
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    ids = np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum()))
    return BinarizedCorpus(Side(ids, offsets_of(lengths), special), Side.of([target for _, target in pairs], special))
