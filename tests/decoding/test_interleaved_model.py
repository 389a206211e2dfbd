"""The model: who depends on whom, step by step equals all at once, and the ordinary Transformer as a special case."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import START, OptionError
from longstride.systems.interleaved.model import InterleavedModel, Interleaving
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.slots import rule_of, shifted, signals
from tests.decoding.interleaved import VARIANTS, tiny_interleaved
from tests.models import random_source, tiny_model

SOURCE = torch.tensor([[5, 7, 9, 3]])


def logits(model: InterleavedModel, words: torch.Tensor, source: torch.Tensor = SOURCE) -> torch.Tensor:
    memory = model.model.encode(source, None).expand(words.shape[0], -1, -1)
    return model.model.logits(model.decode(shifted(words, model.options.step, START), memory, None))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    variant=st.sampled_from(VARIANTS),
    length=st.integers(2, 20),
    data=st.data(),
)
def test_a_word_changes_only_what_comes_in_later_steps(seed, variant, length, data):
    model = tiny_interleaved(seed, variant)
    step = model.options.step
    words = torch.randint(5, 11, (1, length), generator=torch.Generator().manual_seed(seed))
    slot = data.draw(st.integers(0, length - 1))
    other = words.clone()
    other[0, slot] = 5 if words[0, slot] != 5 else 6
    found, changed = logits(model, words), logits(model, other)
    later = (slot // step + 1) * step
    assert torch.equal(found[:, :later], changed[:, :later])
    # The word is read `step` slots later, where there is such a slot.
    if slot + step < length and not model.options.independent and model.options.mask == "relaxed":
        assert not torch.equal(found[:, later:], changed[:, later:])


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), variant=st.sampled_from(VARIANTS), steps=st.integers(1, 4))
def test_step_by_step_equals_all_at_once(seed, variant, steps):
    model = tiny_interleaved(seed, variant)
    step = model.options.step
    source = random_source(3, 6, seed=seed)
    words = torch.randint(5, 11, (3, steps * step), generator=torch.Generator().manual_seed(seed))
    visible = torch.arange(source.longest) < source.lengths[:, None]
    whole = model.decode(shifted(words, step, START), model.model.encode(source.ids, visible), visible)

    memory = model.model.encode_source(source.ids, source.lengths)
    # Every row somewhere else: one waits at the front, one is ahead.
    cache = model.model.new_cache(3, steps * step)
    layout = model.layout(cache.longest)
    inputs = shifted(words, step, START)
    found = torch.zeros_like(whole)
    begun = [0, 0, 0]
    for turn in range(steps + 2):
        at = [min(max(0, turn - row), steps - 1) for row in range(3)]
        start = torch.tensor(at) * step
        ids = torch.stack([inputs[row, start[row] : start[row] + step] for row in range(3)])
        hidden = model.extend(ids, start, cache, memory, layout)
        for row in range(3):
            if turn - row == begun[row] and begun[row] < steps:
                found[row, start[row] : start[row] + step] = hidden[row]
                begun[row] += 1
    torch.testing.assert_close(found, whole, atol=1e-10, rtol=1e-10)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    variant=st.sampled_from([one for one in VARIANTS if one["h"] <= 2 and "start" not in one]),
)
def test_it_is_the_transformer_with_other_positions_and_another_mask(seed, variant):
    model = tiny_interleaved(seed, variant)
    words = torch.randint(5, 11, (2, 9), generator=torch.Generator().manual_seed(seed))
    inputs = shifted(words, model.options.step, START)
    memory = model.model.encode(SOURCE, None).expand(2, -1, -1)
    slots = torch.arange(9)
    mask = rule_of(model.options)(slots[None], slots)[:, None]
    expected = model.model.decode(inputs, memory, None, signals(slots, model.options), mask)
    torch.testing.assert_close(model.decode(inputs, memory, None), expected, atol=1e-12, rtol=1e-12)


def test_one_direction_and_one_word_are_the_ordinary_transformer():
    model = tiny_interleaved(3, {"h": 1, "c": 1})
    words = torch.randint(5, 11, (2, 9), generator=torch.Generator().manual_seed(3))
    memory = model.model.encode(SOURCE, None).expand(2, -1, -1)
    inputs = torch.cat([torch.full((2, 1), START), words[:, :-1]], dim=1)
    assert torch.equal(model.decode(shifted(words, 1, START), memory, None), model.model.decode(inputs, memory, None))
    assert not list(model.interleaving.parameters())
    assert model.options.ordinary
    assert not tiny_interleaved(3, {"h": 2}).options.ordinary


def test_start_vectors_and_direction_embeddings_are_read():
    words = torch.tensor([[5, 6, 7, 8, 9, 10]])
    symbol, zeros = (tiny_interleaved(1, {"h": 2, "start": start}) for start in ("symbol", "zeros"))
    assert not torch.equal(logits(symbol, words), logits(zeros, words))
    # With zero vectors the start symbol's embedding is read nowhere.
    before = logits(zeros, words)
    zeros.model.target_embedding.weight[START] = 0.0
    after = logits(zeros, words)
    keep = [token for token in range(11) if token != START]
    torch.testing.assert_close(before[..., keep], after[..., keep])
    for variant, name in (({"h": 4}, "directions.weight"), ({"h": 2, "start": "learned"}, "starts")):
        model = tiny_interleaved(1, variant)
        before = logits(model, words)
        dict(model.interleaving.named_parameters())[name].mul_(2)
        assert not torch.equal(before, logits(model, words))


@pytest.mark.parametrize("c", [1, 2])
def test_slots_of_several_directions_have_an_index_and_a_direction(c):
    model = tiny_interleaved(1, {"h": 4, "c": c})
    assert model.interleaving.directions is not None
    for slot, found in enumerate(model.places(torch.arange(11))):
        index = model.model.target_positions(torch.tensor(slot // 4))
        assert torch.equal(found, index + model.interleaving.directions.weight[slot % 4])


def test_a_step_past_the_last_position_is_clamped():
    model = tiny_interleaved(0, {"h": 1, "c": 4}, longest=6, positions="learned")
    assert logits(model, torch.full((1, 8), 5)).isfinite().all()


def test_what_does_not_fit_is_refused():
    two = Interleaving(InterleavingOptions(16, h=2))
    with pytest.raises(OptionError, match="sinusoidal, found learned"):
        InterleavedModel(tiny_model(0, positions="learned"), two)
    with pytest.raises(OptionError, match="width 16, found 32"):
        InterleavedModel(tiny_model(0, width=32), two)
    InterleavedModel(tiny_model(0, positions="learned"), Interleaving(InterleavingOptions(16, h=4)))
