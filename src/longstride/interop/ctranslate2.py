"""A model as a CTranslate2 folder, filled into that library's own specification of a Transformer.

It takes pre- and post-norm, sinusoidal and learned positions (a table either way), normalised embeddings, a bias of the
logits and every kind of tying: all imported families but T5's. What it cannot take is a model that greedy search is not
right for. Symbols that no decoder may emit are not part of the format:
whoever translates with the folder suppresses them (`suppress_sequences`, docs/interop.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longstride.contract import OptionError
from longstride.interop.exportable import Exportable, exportable, write_spm_files
from longstride.nn.positions import sinusoid
from longstride.runtime.libraries import package
from longstride.translator import Translator

FORMAT = "CTranslate2"

QUANTIZATIONS = {"fp32": "float32", "int8": "int8"}
"""Our names of precisions -> theirs of how weights are stored."""

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}


def export_ctranslate2(translator: Translator, folder: Path, precision: str = "fp32") -> str:
    """Fill an empty folder; says what was made."""
    if precision not in QUANTIZATIONS:
        raise OptionError(f"--precision expects {' or '.join(QUANTIZATIONS)} for {FORMAT}, found {precision!r}.")
    model = exportable(translator, FORMAT)
    check_ctranslate2(model)
    write_ctranslate2(model, folder, precision)
    return f"A {FORMAT} folder with weights in {QUANTIZATIONS[precision]}."


def check_ctranslate2(model: Exportable) -> None:
    """Refuse what is not written here, though the library may have a way to hold it."""
    o = model.options
    for name, usual in (("norm_type", "layer"), ("gated", False), ("bias", True), ("scale_attention", True)):
        if (found := getattr(o, name)) != usual:
            raise OptionError(f"{FORMAT} expects {name}: {usual}, found {name}: {found} in {model.name}.")
    if o.positions == "relative":
        raise OptionError(f"{FORMAT} expects positions: sinusoidal or learned, found relative in {model.name}.")
    if o.norm_eps != 1e-5 or o.head is not None or o.key_value_heads is not None or o.scale_logits:
        raise OptionError(f"{FORMAT} expects norms, heads and logits of the usual kind, found others in {model.name}.")


def write_ctranslate2(model: Exportable, folder: Path, precision: str = "fp32") -> None:
    """Write all files."""
    spec = _filled(model)
    spec.register_source_vocabulary(model.pieces(model.source_tokenizer))
    spec.register_target_vocabulary(model.pieces(model.target_tokenizer))
    special = model.special
    spec.config.unk_token = model.piece(special.unk)
    spec.config.bos_token = spec.config.decoder_start_token = model.piece(special.start)
    spec.config.eos_token = model.piece(special.eos)
    spec.config.add_source_eos = not model.source_tokenizer.complete
    spec.validate()
    spec.optimize(quantization=QUANTIZATIONS[precision])
    spec.save(str(folder))
    write_spm_files(model, folder)


def _filled(model: Exportable) -> Any:
    """Their specification with our weights in it."""
    specs = package("ctranslate2").specs
    o = model.options
    spec = specs.TransformerSpec.from_config(
        (o.encoder_layers, o.decoder_layers),
        o.heads,
        pre_norm=o.norm == "pre",
        activation=getattr(specs.Activation, _ACTIVATIONS[o.activation]),
        layernorm_embedding=o.embedding_norm,
    )
    spec.encoder.num_heads = type(spec.encoder.num_heads)(o.of_encoder.heads)
    # Copies everywhere: quantizing works in place, and would change the model that the weights are of.
    spec.encoder.embeddings[0].weight = model.source_embedding.clone()
    spec.decoder.embeddings.weight = model.target_embedding.clone()
    spec.decoder.projection.weight = model.output_embedding.clone()
    if o.logits_bias:
        spec.decoder.projection.bias = model.weights["logits_bias"].clone()
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        stack.scale_embeddings = o.scale_embeddings
        mine = "source" if side == "encoder" else "target"
        stack.position_encodings.encodings = _positions(model, mine)
        if o.embedding_norm:
            _norm(stack.layernorm_embedding, model, f"{mine}_embedding_norm")
        if o.norm == "pre":
            _norm(stack.layer_norm, model, f"{side}.norm")
        for number, layer in enumerate(stack.layer):
            ours = f"{side}.layers.{number}"
            # As in our own state, one product makes queries, keys and values (keys and values of the memory).
            _linear(layer.self_attention.linear[0], model, f"{ours}.attention.qkv")
            _linear(layer.self_attention.linear[1], model, f"{ours}.attention.out")
            _norm(layer.self_attention.layer_norm, model, f"{ours}.attention_residual.norm")
            if side == "decoder":
                for place, name in enumerate(("q", "kv", "out")):
                    _linear(layer.attention.linear[place], model, f"{ours}.cross.{name}")
                _norm(layer.attention.layer_norm, model, f"{ours}.cross_residual.norm")
            _linear(layer.ffn.linear_0, model, f"{ours}.feed_forward.up")
            _linear(layer.ffn.linear_1, model, f"{ours}.feed_forward.down")
            _norm(layer.ffn.layer_norm, model, f"{ours}.feed_forward_residual.norm")
    return spec


def _positions(model: Exportable, side: str) -> Tensor:
    """[longest, width] the table of positions from 0 on"""
    o = model.options
    if o.positions == "learned":
        return model.weights[f"{side}_positions.weight"][o.position_offset :].clone()
    return sinusoid(torch.arange(o.longest) + o.position_offset, o.width, o.sinusoid).float()


def _linear(spec: Any, model: Exportable, name: str) -> None:
    spec.weight, spec.bias = (tensor.clone() for tensor in model.linear(name))


def _norm(spec: Any, model: Exportable, name: str) -> None:
    spec.gamma, spec.beta = (tensor.clone() for tensor in model.linear(name))
