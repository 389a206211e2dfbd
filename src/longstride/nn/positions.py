"""Position embeddings. Positions are explicit integers; negative ones serve orders that count from the end."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.contract import OptionError

CHANNELS = 3
"""Values of a pixel: red, green and blue."""


def sinusoid(positions: Tensor, width: int, kind: str = "marian") -> Tensor:
    """[...] integers -> [..., width] float64: sines in the first half, cosines in the second, rates 10000^(-2i/width).

    This is Marian's layout; fairseq's has rates 10000^(-i/(width/2 - 1)). A negative position has the sines' signs
    flipped and the same cosines.
    """
    steps = width // 2 if kind == "marian" else max(1, width // 2 - 1)
    rates = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64, device=positions.device) / steps)
    angles = positions.to(torch.float64)[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class SinusoidalPositions(nn.Module):
    """A table of sinusoids for positions -longest to longest, the first of which is called `offset`; no weights."""

    table: Tensor

    def __init__(self, width: int, longest: int, kind: str = "marian", offset: int = 0) -> None:
        super().__init__()
        self.longest = longest
        table = torch.empty(2 * longest + 1, width)
        if table.device.type != "meta":  # where shapes alone are asked for, arithmetic would import PyTorch's compiler
            table = sinusoid(torch.arange(-longest, longest + 1) + offset, width, kind).to(table.dtype)
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """[...] -> [..., width]"""
        return F.embedding(positions + self.longest, self.table)

    @property
    def rows(self) -> tuple[Tensor, int]:
        """[positions, width] all of them, and which row is position 0's"""
        return self.table, self.longest


class PicturePositions(SinusoidalPositions):
    """Sinusoids of the row and of the column that a value of a picture is in, and an angle for its channel; no weights.

    Values come pixel by pixel, row after row, three channels to a pixel. A source of fewer pixels has coordinates in
    the output's: a pixel of it lies in the middle of those that it covers. As in the Image Transformer (section 3.1)
    rows and columns share the width; channels, which its reference tells by embeddings of their own, have a part of it.
    """

    def __init__(self, width: int, longest: int, pixels: int, scale: int = 1) -> None:
        """`pixels` in a row, each of which covers `scale` times `scale` of the output's"""
        super().__init__(width, longest)
        if self.table.device.type != "meta":
            places = torch.arange(-longest, longest + 1)
            self.table.copy_(picture_signal(places, width, pixels, scale))


def picture_signal(positions: Tensor, width: int, pixels: int, scale: int = 1) -> Tensor:
    """[n] which value of the picture -> [n, width] float64: 3/8 say the row, 3/8 the column, a quarter the channel"""
    pixel, part = positions.div(CHANNELS, rounding_mode="floor"), 3 * width // 8
    rates = math.pi / 2 * 64.0 ** (-torch.arange(part // 2, dtype=torch.float64) / (part // 2))
    signals = []
    for place in (pixel.div(pixels, rounding_mode="floor"), pixel % pixels):
        angles = ((place.to(torch.float64) + 0.5) * scale - 0.5)[:, None] * rates
        signals += [angles.sin(), angles.cos()]
    channel = (positions % CHANNELS).to(torch.float64)[:, None] * (2 * math.pi / CHANNELS)
    channel = channel.expand(-1, width // 8)
    return torch.cat([*signals, channel.sin(), channel.cos()], dim=-1)


class LearnedPositions(nn.Module):
    """A trained vector for each position from 0 to longest - 1, behind `offset` rows that nobody reads."""

    def __init__(self, width: int, longest: int, offset: int = 0) -> None:
        super().__init__()
        self.longest, self.offset = longest, offset
        self.weight = nn.Parameter(torch.randn(longest + offset, width) * width**-0.5)

    def forward(self, positions: Tensor) -> Tensor:
        """[...] -> [..., width]"""
        return F.embedding(positions + self.offset if self.offset else positions, self.weight)

    @property
    def rows(self) -> tuple[Tensor, int]:
        """[positions, width] all of them, and which row is position 0's"""
        return self.weight, self.offset


class NoPositions(nn.Module):
    """Nothing at all, at every position."""

    table: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(1, width), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """[...] -> [..., width]"""
        return F.embedding(torch.zeros_like(positions), self.table)

    @property
    def rows(self) -> tuple[Tensor, int]:
        """As the others say where their rows lie: there is none to be read."""
        return self.table, 0


Positions = SinusoidalPositions | LearnedPositions | NoPositions


def make_positions(
    kind: str,
    width: int,
    longest: int,
    sinusoid: str = "marian",
    offset: int = 0,
    picture: tuple[int, int] = (32, 1),
) -> Positions:
    """The position embedding of a kind named in the options; `picture`: see :class:`PicturePositions`."""
    if kind == "sinusoidal":
        return SinusoidalPositions(width, longest, sinusoid, offset)
    if kind == "learned":
        return LearnedPositions(width, longest, offset)
    if kind == "relative":
        return NoPositions(width)
    if kind == "picture":
        return PicturePositions(width, longest, *picture)
    raise OptionError(f"positions expects sinusoidal, learned, relative or picture, found {kind!r}.")


class RelativeBias(nn.Module):
    """What is added to attention scores by how far apart query and key are: a trained number per head and bucket.

    Near distances have buckets of their own, further ones share them, ever more to a bucket (T5, section 2.1). With
    `both`, half of the buckets are for keys behind the query; else these are never seen.
    """

    buckets: Tensor

    def __init__(self, heads: int, count: int, distance: int, longest: int, both: bool) -> None:
        super().__init__()
        self.longest = longest
        self.weight = nn.Parameter(torch.randn(count, heads) * heads**-0.5)
        table = torch.empty(2 * longest + 1, dtype=torch.int64)
        if table.device.type != "meta":
            table = _bucket(torch.arange(-longest, longest + 1), count, distance, both)
        self.register_buffer("buckets", table, persistent=False)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions [rows, queries] and [keys], or [rows, 1, keys] -> [rows, heads, queries, keys]"""
        apart = (keys - queries[..., None]).clamp(-self.longest, self.longest) + self.longest
        # A table by distance: looked up once more, the bucket is worked out beforehand.
        return F.embedding(apart, F.embedding(self.buckets, self.weight)).permute(0, 3, 1, 2)


def _bucket(apart: Tensor, count: int, distance: int, both: bool) -> Tensor:
    """[n] key minus query -> [n] which bucket that is"""
    found = torch.zeros_like(apart)
    if both:
        count //= 2
        found = (apart > 0).long() * count
        apart = apart.abs()
    else:
        apart = (-apart).clamp(min=0)
    near = count // 2
    scaled = (apart.clamp(min=1).float() / near).log() / math.log(distance / near) * (count - near)
    far = (near + scaled.long()).clamp(max=count - 1)
    return found + torch.where(apart < near, apart, far)
