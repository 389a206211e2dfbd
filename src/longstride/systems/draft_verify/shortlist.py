"""A lexical shortlist: the few words that a sentence is drafted with, by the words of its source.

On a processor the drafter's projection on a whole vocabulary is a tenth of an iteration, for some hundred words that a
translation could need. Vocabularies were cut by the source before (Jean et al. 2015; Marian's shortlists, CTranslate2's
vocabulary map), where what is not listed cannot be written. Here it cannot be drafted, and the verifier judges as ever:
outputs stay the same. Drafts get better by it: a table of pairs of words knows things that a small drafter does not.

    words [source ids, each]   what goes with each id of a source, the likeliest first, filled up with EOS
    usual [n]                  the most frequent ids of all

Both are ids of the verifier. A sentence's list is EOS, then the first words of all its ids, the second ones and so on,
then the usual ones, until it is full: a list that is walked, where the best of all by some score would be a sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from longstride.contract import DEFAULT_IDS, OptionError, SpecialIds, option
from longstride.contract.options import Options
from longstride.nn.transformer import Transformer

Integers = npt.NDArray[np.integer[Any]]

SIZE = 512
"""Words of a list. Twice as many brought hardly more tokens (docs/log.md, drafts from a shortlist)."""


@dataclass(frozen=True)
class ShortlistOptions(Options):
    """The sizes of a shortlist."""

    vocabulary: int = option(help="Target ids: the verifier's.", least=1, most=10**7)
    source_vocabulary: int = option(help="Source ids.", least=1, most=10**7)
    each: int = option(32, "Words for each id of a source.", least=1, most=1024)
    usual: int = option(SIZE, "Usual words, which fill a sentence's list up.", least=0, most=2**16)
    size: int = option(SIZE, "Words that a sentence is drafted with.", least=1, most=2**16)
    special: SpecialIds = option(DEFAULT_IDS, "The special ids of both vocabularies.")


class Shortlist(nn.Module):
    """Counted, not learnt: see :func:`longstride.systems.draft_verify.shortlist_counts.count`."""

    words: Tensor
    usual: Tensor

    def __init__(self, options: ShortlistOptions) -> None:
        super().__init__()
        self.options = options
        narrow = torch.int16 if options.vocabulary <= 1 << 15 else torch.int32
        for name, shape in (("words", (options.source_vocabulary, options.each)), ("usual", (options.usual,))):
            self.register_buffer(name, torch.full(shape, options.special.eos, dtype=narrow))

    def check_weights(self) -> None:
        """Refuse ids that the verifier does not have: what a file holds may be anything."""
        for name, ids in self.named_buffers():
            if not ids.numel():
                continue
            least, most = (int(found) for found in ids.aminmax())
            if least < 0 or most >= self.options.vocabulary:
                raise OptionError(
                    f"{name} expects ids from 0 to {self.options.vocabulary - 1}, found {least} to {most}; count the "
                    "shortlist again with longstride shortlist."
                )

    def check_fit(self, verifier: Transformer) -> None:
        """Refuse a verifier of other vocabularies."""
        mine, own = (self.options.source_vocabulary, self.options.vocabulary), verifier.options
        theirs = own.source_vocabulary or own.vocabulary, own.vocabulary
        if mine != theirs:
            raise OptionError(
                f"The shortlist expects vocabularies of {mine[0]} source and {mine[1]} target ids, found a model with "
                f"{theirs[0]} and {theirs[1]}; count one for this model with longstride shortlist."
            )


class Chooser:
    """Chooses lists of a drafter's own ids."""

    def __init__(self, shortlist: Shortlist, own_ids: Tensor | None, own_vocabulary: int, eos: int) -> None:
        """`own_ids` [vocabulary] has the drafter's id of each of the verifier's, where they differ; `eos` is its own.
        What it has none for stands under one id and takes one place."""
        words, usual = (one.long() if own_ids is None else own_ids[one.long()] for one in shortlist.buffers())
        self.size = min(shortlist.options.size, own_vocabulary)
        self._vocabulary = own_vocabulary
        self._words = words.to(torch.int32).numpy(force=True)
        # The first so many ids come last: with them there are always enough.
        self._rest = self._distinct(np.concatenate([usual.numpy(force=True), np.arange(self.size)]))
        self._eos = np.array([eos])

    def choose(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Source ids [rows, source] of so many tokens [rows] -> own ids [rows, size], all of a row different"""
        rows = zip(source.numpy(force=True), lengths.tolist(), strict=True)
        return torch.from_numpy(np.array([self._of(ids[:length]) for ids, length in rows]))

    def _of(self, ids: Integers) -> Integers:
        walked = self._words[ids].T.ravel()  # all first words, all second ones, ...
        return self._distinct(np.concatenate([self._eos, walked, self._rest]))

    def _distinct(self, ids: Integers) -> Integers:
        """The first so many of them, each once"""
        place = np.empty(self._vocabulary, np.int64)  # read where it was written alone
        order = np.arange(len(ids))
        place[ids[::-1]] = order[::-1]  # of several writes the last one stays: the first of equals
        found: Integers = ids[place[ids] == order][: self.size]
        return found
