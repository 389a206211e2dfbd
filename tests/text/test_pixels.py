"""Pictures as lines and ids: nothing is lost, distances of ids are those of intensities, what is none is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import EOS, InputError
from longstride.text.pixels import FIRST, PixelTokenizer, line_of, picture_of, read_pictures, reduced
from longstride.text.tokenizer import load_tokenizer
from longstride.verification.acceptance import Rule, stands, summarise


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_a_picture_comes_back(pixels: int, seed: int) -> None:
    picture = np.random.default_rng(seed).integers(0, 256, (pixels, pixels, 3), dtype=np.uint8)
    tokenizer = PixelTokenizer()
    line = line_of(picture)
    ids = tokenizer.encode(line)
    assert ids == [
        FIRST + int(value) for value in picture.flatten()
    ]  # row after row, pixel by pixel, channel by channel
    assert tokenizer.decode([*ids, EOS]) == line == tokenizer.as_decoded(line.upper())
    assert np.array_equal(picture_of(line), picture)


def test_the_tokenizer_is_known_by_its_file(tmp_path: Path) -> None:
    PixelTokenizer().save(tmp_path / "pixels.model")
    found = load_tokenizer(tmp_path / "pixels.model")
    assert isinstance(found, PixelTokenizer)
    assert found.size == 261
    assert found.pieces([EOS, FIRST, FIRST + 255]) == ["</s>", "0", "255"]


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 20))
def test_distance_is_that_of_intensities(draft: int, best: int, allowed: int) -> None:
    """|u - v| of the intensities decides, black (next to the reserved ids) included; the end is no intensity."""
    special = PixelTokenizer.special
    logits = torch.zeros(1, 2, 261)
    logits[0, 0, FIRST + best] = 5.0
    forbidden = torch.tensor(special.never_generated)
    for drafted, length, expected in (
        (FIRST + draft, 9, abs(draft - best) <= allowed),
        (EOS, 9, False),
        (FIRST + draft, 0, False),
        *((reserved, 9, False) for reserved in special.never_generated),
    ):
        ids = torch.tensor([[drafted]])
        read = summarise(logits, torch.tensor([[0, 1]]), torch.tensor([length]), forbidden, min(length, 9), ids)
        rule = Rule("distance", distance=allowed)
        assert stands(rule, ids, read, special.eos).item() is expected


def test_reducing_takes_the_mean_of_each_block() -> None:
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    small = reduced(picture, 2)
    assert small.shape == (2, 2, 3)
    assert small[0, 0, 0] == np.rint(np.mean([0, 3, 12, 15]))
    assert np.array_equal(reduced(picture[None], 2)[0], small)
    assert np.array_equal(reduced(picture, 1), picture)


@pytest.mark.parametrize("line", ["xy", "abc", "00" * 5, ""])
def test_lines_that_are_no_pictures_are_refused(line: str) -> None:
    with pytest.raises(InputError, match=r"^here: expected a (picture|square)"):
        picture_of(line, "here")


def test_files_that_hold_no_pictures_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "some.npz"
    with pytest.raises(InputError, match="found none"):
        read_pictures(file)
    file.write_text("no pictures")
    with pytest.raises(InputError, match="found something else"):
        read_pictures(file)
    np.savez(file, train=np.zeros((2, 4, 5, 3), dtype=np.uint8))
    with pytest.raises(InputError, match=r"train: expected bytes .* found uint8 \[2, 4, 5, 3\]"):
        read_pictures(file)
