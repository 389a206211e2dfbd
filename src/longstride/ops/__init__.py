"""Operations that models and decoding steps are made of, beside PyTorch's own: each written once, with its meaning.

Given tensors, an operation computes them with PyTorch. Given values of a graph that is being recorded (`trace`), it
adds its part of the graph instead, in the way that graph backends carry out best. Models and steps call operations and
never ask which of the two it is.
"""

from longstride.ops import arithmetic as _arithmetic  # noqa: F401 (it enters its words into the vocabulary)
from longstride.ops import rearranging as _rearranging  # noqa: F401 (likewise)
from longstride.ops.attention import (
    Asked,
    AttentionBias,
    BlockCausal,
    Causal,
    MaskRule,
    additive,
    aligned,
    attention,
    avoid_planned_attention,
    cached_attention,
    causal,
    project_layers,
    real,
    repeat_heads,
    self_attention,
    span,
    to_border,
)
from longstride.ops.chain import best_chain, best_of_classes, chain_logits, chain_tokens, chain_tokens_of_states
from longstride.ops.draft_tree import best_tree
from longstride.ops.indexing import (
    accumulate,
    append,
    arange,
    assign,
    best,
    by_position,
    first_false,
    full,
    in_portions,
    largest,
    length,
    likeliest,
    log_shares,
    look_up,
    move_slots,
    repeated,
    slots_from,
    take,
    wide,
)
from longstride.ops.kernels import KernelTable, kernels_of, uses
from longstride.ops.layers import ACTIVATIONS, add_norm, embed, linear, norm, row_product
from longstride.ops.size import Length, Size, TraceError
from longstride.ops.trace import Tracer, Value

__all__ = [
    "ACTIVATIONS",
    "Asked",
    "AttentionBias",
    "BlockCausal",
    "Causal",
    "KernelTable",
    "Length",
    "MaskRule",
    "Size",
    "TraceError",
    "Tracer",
    "Value",
    "accumulate",
    "add_norm",
    "additive",
    "aligned",
    "append",
    "arange",
    "assign",
    "attention",
    "avoid_planned_attention",
    "best",
    "best_chain",
    "best_of_classes",
    "best_tree",
    "by_position",
    "cached_attention",
    "causal",
    "chain_logits",
    "chain_tokens",
    "chain_tokens_of_states",
    "embed",
    "first_false",
    "full",
    "in_portions",
    "kernels_of",
    "largest",
    "length",
    "likeliest",
    "linear",
    "log_shares",
    "look_up",
    "move_slots",
    "norm",
    "project_layers",
    "real",
    "repeat_heads",
    "repeated",
    "row_product",
    "self_attention",
    "slots_from",
    "span",
    "take",
    "to_border",
    "uses",
    "wide",
]
