"""What every way of generating agrees on: source in, a table of slots that advances, hypotheses out.

A decoder sees token ids only; text is wrapped around it from outside. A decoder is immutable; what changes lives in the
session it starts. A session is a table with a fixed number of slots: sentences are admitted into free slots, all live
slots advance together, finished sentences are taken out and their slots given to the next ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from longstride.contract.errors import OptionError
from longstride.contract.options import Options, as_dict, option, value_text
from longstride.contract.running import Need, Runner
from longstride.contract.symbols import DEFAULT_IDS, PAD, SpecialIds
from longstride.contract.trace import Trace, TraceBuilder
from longstride.version import __version__


@dataclass(frozen=True)
class Prefixes:
    """What outputs begin with, whatever the model says; behind it the model goes on by itself."""

    ids: Tensor
    """[rows, longest] int64, in ids of the target, padded on the right"""
    lengths: Tensor
    """[rows] int64; 0: nothing is prescribed"""
    never_next: Tensor | None = None
    """[vocabulary] bool: ids that may not stand right behind a prefix, the same for all rows; None: any may"""

    @staticmethod
    def of(rows: Sequence[Sequence[int]], never_next: Tensor | None = None) -> Prefixes:
        """Pad rows of ids to a rectangle."""
        padded = Source.of(rows)
        return Prefixes(padded.ids, padded.lengths, never_next)

    def select(self, rows: Sequence[int] | slice) -> Prefixes:
        """Those of some rows, in this order."""
        return Prefixes(self.ids[rows], self.lengths[rows], self.never_next)


@dataclass(frozen=True)
class Source:
    """Source sentences as ids, padded on the right. Every sentence ends in EOS, which its length counts."""

    ids: Tensor
    """[rows, longest] int64"""
    lengths: Tensor
    """[rows] int64"""
    numbers: tuple[int, ...] | None = None
    """which sentence of the input each row is: random numbers belong to that; None: in the order they come, from 0"""
    drafts: Source | None = None
    """of each sentence a text that its output may be like, in ids of the target, for decoders that draft by it"""
    prefixes: Prefixes | None = None
    """of each sentence what its output begins with"""

    @staticmethod
    def of(
        sentences: Sequence[Sequence[int]], longest: int | None = None, numbers: Sequence[int] | None = None
    ) -> Source:
        """Pad sentences (each ending in EOS) to a rectangle, `longest` wide if given."""
        lengths = [len(sentence) for sentence in sentences]
        widest = max([longest or 0, *lengths])
        flat = array("q")  # with few calls to PyTorch: a server does this for one or two sentences at a time
        for sentence in sentences:
            flat.extend(sentence)
            flat.extend([PAD] * (widest - len(sentence)))
        ids = torch.frombuffer(flat, dtype=torch.int64) if flat else torch.zeros(0, dtype=torch.int64)
        counted = torch.tensor(lengths, dtype=torch.int64)
        return Source(ids.view(len(lengths), widest), counted, None if numbers is None else tuple(numbers))

    @property
    def rows(self) -> int:
        """How many sentences there are."""
        return self.ids.shape[0]

    @property
    def longest(self) -> int:
        """Width of the rectangle."""
        return self.ids.shape[1]

    def slice(self, first: int, last: int) -> Source:
        """The sentences `first` to `last` (exclusive)."""
        if first == 0 and last >= self.rows:
            return self  # two views less: a sentence at a time, it is always all of them
        drafts = None if self.drafts is None else self.drafts.slice(first, last)
        numbers = None if self.numbers is None else self.numbers[first:last]
        prefixes = None if self.prefixes is None else self.prefixes.select(slice(first, last))
        return Source(self.ids[first:last], self.lengths[first:last], numbers, drafts, prefixes)

    def select(self, rows: Sequence[int]) -> Source:
        """Some sentences, in this order."""
        chosen, numbers = list(rows), self.numbers
        if chosen == list(range(self.rows)):
            return self
        drafts = None if self.drafts is None else self.drafts.select(chosen)
        prefixes = None if self.prefixes is None else self.prefixes.select(chosen)
        numbers = numbers and tuple(numbers[row] for row in chosen)
        return Source(self.ids[chosen], self.lengths[chosen], numbers, drafts, prefixes)


TEXTS = 2**40
"""More than an input has."""


def sentence_number(text: int, part: int) -> int:
    """Of a line or sentence, by its text's place in the whole input and its own in the text, both from 0: what is drawn
    for it belongs to this number, so that no other text moves it, nor how an input is cut."""
    return text + part * TEXTS


@dataclass(frozen=True)
class Limits(Options):
    """How long outputs may be and what may never stand in them; the same for every decoder.

    Where they leave an output no token to go on with, and it may not end yet, it ends there with what it has; of a beam
    if no hypothesis has ended or can go on.
    """

    max_length: int = option(256, "No output is longer than this many tokens, EOS not counted.", least=1, most=10**6)
    max_ratio: float = option(
        2.0, "An output is at most this many times as long as its source, plus max_extra.", least=0, most=1000
    )
    max_extra: int = option(20, "See max_ratio.", least=0, most=10**6)
    min_length: int = option(
        0,
        "Every output has at least this many tokens, EOS not counted, unless other limits leave it none to go on with.",
        least=0,
        most=10**6,
    )
    banned: tuple[int, ...] = option((), "Token ids that may never be generated.", least=0, most=2**31 - 1)
    forced_first: int | None = option(
        None,
        "The first token of every output, whatever the model says; it counts like any other.",
        least=0,
        most=2**31 - 1,
    )
    forced_last: int | None = option(
        None,
        "The last token of every output that is as long as it may be, whatever the model says; it counts like any "
        "other.",
        least=0,
        most=2**31 - 1,
    )
    no_repeat_ngram: int = option(
        0,
        "No n-gram of this many tokens stands twice in an output, the decoder's start token counted (0: any may).",
        least=0,
        most=10**6,
    )
    max_repeats: int = option(
        0,
        "The same tokens stand at most this many times one after another, up to 16 tokens at a time (0: any number).",
        least=0,
        most=10**6,
    )
    prefixes: ClassVar[bool] = False
    """whether sentences may come with prefixes: tables that know them are others (:class:`PrefixLimits`)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_length > self.max_length:
            raise OptionError(f"min_length expects 0 to max_length ({self.max_length}), found {self.min_length}.")

    @property
    def watches_repeats(self) -> bool:
        """Whether what may follow hangs on what an output has said before."""
        return self.no_repeat_ngram > 0 or self.max_repeats > 0

    def longest_output(self, source_length: int) -> int:
        """The most tokens (EOS not counted) that the output of a source may have, whose length counts EOS."""
        by_source = int((source_length - 1) * self.max_ratio) + self.max_extra
        return min(self.max_length, max(1, self.min_length, by_source))

    def longest_outputs(self, source_lengths: Tensor) -> Tensor:
        """Per row, the most tokens (EOS not counted) its output may have, given source lengths that count EOS."""
        # As precisely as above, where tables get their room: 100 tokens at 0.29 are 29 in single precision, else 28.
        by_source = ((source_lengths - 1).double() * self.max_ratio).long() + self.max_extra
        return by_source.clamp(min=max(1, self.min_length), max=self.max_length)


@dataclass(frozen=True)
class PrefixLimits(Limits):
    """The same for sentences that may come with prefixes (:attr:`Source.prefixes`)."""

    prefixes: ClassVar[bool] = True

    @staticmethod
    def of(limits: Limits) -> Limits:
        """With all other limits as they are."""
        return limits if limits.prefixes else PrefixLimits(**vars(limits))


HARD_LIMITS = frozenset({"forced_first", "forced_last", "no_repeat_ngram", "max_repeats", "prefixes"})
"""Limits that only some decoders can obey; the others refuse them."""


@dataclass(frozen=True)
class Hypothesis:
    """One output: ids without EOS, the score it was ranked by and the log-probability of all its tokens and EOS."""

    tokens: list[int]
    score: float
    log_probability: float


@dataclass(frozen=True)
class Step:
    """One iteration over all slots, as tensors: nothing is read back unless a trace or a stream asks.

    They are good until the session advances again, which may write over them.
    Replaying the final writes of a sentence's steps gives its output in every system.
    """

    ticket: Tensor
    """[slots] the sentence each slot holds; meaningless where not active"""
    active: Tensor
    """[slots] bool: the slot took part in this iteration"""
    position: Tensor
    """[slots, width] output positions written, from 0; who does not know the length yet may leave gaps, which traces
    close when the sentence ends"""
    ids: Tensor
    """[slots, width] what was written there"""
    written: Tensor
    """[slots, width] bool: which of these columns count"""
    drafted: Tensor
    """[slots] tokens that were proposed for this iteration"""
    accepted: Tensor
    """[slots] how many of them stood"""
    final: bool = True
    """False: a later step may overwrite these positions"""
    calls: int = 1
    """Model calls this iteration made for the whole table"""
    draft: Tensor | None = None
    """[slots, block] what was proposed, the first `drafted` columns of each row; None where nothing ever is"""
    parents: Tensor | None = None
    """[slots, block] where drafts are trees, the parent of each of their tokens: 0 is the newest committed token, j + 1
    the draft's token j, counted from 0; None: each follows the one before"""
    when: Tensor | None = None
    """[slots, width] for writes that were held back: the iteration they belong to, counted from 0 for each sentence;
    None: this one"""


@dataclass(frozen=True)
class Finished:
    """A sentence taken out of a session: its ticket and its hypotheses, best first."""

    ticket: int
    hypotheses: list[Hypothesis]


@dataclass(frozen=True)
class Decoded:
    """The outputs of :meth:`Decoder.decode`, in the order of the source rows."""

    hypotheses: list[list[Hypothesis]]
    """per row, best first"""
    traces: list[Trace] | None = None
    """per row, when asked for; every statistic is derived from these"""
    calls: int = 0
    """model calls over the whole decode, encoders included"""
    iterations: int = 0
    """times the table advanced"""
    decoder: str = ""
    """name of the decoder that ran"""

    @property
    def tokens(self) -> list[list[int]]:
        """The best output of each row."""
        return [row[0].tokens for row in self.hypotheses]

    @property
    def scores(self) -> list[float]:
        """The score of the best output of each row."""
        return [row[0].score for row in self.hypotheses]


GROUP = 16
"""So many tables' worth of sentences are decoded by one session: they share a bucket of source lengths."""


def refilled_groups(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Sentences, by their lengths, in groups that a session of `capacity` slots decodes: the longest first."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    return [order[first : first + capacity * GROUP] for first in range(0, len(order), capacity * GROUP)]


class Session(ABC):
    """A table of slots in which sentences are decoded side by side."""

    capacity: int
    """How many sentences fit at once"""
    calls: int
    """Model calls so far"""
    portion: int = 1
    """Sentences had better be admitted in multiples of this, while there are more: such portions are captured"""

    @property
    def ahead(self) -> int:
        """Iterations that have begun and that :meth:`take_finished` has not looked at."""
        return 0

    @property
    def queued(self) -> int:
        """How many sentences may be admitted that wait for a slot."""
        return 0

    @property
    def group(self) -> int:
        """While more sentences are to come, so many should be admitted at once: a handful cost more to encode than a
        few idle slots do."""
        return max(1, self.capacity // 4)

    @property
    @abstractmethod
    def free(self) -> int:
        """How many slots are empty; where sentences wait for slots, how many more may."""

    @abstractmethod
    def admit(self, source: Source) -> list[int]:
        """Put up to `free` sentences into empty slots; the tickets name them from then on."""

    @abstractmethod
    def advance(self) -> Step:
        """One iteration for all live slots."""

    @abstractmethod
    def take_finished(self) -> list[Finished]:
        """Take the finished sentences out, freeing their slots. Reads a few integers per slot back."""

    @abstractmethod
    def cancel(self, ticket: int) -> None:
        """Give a sentence up, finished or not: its slot is free at once, and nothing more is heard of it."""

    def settle(self) -> None:  # noqa: B027 (a hint: most sessions keep their shape)
        """Told that no more sentences are to come: it may go on with fewer slots, if outputs stay the same or may vary
        with shapes anyway."""

    def close(self) -> None:  # noqa: B027 (a hint: most sessions keep nothing that others could use)
        """Told that it is no longer needed: all sentences have been taken out, and its table may serve another."""


Tell = Callable[[Sequence[tuple[int, list[Hypothesis]]]], None]
"""Told rows of a source that are done, with their hypotheses, best first."""


class Decoder(ABC):
    """A way of generating, with its options fixed. Immutable: sessions hold all that changes."""

    name: str
    special: SpecialIds = DEFAULT_IDS
    """of its model"""
    obeys: frozenset[str] = frozenset()
    """of the limits that not every decoder can obey (:data:`HARD_LIMITS`), those that this one does"""

    @property
    @abstractmethod
    def signature(self) -> str:
        """Names the decoder and all that could change its output, e.g. ``beam|width:5|fp16|v0.1.0``."""

    @abstractmethod
    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table of `capacity` slots for sources of at most `longest_source` tokens (EOS counted)."""

    def start_refilled(self, capacity: int, limits: Limits, longest_source: int, arriving: bool = False) -> Session:
        """The same for more sentences than slots, all of which are there or `arriving` a few at a time: it may take
        some in before slots are free (`free` says how many), and give them out an iteration late."""
        return self.start(capacity, limits, longest_source)

    def need(self, limits: Limits, longest_source: int) -> Need | None:
        """What such a table takes in memory, so that one without room is refused and not made; None: not much."""
        return None

    def suited(self, source: Source, limits: Limits, rows: int) -> Decoder:
        """The decoder for these sentences, so many side by side: this one, once it knows what it has to, or another."""
        return self.upcoming()

    def upcoming(self) -> Decoder:
        """The decoder of the next session: this one, unless it chooses among several."""
        return self

    @property
    def runs(self) -> list[str]:
        """Names of the decoders that the next session may be of."""
        return [self.name]

    def check_limits(self, limits: Limits) -> None:
        """Refuse limits that this decoder cannot obey: none is ignored in silence."""
        if self.special.eos in limits.banned:
            raise OptionError(f"banned may not hold the end-of-sentence id {self.special.eos}: no output could end.")
        for name in sorted(HARD_LIMITS):
            asked = getattr(limits, name)
            if asked != getattr(Limits, name) and name not in self.obeys:
                raise OptionError(f"The decoder {self.name} cannot obey {name}, found {asked}; greedy and beam can.")

    def begin(self, source: Source, limits: Limits, capacity: int) -> Session:
        """A session in which `capacity` of these sentences stand side by side; refused where memory is short."""
        if (need := self.need(limits, source.longest)) is not None:
            need.check(self.name, capacity)
        start = self.start if capacity == source.rows else self.start_refilled
        return start(capacity, limits, source.longest)

    def decode(
        self,
        source: Source,
        limits: Limits | None = None,
        capacity: int | None = None,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Decoded:
        """Decode all rows: admit, advance, collect. At most `capacity` sentences (default: all) stand side by side.

        `tell` hears of rows that are done, while a device may be at work on the others.
        """
        limits = limits or Limits()
        limits = limits if source.prefixes is None else PrefixLimits.of(limits)
        self.check_limits(limits)
        rows = source.rows  # asked for three times an iteration
        if rows == 0:
            return Decoded([], [] if trace else None)
        capacity = min(capacity or rows, rows)
        if (suited := self.suited(source, limits, capacity)) is not self:
            return suited.decode(source, limits, capacity, trace, tell)
        session = self.begin(source, limits, capacity)
        found: dict[int, list[Hypothesis]] = {}  # by ticket
        order: list[int] = []
        rows_of: dict[int, int] = {}  # by ticket
        builder = TraceBuilder(self.special.eos) if trace else None
        iterations = 0
        while len(found) < rows:
            waiting = rows - len(order)
            if waiting and session.free >= min(waiting, session.group):
                taken = min(waiting, session.free)
                if taken < waiting:
                    taken = taken - taken % session.portion or taken
                tickets = session.admit(source.slice(len(order), len(order) + taken))
                rows_of.update(zip(tickets, range(len(order), len(order) + taken), strict=True))
                order += tickets
            step = session.advance()
            iterations += 1
            if builder is not None:
                builder.add(step)
            done = session.take_finished()
            for finished in done:
                found[finished.ticket] = finished.hypotheses
            if done and tell is not None:
                tell([(rows_of[finished.ticket], finished.hypotheses) for finished in done])
            if len(order) == rows:
                session.settle()
        session.close()
        traces = [builder.trace(ticket) for ticket in order] if builder is not None else None
        iterations -= session.ahead
        return Decoded([found[ticket] for ticket in order], traces, session.calls, iterations, self.name)


__all__ = ["HARD_LIMITS", "Decoded", "Decoder", "Finished", "Hypothesis", "Limits", "Session", "Source", "Step"]


# --- signatures ------------------------------------------------------------------------------------------------------


Chosen = TypeVar("Chosen")
"""A decoder's options."""


def signature(name: str, options: Any, runner: Runner, without: Collection[str] = ()) -> str:
    """``beam|width:5|length_penalty:gnmt|strength:0.6|n_best:1|eager|fp16|v0.1.0``: every option, defaults included,
    but for those `without` which the output is the same."""
    settings = [f"{key}:{value_text(value)}" for key, value in as_dict(options).items() if key not in without]
    return "|".join([name, *settings, runner.name, runner.precision, f"v{__version__}"])


class Signed(Decoder, Generic[Chosen]):
    """A decoder with options, and a runner that carries its programs out: with its name, these tell its output."""

    def __init__(self, runner: Runner, options: Chosen) -> None:
        self.options = options
        self._runner = runner

    @property
    def signature(self) -> str:
        """Its name, every option and the runner."""
        return signature(self.name, self.options, self._runner)
