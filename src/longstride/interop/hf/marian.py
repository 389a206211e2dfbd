"""A model of ours as a Hugging Face Marian folder, written as the plain data it is: no other library is needed for it.

    config.json, generation_config.json    shape and how to generate: our start, end and forbidden symbols
    model.safetensors                      weights under Marian's names; what is tied stands once
    source.spm, target.spm, vocab.json, tokenizer_config.json    for MarianTokenizer, where we have SentencePiece

Marian is post-norm with sinusoidal positions, its own; any other model is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longstride.contract import OptionError
from longstride.interop.exportable import Exportable, exportable, write_spm_files
from longstride.interop.hf.families import LOGITS_BIAS, MARIAN
from longstride.nn.weights import write_tensors
from longstride.text.files import write_json
from longstride.translator import Translator

FORMAT = "Hugging Face Marian"

_USUAL = {
    "norm": "post", "norm_type": "layer", "norm_eps": 1e-5, "embedding_norm": False, "gated": False, "bias": True,
    "scale_attention": True, "scale_logits": False, "positions": "sinusoidal", "sinusoid": "marian",
    "position_offset": 0,
}  # fmt: skip
"""What config.json has no field for, so that transformers would take it to be so."""
_ACTIVATIONS = {"gelu-tanh": "gelu_new"}
"""Those that have another name there."""


def export_marian(translator: Translator, folder: Path, precision: str = "fp32") -> str:
    """Fill an empty folder; says what was made."""
    if precision != "fp32":
        raise OptionError(f"--precision expects fp32 for {FORMAT}, found {precision!r}.")
    model = exportable(translator, FORMAT)
    has_tokenizer = write_marian(model, folder)
    without = "" if has_tokenizer else ", without a tokenizer (its vocabulary is a list of words)"
    return f"A {FORMAT} folder{without}."


def write_marian(model: Exportable, folder: Path) -> bool:
    """Write all files; False where the vocabulary is none that MarianTokenizer could read."""
    check_marian(model)
    state = marian_state(model)
    # Slices of fused projections share their storage, which safetensors refuses.
    clones = {name: value.clone() for name, value in state.items()}
    write_tensors(clones, folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "config.json", marian_config(model))
    write_json(folder / "generation_config.json", generation_config(model))
    if not write_spm_files(model, folder):
        return False
    write_json(folder / "vocab.json", _ids_of(model.pieces(model.source_tokenizer)))
    if not model.one_vocabulary:
        write_json(folder / "target_vocab.json", _ids_of(model.pieces(model.target_tokenizer)))
    write_json(folder / "tokenizer_config.json", _tokenizer_config(model))
    return True


def check_marian(model: Exportable) -> None:
    """Refuse what Marian cannot be."""
    o = model.options
    for name, usual in _USUAL.items():
        if (found := getattr(o, name)) != usual:
            raise OptionError(f"{FORMAT} expects {name}: {usual}, found {name}: {found} in {model.name}.")
    uneven = any(side.heads * side.head_width != o.width for side in (o, o.of_encoder))
    if uneven or o.key_value_heads not in (None, o.heads):
        raise OptionError(
            f"{FORMAT} expects heads that share the width, and keys for each, found others in {model.name}."
        )


def marian_config(model: Exportable) -> dict[str, Any]:
    """What config.json says."""
    o = model.options
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": o.source_vocabulary or o.vocabulary,
        "decoder_vocab_size": o.vocabulary,
        "d_model": o.width,
        "encoder_layers": o.encoder_layers,
        "decoder_layers": o.decoder_layers,
        "encoder_ffn_dim": o.of_encoder.feed_forward,
        "decoder_ffn_dim": o.feed_forward,
        "encoder_attention_heads": o.of_encoder.heads,
        "decoder_attention_heads": o.heads,
        "activation_function": _ACTIVATIONS.get(o.activation, o.activation),
        "max_position_embeddings": o.longest,
        "scale_embedding": o.scale_embeddings,
        "share_encoder_decoder_embeddings": o.tie == "all",
        "tie_word_embeddings": o.tie != "none",
        "dropout": o.dropout,
        "attention_dropout": o.attention_dropout,
        "activation_dropout": o.activation_dropout,
        "use_cache": True,
        "dtype": "float32",
        **_special_ids(model),
    }


def generation_config(model: Exportable) -> dict[str, Any]:
    """What generation_config.json says: greedy search with what ours never emits forbidden."""
    return {
        **_special_ids(model),
        "bad_words_ids": [[token] for token in model.special.never_generated],
        "max_length": model.options.longest,  # the start symbol counted: as many positions as there are
        "num_beams": 1,
        "do_sample": False,
    }


def _special_ids(model: Exportable) -> dict[str, int]:
    ids = model.special
    named = {"pad": ids.pad, "bos": ids.start, "eos": ids.eos, "decoder_start": ids.start, "forced_eos": ids.eos}
    return {f"{name}_token_id": token for name, token in named.items()}


def marian_state(model: Exportable) -> dict[str, Tensor]:
    """Our weights under Marian's names; fused projections are split."""
    o = model.options
    bias = model.weights["logits_bias"] if o.logits_bias else torch.zeros(o.vocabulary)
    theirs: dict[str, Tensor] = {LOGITS_BIAS: bias[None]}
    if o.tie == "all":
        theirs["model.shared.weight"] = model.target_embedding
    else:
        theirs["model.encoder.embed_tokens.weight"] = model.source_embedding
        theirs["model.decoder.embed_tokens.weight"] = model.target_embedding
    if o.tie == "none":
        theirs["lm_head.weight"] = model.output_embedding

    for ours, names in MARIAN.weights(o).items():
        theirs |= dict(zip(names, model.weights[ours].chunk(len(names)), strict=True))
    return theirs


def _tokenizer_config(model: Exportable) -> dict[str, Any]:
    return {
        "tokenizer_class": "MarianTokenizer",
        "unk_token": model.piece(model.special.unk),
        "eos_token": model.piece(model.special.eos),
        "pad_token": model.piece(model.special.pad),
        "model_max_length": model.options.longest,
        "separate_vocabs": not model.one_vocabulary,
        "clean_up_tokenization_spaces": False,
    }


def _ids_of(pieces: Sequence[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(pieces)}
