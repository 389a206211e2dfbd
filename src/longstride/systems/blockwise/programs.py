"""Blockwise decoding's two model calls, as programs a runner carries out: verify a block, predict the next."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import Program
from longstride.nn.cache import Cache, Memory
from longstride.nn.transformer import Transformer
from longstride.systems.blockwise.model import Heads


def verify(model: Transformer, heads: Heads) -> Program:
    """(ids [rows, step], start [rows], cache, memory) -> head 1's logits [rows, step, vocabulary] and the decoder's
    states [rows, step, width], which the other heads read"""
    last = model.options.longest - 1

    def function(ids: Tensor, start: Tensor, cache: Cache, memory: Memory) -> tuple[Tensor, Tensor]:
        # A draft may reach past the last position there is; what is said there is never committed.
        positions = (start[:, None] + torch.arange(ids.shape[1], device=ids.device)).clamp(max=last)
        hidden = model.extend(ids, start, cache, memory, positions=positions)
        return model.logits(heads.first(hidden)), hidden

    return Program("verify", function)


def predict(model: Transformer, heads: Heads, k: int) -> Program:
    """(hidden [rows, width], forbidden ids [n]) -> the choices of heads 2 to k, [rows, k - 1]"""

    def function(hidden: Tensor, forbidden: Tensor) -> Tensor:
        logits = model.logits(heads.ahead(hidden, k))
        return logits.index_fill(-1, forbidden, float("-inf")).argmax(dim=-1)

    return Program("heads", function)
