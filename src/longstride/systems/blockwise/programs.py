"""Blockwise decoding's own model call, as a program a runner carries out: predict the next block."""

from __future__ import annotations

from torch import Tensor

from longstride.contract import Program
from longstride.nn.transformer import Transformer
from longstride.systems.blockwise.model import Heads


def predict(model: Transformer, heads: Heads, k: int) -> Program:
    """(hidden [rows, width], forbidden ids [n]) -> the choices of heads 2 to k, [rows, k - 1]"""

    def function(hidden: Tensor, forbidden: Tensor) -> Tensor:
        logits = model.logits(heads.ahead(hidden, k))
        return logits.index_fill(-1, forbidden, float("-inf")).argmax(dim=-1)

    return Program("heads", function)
