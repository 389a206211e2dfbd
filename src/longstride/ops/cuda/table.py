"""The tables of kernels for CUDA devices, for inference and for training: which operation, which kernel, when.

Imports no Triton.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from longstride.ops.attention import BlockCausal, Causal, TreeCausal
from longstride.ops.cuda import dropout_norm, short_attention
from longstride.ops.kernels import TYPES, Kernel, KernelTable
from longstride.ops.local_attention import LocalCausal

NAMES = {
    "norm": "residual sums with their norms",
    "relu": "products with their ReLU",
    "step": "causal steps: writing the cache and attention over it",
    "lines": "steps of rows that share their pasts",
    "local": "the same with local attention",
    "mask": "attention over the cache with any other mask",
    "source": "attention over the source",
    "source-self": "attention of a source to itself",
    "product": "products of a step",
    "embed": "what the first layer of an encoder or a step reads",
    "link": "chains of linked drafts",
    "tree": "drafts that are trees: growing them, their shape, and the path that stands",
    "candidates": "words that tables propose for a lattice",
    "edges": "scores of a lattice's edges",
    "paths": "the search through a lattice",
    "overlap": "starting all these while the kernel before them ends",
}
"""By name: what kernels for inference are for."""
HEADS = (16, 32, 64, 128)
"""Widths of a head that attention of steps and sources is written for."""
FEW_SLOTS = 64
"""Slots, rows times step, up to which products of 32-bit numbers and links of drafts are ours: with more, arithmetic
counts and the library's is better."""
FEW_OUTPUTS = 4096
"""Outputs of products of 32-bit numbers, likewise: a vocabulary has more."""
MANY_SLOTS = 1536
"""The same of products of 16-bit numbers: with up to 264 slots ours is the faster, with 352 to 1408 one of a layer's
takes 1 to 2 times the library's (docs/log.md), but bits must not depend on how many rows are decoded side by side."""
FEW_ROWS = 8
"""Rows up to which heads' products are ours: the kernel goes over them one after another."""
MULTIPLE = 64
"""What a product's inputs and outputs are multiples of: stripes of the weight are whole."""
LONGEST_SOURCE = 128
"""Slots of a source: for longer ones arithmetic counts, and the library's tiles are better."""
HIGHEST_RANK = 128
"""The highest rank of a link that its kernels are written for."""
MOST_CANDIDATES = 256
"""The most candidates per slot of a link that its kernels are written for, and what they are used with."""
TREE_CANDIDATES, MOST_NODES = 64, 63
"""Of a tree: candidates per slot, and nodes, that kernels are written for."""


# --- products, norms, embeddings -------------------------------------------------------------------------------------


def _whole(weight: Tensor) -> bool:
    return weight.shape[0] % MULTIPLE == 0 and weight.shape[1] % MULTIPLE == 0


def _step_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Any = None, added: Any = None
) -> bool:
    return activation in (None, "relu") and _whole(weight)


def _few_slots(x: Tensor, weight: Tensor, *_: Any, **__: Any) -> bool:
    if x.element_size() == 4:
        return x.numel() <= FEW_SLOTS * weight.shape[1] and weight.shape[0] <= FEW_OUTPUTS
    return x.numel() <= MANY_SLOTS * weight.shape[1]


def _linear_relu(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Any = None, added: Any = None
) -> bool:
    """Of ReLU alone, since what a product does for GELU is an approximation of it; small sizes gain nothing."""
    return activation == "relu" and bias is not None and added is None and _whole(weight)


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor, activation: str, added: None = None) -> Tensor:
    """The library's own product, which can apply ReLU at its end."""
    flat = torch._addmm_activation(bias, x.flatten(0, -2), weight.t(), use_gelu=False)
    return flat.view(*x.shape[:-1], weight.shape[0])


def _row_product(x: Tensor, weight: Tensor, bias: Tensor, added: Tensor) -> bool:
    return x.ndim == 2 and weight.shape[1] % MULTIPLE == 0


def _few_rows(x: Tensor, *_: Any) -> bool:
    return x.shape[0] <= FEW_ROWS


def _add_norm(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float, dropout: float = 0.0) -> bool:
    return bias is not None and dropout == 0


def _embed(
    ids: Tensor, start: Tensor | None, tokens: Tensor, scale: float, positions: Any, last: int, depth: Any = None
) -> bool:
    return positions is not None and (start is not None or ids.shape[1] <= last + 1)


# --- attention -------------------------------------------------------------------------------------------------------


def _plain(head: int, scale: float | None, dropout: float = 0.0) -> bool:
    return scale is None and dropout == 0 and head in HEADS


def _cached(kind: type | None, shared: bool | None) -> Any:
    """Of a step whose bias is of this kind, and whose pasts lie in other rows, in its own, or anywhere"""

    def supports(
        packed: Tensor,
        keys: Tensor,
        values: Tensor,
        slots: Tensor,
        bias: Any,
        heads: int,
        indirection: Tensor | None = None,
        asked: Any = None,
        scale: float | None = None,
    ) -> bool:
        if keys.shape[3] not in HEADS:
            return False
        if shared is not None and shared == (indirection is None):
            return False
        return kind is None or type(bias) is kind

    return supports


def _source_self(
    packed: Tensor,
    heads: int,
    mask: Tensor | None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> bool:
    """Whether the mask is None or boolean and the same for all queries, [rows, 1, 1, length]"""
    rows, length, width = packed.shape
    if causal or not _plain(width // 3 // heads, scale, dropout):
        return False
    return mask is None or (mask.dtype == torch.bool and mask.shape == (rows, 1, 1, length) and mask.stride(3) == 1)


def _short_source(packed: Tensor, *_: Any, **__: Any) -> bool:
    return packed.shape[1] <= LONGEST_SOURCE


def _source(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    heads: int,
    dropout: float = 0.0,
    scale: float | None = None,
) -> bool:
    """Whether the mask is added to scores, and the same for all queries, [rows, 1, 1, source]: so it is in steps"""
    if mask is None or mask.dtype != queries.dtype or mask.shape[1] != 1 or mask.shape[2] != 1:
        return False
    return dropout == 0 and keys.shape[3] in HEADS


# --- links -----------------------------------------------------------------------------------------------------------


def _link(
    logits: Tensor, gate: Tensor, newest: Tensor, before: Tensor, after: Tensor, few: int, many: int, *_: Any
) -> bool:
    return before.shape[1] <= HIGHEST_RANK and 0 < many <= MOST_CANDIDATES


def _link_states(hidden: Tensor, weight: Tensor, gate_weight: Tensor, *rest: Any) -> bool:
    return _link(hidden, gate_weight, *rest)


def _few_states(hidden: Tensor, *_: Any) -> bool:
    return hidden[..., 0].numel() <= FEW_SLOTS


def _tree(
    logits: Tensor, newest: Tensor, gate: Any, before: Any, after: Any, candidates: int, nodes: int, *_: Any
) -> bool:
    linked = gate is None or before.shape[1] <= HIGHEST_RANK
    return linked and candidates <= TREE_CANDIDATES and nodes <= MOST_NODES


def _tree_states(hidden: Tensor, newest: Tensor, weight: Tensor, gate_weight: Tensor, *rest: Any) -> bool:
    return _tree(hidden, newest, gate_weight, *rest)


def _tree_shape(parents: Tensor) -> bool:
    return 0 < parents.shape[1] <= MOST_NODES


def _compact(keys: Tensor, values: Tensor, path: Tensor, start: Tensor) -> bool:
    return path.shape[1] <= MOST_NODES + 1


_HEADS = f"heads of {', '.join(map(str, HEADS))}"
_SCALED = f"{_HEADS}, scores divided by the square root of that"
_WHOLE = f"inputs and outputs in multiples of {MULTIPLE}"
_SLOTS = f"up to {MANY_SLOTS} slots of 16-bit numbers, {FEW_SLOTS} of 32"
_SOURCE = f"all see all but padding, up to {LONGEST_SOURCE} slots; {_SCALED}"
_CACHED, _OF_STATES, _TREE_STATES = "cached_attention", "chain_tokens_of_states", "tree_tokens_of_states"
_LINKED = f"rank up to {HIGHEST_RANK}, up to {MOST_CANDIDATES} candidates"
_TREE = f"rank up to {HIGHEST_RANK}, up to {TREE_CANDIDATES} candidates, {MOST_NODES} nodes"
INFERENCE = (
    Kernel("product", "linear", "wide_linear:linear", _step_linear, _few_slots, f"{_WHOLE}; {_SLOTS}"),
    Kernel("relu", "linear", linear_relu, _linear_relu, condition=f"ReLU and a bias, {_WHOLE}"),
    Kernel("product", "row_product", "row_product:row_product", _row_product, _few_rows, f"up to {FEW_ROWS} rows"),
    Kernel("norm", "add_norm", "add_norm:add_norm_of", _add_norm, condition="layer norm after the sum"),
    Kernel("embed", "embed", "embed:embed_of", _embed, condition="absolute positions"),
    Kernel("step", _CACHED, "decode_attention:causal", _cached(Causal, False), condition=f"causal; {_HEADS}"),
    Kernel("step", _CACHED, "decode_attention:causal", _cached(BlockCausal, False), condition=f"blocks; {_HEADS}"),
    Kernel("step", _CACHED, "decode_attention:causal", _cached(TreeCausal, False), condition=f"trees; {_HEADS}"),
    Kernel("local", _CACHED, "decode_attention:causal", _cached(LocalCausal, False), condition=f"local; {_HEADS}"),
    Kernel("lines", _CACHED, "decode_attention:causal", _cached(Causal, True), condition=f"shared pasts; {_HEADS}"),
    Kernel(
        "lines",
        _CACHED,
        "decode_attention:causal",
        _cached(BlockCausal, True),
        condition=f"blocks, shared pasts; {_HEADS}",
    ),
    Kernel("mask", _CACHED, "decode_attention:masked", _cached(None, None), condition=f"any bias; {_HEADS}"),
    Kernel("source-self", "self_attention", "source_attention:self_attention", _source_self, _short_source, _SOURCE),
    Kernel("source", "attention", "decode_attention:attention", _source, condition=f"one mask a source; {_HEADS}"),
    Kernel("link", "chain_logits", "link_chain:chain_logits", _link, condition=_LINKED),
    Kernel("link", "chain_tokens", "link_chain:chain_tokens", _link, condition=_LINKED),
    Kernel("link", _OF_STATES, f"link_chain:{_OF_STATES}", _link_states, _few_states, f"{_LINKED}, few slots"),
    Kernel("tree", "tree_tokens", "draft_tree:tree_tokens", _tree, condition=_TREE),
    Kernel("tree", _TREE_STATES, f"draft_tree:{_TREE_STATES}", _tree_states, _few_states, f"{_TREE}, few slots"),
    Kernel("tree", "tree_shape", "tree_slots:tree_shape", _tree_shape, condition=f"up to {MOST_NODES} nodes"),
    Kernel("tree", "compact_path", "tree_slots:compact_path", _compact, condition=f"up to {MOST_NODES} nodes"),
    *(Kernel(name, f"lattice: {name}", "", condition=NAMES[name]) for name in ("candidates", "edges", "paths")),
)
"""In order of preference. Those of a lattice are called where they are, by whoever has asked `uses`."""

_SHORT: dict[str, Any] = {"condition": short_attention.CONDITION, "dtypes": short_attention.DTYPES}
_NORMS: dict[str, Any] = {"condition": dropout_norm.CONDITION, "dtypes": dropout_norm.DTYPES}
TRAINING = (
    Kernel("attention", "self_attention", short_attention.self_attention, short_attention.supports_self, **_SHORT),
    Kernel("attention", "attention", short_attention.cross_attention, short_attention.supports_cross, **_SHORT),
    Kernel("norms", "add_norm", dropout_norm.add_norm, dropout_norm.supports, **_NORMS),
)


def inference_table(dtype: torch.dtype, names: Collection[str] = tuple(NAMES), **options: Any) -> KernelTable | None:
    """The kernels of these names for numbers of this type; None where there are none. Options as KernelTable's."""
    if dtype not in TYPES or not names:
        return None
    return KernelTable([kernel for kernel in INFERENCE if kernel.name in names], **options)


def training_table(names: Collection[str]) -> KernelTable | None:
    """The kernels of these names, "attention" and "norms", where there is what they need; else None."""
    chosen = [kernel for kernel in TRAINING if kernel.name in names]
    return KernelTable(chosen) if chosen and _can_train() else None


@cache
def _can_train() -> bool:
    if find_spec("triton") is None or torch.version.cuda is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability() >= (8, 0)
