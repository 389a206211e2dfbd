"""Batches: every pair once, budgets kept, the same order for the same seed and epoch, ranks in step."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import EOS, PAD, Batch, InputError, OptionError
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus


def corpus_of(lengths: list[tuple[int, int]]) -> BinarizedCorpus:
    """Pairs of the given lengths (EOS counted) whose ids tell which pair they belong to."""
    return BinarizedCorpus.from_pairs([([10 + i] * (s - 1), [20 + i] * (t - 1)) for i, (s, t) in enumerate(lengths)])


length = st.integers(1, 12)
corpora = st.lists(st.tuples(length, length), min_size=1, max_size=60)
options = st.builds(
    BatchOptions,
    tokens=st.integers(24, 80),
    count=st.sampled_from(["longer", "both"]),
    sentences=st.sampled_from([None, 1, 3, 100]),
    shuffle=st.booleans(),
    seed=st.integers(0, 3),
    source_pure=st.booleans(),
)


def members(batches: list[Batch]) -> list[list[int]]:
    return [batch.index.tolist() for batch in batches]


@given(lengths=corpora, options=options, epoch=st.integers(0, 3))
def test_every_pair_appears_once_within_the_budget(lengths, options: BatchOptions, epoch: int) -> None:
    corpus = corpus_of(lengths)
    source = TokenBatches(corpus, options)
    batches = list(source.epoch(epoch))
    assert len(batches) == source.batches_in(epoch)
    assert sorted(chain.from_iterable(members(batches))) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch.index) <= (options.sentences or len(lengths))
        assert batch.source.numel() <= options.tokens
        assert batch.target.numel() <= options.tokens
        if options.count == "both":
            assert batch.source.numel() + batch.target.numel() <= options.tokens
        for ids, counts, side in (
            (batch.source, batch.source_lengths, corpus.source),
            (batch.target, batch.target_lengths, corpus.target),
        ):
            assert ids.dtype == counts.dtype == batch.index.dtype == torch.int64
            assert ids.shape == (len(batch.index), int(counts.max()))
            for row, count, index in zip(ids.tolist(), counts.tolist(), batch.index.tolist(), strict=True):
                assert row == side.sentence(index).tolist() + [PAD] * (len(row) - count)
                assert row[count - 1] == EOS


@given(lengths=corpora, options=options, epoch=st.integers(0, 3), skip=st.integers(0, 8))
def test_seed_and_epoch_fix_the_order_and_skipping_goes_on_in_it(lengths, options, epoch: int, skip: int) -> None:
    corpus = corpus_of(lengths)
    first, second = TokenBatches(corpus, options), TokenBatches(corpus, options)
    list(first.epoch(epoch + 1))  # what was read before must not matter
    whole = members(list(first.epoch(epoch)))
    assert members(list(second.epoch(epoch, skip))) == whole[skip:]


def many(pairs: int = 4000, seed: int = 0) -> BinarizedCorpus:
    rng = np.random.default_rng(seed)
    sources = rng.integers(2, 30, pairs)
    targets = np.clip(sources + rng.integers(-4, 5, pairs), 2, None)
    return corpus_of(list(zip(sources.tolist(), targets.tolist(), strict=True)))


def test_epochs_and_seeds_differ_but_shapes_do_not() -> None:
    corpus = many()
    one, two = (TokenBatches(corpus, BatchOptions(tokens=500, seed=seed)) for seed in (1, 2))
    orders = [members(list(source.epoch(epoch))) for source in (one, two) for epoch in (0, 1)]
    assert all(left != right for i, left in enumerate(orders) for right in orders[i + 1 :])
    shapes = [sorted((b.source.shape, b.target.shape) for b in one.epoch(epoch)) for epoch in (0, 5)]
    assert shapes[0] == shapes[1]
    # Not the batches alone change places: they hold other pairs too.
    assert {frozenset(batch) for batch in orders[0]} != {frozenset(batch) for batch in orders[1]}


def test_without_shuffling_every_epoch_is_the_same() -> None:
    source = TokenBatches(many(), BatchOptions(tokens=500, shuffle=False))
    assert members(list(source.epoch(0))) == members(list(source.epoch(9)))


def test_a_large_corpus_has_full_batches_of_equally_long_sources() -> None:
    source = TokenBatches(many(8000), BatchOptions(tokens=800))
    waste = source.waste()
    assert waste.pure > 0.8
    assert waste.fill > 0.9
    assert waste.source_padding < 0.03
    assert waste.target_padding < 0.08
    cells = [max(b.source.numel(), b.target.numel()) for b in source.epoch(0)]
    assert sum(count < 400 for count in cells) <= 1
    assert f"{len(cells)} batches" in waste.sentence


def test_a_small_corpus_is_simply_bucketed_by_length() -> None:
    source = TokenBatches(many(300), BatchOptions(tokens=800))
    waste = source.waste()
    assert waste.fill > 0.8
    assert waste.target_padding < 0.2


@given(lengths=corpora, options=options)
def test_waste_is_what_counting_gives(lengths, options: BatchOptions) -> None:
    source = TokenBatches(corpus_of(lengths), options)
    batches = list(source.epoch(0))
    waste = source.waste()
    padding = sum(int((batch.target == PAD).sum()) for batch in batches)
    assert waste.target_padding == pytest.approx(padding / sum(batch.target.numel() for batch in batches))
    pure = sum(int(batch.source_lengths.min() == batch.source_lengths.max()) for batch in batches)
    assert waste.pure == pytest.approx(pure / len(batches))
    assert waste.batches == len(batches)


def test_what_cannot_be_batched_is_refused() -> None:
    corpus = corpus_of([(3, 9)])
    with pytest.raises(OptionError, match="tokens expects at least 9"):
        TokenBatches(corpus, BatchOptions(tokens=8))
    with pytest.raises(InputError, match="empty"):
        TokenBatches(BinarizedCorpus.from_pairs([]))


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"sentences": 0}, {"seed": -1}])
def test_impossible_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(wrong))} expects"):
        BatchOptions(**wrong)  # type: ignore[arg-type]
