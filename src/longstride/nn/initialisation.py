"""Other ways to begin than drawing every layer alike. Knows no training."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from longstride.nn.transformer import Transformer


def scale_by_depth(models: Iterable[nn.Module]) -> None:
    """Divide the drawn weights of each Transformer layer by the square root of its depth, from 1.

    Where norms come last, layers drawn alike let gradients shrink towards the bottom of the stack, and a decoder
    takes thousands of updates to look at the source at all. (Zhang, Titov and Sennrich, 2019, section 4.)
    """
    for model in models:
        for transformer in (module for module in model.modules() if isinstance(module, Transformer)):
            for stack in (transformer.encoder, transformer.decoder):
                for depth, layer in enumerate(stack.layers, start=1):
                    _scale(layer, depth**-0.5)


def _scale(layer: nn.Module, factor: float) -> None:
    with torch.no_grad():
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(factor)
