"""The record of a profile: one decoder, its stages, what they take and the least they could take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from longstride.bench.record_parts import MemoryUse, ModelTag, Origin, Stage, WorkloadTag
from longstride.contract import Limits, OptionError


@dataclass(frozen=True)
class Profile:
    """Where one decoder's time goes on one test set at one batch size, and what it takes of memory.

    Stages are timed with the device synchronised before and after each: their shares mean something, their sum is more
    than a decode takes that runs through. What that takes, of the same sentences, is in `plain_us`.
    """

    kind: ClassVar[str] = "profile"

    origin: Origin
    candidate: str
    decoder: str
    """the decoder's signature"""
    model: ModelTag
    workload: WorkloadTag
    batch_size: int
    sentences: int
    """how many were decoded, once watched and once not"""
    plain_us: tuple[int, ...]
    """per batch, microseconds of a pass that nobody watched"""
    watched_us: int
    """the whole watched pass"""
    stages: tuple[Stage, ...]
    """in the order of their first calls"""
    bandwidth: float | None = None
    """bytes per second that a large copy on the device read and wrote; the floor of a stage is its weights over this"""
    device: str = ""
    precision: str = ""
    runtime: str = ""
    order: int = 0
    limits: Limits = field(default_factory=Limits)
    memory: MemoryUse = field(default_factory=MemoryUse)
    """of the pass that nobody watched, with this decoder alone loaded"""
    reserved: int | None = None
    """bytes of the device that PyTorch had taken at the highest, captured graphs and its reserve included"""
    options: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sentences < 1 or not self.plain_us:
            raise OptionError(f"'sentences' expects 1 or more, decoded in as many batches, found {self.sentences}.")
        if self.rest_us < 0:
            raise OptionError(
                f"'stages' expects no more microseconds than the whole pass took, {self.watched_us}, found "
                f"{self.watched_us - self.rest_us}."
            )

    @property
    def rest_us(self) -> int:
        """What of the watched pass belongs to no stage: the host's work, and the device's between stages."""
        return self.watched_us - sum(stage.microseconds for stage in self.stages if not stage.within)

    def floor_us(self, stage: Stage) -> float | None:
        """The least microseconds that a call takes whose weights come from memory once; none where unknown."""
        if not stage.weights or not self.bandwidth:
            return None
        return 1e6 * stage.weights / self.bandwidth


def with_weights(profile: Profile, read: Mapping[str, int]) -> Profile:
    """The same, with the bytes of weights that each stage reads in a call."""
    stages = tuple(replace(stage, weights=read.get(stage.name)) for stage in profile.stages)
    return replace(profile, stages=stages)
