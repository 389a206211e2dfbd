"""Candidate tables: counts made ready for lookup, and the words they propose for each place of a translation.

    P(y_t | x) = Σ_a P(y_t | x_a, a - t) · P(a | S, t)          a over the S source words and "none"

What unseen keys fall back on was settled when the tables were laid out (`counts`), so that proposing is nothing but
lookups, a sort and a choice, with no loop over places.

All arrays are integers, so a conversion to half precision leaves them alone, and probabilities are summed in fixed
point: candidates do not depend on the batch or on the order in which a device adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from longstride import ops
from longstride.contract import DEFAULT_IDS, OptionError, SpecialIds, option
from longstride.contract.options import Options
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice import kernels
from longstride.systems.lattice.candidates import Candidates, filled

ONE = 1 << 40
"""Probability 1 in fixed point."""
ID_BITS = 20
"""Bits of a word's id, which shares one integer with its sum when the best are chosen; ties go to the lower id."""
_LARGEST_ID = (1 << ID_BITS) - 1
NO_SOURCE = 0
"""The place in `places` and `drift` of target words that come from no source word."""


@dataclass(frozen=True)
class CountOptions(Options):
    """What is counted, and how much of it is kept."""

    keep: int = option(
        40, "Target words kept for each source word and distance, the most frequent ones.", least=1, most=255
    )
    reach: int = option(
        40, "Distances between target and source position are told apart up to this.", least=0, most=10**4
    )
    longest: int = option(
        128, "Positions are counted by length up to this many words a side, else over all lengths.", least=1, most=10**4
    )
    least: int = option(
        1, "Keys seen less often than this fall back on coarser ones; 1 is the paper's rule.", least=1, most=10**9
    )
    fewest: int = option(
        1,
        "Target words seen less often than this with a key are dropped, its most frequent aside.",
        least=1,
        most=10**9,
    )

    @property
    def slots(self) -> int:
        """Kinds of distance per source word: any (slot 0), then -reach to reach."""
        return 2 * self.reach + 2


@dataclass(frozen=True)
class TablesOptions(Options):
    """The sizes of candidate tables, and what they were made for."""

    vocabulary: int = option(help="Target ids.", least=1, most=_LARGEST_ID)
    source_vocabulary: int = option(help="Source ids.", least=1, most=_LARGEST_ID)
    tokenizer_sha256: str = option(help="Hash of the target tokenizer's file.")
    source_tokenizer_sha256: str = option(help="Hash of the source tokenizer's file.")
    entries: int = option(help="Target words kept, over all keys.", least=0, most=2**40)
    longest_source: int = option(help="Source words up to which positions were counted.", least=0, most=10**6)
    longest_target: int = option(help="Target words up to which positions were counted.", least=0, most=10**6)
    counted: CountOptions = option(factory=CountOptions, help="What was counted and kept.")
    length: LengthRegression = option(factory=LengthRegression, help="Target words by source words.")
    special: SpecialIds = option(DEFAULT_IDS, "The special ids of both vocabularies.")


class Tables(nn.Module):
    """Counts to look candidates up in; proposes words for any number of them and any K."""

    first: Tensor
    """[source ids · slots] where a key's words begin"""
    size: Tensor
    """[source ids · slots] how many words the key has"""
    total: Tensor
    """[source ids · slots] how often the key occurred, words that were cut off included"""
    words: Tensor
    """[entries + keep] target words, a key's most frequent one first; padded, so that reading on is harmless"""
    counts: Tensor
    """[entries + keep] how often the word occurred with the key"""
    places: Tensor
    """[S + 1, T, S + 1] as in Counts, unseen rows filled from `drift`"""
    drift: Tensor
    """[slots] as in Counts"""

    def __init__(self, options: TablesOptions) -> None:
        super().__init__()
        self.options = options
        keys = options.source_vocabulary * options.counted.slots
        narrow = torch.int16 if options.vocabulary <= 1 << 15 else torch.int32
        entries = options.entries + options.counted.keep
        source, target = options.longest_source, options.longest_target
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "first": ((keys,), torch.int32),
            "size": ((keys,), torch.uint8),
            "total": ((keys,), torch.int32),
            "words": ((entries,), narrow),
            "counts": ((entries,), torch.int32),
            "places": ((source + 1, target, source + 1), torch.int32),
            "drift": ((options.counted.slots,), torch.int32),
        }
        for name, (shape, dtype) in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=dtype))

    def check_weights(self) -> None:
        """Refuse numbers that would be looked up outside of the tables: what a file holds may be anything."""
        o = self.options
        largest = {"first": o.entries, "size": o.counted.keep, "words": o.vocabulary - 1}
        for name, values in self.named_buffers():
            if not values.numel():
                continue
            most = largest.get(name)
            low, high = (int(each) for each in values.aminmax())
            if low < 0 or (most is not None and high > most):
                upper = f"0 to {most}" if most is not None else "0 or more"
                raise OptionError(f"{name} expects numbers of {upper}, found {low if low < 0 else high}.")

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        """The k likeliest words at each of the first `columns` places; see CandidateSource."""
        if self.supports(source.shape[1], columns):
            return self.proposed(source, lengths, columns, k, None)
        slots, reach = self.options.counted.slots, self.options.counted.reach
        device = source.device
        a = torch.arange(source.shape[1], device=device)
        t = torch.arange(columns, device=device)
        slot = (a - t[:, None]).clamp(-reach, reach) + (reach + 1)
        key = source[:, None, :] * slots + slot
        # "None" is PAD in slot 0: [rows, columns, source words + 1]
        key = nn.functional.pad(key, (1, 0), value=self.options.special.pad * slots)
        return self.best(key, self.place_probabilities(lengths - 1, source.shape[1], columns), k)

    def supports(self, width: int, columns: int) -> bool:
        """Whether kernels propose for sources and outputs of such lengths: all that were counted by length."""
        o = self.options
        own_ids = kernels.know(o.special)
        return own_ids and ops.uses("candidates") and width <= o.longest_source and columns <= o.longest_target

    def proposed(self, source: Tensor, lengths: Tensor, columns: int, k: int, fallback: int | None) -> Candidates:
        """The same by kernels, with a word for columns that have none."""
        counted = self.options.counted
        tables = (self.first, self.size, self.total, self.words, self.counts, self.places)
        shape, fixed = (counted.slots, counted.reach, counted.keep), (ONE, ID_BITS)
        return kernels.proposed(source, lengths, tables, columns, k, shape, fixed, fallback)

    def place_probabilities(self, words: Tensor, width: int, columns: int) -> Tensor:
        """P(a | S, t): [rows, columns, 1 + width] float64, "none" first; S is words [rows], all below width."""
        a = torch.arange(1 + width, device=words.device)
        t = torch.arange(columns, device=words.device)
        longest, last = self.options.longest_source, self.options.longest_target - 1
        if width <= longest and columns <= last + 1:  # places beyond S are 0 in the table
            row = words[:, None] * (last + 1) + t
            counts = self.places.view(-1)[row[:, :, None] * (longest + 1) + a]
        else:
            row = words.clamp(max=longest)[:, None] * (last + 1) + t.clamp(max=last)
            counts = self.places.view(-1)[row[:, :, None] * (longest + 1) + a.clamp(max=longest)]
            counted = (words <= longest)[:, None] & (t <= last)
            counts = torch.where(counted[:, :, None], counts, self._drifted(words, a, t))
            counts = counts.masked_fill(a > words[:, None, None], 0)
        weights = counts.double()
        return weights / weights.sum(-1, keepdim=True).clamp(min=1.0)

    def _drifted(self, words: Tensor, a: Tensor, t: Tensor) -> Tensor:
        """The counts of all lengths together: [rows, columns, len(a)]."""
        reach = self.options.counted.reach
        expected = ((t + 0.5).double() * words[:, None] / self.options.length.words(words)[:, None]).floor().long()
        slot = (a - 1 - expected[:, :, None]).clamp(-reach, reach) + (reach + 1)
        return self.drift[slot.masked_fill(a == NO_SOURCE, NO_SOURCE)]

    def best(self, key: Tensor, weight: Tensor, k: int) -> Candidates:
        """The k words with the largest Σ weight · P(y | key), both [rows, columns, keys]."""
        ranks = torch.arange(self.options.counted.keep, device=key.device)
        scale = weight * ONE / self.total[key].clamp(min=1)
        kept = self.size[key].masked_fill(weight == 0, 0)
        entry = self.first[key].long()[..., None] + ranks
        # Rounded up, so that no word whose probability is not 0 is lost.
        amounts = (self.counts[entry] * scale[..., None]).ceil().long()
        amounts = amounts.masked_fill(ranks >= kept[..., None], 0)
        return best_sums(self.words[entry].flatten(2), amounts.flatten(2), k, self.options.special.pad)


@final
class SharedVocabulary:
    """One reduced vocabulary for the whole sentence, the same at every place: what the paper improves on.

    L'Hostis et al. (2016) join the likeliest translations of every source word. So that K means the same in every
    construction, the K words kept are those of the largest mean P(y | x_a) over the source words.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        """The k likeliest words of the sentence, in every column; see CandidateSource."""
        words = (lengths - 1)[:, None, None]
        inside = torch.arange(source.shape[1], device=source.device) < words
        any_distance = source[:, None, :] * self._tables.options.counted.slots
        found = self._tables.best(any_distance, inside.double() / words.clamp(min=1), k)
        shape = (len(source), columns, k)
        return Candidates(found.ids.expand(shape), found.log_scores.expand(shape))


def best_sums(words: Tensor, amounts: Tensor, k: int, pad: int) -> Candidates:
    """Add up the fixed-point amounts of equal words and choose the k largest sums. Both: [rows, columns, entries]."""
    words, order = words.sort(dim=-1)
    sums = amounts.gather(-1, order).cumsum(-1)
    # A word's sum is what has come together at its last entry less what had at the last entry of the word before.
    last = nn.functional.pad(words[..., 1:] != words[..., :-1], (0, 1), value=True)
    before = nn.functional.pad((sums * last).cummax(-1).values[..., :-1], (1, 0))
    ranked = (((sums - before) << ID_BITS) + (_LARGEST_ID - words.long())) * last
    best = ranked.topk(min(k, ranked.shape[-1]), dim=-1).values
    found = ((best >> ID_BITS).double() / ONE).log().float()  # a sum of 0 is no candidate: -inf
    return filled(_LARGEST_ID - (best & _LARGEST_ID), found, k, pad)
