"""The core recipe (post-norm, ReLU, sinusoidal, tied) is a Marian model weight for weight: the numbers agree."""

from __future__ import annotations

import pytest
import torch

from longstride import ops
from longstride.contract import PAD, START
from longstride.nn.transformer import Transformer
from tests.models import random_source, tiny_model

transformers = pytest.importorskip("transformers")


def marian_state(model: Transformer) -> dict[str, torch.Tensor]:
    """Our weights under Marian's names: fused projections are split, tied tables repeated."""
    ours = model.state_dict()
    theirs = {"model.shared.weight": ours["target_embedding.weight"]}

    def copy(name: str, our: str) -> None:
        for kind in ("weight", "bias"):
            theirs[f"{name}.{kind}"] = ours[f"{our}.{kind}"]

    def split(names: list[str], our: str) -> None:
        for kind in ("weight", "bias"):
            for name, block in zip(names, ours[f"{our}.{kind}"].chunk(len(names)), strict=True):
                theirs[f"{name}.{kind}"] = block

    for side, depth in (("encoder", model.options.encoder_layers), ("decoder", model.options.decoder_layers)):
        for number in range(depth):
            here, our = f"model.{side}.layers.{number}", f"{side}.layers.{number}"
            split([f"{here}.self_attn.{kind}_proj" for kind in "qkv"], f"{our}.attention.qkv")
            copy(f"{here}.self_attn.out_proj", f"{our}.attention.out")
            copy(f"{here}.self_attn_layer_norm", f"{our}.attention_residual.norm")
            if side == "decoder":
                copy(f"{here}.encoder_attn.q_proj", f"{our}.cross.q")
                split([f"{here}.encoder_attn.{kind}_proj" for kind in "kv"], f"{our}.cross.kv")
                copy(f"{here}.encoder_attn.out_proj", f"{our}.cross.out")
                copy(f"{here}.encoder_attn_layer_norm", f"{our}.cross_residual.norm")
            copy(f"{here}.fc1", f"{our}.feed_forward.up")
            copy(f"{here}.fc2", f"{our}.feed_forward.down")
            copy(f"{here}.final_layer_norm", f"{our}.feed_forward_residual.norm")
    return theirs


def test_logits_agree():
    model = tiny_model(3, torch.float32, sharpness=1.0, encoder_layers=2)
    o = model.options
    config = transformers.MarianConfig(
        vocab_size=o.vocabulary,
        d_model=o.width,
        encoder_layers=o.encoder_layers,
        decoder_layers=o.decoder_layers,
        encoder_ffn_dim=o.feed_forward,
        decoder_ffn_dim=o.feed_forward,
        encoder_attention_heads=o.heads,
        decoder_attention_heads=o.heads,
        activation_function=o.activation,
        scale_embedding=o.scale_embeddings,
        max_position_embeddings=o.longest,
        pad_token_id=PAD,
        decoder_start_token_id=START,
    )
    marian = transformers.MarianMTModel(config).eval()
    missing, unexpected = marian.load_state_dict(marian_state(model), strict=False)
    assert not unexpected
    allowed = ("embed_positions", "embed_tokens", "lm_head", "final_logits_bias")
    assert all(any(word in name for word in allowed) for name in missing), missing
    marian.tie_weights()
    source = random_source(4, 7, seed=3)
    ids = torch.randint(5, o.vocabulary, (4, 6))
    ids[:, 0] = START
    visible = ops.real(source.lengths, source.longest)
    ours = model.logits(model.decode(ids, model.encode(source.ids, visible), visible))
    with torch.no_grad():
        theirs = marian(input_ids=source.ids, attention_mask=visible.long(), decoder_input_ids=ids).logits
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)
