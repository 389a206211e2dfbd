"""The shared Transformer: step by step equals all at once, whatever lies in the cache."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride import ops
from longstride.contract import PAD, OptionError, Source
from longstride.nn.losses import TokenLoss
from longstride.nn.options import TransformerOptions
from longstride.nn.positions import SinusoidalPositions, sinusoid
from longstride.nn.transformer import Transformer
from tests.models import random_source, tiny_model, tiny_options

KINDS = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["post", "pre"]),
        "positions": st.sampled_from(["sinusoidal", "learned"]),
        "tie": st.sampled_from(["all", "target", "none"]),
        "activation": st.sampled_from(["relu", "gelu", "silu"]),
        "encoder_layers": st.integers(1, 3),
        "decoder_layers": st.integers(1, 2),
        "scale_embeddings": st.booleans(),
    }
)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000), kind=KINDS, widths=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data()
)
def test_cached_equals_cacheless(seed, kind, widths, data):
    """Ragged rows, steps of any width, rewinds, and poison (finite) wherever a row has not written yet."""
    model = tiny_model(seed, **kind)
    source = random_source(3, 6, seed=seed)
    memory = model.encode_source(source.ids, source.lengths)
    ids = torch.randint(5, 11, (3, 24), generator=torch.Generator().manual_seed(seed))
    cache = model.new_cache(3, 24)
    cache.keys.fill_(1e3)
    cache.values.fill_(-1e3)
    visible = ops.real(source.lengths, source.longest)
    whole = model.decode(ids, model.encode(source.ids, visible), visible)
    length = torch.zeros(3, dtype=torch.int64)
    for width in widths:
        slots = length[:, None] + torch.arange(width)
        hidden = model.extend(ids.gather(1, slots), length, cache, memory)
        close(hidden, whole.gather(1, slots[..., None].expand_as(hidden)))
        kept = torch.tensor(data.draw(st.lists(st.integers(0, width), min_size=3, max_size=3)))
        length = length + kept  # fewer than were written: the rest is rewound


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), kind=KINDS)
def test_padding_is_never_seen(seed, kind):
    model = tiny_model(seed, **kind)
    source = random_source(4, 7, seed=seed)
    visible = ops.real(source.lengths, source.longest)
    ids = torch.randint(5, 11, (4, 5), generator=torch.Generator().manual_seed(seed))
    together = model.decode(ids, model.encode(source.ids, visible), visible)
    for row in range(4):
        alone = source.ids[row : row + 1, : source.lengths[row]]
        close(together[row : row + 1], model.decode(ids[row : row + 1], model.encode(alone, None), None))


def test_shuffle_keep_and_grow():
    model = tiny_model(2)
    source = Source.of([[5, 6, 3]])
    memory = model.encode_source(source.ids, source.lengths)
    ids = torch.tensor([[2, 5], [2, 6], [2, 7]])
    cache = model.new_cache(3, 2)
    zero = torch.zeros(3, dtype=torch.int64)
    model.extend(ids, zero, cache, memory)
    cache.shuffle(torch.tensor([2, 2, 0]), 2)
    cache.grow(5)
    new = torch.tensor([[8], [9], [10]])
    hidden = model.extend(new, zero + 2, cache, memory)
    whole = torch.cat([ids[[2, 2, 0]], new], dim=1)
    visible = ops.real(source.lengths, 3)
    expected = model.decode(whole, model.encode(source.ids, visible).expand(3, -1, -1), visible.expand(3, -1))
    close(hidden, expected[:, 2:])
    cache.keep(torch.tensor([1]))
    hidden = model.extend(torch.tensor([[5]]), torch.tensor([3]), cache, memory)
    again = model.decode(torch.tensor([[2, 7, 9, 5]]), model.encode(source.ids, visible), visible)
    close(hidden, again[:, 3:])


def test_an_arbitrary_mask_equals_the_causal_one_when_it_is_causal():
    model = tiny_model(4)
    ids = torch.randint(5, 11, (2, 6))
    memory = model.encode(torch.tensor([[5, 3], [6, 3]]), None)
    slots = torch.arange(6).expand(2, 6)
    mask = ops.causal(slots, torch.arange(6))[:, None]
    close(model.decode(ids, memory, None, positions=slots, mask=mask), model.decode(ids, memory, None))


@given(st.integers(-40, 40))
def test_negative_positions_flip_the_sines_only(position):
    here, there = sinusoid(torch.tensor([position, -position]), 12)
    close(here[:6], -there[:6])
    close(here[6:], there[6:])
    table = SinusoidalPositions(12, 40).double()
    torch.testing.assert_close(table(torch.tensor(position)), here, atol=1e-6, rtol=0)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), smoothing=st.sampled_from([0.0, 0.1, 0.3]))
def test_the_token_loss_equals_the_framework(seed, smoothing):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, 5, 8, dtype=torch.float64, generator=generator)
    weight = torch.randn(11, 8, dtype=torch.float64, generator=generator)
    target = torch.randint(0, 11, (2, 5), generator=generator)
    total, nll = TokenLoss()(hidden, weight, target, smoothing, target != PAD)
    logits = (hidden @ weight.T).view(-1, 11)
    functional = torch.nn.functional.cross_entropy
    flat = target.view(-1)
    close(total, functional(logits, flat, ignore_index=PAD, label_smoothing=smoothing, reduction="sum"))
    close(nll, functional(logits, flat, ignore_index=PAD, reduction="sum"))


def test_tying_shares_weights():
    count = {
        tie: sum(p.numel() for p in Transformer(tiny_options(tie=tie)).parameters())
        for tie in ("all", "target", "none")
    }
    assert count["target"] - count["all"] == 11 * 16
    assert count["none"] - count["target"] == 11 * 16


def test_the_base_size_has_52_million_weights():
    with torch.device("meta"):
        model = Transformer(TransformerOptions(vocabulary=16000))
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(52.3e6, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 3}, "divisor"),
        ({"width": 15, "heads": 3}, "even"),
        ({"decoder_layers": 0}, "from 1 to"),
        ({"source_vocabulary": 12}, "one vocabulary"),
        ({"dropout": 1.0}, "from 0 to below 1"),
    ],
)
def test_bad_shapes_are_refused(changes, words):
    with pytest.raises(OptionError, match=words):
        tiny_options(**changes)
