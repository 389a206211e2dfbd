"""Where a decoder looked in its source for each token of a given output: which words became which."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.nn.layers import CrossAttention
from longstride.nn.transformer import Transformer


def cross_attention(model: Transformer, ids: Tensor, memory: Tensor, visible: Tensor) -> Tensor:
    """The mean of all heads and layers, [rows, target, source]: weights with which the token behind each of the
    decoder's inputs, ids [rows, target], was chosen; memory [rows, source, width], visible [rows, source] bool."""
    x, mask = model.embedded(ids)
    found = torch.zeros((*ids.shape, memory.shape[1]), dtype=torch.float32, device=ids.device)
    memory_mask = visible[:, None, None, :]
    for layer in model.decoder_layers():
        own = layer.attention(layer.attention_residual.enter(x), mask, causal=mask is None)
        query = layer.cross_residual.enter(layer.attention_residual.leave(x, own))
        found += _weights(layer.cross, query, memory, memory_mask).float().mean(1)
        x = layer(x, memory, mask, memory_mask, mask is None)
    return found / len(model.decoder_layers())


def _weights(cross: CrossAttention, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """[rows, heads, target, source] softmax(q kᵀ / √head)"""
    keys, _ = cross.project_memory(memory)
    queries = cross.q(x).unflatten(-1, (cross.heads, -1)).transpose(1, 2)
    scale = queries.shape[-1] ** -0.5 if cross.scale is None else cross.scale
    scores: Tensor = (queries @ keys.transpose(-1, -2)) * scale
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)
