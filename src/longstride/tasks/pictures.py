"""Super-resolution: pictures of few pixels in, of more out; scored by PSNR and SSIM of scikit-image.

Pictures are lines of text (:mod:`longstride.text.pixels`). Both scores are means over pictures, and so are
compared between systems like any other; the sources enlarged by bicubic interpolation are scored beside, as the floor.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longstride.contract import InputError
from longstride.runtime.libraries import package
from longstride.tasks.score import Figures, Metric, Score, check_pairs
from longstride.text.pixels import Picture, line_of, picture_of

MOST = 100.0
"""Decibels that a picture counts at most: one that equals its reference would make any mean infinite."""


class _OfPictures(Metric):
    """A mean over pictures."""

    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Figures:
        """[pictures, 2]: the picture's own score, and one."""
        check_pairs(outputs, references)
        found = np.ones((len(outputs), 2))
        for place, (line, wanted) in enumerate(zip(outputs, references, strict=True)):
            output = picture_of(line, f"output {place + 1}")
            reference = picture_of(wanted, f"reference {place + 1}")
            if output.shape != reference.shape:
                raise InputError(
                    f"output {place + 1}: expected {len(reference)} x {len(reference)} pixels, as its reference has, "
                    f"found {len(output)} x {len(output)}."
                )
            found[place, 0] = self.of_one(output, reference)
        return found

    def value(self, summed: NDArray[Any]) -> float:
        """The mean."""
        return float(summed[0] / summed[1])

    @abstractmethod
    def of_one(self, output: Picture, reference: Picture) -> float:
        """The score of one picture."""


class Psnr(_OfPictures):
    """Peak signal-to-noise ratio in decibels, over all values of a picture; the mean over pictures."""

    name = "PSNR"

    @property
    def signature(self) -> str:
        """``psnr|rgb|range:255|mean|most:100|scikit-image:0.26.0``"""
        return f"psnr|rgb|range:255|mean|most:{MOST:.0f}|scikit-image:{package('skimage', 'images').__version__}"

    def of_one(self, output: Picture, reference: Picture) -> float:
        """At most 100, where all values are right."""
        if np.array_equal(output, reference):
            return MOST
        measure = package("skimage.metrics", "images").peak_signal_noise_ratio
        return min(MOST, float(measure(reference, output, data_range=255)))


class Ssim(_OfPictures):
    """Structural similarity (Wang et al., 2004), mean over channels, windows and pictures."""

    name = "SSIM"

    @property
    def signature(self) -> str:
        """``ssim|rgb|range:255|window:7|mean|scikit-image:0.26.0``"""
        return f"ssim|rgb|range:255|window:7|mean|scikit-image:{package('skimage', 'images').__version__}"

    def of_one(self, output: Picture, reference: Picture) -> float:
        """From -1 to 1; pictures of fewer pixels than a window have none."""
        if len(reference) < 7:
            raise InputError(f"SSIM expects pictures of at least 7 x 7 pixels, found {len(reference)}.")
        measure = package("skimage.metrics", "images").structural_similarity
        return float(measure(reference, output, channel_axis=2, data_range=255))


def picture_metrics() -> tuple[Metric, ...]:
    """PSNR and SSIM, PSNR first: the one that tables lead with."""
    return (Psnr(), Ssim())


def enlarged(picture: Picture, pixels: int) -> Picture:
    """A picture of so many pixels a side, by bicubic interpolation."""
    resize = package("skimage.transform", "images").resize
    values = resize(picture.astype(np.float64), (pixels, pixels), order=3, mode="edge", anti_aliasing=False)
    wide: Picture = np.rint(values).clip(0, 255).astype(np.uint8)
    return wide


def score_pictures(outputs: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> list[Score]:
    """PSNR and SSIM of outputs, and of the sources enlarged by bicubic interpolation."""
    check_pairs(outputs, references)
    pixels = len(picture_of(references[0], "reference 1"))
    floor = [line_of(enlarged(picture_of(source, f"source {n}"), pixels)) for n, source in enumerate(sources, start=1)]
    found = [metric.score(outputs, references) for metric in picture_metrics()]
    without = [metric.score(floor, references) for metric in picture_metrics()]
    return [*found, *(Score(f"{one.name} (bicubic)", one.value, f"{one.signature}|bicubic") for one in without)]
