"""Timestamps inside captured graphs, so that a recording can be taken apart: CUDA events that the graph itself records.

They cost a recording a little time: whoever wants them asks for them, and what nobody watches goes without.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Marks(Protocol):
    """Whoever can put timestamps into what is being captured."""

    def capturing(self) -> bool:
        """Whether what runs now is captured: only then is a mark one of the recording's."""

    def mark(self) -> Any:
        """A timestamp here, anew each time the recording is repeated."""

    def nanoseconds(self, first: Any, last: Any) -> int:
        """From one mark to another, in the last repetition; the device has been waited for."""


class CudaMarks:
    """Events of CUDA's; `external` ones become part of a graph."""

    def capturing(self) -> bool:
        """Of the current stream."""
        return torch.cuda.is_current_stream_capturing()

    def mark(self) -> Any:
        """An event on the current stream."""
        event = torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def nanoseconds(self, first: Any, last: Any) -> int:
        """As the device's own clock has it."""
        milliseconds: float = first.elapsed_time(last)
        return max(0, round(1e6 * milliseconds))
