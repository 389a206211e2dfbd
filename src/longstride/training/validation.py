"""How good the model is now: the objective's loss on held-out data, and what else a caller computes from a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from longstride.contract import BatchSource, Objective, OptionError
from longstride.training.distributed import Team
from longstride.training.options import TrainingOptions
from longstride.training.prefetch import generator_for
from longstride.training.progress import Progress, random_state, restore_random_state
from longstride.training.update import Window, per_token, uncompiled

LOSS = "loss"
"""The name of the validation by loss."""


@dataclass(frozen=True)
class Validator:
    """A named score, such as BLEU of real decodes. The function runs in the leading process alone."""

    name: str
    every: int
    """updates between two measurements; 0: at the end of each epoch"""
    higher_is_better: bool
    function: Callable[[nn.Module], float]
    """gets the model in evaluation mode, without gradients"""


class Validations:
    """All validations of a run, by name, and what their scores mean for it."""

    def __init__(
        self,
        objective: Objective,
        data: BatchSource | None,
        validators: Sequence[Validator],
        options: TrainingOptions,
        team: Team,
    ) -> None:
        self._objective = objective
        self._data = data
        self._validators = {validator.name: validator for validator in validators}
        self._options = options
        self._team = team
        self.names = ([LOSS] if data is not None else []) + list(self._validators)
        if len(self._validators) < len(validators) or LOSS in self._validators:
            given = ", ".join(validator.name for validator in validators)
            raise OptionError(f"validators expect names of their own, none of them {LOSS!r}, found {given}.")
        if (options.patience or options.keep_best) and options.monitor not in self.names:
            there = ", ".join(self.names) or "none"
            raise OptionError(f"monitor expects one of the validations there are ({there}), found {options.monitor!r}.")

    def every(self, name: str) -> int:
        """Updates between two measurements; 0: at the end of each epoch."""
        return self._options.validate_every if name == LOSS else self._validators[name].every

    def measure(self, name: str, model: nn.Module, autocast: torch.autocast) -> tuple[float, dict[str, float]]:
        """The value, and figures beside it. Every process takes part; the model is being evaluated (`evaluating`)."""
        if name == LOSS and self._data is not None:
            figures = loss_on(self._data, self._objective, model, self._team, self._options.seed, autocast)
            return figures.pop("loss"), figures
        value = float(self._validators[name].function(model)) if self._team.leads else 0.0
        return self._team.from_leader(value), {}

    def note(self, progress: Progress, name: str, value: float) -> bool:
        """Enter a score into the progress and say whether it is a new best; what is no number never is."""
        goodness, before = self._signed(name, value), progress.best.get(name)
        better = goodness > (-float("inf") if before is None else self._signed(name, before))
        progress.scores[name] = value
        if better:
            progress.best[name] = value
        if name == self._options.monitor:
            progress.scored_step = progress.step
            progress.waited = 0 if better else progress.waited + 1
        return better

    def goodness(self, progress: Progress) -> float | None:
        """The monitored score of this very update, greater is better; None where it was not measured."""
        if progress.scored_step != progress.step:
            return None
        goodness = self._signed(self._options.monitor, progress.scores[self._options.monitor])
        return goodness if goodness == goodness else None

    def _signed(self, name: str, value: float) -> float:
        return value if name != LOSS and self._validators[name].higher_is_better else -value


@contextmanager
def evaluating(model: nn.Module, device: torch.device, has_compiled: bool) -> Iterator[None]:
    """Evaluation mode, eager, without gradients; random generators and training mode are afterwards as before."""
    modes = {module: module.training for module in model.modules()}
    randomness = random_state(device)
    model.eval()
    try:
        with torch.no_grad(), uncompiled() if has_compiled else nullcontext():
            yield
    finally:
        restore_random_state(randomness, device)
        for module, mode in modes.items():
            module.training = mode


def loss_on(
    data: BatchSource, objective: Objective, model: nn.Module, team: Team, seed: int, autocast: torch.autocast
) -> dict[str, float]:
    """`loss` and figures per target token, the same random choices every time; shared among the processes."""
    window = Window(team)
    for index, batch in enumerate(data.epoch(0)):
        if index % team.world != team.rank:
            continue
        prepared = objective.prepare(batch, generator_for(seed, 0, index)).to(team.device)
        with autocast:
            loss = objective.loss(model, prepared)
        window.count(prepared.tokens)
        window.add("loss", loss.total)
        for name, figure in loss.figures.items():
            window.add(name, figure)
    return per_token(window.totals())
