"""Picture files of people, by Pillow: any format in, PNG out; grids of pictures, and pictures inside a web page."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longstride.cli.streams import result_files
from longstride.contract import InputError, OptionError
from longstride.runtime.libraries import package
from longstride.text.files import output_file

if TYPE_CHECKING:
    from longstride.text.pixels import Picture

GAP = 2
"""Pixels between two pictures of a grid, before it is magnified."""


@dataclass(frozen=True)
class Photograph:
    """A picture of a person, made ready for a model."""

    found: tuple[int, int]
    """its width and height"""
    side: int
    """pixels a side of the middle square that was taken of it"""
    picture: Picture
    """that square, reduced"""


def read_photograph(path: Path, pixels: int) -> Photograph:
    """The middle square of a picture file, reduced to so many pixels a side by averaging; transparent parts on white.

    It is turned as its camera says. A square of fewer pixels is enlarged by repeating them.
    """
    import numpy as np

    image, operations = package("PIL.Image", "images"), package("PIL.ImageOps", "images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", image.DecompressionBombWarning)
            with image.open(path) as opened:
                turned = operations.exif_transpose(opened).convert("RGBA")
    except FileNotFoundError:
        raise InputError(f"{path}: expected a picture, found no file.") from None
    except (image.DecompressionBombError, image.DecompressionBombWarning):
        raise InputError(
            f"{path}: expected a picture of at most {image.MAX_IMAGE_PIXELS:,} pixels, found more."
        ) from None
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path}: expected a picture that Pillow can read, found something else ({error}).") from None
    flat = image.alpha_composite(image.new("RGBA", turned.size, "white"), turned).convert("RGB")
    width, height = flat.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    square = flat.crop((left, top, left + side, top + side)).resize((pixels, pixels), image.Resampling.BOX)
    return Photograph((width, height), side, np.asarray(square, dtype=np.uint8))


def png(picture: Picture) -> bytes:
    """A picture [height, width, 3] as a PNG file."""
    file = io.BytesIO()
    package("PIL.Image", "images").fromarray(picture).save(file, format="PNG")
    return file.getvalue()


def write_png(path: Path, picture: Picture) -> None:
    """Write a picture, whole or not at all."""
    with output_file(path) as file:
        file.write(png(picture))


def inlined(picture: Picture) -> str:
    """A picture as the address of an image in a web page."""
    return f"data:image/png;base64,{base64.b64encode(png(picture)).decode('ascii')}"


def png_file(path: Path) -> Path:
    """The file to write; a name that does not end in .png is refused: that is what will be in it."""
    if path.suffix.lower() != ".png" and str(path) not in ("-", "/dev/stdout"):
        raise OptionError(f"{path}: expected a name that ends in .png, found {path.suffix or 'none'!r}.")
    (found,) = result_files(path)
    assert found is not None
    return found


def grid(rows: Sequence[Sequence[Picture]], magnify: int) -> Picture:
    """Rows of pictures on white, each as large as the largest; smaller ones have their pixels repeated."""
    import numpy as np

    largest = max(len(picture) for row in rows for picture in row)
    step, across = largest + GAP, max(len(row) for row in rows)
    sheet: Any = np.full((len(rows) * step - GAP, across * step - GAP, 3), 255, dtype=np.uint8)
    for down, row in enumerate(rows):
        for place, picture in enumerate(row):
            times = largest // len(picture)
            wide = picture.repeat(times, axis=0).repeat(times, axis=1)
            sheet[down * step : down * step + len(wide), place * step : place * step + len(wide)] = wide
    found: Picture = sheet.repeat(magnify, axis=0).repeat(magnify, axis=1)
    return found
