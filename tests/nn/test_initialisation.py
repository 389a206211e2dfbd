from __future__ import annotations

import torch

from longstride.nn.transformer import scale_by_depth
from tests.models import tiny_model


def test_depth_scaling_divides_each_layers_products_and_nothing_else() -> None:
    drawn, scaled = tiny_model(decoder_layers=3), tiny_model(decoder_layers=3)
    scale_by_depth([scaled])
    for (name, before), after in zip(drawn.named_parameters(), scaled.parameters(), strict=True):
        depth = int(name.split(".")[2]) + 1 if ".layers." in name else 1
        linear = before.dim() > 1 and ".layers." in name
        assert torch.allclose(after, before * (depth**-0.5 if linear else 1.0), rtol=1e-12), name
