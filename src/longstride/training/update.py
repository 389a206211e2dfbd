"""One update: the batches of a group forward and backward, gradients clipped, Adam's step. Never waits for the device.

The loss is a sum over target tokens and is divided by the number of target tokens of the whole update, over all its
batches and all processes; so neither accumulation nor the number of processes changes what is learned.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from longstride.contract import DTYPES, Loss, ModelFolderError, Objective, OptionError, Prepared
from longstride.training.distributed import Team
from longstride.training.options import TrainingOptions
from longstride.training.prefetch import Group

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Window:
    """Sums over the updates since the last record, kept on the device."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._sums: dict[str, Tensor] = {}
        self._tokens = 0

    def add(self, name: str, value: Tensor) -> None:
        """Add to a sum."""
        if name not in self._sums:
            self._sums[name] = torch.zeros((), dtype=torch.float64, device=self._team.device)
        self._sums[name].add_(value.detach())

    def count(self, tokens: int) -> None:
        """Count target tokens of this process."""
        self._tokens += tokens

    def totals(self) -> dict[str, float]:
        """The sums over all processes, `tokens` among them. Reads back from the device, in one go."""
        sums = torch.stack(list(self._sums.values())).tolist() if self._sums else []
        mine = {"tokens": float(self._tokens), **dict(zip(self._sums, sums, strict=True))}
        totals: dict[str, float] = {}
        for share in self._team.gather(mine):  # a process without batches has no sums: names are matched, not places
            for name, value in share.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def restore(self, totals: dict[str, float]) -> None:
        """Go on from earlier totals (the leading process holds them for all)."""
        mine = totals if self._team.leads else dict.fromkeys(totals, 0.0)
        self._tokens = int(mine.get("tokens", 0))
        self._sums = {
            name: torch.full((), value, dtype=torch.float64, device=self._team.device)
            for name, value in mine.items()
            if name != "tokens"
        }


def per_token(totals: dict[str, float]) -> dict[str, float]:
    """Sums divided by the tokens they run over, `tokens` left out; with an `nll` among them, the perplexity too."""
    tokens = max(1.0, totals["tokens"])
    figures = {name: value / tokens for name, value in totals.items() if name != "tokens"}
    if "nll" in figures:
        figures["ppl"] = math.exp(figures["nll"]) if figures["nll"] < 700 else math.inf
    return figures


class _Forward(nn.Module):
    """The loss as a module, which is what DistributedDataParallel wraps."""

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        super().__init__()
        self.model = model
        self._loss = loss

    def forward(self, prepared: Prepared) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed loss and the figures."""
        loss = self._loss(self.model, prepared)
        return loss.total, {name: figure.detach() for name, figure in loss.figures.items()}


class Updater:
    """Owns the optimizer and carries out updates."""

    def __init__(self, model: nn.Module, loss: LossFunction, options: TrainingOptions, team: Team) -> None:
        self._options = options
        self._team = team
        self._named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._parameters = list(self._named.values())
        self._optimizer = _adam(self._parameters, options)
        self._scaler = torch.amp.GradScaler(team.device.type, enabled=options.precision == "fp16")
        self._forward: nn.Module = _Forward(model, loss)
        if team.world > 1:
            self._forward = DistributedDataParallel(
                self._forward,
                gradient_as_bucket_view=True,
                find_unused_parameters=options.unused_parameters,
                **_constant_buffers(),
            )
        self.window = Window(team)
        self.norm = torch.zeros((), device=team.device)
        """global gradient norm of the last update, before clipping"""
        self.bad_streak = torch.zeros((), device=team.device)
        """non-finite updates in a row, up to the last one"""
        self.bad_updates = torch.zeros((), device=team.device)

    def autocast(self) -> torch.autocast:
        """The precision that forward passes run in."""
        dtype = DTYPES[self._options.precision]
        return torch.autocast(self._team.device.type, dtype, enabled=dtype != torch.float32)

    def apply(self, group: Group, rate: float) -> None:
        """Make one update at this learning rate."""
        weight = self._weight(group)
        for place, prepared in enumerate(group.batches):
            on_device = prepared.to(self._team.device)
            with self._unsynced(place < len(group.batches) - 1):
                with self.autocast():
                    total, figures = self._forward(on_device)
                self._scaler.scale(total * weight).backward()
            if not group.idle:
                self.window.add("loss", total)
                for name, figure in figures.items():
                    self.window.add(name, figure)
        self.window.count(group.tokens)
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = rate
        self._step()
        self._optimizer.zero_grad(set_to_none=True)

    def _weight(self, group: Group) -> float | Tensor:
        """What a summed loss is multiplied by; DistributedDataParallel divides by the number of processes again."""
        if self._team.world == 1:
            return 1.0 / max(1, group.tokens)
        # fp64 like the Python number above; filled on the device, because a copy would wait for it
        tokens = torch.full((), group.tokens, dtype=torch.float64, device=self._team.device)
        tokens = self._team.sum_(tokens).clamp_(min=1)
        return torch.zeros_like(tokens) if group.idle else self._team.world / tokens

    def _unsynced(self, more_to_come: bool) -> AbstractContextManager[Any]:
        if more_to_come and isinstance(self._forward, DistributedDataParallel):
            return self._forward.no_sync()
        return nullcontext()

    def _step(self) -> None:
        self._scaler.unscale_(self._optimizer)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        self.norm = torch.nn.utils.get_total_norm(gradients)
        if self._options.clip:
            torch.nn.utils.clip_grads_with_norm_(self._parameters, self._options.clip, self.norm)
        bad = (~torch.isfinite(self.norm)).float()
        self.bad_streak = (self.bad_streak + 1) * bad
        self.bad_updates = self.bad_updates + bad
        if not self._scaler.is_enabled():
            # The fused kernel leaves weights and moments alone where this is 1, without the host having to know.
            self._optimizer.found_inf = bad  # type: ignore[attr-defined]
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def tensors(self) -> dict[str, Tensor]:
        """Adam's state by kind and parameter name; parameters that never had a gradient have none."""
        states = self._optimizer.state
        return {
            f"{kind}/{name}": states[parameter][kind]
            for name, parameter in self._named.items()
            if parameter in states
            for kind in _MOMENTS
        }

    def scale_state(self) -> dict[str, Any]:
        """The loss scale (fp16 only), as plain data."""
        return dict(self._scaler.state_dict())

    def restore(self, tensors: dict[str, Tensor], scale_state: dict[str, Any], where: str) -> None:
        """Put back what `tensors` and `scale_state` gave."""
        adam: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            kind, _, name = key.partition("/")
            if kind in _MOMENTS:
                adam.setdefault(name, {})[kind] = tensor
        if unknown := [name for name in adam if name not in self._named]:
            raise ModelFolderError(f"{where}: found optimizer state for {unknown[0]!r}, which is not trained now.")
        for name, moments in adam.items():
            shapes = {kind: list(tensor.shape) for kind, tensor in moments.items()}
            shape = list(self._named[name].shape)
            if shapes != {"step": [], "exp_avg": shape, "exp_avg_sq": shape}:
                raise ValueError(f"expected optimizer state of shape {shape} for {name!r}, found {shapes}")
        state = self._optimizer.state_dict()
        order = [id(p) for entry in self._optimizer.param_groups for p in entry["params"]]
        places = {name: order.index(id(parameter)) for name, parameter in self._named.items()}
        state["state"] = {places[name]: moments for name, moments in adam.items()}
        self._optimizer.load_state_dict(state)
        if scale_state and self._scaler.is_enabled():
            self._scaler.load_state_dict(scale_state)


def _constant_buffers() -> dict[str, Any]:
    """Buffers such as tables of positions never change and need not be sent around; the option's name has changed."""
    names = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers": False}


def _adam(parameters: list[nn.Parameter], options: TrainingOptions) -> torch.optim.AdamW:
    adam = options.optimizer
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": adam.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if not adam.weight_decay:
        groups = [{"params": parameters, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=0.0, betas=(adam.beta1, adam.beta2), eps=adam.eps, fused=True
    )


LossFunction = Callable[[nn.Module, Prepared], Loss]


def compiled(
    model: nn.Module, objective: Objective, how: Literal["none", "layers", "loss"], backend: str = "inductor"
) -> LossFunction:
    """The objective's loss function, with the model or the function itself set to compile at its first call.

    A module says by `compile_unit = True` that it is worth a graph. Compiling each such unit by itself ("layers") takes
    seconds where the whole model takes minutes, because layers of one class share one graph; little is lost.
    """
    if how == "layers":
        units = [module for module in model.modules() if getattr(type(module), "compile_unit", False)]
        if not units:
            raise OptionError(
                "compile expects a model with compilable layers for 'layers', found none; use 'loss' or 'none'."
            )
        for unit in units:
            unit.compile(dynamic=True, backend=backend)
    if how == "loss":
        function: LossFunction = torch.compile(objective.loss, dynamic=True, backend=backend)
        return function
    return objective.loss


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled things eagerly: a validation is too short to pay for graphs of its own."""
    with torch.compiler.set_stance("force_eager"):
        yield
