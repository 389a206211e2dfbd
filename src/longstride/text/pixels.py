"""Pictures as text, so that all that is done with lines can be done with them: files, batches, decoders, records.

A picture is a square of pixels of three values (red, green, blue) from 0 to 255. Its line holds them row after row, two
hexadecimal digits each; its ids are 5 + value, so that the distance of two ids is that of the intensities. There is
nothing to be unknown, and no reserved id but EOS may ever be generated.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from longstride.contract import RESERVED, InputError, SpecialIds
from longstride.contract.symbols import EOS
from longstride.text.tokenizer import PIXELS_HEADER, Tokenizer

CHANNELS = 3
FIRST = len(RESERVED)
"""The id of intensity 0."""
VALUES = 256

Picture = NDArray[np.uint8]
"""[pixels, pixels, 3]"""


@final
class PixelTokenizer(Tokenizer):
    """Intensities to ids and back; nothing is learnt, and all models of pictures have the same."""

    kind = "pixels"
    size = FIRST + VALUES
    special = SpecialIds(unk=None, suppress=tuple(id for id in range(FIRST) if id != EOS))

    @property
    def serialized(self) -> bytes:
        """A header alone."""
        return PIXELS_HEADER

    def encode_many(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """The ids of many pictures."""
        return [(np.frombuffer(_bytes(text), dtype=np.uint8).astype(np.int64) + FIRST).tolist() for text in texts]

    def decode_many(self, rows: Sequence[Sequence[int]], threads: int | None = None) -> list[str]:
        """The lines of many rows of ids."""
        return [bytes(int(id) - FIRST for id in row if id >= FIRST).hex() for row in rows]

    def as_decoded(self, text: str) -> str:
        """In small letters, without spaces."""
        return _bytes(text).hex()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Intensities as decimal numbers."""
        return [RESERVED[id] if id < FIRST else str(id - FIRST) for id in ids]


def line_of(picture: Picture) -> str:
    """A picture as a line of text."""
    return picture.tobytes().hex()


def picture_of(line: str, where: str = "a picture") -> Picture:
    """A line as a picture; `where` stands in errors."""
    values = _bytes(line, where)
    pixels = math.isqrt(len(values) // CHANNELS)
    if not values or pixels * pixels * CHANNELS != len(values):
        raise InputError(f"{where}: expected a square of pixels of {CHANNELS} values each, found {len(values)} values.")
    return np.frombuffer(values, dtype=np.uint8).reshape(pixels, pixels, CHANNELS)


def reduced(picture: NDArray[np.uint8], scale: int) -> NDArray[np.uint8]:
    """[..., pixels, pixels, 3] -> as many pixels divided by `scale`: the mean of each block, rounded"""
    *front, height, width, channels = picture.shape
    blocks = picture.reshape(*front, height // scale, scale, width // scale, scale, channels)
    means: Picture = np.rint(blocks.mean(axis=(-4, -2))).astype(np.uint8)
    return means


def read_pictures(path: str | os.PathLike[str]) -> dict[str, NDArray[np.uint8]]:
    """The arrays [pictures, pixels, pixels, 3] of a NumPy file (.npz), by name."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found: dict[str, Any] = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"{path}: expected a file of pictures (.npz), found none.") from None
    except (OSError, ValueError, AttributeError, KeyError, EOFError) as error:
        raise InputError(f"{path}: expected a file of pictures (.npz), found something else ({error}).") from None
    for name, array in found.items():
        if array.dtype != np.uint8 or array.ndim != 4 or array.shape[1] != array.shape[2] or array.shape[3] != CHANNELS:
            raise InputError(
                f"{path}, {name}: expected bytes [pictures, pixels, pixels, {CHANNELS}], found {array.dtype} "
                f"{list(array.shape)}."
            )
    if not found:
        raise InputError(f"{path}: expected at least one array of pictures, found none.")
    return found


def _bytes(text: str, where: str = "") -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        told = f"{where}: expected" if where else "Expected"
        raise InputError(f"{told} a picture, two hexadecimal digits for each value, found {shown!r}.") from None
