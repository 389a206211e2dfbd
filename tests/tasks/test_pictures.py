"""PSNR and SSIM are scikit-image's, picture by picture, and their means are resampled like any other score."""

from __future__ import annotations

import numpy as np
import pytest

from longstride.contract import InputError
from longstride.tasks.bootstrap import paired_bootstrap
from longstride.tasks.pictures import MOST, Psnr, Ssim, enlarged, picture_metrics, score_pictures
from longstride.text.pixels import line_of, picture_of, reduced

metrics = pytest.importorskip("skimage.metrics")


def _pictures(seed: int, count: int = 4, pixels: int = 8) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return list(random.integers(0, 256, (count, pixels, pixels, 3), dtype=np.uint8))


def test_scores_are_those_of_scikit_image() -> None:
    outputs, references = _pictures(1), _pictures(2)
    lines = [[line_of(one) for one in each] for each in (outputs, references)]
    pairs = list(zip(references, outputs, strict=True))
    psnr = [metrics.peak_signal_noise_ratio(reference, output, data_range=255) for reference, output in pairs]
    ssim = [
        metrics.structural_similarity(reference, output, channel_axis=2, data_range=255) for reference, output in pairs
    ]
    assert Psnr().score(*lines).value == pytest.approx(np.mean(psnr))
    assert Ssim().score(*lines).value == pytest.approx(np.mean(ssim))
    mean_squared = np.mean((references[0].astype(float) - outputs[0]) ** 2)
    assert psnr[0] == pytest.approx(10 * np.log10(255**2 / mean_squared))


def test_what_equals_its_reference_is_finite() -> None:
    lines = [line_of(one) for one in _pictures(1)]
    assert Psnr().score(lines, lines).value == MOST
    assert Ssim().score(lines, lines).value == 1


def test_the_floor_and_the_difference() -> None:
    truth = [picture_of(line_of(enlarged(one, 8))) for one in _pictures(3, pixels=2)]
    sources, references = [line_of(reduced(one, 4)) for one in truth], [line_of(one) for one in truth]
    outputs = [line_of(one) for one in _pictures(4)]
    names = [score.name for score in score_pictures(outputs, sources, references)]
    assert names == ["PSNR", "SSIM", "PSNR (bicubic)", "SSIM (bicubic)"]
    by_name = {score.name: score.value for score in score_pictures(outputs, sources, references)}
    assert by_name["PSNR (bicubic)"] > by_name["PSNR"]
    for metric in picture_metrics():
        found = paired_bootstrap(metric, references, outputs, references, resamples=20)
        assert found.difference > 0


def test_pictures_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="output 1: expected 8 x 8 pixels, as its reference has, found 4 x 4"):
        Psnr().score([line_of(_pictures(1, 1, 4)[0])], [line_of(_pictures(1, 1, 8)[0])])
    with pytest.raises(InputError, match="at least 7 x 7"):
        Ssim().score([line_of(_pictures(1, 1, 4)[0])], [line_of(_pictures(2, 1, 4)[0])])
