"""Encoders that are not trained: read as they will be when decoding, and without keeping what only training needs."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.nn.transformer import Transformer


def encode(model: Transformer, source: Tensor, visible: Tensor | None) -> Tensor:
    """[rows, source, width]; an encoder that is wholly frozen reads without dropout and keeps no gradients."""
    encoder, dropout = model.encoder, model.dropout
    if any(weight.requires_grad for weight in encoder.parameters()):
        return model.encode(source, visible)
    was = dropout.training
    encoder.eval()
    dropout.eval()
    with torch.no_grad():
        memory = model.encode(source, visible)
    dropout.train(was)
    return memory
