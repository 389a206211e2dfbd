"""The encoder-decoders of transformers that are known: of each, its options and where its weights are.

A weight map is data, read in both directions: our name <- theirs, several of which are stacked (queries, keys and
values are one product with us). What transformers does today counts, where it differs from what it once did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from longstride.contract import ModelFolderError
from longstride.interop.hf.fields import Fields
from longstride.nn.options import TransformerOptions

WeightMap = dict[str, tuple[str, ...]]

LOGITS_BIAS = "final_logits_bias"
"""[1, vocabulary] in their files"""

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}

NO_EFFECT = (
    # what it is called and where it came from
    "_name_or_path", "_commit_hash", "name_or_path", "transformers_version", "model_type", "architectures",
    "tokenizer_class", "finetuning_task", "task_specific_params", "prefix",
    # how it is stored and carried out
    "dtype", "torch_dtype", "use_bfloat16", "torchscript", "attn_implementation", "_attn_implementation",
    "_attn_implementation_autoset", "chunk_size_feed_forward", "gradient_checkpointing", "use_cache", "output_past",
    "output_attentions", "output_hidden_states", "return_dict",
    # training alone
    "dropout_rate", "classif_dropout", "classifier_dropout", "encoder_layerdrop", "decoder_layerdrop", "init_std",
    "initializer_factor", "initializer_range",
    # classification alone
    "id2label", "label2id", "num_labels", "_num_labels", "problem_type", "_diffusers_version",
)  # fmt: skip
"""Fields of config.json that change no output; pipelines read prefix and task_specific_params, generate does not."""

NEUTRAL: dict[str, Any] = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "add_cross_attention": False,
    "cross_attention_hidden_size": (),
    "tie_encoder_decoder": False,
    "pruned_heads": ({},),
    "add_bias_logits": False,
    "quantization_config": (),
    "compression_config": (),
    "custom_pipelines": ({},),
}
"""Fields that change nothing while they have these values; () means that there is none but null.

Quantized and compressed weights have to be unpacked first. Custom pipelines change texts by code of their own, which no
comparison of ids sees.
"""


@dataclass(frozen=True)
class Family:
    """One family: what it is called, how its settings are read and where its weights are."""

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    """classes whose weights are of the whole model, generating"""
    read: Callable[[Fields], dict[str, Any]]
    """options of ours, but for what the weights or the tokenizer tell"""
    layers: Callable[[TransformerOptions], Mapping[str, tuple[str, ...]]]
    """a layer's modules: ours -> theirs; "decoder:" before ours says that the other side has none, or another"""
    stacks: Mapping[str, tuple[str, ...]]
    """modules outside of layers, once for each {side}, encoder or decoder, which {mine} calls source or target"""
    layer: str = "model.{side}.layers.{number}"
    prefix: str = "model."
    """what files of a class without an output projection leave out"""
    tables: tuple[str, str, str, str] = (
        "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight",
        "model.shared.weight",
    )  # fmt: skip
    """embeddings: the source's, the target's, the output's, and what all may share"""
    sinusoids: tuple[str, str] | None = None
    """tables of positions that files may have although they can be computed"""
    logits_bias: bool = True
    """a bias of the logits may be there"""
    ignored: tuple[str, ...] = ("*coder.version",)
    """patterns of tensors that transformers does not read either"""

    def weights(self, options: TransformerOptions) -> WeightMap:
        """Where every weight but embeddings and the bias of the logits is."""
        kinds = ("weight", "bias") if options.bias else ("weight",)
        found: WeightMap = {}

        def put(ours: str, theirs: tuple[str, ...], kinds: tuple[str, ...] = kinds) -> None:
            for kind in kinds:
                found[f"{ours}.{kind}"] = tuple(f"{one}.{kind}" for one in theirs)

        for side, mine, depth in (
            ("encoder", "source", options.encoder_layers),
            ("decoder", "target", options.decoder_layers),
        ):
            for ours, theirs in self.stacks.items():
                put(ours.format(side=side, mine=mine), tuple(one.format(side=side) for one in theirs))
            if options.positions == "learned":
                put(f"{mine}_positions", (f"{self.prefix}{side}.embed_positions",), ("weight",))
            for number in range(depth):
                there = self.layer.format(side=side, number=number)
                for ours, theirs in self.layers(options).items():
                    of_side, _, name = ours.rpartition(":")
                    if of_side in ("", side):
                        put(f"{side}.layers.{number}.{name}", tuple(f"{there}.{one}" for one in theirs))
        return found


def _of_sides(fields: Fields, ours: str, theirs: str, default: int) -> dict[str, int]:
    """A size that either side has of its own; the encoder's is said where it differs."""
    encoder, decoder = (fields.number(f"{side}_{theirs}", default, 1) for side in ("encoder", "decoder"))
    return {ours: decoder} if encoder == decoder else {ours: decoder, f"encoder_{ours}": encoder}


def _sizes(fields: Fields, activation: str, scaled: bool, attention_dropout: float = 0.0) -> dict[str, Any]:
    """What all descendants of fairseq's Transformer say alike."""
    encoder_layers, width = fields.number("encoder_layers", 12, 1), fields.number("d_model", 1024, 1)
    heads = _of_sides(fields, "heads", "attention_heads", 16)
    other_names = {"num_attention_heads": heads.get("encoder_heads", heads["heads"]), "hidden_size": width}
    fields.neutral({"num_hidden_layers": encoder_layers, **other_names})
    return {
        "width": width,
        **heads,
        **_of_sides(fields, "feed_forward", "ffn_dim", 4096),
        "encoder_layers": encoder_layers,
        "decoder_layers": fields.number("decoder_layers", 12, 1),
        "activation": fields.one_of("activation_function", ACTIVATIONS, activation),
        "scale_embeddings": fields.flag("scale_embedding", scaled),
        "longest": fields.number("max_position_embeddings", 1024, 1),
        "vocabulary": fields.number("vocab_size", least=1),
        "dropout": fields.real("dropout", 0.1),
        "attention_dropout": fields.real("attention_dropout", attention_dropout),
        "activation_dropout": fields.real("activation_dropout", 0.0),
    }


def _marian(fields: Fields) -> dict[str, Any]:
    fields.neutral({"normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False})
    fields.neutral({"static_position_embeddings": True})
    fields.leave(("extra_pos_embeddings",))
    found = _sizes(fields, "gelu", scaled=False)
    target = fields.number("decoder_vocab_size", found["vocabulary"], 1)
    if fields.flag("share_encoder_decoder_embeddings", True):
        if target != found["vocabulary"]:
            raise fields.wrong("decoder_vocab_size", f"vocab_size, {found['vocabulary']}, where it is shared", target)
        return found
    return {**found, "vocabulary": target, "source_vocabulary": found["vocabulary"]}


def _m2m100(fields: Fields) -> dict[str, Any]:
    fields.neutral({"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True})
    fields.neutral({"static_position_embeddings": True})
    pad = fields.number("pad_token_id", 1)  # positions are counted from the padding's id on
    return {
        **_sizes(fields, "relu", scaled=True, attention_dropout=0.1),
        "norm": "pre",
        "sinusoid": "fairseq",
        "position_offset": pad + 1,
    }


def _bart(fields: Fields) -> dict[str, Any]:
    fields.neutral({"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False})
    fields.neutral({"static_position_embeddings": False})
    fields.leave(("extra_pos_embeddings",))
    learned = {"positions": "learned", "position_offset": 2, "embedding_norm": True}
    return {**_sizes(fields, "gelu", scaled=False), **learned}


def _mbart(fields: Fields) -> dict[str, Any]:
    fields.neutral({"normalize_before": True, "normalize_embedding": True, "add_final_layer_norm": True})
    fields.neutral({"static_position_embeddings": False})
    fields.leave(("extra_pos_embeddings",))
    learned = {"positions": "learned", "position_offset": 2, "embedding_norm": True}
    return {**_sizes(fields, "gelu", scaled=False), "norm": "pre", **learned}


def _pegasus(fields: Fields) -> dict[str, Any]:
    fields.neutral({"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True})
    fields.neutral({"static_position_embeddings": True})
    fields.leave(("extra_pos_embeddings",))
    return {**_sizes(fields, "gelu", scaled=False), "norm": "pre"}


T5_LONGEST = 4096
"""T5's biases by distance know no longest text; a source of more tokens than this is cut, with a warning."""


def _t5(fields: Fields) -> dict[str, Any]:
    tied = fields.take("tie_word_embeddings")
    # What is projected is scaled where outputs were tied when the model was made, whatever the weights are now.
    return {**_t5_shape(fields, "relu"), "scale_logits": fields.flag("scale_decoder_outputs", tied is not False)}


def _mt5(fields: Fields) -> dict[str, Any]:
    fields.leave(("scale_decoder_outputs",))  # transformers 5 scales mT5's outputs no more
    return _t5_shape(fields, "gated-gelu")


def _t5_shape(fields: Fields, default: str) -> dict[str, Any]:
    fields.leave(("n_positions", "relative_attention_max_length"))
    kind = fields.take("feed_forward_proj", default)
    gated = isinstance(kind, str) and kind.startswith("gated-")
    named = kind.removeprefix("gated-") if isinstance(kind, str) else kind
    named = "gelu_new" if kind == "gated-gelu" else named
    if named not in ACTIVATIONS:
        raise fields.wrong("feed_forward_proj", "relu, gated-gelu or another activation that is known", kind)
    fields.neutral({"is_gated_act": gated, "dense_act_fn": named})
    layers = fields.number("num_layers", 6 if default == "relu" else 8, 1)
    width, head = fields.number("d_model", 512, 1), fields.number("d_kv", 64, 1)
    heads = fields.number("num_heads", 8 if default == "relu" else 6, 1)
    other_names = {"num_attention_heads": heads, "hidden_size": width, "head_dim": head}
    fields.neutral({"num_hidden_layers": layers, **other_names})
    return {
        "vocabulary": fields.number("vocab_size", least=1),
        "width": width,
        "heads": heads,
        "head": head,
        "feed_forward": fields.number("d_ff", 2048 if default == "relu" else 1024, 1),
        "encoder_layers": layers,
        "decoder_layers": fields.number("num_decoder_layers", layers, 1),
        "norm": "pre",
        "norm_type": "rms",
        "norm_eps": fields.real("layer_norm_epsilon", 1e-6),
        "bias": False,
        "scale_attention": False,
        "gated": gated,
        "activation": ACTIVATIONS[named],
        "positions": "relative",
        "relative_buckets": fields.number("relative_attention_num_buckets", 32, 1),
        "relative_distance": fields.number("relative_attention_max_distance", 128, 1),
        "longest": T5_LONGEST,
        "scale_embeddings": False,
        "dropout": fields.real("dropout_rate", 0.1),
    }


_FAIRSEQ_LAYER = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.out_proj",),
    "attention_residual.norm": ("self_attn_layer_norm",),
    "decoder:cross.q": ("encoder_attn.q_proj",),
    "decoder:cross.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "decoder:cross.out": ("encoder_attn.out_proj",),
    "decoder:cross_residual.norm": ("encoder_attn_layer_norm",),
    "feed_forward.up": ("fc1",),
    "feed_forward.down": ("fc2",),
    "feed_forward_residual.norm": ("final_layer_norm",),
}


def _fairseq_layer(options: TransformerOptions) -> dict[str, tuple[str, ...]]:
    return _FAIRSEQ_LAYER


_CLOSING = {"{side}.norm": ("model.{side}.layer_norm",)}
_NORMALISED = {"{mine}_embedding_norm": ("model.{side}.layernorm_embedding",)}
_SINUSOIDS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def _t5_layer(options: TransformerOptions) -> dict[str, tuple[str, ...]]:
    found = {
        "attention.qkv": tuple(f"0.SelfAttention.{name}" for name in "qkv"),
        "attention.out": ("0.SelfAttention.o",),
        "attention_residual.norm": ("0.layer_norm",),
        "decoder:cross.q": ("1.EncDecAttention.q",),
        "decoder:cross.kv": ("1.EncDecAttention.k", "1.EncDecAttention.v"),
        "decoder:cross.out": ("1.EncDecAttention.o",),
        "decoder:cross_residual.norm": ("1.layer_norm",),
    }
    for side, place in (("encoder", 1), ("decoder", 2)):
        here = f"{place}.DenseReluDense"
        found |= {
            f"{side}:feed_forward.up": (f"{here}.wi_0", f"{here}.wi_1") if options.gated else (f"{here}.wi",),
            f"{side}:feed_forward.down": (f"{here}.wo",),
            f"{side}:feed_forward_residual.norm": (f"{place}.layer_norm",),
        }
    return found


def _t5_family(name: str, kind: str, model_types: tuple[str, ...], read: Callable[[Fields], dict[str, Any]]) -> Family:
    return Family(
        name, model_types, (f"{kind}ForConditionalGeneration", f"{kind}WithLMHeadModel"), read, _t5_layer,
        {
            "{side}_bias": ("{side}.block.0.layer.0.SelfAttention.relative_attention_bias",),
            "{side}.norm": ("{side}.final_layer_norm",),
        },
        layer="{side}.block.{number}.layer", prefix="", logits_bias=False,
        tables=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight", "shared.weight"),
        ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    )  # fmt: skip


MARIAN = Family(
    "Marian", ("marian",), ("MarianMTModel", "MarianModel"), _marian, _fairseq_layer, {}, sinusoids=_SINUSOIDS
)

FAMILIES = (
    MARIAN,
    Family(
        "M2M100 and NLLB", ("m2m_100",), ("M2M100ForConditionalGeneration", "M2M100Model"), _m2m100, _fairseq_layer,
        _CLOSING, logits_bias=False, ignored=("*coder.version", "model.*.embed_positions.weights"),
    ),
    Family(
        "BART", ("bart",), ("BartForConditionalGeneration", "BartModel"), _bart, _fairseq_layer, _NORMALISED
    ),
    _t5_family("T5", "T5", ("t5",), _t5),
    _t5_family("mT5", "MT5", ("mt5",), _mt5),
    Family(
        "mBART", ("mbart",), ("MBartForConditionalGeneration", "MBartModel"), _mbart, _fairseq_layer,
        {**_NORMALISED, **_CLOSING},
    ),
    Family(
        "Pegasus", ("pegasus",), ("PegasusForConditionalGeneration", "PegasusModel"), _pegasus, _fairseq_layer,
        _CLOSING, sinusoids=_SINUSOIDS,
    ),
)  # fmt: skip
"""All that are known."""

_DECODER_ONLY = ("ForCausalLM", "LMHeadModel")


def family_of(fields: Fields) -> Family:
    """The family of a config.json; one that is none of ours is refused, and so is code that comes along."""
    refuse_remote_code(fields)
    kind, classes = fields.take("model_type"), fields.take("architectures", [])
    classes = classes if isinstance(classes, list) else [classes]
    names = ", ".join(family.name for family in FAMILIES)
    for family in FAMILIES:
        if kind in family.model_types and (not classes or classes[0] in family.architectures):
            return family
    found = " ".join(str(each) for each in classes[:1]) or repr(kind)
    if any(str(each).endswith(_DECODER_ONLY) for each in classes) or fields.values.get("is_decoder") is True:
        raise ModelFolderError(f"{fields.place}: expected an encoder-decoder, found the decoder-only {found}.")
    raise ModelFolderError(f"{fields.place}: expected one of {names}, found the architecture {found}.")


def refuse_remote_code(fields: Fields) -> None:
    """Settings that name code of their own."""
    if named := fields.take("auto_map") or fields.take("trust_remote_code"):
        raise ModelFolderError(
            f"{fields.place}: expected a model that transformers knows, found one with code of its own ({named}), "
            "which is never run here."
        )


def options_of(family: Family, fields: Fields) -> dict[str, Any]:
    """Our options by a config.json; generation's fields must have been taken, and whatever else is left is unknown."""
    found = family.read(fields)
    fields.leave((*NO_EFFECT, "tie_word_embeddings"))
    fields.neutral(NEUTRAL)
    return found
