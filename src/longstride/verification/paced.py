"""What has to be known of tables, devices and drafters whose blocks follow the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

SPARE = 2
"""Iterations without a draft that a drafter can make up for, beyond what a draft of its own brought."""


class Paced(Protocol):
    """What has to be known of a table."""

    @property
    def unread(self) -> bool:
        """Whether there are sentences that the drafter has not read yet."""

    def knows(self, block: int, window: int) -> bool:
        """Whether there was such an iteration."""

    def read_along(self) -> None:
        """Let the drafter read what it has not."""


@dataclass(frozen=True)
class Terms:
    """What has to be known of a session's device and drafter."""

    waits: bool
    """new sentences may still be being encoded when the host asks for the next iteration, which then seems longer"""
    learns: bool = False
    """the drafter has nothing to propose after an iteration without a draft, which it has not seen: what comes of its
    next one says nothing of its drafts"""
    window: int | None = None
    """tokens that the drafter may have missed at most, where it would have to make up for more of them"""
