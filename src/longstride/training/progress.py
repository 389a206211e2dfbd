"""Where a run stands: the few numbers that a checkpoint keeps so that a resumed run goes on as if never stopped."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from longstride.contract import ModelFolderError
from longstride.training.prefetch import Group


@dataclass
class Progress:
    """Counters and scores; plain data."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """batches of this epoch already used, by all processes together"""
    tokens: int = 0
    """target tokens of all updates up to the last training record"""
    seconds: float = 0.0
    """wall time of the processes that worked on this run before"""
    records: int = 0
    """lines of the metrics file"""
    window: dict[str, float] = field(default_factory=dict)
    """sums since the last training record"""
    best: dict[str, float] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    """each validation's last value"""
    scored_step: int = -1
    """when the monitored validation last ran"""
    waited: int = 0
    """validations of the monitor since its best"""
    pending: list[str] = field(default_factory=list)
    """validations that were due when the run was asked to stop"""

    def advance(self, group: Group) -> None:
        """Count one update."""
        self.step += 1
        self.epoch, self.batch = (group.epoch + 1, 0) if group.ends_epoch else (group.epoch, group.after)

    def as_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Any, where: str) -> Progress:
        """From a checkpoint."""
        known = asdict(Progress())
        if not isinstance(values, dict) or values.keys() != known.keys():
            raise ModelFolderError(f"{where}: expected progress fields {sorted(known)}, found others.")
        for name, default in known.items():
            kinds = (int, float) if isinstance(default, float) else type(default)
            if isinstance(values[name], bool) or not isinstance(values[name], kinds):
                raise ModelFolderError(f"{where}: expected progress.{name} like {default!r}, found {values[name]!r}.")
        return Progress(**values)
