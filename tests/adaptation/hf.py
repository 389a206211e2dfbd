"""Whole Hugging Face folders: a family's own tokenizer, trained here, and a tiny random model that fits it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.text.hf_folders import FAMILIES

transformers = pytest.importorskip("transformers")

_WIDE = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
_FAIRSEQ = {**_WIDE, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
_T5 = {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}


def write(family: str, folder: Path, seed: int = 0) -> Path:
    """A folder that `from_pretrained` reads, tokenizer and all."""
    make: Any = FAMILIES[family]
    make(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    ids = {"vocab_size": len(tokenizer), "pad_token_id": pad, "eos_token_id": eos}
    start = {"marian": pad, "t5": pad, "bart": eos, "nllb": eos, "mbart": eos}[family]
    model: Any
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if family == "marian":
            config = transformers.MarianConfig(**_FAIRSEQ, **ids, decoder_start_token_id=start, scale_embedding=True)
            model = transformers.MarianMTModel(config)
        elif family == "t5":
            model = transformers.T5ForConditionalGeneration(
                transformers.T5Config(**_T5, **ids, decoder_start_token_id=start)
            )
        else:
            kind = {"bart": "Bart", "nllb": "M2M100", "mbart": "MBart"}[family]
            config = getattr(transformers, f"{kind}Config")(
                **_FAIRSEQ, **ids, bos_token_id=tokenizer.bos_token_id, decoder_start_token_id=start
            )
            model = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() > 1 and "embed_positions" not in name:
                    weight.copy_(torch.randn(weight.shape) * (0.5 if "shared" in name else 2 * weight.shape[1] ** -0.5))
            model.get_output_embeddings().weight[eos] *= 1.5
    model.generation_config = transformers.GenerationConfig(
        max_length=20, pad_token_id=pad, eos_token_id=eos, decoder_start_token_id=start, bad_words_ids=[[pad]]
    )
    model.save_pretrained(folder)
    return folder
