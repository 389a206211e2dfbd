"""Tiny models of transformers' families, with random weights that leave few near ties, saved as their folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from longstride.contract import RESERVED
from longstride.text.tokenizer import WordsTokenizer

transformers = pytest.importorskip("transformers")

PAD, BOS, EOS = 0, 2, 3
"""As our lists of words have them, which stand in for tokenizers here"""
VOCABULARY = 40
SHAPES: list[dict[str, int]] = [
    {"width": 16, "heads": 2, "hidden": 24, "encoder": 2, "decoder": 2},
    {"width": 24, "heads": 4, "hidden": 20, "encoder": 3, "decoder": 2},
    {"width": 32, "heads": 1, "hidden": 48, "encoder": 2, "decoder": 1},
]


def words() -> WordsTokenizer:
    return WordsTokenizer([*RESERVED, *(f"w{number}" for number in range(5, VOCABULARY))])


def _fairseq(shape: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY, "d_model": shape["width"], "encoder_layers": shape["encoder"],
        "decoder_layers": shape["decoder"], "encoder_attention_heads": shape["heads"],
        "decoder_attention_heads": shape["heads"], "encoder_ffn_dim": shape["hidden"],
        "decoder_ffn_dim": shape["hidden"], "max_position_embeddings": 64, "pad_token_id": PAD, "bos_token_id": BOS,
        "eos_token_id": EOS, **more,
    }  # fmt: skip


def _t5(shape: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY, "d_model": shape["width"], "d_kv": 6, "d_ff": shape["hidden"],
        "num_layers": shape["encoder"], "num_decoder_layers": shape["decoder"], "num_heads": shape["heads"],
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "pad_token_id": PAD,
        "eos_token_id": EOS, "decoder_start_token_id": PAD, **more,
    }  # fmt: skip


Settings = dict[str, Any]
MODELS: dict[str, tuple[str, Callable[[dict[str, int]], Settings], Settings]] = {
    "marian": (
        "Marian", lambda shape: _fairseq(shape, activation_function="swish", scale_embedding=True),
        {"decoder_start_token_id": PAD, "forced_eos_token_id": EOS, "bad_words_ids": [[PAD]]},
    ),
    "marian-two-vocabularies": (
        "Marian",
        lambda shape: _fairseq(shape, activation_function="gelu", share_encoder_decoder_embeddings=False),
        {"decoder_start_token_id": PAD, "bad_words_ids": [[PAD], [EOS]]},
    ),
    "m2m100": (
        "M2M100", lambda shape: _fairseq(shape),
        {"decoder_start_token_id": EOS, "forced_bos_token_id": 7, "bad_words_ids": [[PAD]]},
    ),
    "bart": (
        "Bart", lambda shape: _fairseq(shape),
        {"decoder_start_token_id": EOS, "forced_bos_token_id": BOS, "forced_eos_token_id": EOS, "min_length": 5},
    ),
    "bart-ngrams": (
        "Bart", lambda shape: _fairseq(shape, scale_embedding=True, activation_function="relu"),
        {"decoder_start_token_id": EOS, "no_repeat_ngram_size": 3, "min_new_tokens": 4},
    ),
    "t5": ("T5", _t5, {"decoder_start_token_id": PAD, "suppress_tokens": [5, 6]}),
    "flan-t5": (
        "T5", lambda shape: _t5(shape, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        {"decoder_start_token_id": PAD},
    ),
    "mt5": ("MT5", lambda shape: _t5(shape, feed_forward_proj="gated-gelu"), {"decoder_start_token_id": PAD}),
    "mbart": (
        "MBart", lambda shape: _fairseq(shape, scale_embedding=True),
        {"decoder_start_token_id": 9, "forced_eos_token_id": EOS},
    ),
    "mbart50": (
        "MBart", lambda shape: _fairseq(shape, activation_function="relu"),
        {"decoder_start_token_id": EOS, "forced_bos_token_id": 9, "forced_eos_token_id": EOS},
    ),
    "pegasus": (
        "Pegasus", lambda shape: _fairseq(shape, scale_embedding=True, activation_function="relu"),
        {"decoder_start_token_id": PAD, "forced_eos_token_id": EOS},
    ),
}  # fmt: skip
"""Name -> the class's, its settings by shape, and how it generates."""


_TABLES = ("shared.weight", "embed_tokens.weight", "embed_positions.weight", "lm_head.weight")


def build(name: str, shape: int = 0, seed: int = 5, **changes: Any) -> Any:
    """A model of a family in single precision; `changes` are of its settings and of how it generates."""
    kind, settings, generation = MODELS[name]
    known = getattr(transformers, f"{kind}Config")().to_dict()
    config = getattr(transformers, f"{kind}Config")(
        **settings(SHAPES[shape]) | {key: value for key, value in changes.items() if key in known}
    )
    vocabulary, eos = config.vocab_size, changes.get("eos_token_id", EOS)
    model = getattr(transformers, "MarianMTModel" if kind == "Marian" else f"{kind}ForConditionalGeneration")(config)
    generator = torch.Generator().manual_seed(seed + 10 * shape)
    separate = name == "flan-t5" or name == "mt5"
    if separate:  # as its published models are
        model.lm_head.weight = torch.nn.Parameter(torch.empty(vocabulary, SHAPES[shape]["width"]))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "embed_positions" in key and kind in ("Marian", "Pegasus"):
                continue
            drawn = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:
                weight.copy_(drawn * 0.1 + ("norm" in key and key.endswith("weight")))
            else:  # layers, and the source above all, say more than what they are added to: else a model repeats itself
                spread = 6.0 if "encoder_attn." in key or "EncDecAttention." in key else 2.5
                weight.copy_(drawn * (0.5 if key.endswith(_TABLES) else spread * weight.shape[1] ** -0.5))
        model.get_output_embeddings().weight[eos] *= 1.7  # or hardly any sentence would end
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(0.3 * torch.randn(1, vocabulary, generator=generator))
    model.generation_config = transformers.GenerationConfig(
        **{
            "max_length": 24,
            "pad_token_id": PAD,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            **generation,
            **_of_generating(changes),
        }
    )
    return model.eval()


def _of_generating(changes: dict[str, Any]) -> dict[str, Any]:
    known = transformers.GenerationConfig().to_dict()
    return {key: value for key, value in changes.items() if key in known}


def saved(model: Any, folder: Path, **how: Any) -> Path:
    """A model's own folder."""
    model.save_pretrained(folder, **how)
    return folder


def sources(count: int, seed: int = 0, longest: int = 12) -> list[list[int]]:
    """Ragged sentences, each ending in EOS."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [[*torch.randint(5, VOCABULARY, (length,), generator=generator).tolist(), EOS] for length in lengths]


def generated(model: Any, rows: list[list[int]], batch: int = 16, **how: Any) -> list[list[int]]:
    """What transformers' greedy search gives, between the first input and the end."""
    found = []
    for first in range(0, len(rows), batch):
        part = rows[first : first + batch]
        widest = max(map(len, part))
        ids = torch.tensor([row + [PAD] * (widest - len(row)) for row in part])
        mask = torch.tensor([[1] * len(row) + [0] * (widest - len(row)) for row in part])
        out = model.generate(ids, attention_mask=mask, **{"num_beams": 1, "do_sample": False, **how}).tolist()
        found += [row[1 : row.index(EOS, 1)] if EOS in row[1:] else row[1:] for row in out]
    return found
