"""What the host reads of a beam's table, in memory that is made once: flags after every step, and the finished
hypotheses where a search has ended. Knows no search.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.search.beam import BeamTable
from longstride.verification.mirror import Mirror

ENDED = ("finished", "finished_length", "finished_tokens")


class Seen:
    """For a table whose tensors stay where they are: some of them move here first."""

    def __init__(self, table: BeamTable) -> None:
        device = table.done.device
        shapes = {name: (getattr(table, name).dtype, tuple(getattr(table, name).shape)) for name in ENDED}
        self._flags = Mirror({"done": (torch.bool, tuple(table.done.shape))}, device)
        self._ended = Mirror({"scores": (torch.float64, tuple(table.finished.shape)), **shapes}, device)
        for name, here in {**self._flags.here, **self._ended.here}.items():
            if name != "scores":
                setattr(table, name, here.copy_(getattr(table, name)))
        self.scores = self._ended.here["scores"]
        """[slots, width] of the finished hypotheses; for who works them out"""

    def done(self) -> list[bool]:
        """Per slot, as it is when the device has done all that was asked for."""
        self._flags.send()
        self._flags.wait()
        return self._flags.seen["done"].tolist()

    def finished(self) -> list[Tensor]:
        """Scores, log-probabilities and lengths [slots, width], tokens [slots, width, columns], until asked again"""
        self._ended.send()
        self._ended.wait()
        return [self._ended.seen[name] for name in ("scores", *ENDED)]
