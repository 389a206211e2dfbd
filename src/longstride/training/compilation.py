"""What torch.compile is asked to do. Knows no system: a module says by `compile_unit = True` that it is worth a graph.

Compiling each repeated unit by itself ("layers") takes seconds where the whole model takes minutes, because layers of
one class share one graph; what is lost lies between the layers and is little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

from longstride.contract import Loss, Objective, OptionError, Prepared

LossFunction = Callable[[nn.Module, Prepared], Loss]


def compiled(
    model: nn.Module, objective: Objective, how: Literal["none", "layers", "loss"], backend: str = "inductor"
) -> LossFunction:
    """The objective's loss function, with the model or the function itself set to compile at its first call."""
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
