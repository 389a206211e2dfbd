"""Orders, positions, masks and shifts against the paper's own words, for every length up to fifty."""

from __future__ import annotations

import math

import pytest
import torch

from longstride import ops
from longstride.contract import EOS, START, OptionError
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.slots import (
    after_all,
    anchors,
    directions,
    interleave,
    positions_of,
    relaxed,
    rule_of,
    shifted,
    signals,
    slots_of,
)
from tests.decoding.interleaved import in_order

ORDERS = ["side-to-middle", "middle-to-side"]


def sentences(most: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    """One row for every length: words 100, 101, ..., then EOS, then padding."""
    lengths = torch.arange(most + 1)
    columns = torch.arange(most + 2)
    rows = torch.where(columns < lengths[:, None], 100 + columns, 0)
    return torch.where(columns == lengths[:, None], EOS, rows), lengths


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("h", [1, 2, 4, 6, 8])
def test_every_length_comes_back(h, order):
    target, lengths = sentences()
    words = interleave(target, lengths, h, order)
    back = slots_of(torch.arange(words.shape[-1]), lengths, h, order)
    assert torch.equal(words.gather(-1, back), target)
    slots = torch.arange(target.shape[1])
    there = positions_of(slots, lengths, h, order)
    assert torch.equal(slots_of(there, lengths, h, order), slots.expand_as(there))
    options = InterleavingOptions(2, h=h, order=order if h > 1 else "side-to-middle")
    for row, length in enumerate(lengths.tolist()):
        assert words[row, length] == EOS  # after the last word in the order of writing
        assert (words[row, length + 1 :] == 0).all()
        assert in_order(words[row, :length].tolist(), options) == target[row, :length].tolist()


def test_the_orders_that_are_printed():
    def written(text: str, h: int, order: str = "side-to-middle") -> str:
        ids = torch.tensor([[ord(letter) for letter in text]])
        return "".join(chr(id) for id in interleave(ids, torch.tensor([len(text)]), h, order)[0].tolist())

    assert [written("ABCDEF"[:n], 2) for n in range(7)] == ["", "A", "AB", "ACB", "ADBC", "AEBDC", "AFBECD"]
    assert written("ABCDEFG", 4) == "ADEGBCF"
    assert written("ABCDEFGH", 4) == "ADEHBCFG"
    assert written("ABCDE", 2, "middle-to-side") == "CDBEA"
    assert written("ABCD", 2, "middle-to-side") == "BCAD"


@pytest.mark.parametrize("h", [2, 4, 6])
def test_segments_are_roughly_equal_and_only_the_last_step_is_partial(h):
    for length in range(51):
        there = positions_of(torch.arange(length), torch.tensor(length), h).tolist()
        segments = [sorted(there[first::h] + there[first + 1 :: h]) for first in range(0, h, 2)]
        assert [place for segment in segments for place in segment] == list(range(length))
        sizes = [len(segment) for segment in segments]
        assert max(sizes) - min(sizes) <= 2
        # One direction never lags another by more than the words of the last step.
        counts = [len(there[direction::h]) for direction in range(h)]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("h", [1, 2, 4, 6])
def test_anchors_are_in_the_order_of_the_sentence_before_its_length_is_known(h, order):
    room = 23
    for length in range(room + 1):
        slots = torch.arange(length)
        there = anchors(slots, room, h, order)
        expected = positions_of(slots, torch.tensor(length), h, order if h > 1 else "side-to-middle")
        assert there.argsort().tolist() == expected.argsort().tolist()
        assert (there < after_all(room, h)).all()
        assert (there >= 0).all()


def test_positions_are_the_papers():
    slots = torch.arange(12)
    one, two, four = (InterleavingOptions(2, h=h) for h in (1, 2, 4))
    assert signals(slots, one).tolist() == list(range(12))  # Eq. 5
    assert signals(slots, two).tolist() == [(-1) ** (t - 1) * math.ceil(t / 2) for t in range(1, 13)]  # Eq. 7
    assert signals(slots, InterleavingOptions(2, h=2, c=3)).tolist() == signals(slots, two).tolist()
    found = list(zip(signals(slots, four).tolist(), directions(slots, four).tolist(), strict=True))
    assert found == [((t - 1) // 4, (t - 1) % 4) for t in range(1, 13)]  # Eq. 10
    assert signals(slots, InterleavingOptions(2, h=4, signal="vanilla")).tolist() == list(range(12))


@pytest.mark.parametrize("step", [1, 2, 3, 4, 8])
def test_the_mask_is_equation_four(step):
    slots = torch.arange(17)
    found = relaxed(step)(slots[None], slots)[0]
    expected = [[math.ceil(i / step) >= math.ceil(j / step) for j in range(1, 18)] for i in range(1, 18)]
    assert found.tolist() == expected


def test_one_word_per_step_is_causal():
    slots = torch.arange(9)
    causal = ops.causal(slots[None], slots)
    assert torch.equal(relaxed(1)(slots[None], slots), causal)
    for options in (
        InterleavingOptions(2, h=1, c=1),
        InterleavingOptions(2, h=2, c=1, mask="vanilla"),
        InterleavingOptions(2, h=2, c=1, autoregressive=True),
    ):
        assert torch.equal(rule_of(options)(slots[None], slots), causal)


def test_independent_directions_see_nobody_else():
    slots = torch.arange(12)
    seen = rule_of(InterleavingOptions(2, h=2, c=2, independent=True))(slots[None], slots)[0]
    for query in range(12):
        for key in range(12):
            assert seen[query, key] == (key // 4 <= query // 4 and key % 2 == query % 2)


def test_inputs_are_shifted_by_a_step():
    words = torch.tensor([[5, 6, 7, 8, EOS]])
    assert shifted(words, 1, START).tolist() == [[START, 5, 6, 7, 8]]
    assert shifted(words, 2, START).tolist() == [[START, START, 5, 6, 7]]
    assert shifted(words, 8, START).tolist() == [[START] * 5]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"h": 3}, "h expects 1, 2 or an even number of directions, found 3."),
        ({"h": 0}, "h expects a whole number from 1 to 64, found 0."),
        ({"c": 0}, "c expects a whole number from 1 to 64, found 0."),
        ({"h": 1, "order": "middle-to-side"}, "middle-to-side expects two directions or more, found h 1."),
        ({"independent": True, "autoregressive": True}, "found autoregressive: true."),
        ({"c": 2, "autoregressive": True}, "autoregressive expects c 1, found 2"),
        ({"width": 0}, "width expects a whole number from 1 to 65536, found 0."),
    ],
)
def test_bad_options_are_refused(settings, told):
    with pytest.raises(OptionError) as refused:
        InterleavingOptions(**{"width": 2, **settings})
    assert told in str(refused.value)
