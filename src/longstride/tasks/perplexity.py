"""How surprised a model is by the references: the exponential of the mean negative log-likelihood of a target token.

Definition. Every reference is read under teacher forcing, its end-of-sentence token included, without label smoothing;
perplexity is exp(summed negative log-likelihood / number of tokens), over the whole corpus. Tokens are the model's own,
so that only models with the same tokenizer can be compared. Knows a model only by an objective that reports `nll`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from longstride.contract import BatchSource, InputError, Objective
from longstride.tasks.score import Score

NLL = "nll"


@torch.inference_mode()
def perplexity(
    model: nn.Module,
    objective: Objective,
    data: BatchSource,
    device: torch.device,
    tokenizer_sha256: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Score:
    """Perplexity of the targets of `data` under a model in evaluation mode; `progress` hears of batches."""
    total, tokens = 0.0, 0
    batches = data.batches_in(0)
    for index, batch in enumerate(data.epoch(0)):
        progress(index, batches)
        prepared = objective.prepare(batch, torch.Generator().manual_seed(index))
        total += float(objective.loss(model, prepared.to(device)).figures[NLL])
        tokens += prepared.tokens
    progress(batches, batches)
    if not tokens:
        raise InputError("Expected at least one reference to compute perplexity of, found none.")
    mean = total / tokens
    # A model can be as wrong as floating point allows; what does not fit into a number is no number a record can hold.
    value = math.exp(mean) if mean < 700 else float("inf")
    return Score("perplexity", value, f"perplexity|tokens|eos:yes|tokenizer:{tokenizer_sha256[:12]}")
