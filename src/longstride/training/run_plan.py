"""What a run will be, said before it is made: how many updates it has, and which of its checkpoints are averaged."""

from __future__ import annotations

from pathlib import Path

from longstride.contract import BatchSource, OptionError
from longstride.training import checkpoints as stored
from longstride.training.options import TrainingOptions


def count_updates(options: TrainingOptions, data: BatchSource, world: int) -> int:
    """Of a whole run by so many processes."""
    if not options.epochs:
        return options.steps
    steps = sum(_updates_in(epoch, options, data, world) for epoch in range(options.epochs))
    return min(steps, options.steps) if options.steps else steps


def check_average(options: TrainingOptions, data: BatchSource, world: int, total: int) -> None:
    """Refuse a run whose last checkpoints lie too far apart to be averaged."""
    if options.average != "last" or not total:
        return
    if total - _oldest_of_last(options, data, world, total) > options.average_span * total:
        end, count, every = int(options.average_span * total), options.average_count, options.checkpoint_every
        told = f"checkpoint_every expects 1 to {end // (count - 1):,}", f"{every:,}" if every else "0, every epoch"
        if end < count - 1:
            told = f"average_count expects 1 to {end + 1}", f"{count}"
        raise OptionError(
            f"training.{told[0]}, so that all checkpoints that are averaged are of the last "
            f"{options.average_span:.0%} of {total:,} updates (training.average_span), found {told[1]}."
        )


def to_average(options: TrainingOptions, folder: Path, step: int) -> list[Path]:
    """The checkpoints of a run that ended after `step` updates whose mean is wanted."""
    count = options.average_count
    if options.average == "last":
        paths = list(stored.listed(folder).values())[-count:]
        centre = paths[-1]
    else:
        paths = stored.best(folder, count)
        centre = stored.best(folder, 1)[0]
    # What lies too far from the last or the best is left out: a run may stop early, or be best early.
    return [path for path in paths if abs(step_of(path) - step_of(centre)) <= options.average_span * step]


def step_of(checkpoint: Path) -> int:
    """The update that a checkpoint was saved after."""
    return int(checkpoint.name.removeprefix("step-"))


def _oldest_of_last(options: TrainingOptions, data: BatchSource, world: int, total: int) -> int:
    """The update of the oldest of the checkpoints that a whole run would average."""
    count, every = options.average_count, options.checkpoint_every
    if every:
        first = max(every, (total - 1) // every * every - every * count)
        saved: list[int] = [*range(first, total, every), total]
        return saved[-count:][0]
    ends: list[int] = [0]
    epoch = 0
    while ends[-1] < total:
        ends.append(min(total, ends[-1] + max(1, _updates_in(epoch, options, data, world))))
        epoch += 1
    return ends[1:][-count:][0]


def _updates_in(epoch: int, options: TrainingOptions, data: BatchSource, world: int) -> int:
    return -(-data.batches_in(epoch) // (options.accumulation * world))
