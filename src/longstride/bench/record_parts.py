"""What records are made of: where one comes from, what it is about, what traces add up to, what was compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from longstride.bench.machine import Machine
from longstride.tasks.bootstrap import Comparison

Role = Literal["baseline", "candidate"]
BatchKind = Literal["closed", "open"]
"""Closed batches are decoded to their end; in open ones, sentences take the places of those that are done."""


@dataclass(frozen=True)
class Origin:
    """Where, when and by which code a record came about."""

    experiment: str
    """what this belongs to; a later run of the same experiment replaces it in reports"""
    run: str
    """names one run of one process: ratios are taken within a run only"""
    date: str
    """when it began, ISO 8601 in UTC"""
    commit: str
    dirty: bool
    """whether the code had changes that are not in the commit"""
    version: str
    """Longstride's"""
    machine: Machine = field(default_factory=Machine)


@dataclass(frozen=True)
class ModelTag:
    """Which weights."""

    name: str
    hash: str = ""


@dataclass(frozen=True)
class WorkloadTag:
    """Which test set, and how many sentences it has in all."""

    name: str
    hash: str
    size: int


@dataclass(frozen=True)
class Counts:
    """What the traces add up to, over all sentences of a record."""

    iterations: int
    """how often sentences advanced"""
    calls: int
    """model calls, encoders included"""
    tokens: int
    """output tokens without EOS"""
    tokens_with_eos: int
    """tokens made final, EOS counted"""
    drafted: int = 0
    accepted: int = 0
    drafted_at: tuple[int, ...] = ()
    """how many iterations drafted at least 1, 2, ... tokens"""
    reached_at: tuple[int, ...] = ()
    """how many of these accepted all tokens before the 1st, 2nd, ..."""
    accepted_at: tuple[int, ...] = ()
    """how many iterations accepted at least 1, 2, ... of them"""
    committed: tuple[int, ...] = ()
    """how many iterations made 0, 1, 2, ... tokens final"""
    verified: int | None = None
    """how many iterations had a draft to verify; none: the record is older than this figure"""
    verified_tokens: int | None = None
    """tokens that these made final, EOS counted"""

    @property
    def tokens_per_iteration(self) -> float | None:
        """As the GAD paper counts: the verifier's own tokens counted, EOS not."""
        return self.tokens / self.iterations if self.iterations else None

    @property
    def mean_block(self) -> float | None:
        """Tokens made final per iteration that had a draft; where nothing was ever drafted, per iteration.

        An iteration that only proposes is left out, so that one head gives 1.00, as the blockwise paper counts.
        """
        if not self.drafted:
            return self.tokens_with_eos / self.iterations if self.iterations else None
        if not self.verified or self.verified_tokens is None:
            return None
        return self.verified_tokens / self.verified


@dataclass(frozen=True)
class MemoryUse:
    """Bytes at the highest during one pass of the candidate, and before it, with all candidates loaded."""

    device_held: int | None = None
    device_peak: int | None = None
    host_held: int | None = None
    host_peak: int | None = None


@dataclass(frozen=True)
class Preparation:
    """What a person waits for before the first sentence: the candidate's warm-up, and what was captured in it.

    Candidates of one model share what can be shared: each is charged what its own warm-up added.
    """

    seconds: float
    """of the whole warm-up"""
    capture_seconds: float | None = None
    """of these, spent capturing or compiling steps; this and what follows: none where the runtime captures nothing"""
    graphs: int | None = None
    """captured"""
    graph_bytes: int | None = None
    """device memory that these hold"""
    table_bytes: int | None = None
    """device memory of the tables that were made for them"""


@dataclass(frozen=True)
class Equality:
    """How many outputs differ, id by id, from those of another candidate of the same run."""

    reference: str
    compared: int
    differing: int
    first: tuple[int, ...] = ()
    """the first few sentences that differ, as places in the workload"""


@dataclass(frozen=True)
class Against:
    """A paired bootstrap against a baseline of the same run, over the sentences both decoded."""

    baseline: str
    sentences: int
    comparison: Comparison


@dataclass(frozen=True)
class Mismatch:
    """Where one output leaves greedy's: the first token that differs, EOS counted as a token."""

    sentence: int
    """its place in the workload"""
    position: int
    """in the output, from 0"""
    found: int
    """the id that was written"""
    expected: int
    """the id that greedy wrote"""
    margin: float
    """by how much the best log-probability there exceeds the second best, after the prefix that both share"""


@dataclass(frozen=True)
class Agreement:
    """How many outputs are greedy's own, id by id."""

    reference: str
    """which greedy, in words"""
    sentences: int
    differing: int
    mismatches: tuple[Mismatch, ...] = ()
    """all of them, unless there are very many"""


@dataclass(frozen=True)
class Curve:
    """One line of a figure: a value for each place on its axis."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Stage:
    """One stage of a profile: a program, or the recording of several, by its own name."""

    name: str
    calls: int
    """in the whole pass"""
    microseconds: int
    """of all calls together"""
    weights: int | None = None
    """bytes of weights that a call has to read; none where nobody knows"""
    within: str = ""
    """the recording that it is part of, which counts its time too"""
