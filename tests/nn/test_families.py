"""Other people's architectures by configuration alone: T5, BART and M2M100 (NLLB) against transformers' own modules.

Random weights, in float64 where the numbers must agree. What differs between families is options; they, and a weight
map, are all that is written for one (interop/hf/families.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from longstride.contract import EOS, Limits, Source
from longstride.interop.hf import generation
from longstride.interop.hf.families import family_of, options_of
from longstride.interop.hf.fields import Fields
from longstride.interop.hf.weights import take_weights
from longstride.nn import programs
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy, GreedyOptions
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from tests.decoding.drafters import tiny_drafter
from tests.models import random_source
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_programs import runner, same

transformers = pytest.importorskip("transformers")

WIDTH, HEADS, HIDDEN, VOCABULARY, LONGEST = 16, 2, 24, 11, 64
SIZES: dict[str, Any] = {
    "vocabulary": VOCABULARY,
    "width": WIDTH,
    "heads": HEADS,
    "feed_forward": HIDDEN,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "longest": LONGEST,
}


def t5(gated: bool) -> tuple[TransformerOptions, Any]:
    """RMS norms first, biases by distance, no other ones, no scaling; gated, the later T5 and mT5."""
    kind = "gated-gelu" if gated else "relu"
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=6, d_ff=HIDDEN, num_layers=2, num_heads=HEADS,
        feed_forward_proj=kind, relative_attention_num_buckets=8, relative_attention_max_distance=20,
        tie_word_embeddings=not gated,
        dropout_rate=0.0, pad_token_id=0, eos_token_id=EOS, decoder_start_token_id=0,
    )  # fmt: skip
    theirs = _random(transformers.T5ForConditionalGeneration(config))
    options = TransformerOptions(
        **SIZES, head=6, norm="pre", norm_type="rms", norm_eps=1e-6, bias=False, scale_attention=False, gated=gated,
        activation="gelu-tanh" if gated else "relu", positions="relative", relative_buckets=8, relative_distance=20,
        scale_embeddings=False, scale_logits=not gated, tie="none" if gated else "all",
    )  # fmt: skip
    return options, theirs


def bart() -> tuple[TransformerOptions, Any]:
    """Norms last, learned positions behind two spare rows, normalised embeddings, a bias of the logits."""
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN, decoder_ffn_dim=HIDDEN, max_position_embeddings=LONGEST,
        dropout=0.0, pad_token_id=0, bos_token_id=2, eos_token_id=EOS, decoder_start_token_id=2,
        forced_eos_token_id=None,
    )  # fmt: skip
    theirs = _random(transformers.BartForConditionalGeneration(config))
    nn.init.normal_(theirs.final_logits_bias)
    options = TransformerOptions(
        **SIZES, activation="gelu", positions="learned", position_offset=2, embedding_norm=True, scale_embeddings=False,
        logits_bias=True,
    )  # fmt: skip
    return options, theirs


def m2m100() -> tuple[TransformerOptions, Any]:
    """Norms first, fairseq's sinusoids from the second position on: M2M100 and NLLB."""
    config = transformers.M2M100Config(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN, decoder_ffn_dim=HIDDEN, max_position_embeddings=LONGEST,
        dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0, scale_embedding=True, pad_token_id=1, bos_token_id=0,
        eos_token_id=EOS, decoder_start_token_id=EOS,
    )  # fmt: skip
    theirs = _random(transformers.M2M100ForConditionalGeneration(config))
    options = TransformerOptions(**SIZES, norm="pre", sinusoid="fairseq", position_offset=2)
    return options, theirs


def _random(theirs: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * (0.3 if weight.dim() > 1 else 0.5) + 0.1)
    return theirs.eval()


FAMILIES: dict[str, Callable[[], tuple[TransformerOptions, Any]]] = {
    "t5": lambda: t5(gated=False),
    "t5-gated": lambda: t5(gated=True),
    "bart": bart,
    "m2m100": m2m100,
}


def family(name: str, dtype: torch.dtype) -> tuple[Transformer, nn.Module]:
    options, theirs = FAMILIES[name]()
    config = Fields(theirs.config.to_dict(), "config.json")
    kind = family_of(config)
    config.leave(generation.EVERY)
    given = {key: value for key, value in theirs.state_dict().items() if key not in kind.tables[:2]}
    taken = take_weights(kind, options_of(kind, config), given, "state")
    options = replace(options, tie="all")  # whatever config.json says, these are: transformers 5 ties T5's always
    assert replace(taken.options, dropout=0.1, attention_dropout=0.0, longest=LONGEST) == options
    model = Transformer(options)
    model.load_state_dict(taken.state)
    return model.to(dtype).eval().requires_grad_(False), theirs.to(dtype)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_transformers(name: str) -> None:
    mine, theirs = family(name, torch.float64)
    source = random_source(3, 9, seed=1)
    visible = torch.arange(source.ids.shape[1]) < source.lengths[:, None]
    target = torch.randint(5, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(2))
    expected = theirs(
        input_ids=source.ids, attention_mask=visible.long(), decoder_input_ids=target, use_cache=False
    ).logits
    found = mine.logits(mine.decode(target, mine.encode(source.ids, visible), visible))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_steps_are_the_whole(name: str) -> None:
    mine, _ = family(name, torch.float64)
    source = random_source(2, 9, seed=1)
    visible = torch.arange(source.ids.shape[1]) < source.lengths[:, None]
    target = torch.randint(5, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(2))
    whole = mine.decode(target, mine.encode(source.ids, visible), visible)
    cache, memory = mine.new_cache(2, 12), mine.encode_source(source.ids, source.lengths)
    first = mine.extend(target[:, :3], torch.zeros(2, dtype=torch.int64), cache, memory)
    rest = mine.extend(target[:, 3:], torch.full((2,), 3), cache, memory)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole)


@BOTH
@pytest.mark.parametrize("name", FAMILIES)
def test_graphs_give_the_eager_numbers(graphs: Graphs, name: str) -> None:
    model, _ = family(name, torch.float32)
    source = random_source(3, 7, seed=4)
    memory = same(graphs, programs.encode_source(model), source.ids, source.lengths)
    cache = model.new_cache(3, 40)
    ids = torch.randint(0, VOCABULARY, (3, 4), generator=torch.Generator().manual_seed(1))
    start = torch.tensor([0, 5, 20])
    same(graphs, programs.verify(model), ids, start, cache, memory, states=(cache.keys, cache.values))
    same(graphs, programs.extend(model), ids, start, cache, memory, 48, states=(cache.keys, cache.values))


@BOTH
@pytest.mark.parametrize("name", FAMILIES)
def test_every_verifying_decoder_gives_greedys_output(graphs: Graphs, name: str) -> None:
    """Heads and drafters of any make, in every backend; and beam search runs."""
    for backend, dtype in ((EagerRunner(), torch.float64), (runner(graphs), torch.float32)):
        model, _ = family(name, dtype)
        source, limits = random_source(4, 8, seed=5), Limits(max_length=20)
        expected = Greedy(model, backend, GreedyOptions()).decode(source, limits).tokens
        drafter = tiny_drafter(2, dtype, link=3)
        drafted = DraftVerify(model, drafter, backend, DraftVerifyOptions(k=3)).decode(source, limits, capacity=2)
        assert drafted.tokens == expected
        torch.manual_seed(0)
        heads = Heads(HeadsOptions(3, WIDTH, feed_forward=8)).to(dtype).eval()
        for weight in heads.parameters():
            nn.init.normal_(weight, std=0.5)
        assert Blockwise(model, heads, backend, BlockwiseOptions()).decode(source, limits).tokens == expected
        found = Beam([model], backend, BeamOptions(width=3)).decode(Source.of([row.tolist() for row in source.ids[:1]]))
        assert len(found.tokens) == 1


def test_heads_of_keys_and_values_may_be_fewer() -> None:
    torch.manual_seed(1)
    few = Transformer(TransformerOptions(**{**SIZES, "heads": 4}, key_value_heads=2)).double().eval()
    many = Transformer(TransformerOptions(**{**SIZES, "heads": 4})).double().eval()
    state = dict(few.state_dict())
    for name, weight in list(state.items()):
        if name.rsplit(".", 2)[-2] in ("qkv", "kv"):
            queries, pairs = weight.split([weight.shape[0] - 2 * 8, 2 * 8])
            wide = pairs.view(2, 2, 4, *weight.shape[1:]).repeat_interleave(2, dim=1).flatten(0, 2)
            state[name] = torch.cat([queries, wide])
    many.load_state_dict(state)
    source, limits = random_source(3, 8, seed=2), Limits(max_length=12)
    outputs = [Greedy(model, EagerRunner(), GreedyOptions()).decode(source, limits).tokens for model in (few, many)]
    assert outputs[0] == outputs[1]
    torch.testing.assert_close(
        few.encode_source(source.ids, source.lengths).keys, many.encode_source(source.ids, source.lengths).keys
    )
