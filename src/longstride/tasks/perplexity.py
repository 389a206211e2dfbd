"""How surprised a model is by the references: the exponential of the mean negative log-probability of a target token.

Definition. Every reference is read under teacher forcing, its end-of-sentence token included, without label smoothing;
perplexity is exp(summed negative log-probability / number of tokens), over the whole corpus. Tokens are the model's,
so that only models with the same tokenizer can be compared. The log-probability of a reference is a sum over its tokens
in whatever order the model writes them, each given all steps before its own. The signature names the factorisation
where it is another than one token after another from left to right.
"""

from __future__ import annotations

import math

from longstride.tasks.likelihood import Likelihoods
from longstride.tasks.score import Score


def perplexity(found: Likelihoods, tokenizer_sha256: str) -> Score:
    """Perplexity of the targets that were scored."""
    mean = found.mean_surprise
    # A model can be as wrong as floating point allows; what does not fit into a number is no number a record can hold.
    value = math.exp(mean) if mean < 700 else float("inf")
    how = f"perplexity|tokens|eos:yes|{found.factorisation.signature}tokenizer:{tokenizer_sha256[:12]}"
    return Score("perplexity", value, how)
