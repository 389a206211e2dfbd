"""The one training loop: updates, records, validations and checkpoints in their order, resumable at every update.

It knows an objective and its data only by the contract, prints nothing (a reporter hears everything) and writes to one
folder: `metrics.jsonl`, `checkpoints/` and, if asked, `tensorboard/`. Within an update nothing waits for the device;
the host reads back only for records, validations and checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from longstride.contract import BatchSource, ModelFolderError, Objective, OptionError, UsageError, WorkError
from longstride.contract.options import as_dict
from longstride.training import checkpoints as stored
from longstride.training.checkpoints import Checkpoint, Checkpoints, average
from longstride.training.distributed import Team, alone
from longstride.training.metrics import (
    MetricsFile,
    Record,
    Reporter,
    Silent,
    TensorBoard,
    TrainingRecord,
    ValidationRecord,
)
from longstride.training.naming import freeze, load_weights, named_state
from longstride.training.options import TrainingOptions
from longstride.training.pace import Pace
from longstride.training.prefetch import Group, Prefetch, groups
from longstride.training.progress import (
    Clock,
    Progress,
    StopRequest,
    random_state,
    restore_random_state,
    seed_everything,
)
from longstride.training.run_plan import check_average, count_updates, step_of, to_average
from longstride.training.update import Updater, compiled, per_token
from longstride.training.validation import Validations, Validator, evaluating

Reason = Literal["finished", "patience", "interrupted", "time"]

_STEADY_FROM = 100
"""Updates of a process that compile, warm up and fill caches, and are left out of the steady rate."""
_AGREE_EVERY = 10
"""Updates after which several processes ask each other whether to stop, since asking waits for the device."""
_FP16_BAD_UPDATES = 40
"""Finding the loss scale takes that many overflows at worst; they are no sign of trouble."""


@dataclass(frozen=True)
class Result:
    """How a run ended. All weights are in the model that was given."""

    reason: Reason
    step: int
    epoch: int
    tokens: int
    """target tokens trained on, resumed parts included"""
    seconds: float
    """wall time, resumed parts included"""
    tokens_per_second: float
    """of this process's part of the run, everything included: start, compilation, validation, checkpoints"""
    steady_tokens_per_second: float | None
    """of its updates after the hundredth, validation and checkpoint pauses excluded; None for shorter runs"""
    best: dict[str, float]
    scores: dict[str, float]
    """each validation's last value"""
    checkpoint: Path
    averaged: tuple[int, ...] = ()
    """steps of the checkpoints whose mean the model now holds; empty: the last weights as they are"""
    peak_memory: int | None = None
    """most bytes of device memory in use at once (CUDA only)"""
    figures: Mapping[str, float] = field(default_factory=dict)
    """what the objective reported beside the loss when this process last validated by it, per target token"""

    @property
    def interrupted(self) -> bool:
        """Whether someone asked the run to stop before its end."""
        return self.reason == "interrupted"


class Trainer:
    """Trains one model once. With several processes each makes a trainer with its own team and the same arguments."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        data: BatchSource,
        options: TrainingOptions,
        folder: Path,
        device: torch.device | str = "cpu",
        *,
        validation: BatchSource | None = None,
        validators: Sequence[Validator] = (),
        reporter: Reporter | None = None,
        team: Team | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`pace` says how many updates there are, in the place of the options, and may change while they are made."""
        self._team = team or alone(torch.device(device))
        self._device = self._team.device
        self._model = model.to(self._device).train()
        self._objective = objective
        self._data = data
        self._options = options
        self._folder = folder
        self._figures: Mapping[str, float] = {}
        self._validations = Validations(objective, validation, validators, options, self._team)
        self._reporter: Reporter = (reporter or Silent()) if self._team.leads else Silent()
        freeze(model, options.freeze)
        loss = compiled(model, objective, options.compile)
        self._updater = Updater(model, loss, options, self._team)
        self._total = count_updates(options, data, self._team.world)
        check_average(options, data, self._team.world, self._total)
        self._schedule = options.schedule.for_run(self._total)
        self._pace = pace
        self._progress = Progress()
        self._made = 0
        self._saved = -1

    @property
    def total_steps(self) -> int:
        """Updates of the whole run."""
        return self._pace.updates(self._progress.step) if self._pace else self._total

    def run(self, resume: bool = False) -> Result:
        """Train to the end, or until asked to stop. With `resume`, go on from the newest checkpoint if there is one."""
        newest = self._newest()
        if newest and not resume:
            raise UsageError(f"{self._folder} already holds a run ({newest.name}): resume it or choose another folder.")
        self._clock = Clock(self._device)
        options = self._options
        seed_everything(options.seed, self._team.rank)
        if newest:
            self._restore(newest)
        if self._team.leads:
            self._checkpoints = Checkpoints(self._folder / "checkpoints", options.keep, options.keep_best)
            self._metrics = MetricsFile(self._folder / "metrics.jsonl", self._progress.records)
            if options.tensorboard:
                self._reporter = TensorBoard(self._folder / "tensorboard", self._progress.step, self._reporter)
        if newest:
            self._reporter.message(f"Going on from update {self._progress.step}.")
        self._logged_at, self._logged_tokens, self._logged_made = 0.0, self._tokens(), 0
        self._first_tokens = self._logged_tokens
        self._steady_mark: tuple[float, int] | None = None
        source = groups(
            self._data,
            self._objective,
            self._team,
            options.accumulation,
            options.seed,
            self._progress.epoch,
            self._progress.batch,
            self._progress.step,
            max(1, self._total),
        )
        with StopRequest() as stop, Prefetch(source, options.prefetch, self._device) as stream:
            reason = self._train(stop, stream)
        return self._finish(reason)

    def _train(self, stop: StopRequest, stream: Prefetch) -> Reason:
        progress, options, validations = self._progress, self._options, self._validations
        if progress.pending and self._run_validations(progress.pending):
            self._save()
        reason = self._over()
        while reason is None:
            group = stream.next()
            step = progress.step + 1
            rate = self._schedule.rate(self._pace.place(step) if self._pace else step)
            self._updater.apply(group, rate)
            progress.advance(group)
            self._made += 1
            if self._pace:
                self._pace.look(progress.step, progress.seconds + self._clock.working)
            last = self._at_end()
            if progress.step % options.log_every == 0 or last:
                self._log(rate)
            if self._made == _STEADY_FROM:
                self._clock.settle()
                self._steady_mark = (self._clock.working, self._tokens())
            save = last or self._due(options.checkpoint_every, group)
            due = [name for name in validations.names if last or self._due(validations.every(name), group)]
            if asked := self._asked_to_stop(stop):
                progress.pending = due
                self._save(lasting=save)
                return asked
            if due:
                save |= self._run_validations(due)
            reason = self._over()
            if save or reason is not None:
                self._save()
        return reason

    def _finish(self, reason: Reason) -> Result:
        if self._saved != self._progress.step:  # resumed at its end, with validations left to do
            self._save()
        self._clock.settle()
        progress, tokens = self._progress, self._tokens()
        steady = None
        if self._steady_mark and self._made > _STEADY_FROM:
            since, before = self._steady_mark
            steady = (tokens - before) / (self._clock.working - since)
        averaged: tuple[int, ...] = ()
        if self._team.leads:
            self._checkpoints.wait()
            if self._options.average != "none" and reason in ("finished", "patience"):
                paths = to_average(self._options, self._folder / "checkpoints", progress.step)
                load_weights(self._model, average(paths), str(self._folder / "checkpoints"))
                averaged = tuple(map(step_of, paths))
        self._team.gather(None)  # nobody leaves before the last checkpoint is on disk
        return Result(
            reason=reason,
            step=progress.step,
            epoch=progress.epoch,
            tokens=tokens,
            seconds=progress.seconds + self._clock.elapsed,
            tokens_per_second=(tokens - self._first_tokens) / self._clock.elapsed,
            steady_tokens_per_second=steady,
            best=dict(progress.best),
            scores=dict(progress.scores),
            checkpoint=self._folder / "checkpoints" / f"step-{progress.step:08d}",
            averaged=averaged,
            peak_memory=torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None,
            figures=self._figures,
        )

    # Deciding when

    def _at_end(self) -> bool:
        progress, options = self._progress, self._options
        return progress.step >= self.total_steps or bool(options.epochs and progress.epoch >= options.epochs)

    def _over(self) -> Reason | None:
        if self._at_end():
            return "finished"
        if self._options.patience and self._progress.waited >= self._options.patience:
            return "patience"
        return None

    def _asked_to_stop(self, stop: StopRequest) -> Reason | None:
        if self._team.world > 1 and self._made % _AGREE_EVERY:
            return None
        if self._team.any(stop.made):
            return "interrupted"
        limit = self._options.max_minutes * 60
        return "time" if limit and self._team.any(self._clock.elapsed >= limit) else None

    def _due(self, every: int, group: Group) -> bool:
        return self._progress.step % every == 0 if every else group.ends_epoch

    # Telling

    def _tokens(self) -> int:
        return self._progress.tokens + int(self._updater.window.totals()["tokens"])

    def _log(self, rate: float) -> None:
        updater, progress = self._updater, self._progress
        totals = updater.window.totals()  # the one place where the loop waits for the device
        norm, streak, bad = torch.stack([updater.norm.float(), updater.bad_streak, updater.bad_updates]).tolist()
        now, tokens = self._clock.working, progress.tokens + int(totals["tokens"])
        spent, made = max(1e-9, now - self._logged_at), max(1, self._made - self._logged_made)
        figures = per_token(totals)
        record = TrainingRecord(
            step=progress.step,
            total_steps=self.total_steps,
            epoch=progress.epoch,
            loss=figures.pop("loss"),
            figures=figures,
            learning_rate=rate,
            gradient_norm=norm,
            tokens=tokens,
            bad_updates=int(bad),
            tokens_per_second=(tokens - self._logged_tokens) / spent,
            elapsed=progress.seconds + self._clock.elapsed,
            remaining=spent / made * max(0, self.total_steps - progress.step),
        )
        self._logged_at, self._logged_tokens, self._logged_made, progress.tokens = now, tokens, self._made, tokens
        updater.window.restore({})
        self._tell(record)
        limit = self._options.max_bad_updates
        limit = max(limit, _FP16_BAD_UPDATES) if self._options.precision == "fp16" else limit
        if streak >= limit:
            raise WorkError(
                f"update {progress.step}: expected finite gradients, found {int(streak)} updates in a row without; "
                "the weights are those before them (a lower peak rate, clipping or bf16 may help)."
            )

    def _tell(self, record: Record) -> None:
        if self._team.leads:
            self._metrics.write(record)
        self._reporter.record(record)

    # Validating

    def _run_validations(self, names: Sequence[str]) -> bool:
        """Measure, record, and say whether the weights now are among the best that are kept."""
        progress = self._progress
        with self._clock.pause(), evaluating(self._model, self._device, self._options.compile != "none"):
            for name in names:
                began = time.perf_counter()
                value, figures = self._validations.measure(name, self._model, self._updater.autocast())
                best = self._validations.note(progress, name, value)
                self._figures = figures or self._figures
                seconds = time.perf_counter() - began
                self._tell(ValidationRecord(progress.step, progress.epoch, name, value, best, seconds, figures))
        progress.pending = []
        goodness = self._validations.goodness(progress)
        if goodness is None or not self._options.keep_best:
            return False
        return self._team.any(self._team.leads and self._checkpoints.would_keep(goodness))

    # Keeping

    def _newest(self) -> Path | None:
        """The checkpoint to go on from, as the leading process sees the disk."""
        paths = stored.listed(self._folder / "checkpoints")
        step = int(self._team.from_leader(max(paths, default=-1)))
        return self._folder / "checkpoints" / f"step-{step:08d}" if step >= 0 else None

    def _save(self, lasting: bool = True) -> None:
        progress, step = self._progress, self._progress.step
        with self._clock.pause():
            randomness = self._team.gather(random_state(self._device))
            window = self._updater.window.totals()
            if self._team.leads:
                seconds = progress.seconds + self._clock.elapsed
                noted = {**progress.as_dict(), "window": window, "seconds": seconds, "records": self._metrics.records}
                training = self._updater.tensors()
                for rank, states in enumerate(randomness):
                    training |= {f"random/{rank}/{name}": state for name, state in states.items()}
                state = {
                    "progress": noted,
                    "scale": self._updater.scale_state(),
                    "seed": self._options.seed,
                    "options": as_dict(self._options),
                }
                goodness, weights = self._validations.goodness(progress), named_state(self._model)
                self._checkpoints.save(Checkpoint(step, weights, training, state, goodness, lasting))
        self._saved = step
        self._reporter.message(f"Checkpoint of update {step}.")

    def _restore(self, path: Path) -> None:
        try:
            checkpoint = stored.load(path)
            if missing := {"progress", "scale", "seed"} - checkpoint.state.keys():
                raise ModelFolderError(f"{path}: expected {sorted(missing)} in the checkpoint's state, found none.")
            noted, scale, seed = (checkpoint.state[name] for name in ("progress", "scale", "seed"))
            progress = Progress.from_dict(noted, str(path))
        except ModelFolderError as error:
            raise stored.damaged(path, error) from None
        if seed != self._options.seed:
            raise OptionError(f"seed expects {seed}, as the run in {self._folder} has it, found {self._options.seed}.")
        load_weights(self._model, checkpoint.model, str(path))
        self._progress = progress
        prefix = f"random/{self._team.rank}/"
        states = {name.removeprefix(prefix): t for name, t in checkpoint.training.items() if name.startswith(prefix)}
        try:
            self._updater.restore(checkpoint.training, scale, str(path))
            self._updater.window.restore(progress.window)
            if states:  # else this run has more processes than the one that was stopped, and the new ones start seeded
                restore_random_state(states, self._device)
        except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
            raise stored.damaged(path, error) from None  # numbers that neither optimizer nor generators take
        self._saved = checkpoint.step if not self._progress.pending else -1
