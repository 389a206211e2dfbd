"""The mean of checkpoints: exact where there is nothing to average."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from longstride.contract import OptionError
from longstride.training.checkpoints import average
from longstride.training.validation import Validator
from tests.training.toys import ToySource, toy_trainer, train_toy


@settings(max_examples=30)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8), st.integers(1, 7))
def test_weights_that_stayed_come_out_bit_for_bit(numbers: list[float], count: int) -> None:
    frozen = torch.tensor([*numbers, -0.0], dtype=torch.float32)
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(count)]
        for path in paths:
            path.mkdir()
            save_file({"weight": frozen}, path / "model.safetensors")
        found = average(paths)["weight"]
    assert torch.equal(found.view(torch.int32), frozen.view(torch.int32))


# --- not of more than the end of a run -------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    steps=st.integers(1, 60),
    every=st.integers(0, 70),
    batches=st.integers(1, 9),
    count=st.integers(1, 6),
    span=st.sampled_from([0.1, 0.25, 0.5, 1.0]),
)
def test_a_run_whose_last_checkpoints_lie_too_far_apart_is_refused(
    steps: int, every: int, batches: int, count: int, span: float
) -> None:
    saved = [step for step in range(1, steps) if step % (every or batches) == 0] + [steps]
    told = {"steps": steps, "checkpoint_every": every, "keep": count, "average": "last", "average_count": count}
    told |= {"average_span": span, "data": ToySource(batches)}
    with TemporaryDirectory() as folder:
        if steps - saved[-count:][0] > span * steps:
            with pytest.raises(OptionError, match=r"training\.\w+ expects 1 to \d+, so .* \(training\.average_span\)"):
                toy_trainer(Path(folder), **told)
        else:
            toy_trainer(Path(folder), **told)


def test_what_is_refused_says_what_would_do(tmp_path: Path) -> None:
    """As the recipes that averaged from the end of warm-up on."""
    told = {"average": "last", "average_count": 5, "keep": 5, "steps": 2500}
    with pytest.raises(OptionError) as refused:
        toy_trainer(tmp_path, checkpoint_every=500, **told)
    assert str(refused.value) == (
        "training.checkpoint_every expects 1 to 156, so that all checkpoints that are averaged are of the last 25% of "
        "2,500 updates (training.average_span), found 500."
    )
    with pytest.raises(OptionError, match=r"training\.average_count expects 1 to 3, so .* of 8 updates .*, found 5\."):
        toy_trainer(tmp_path, checkpoint_every=1, **{**told, "steps": 8})
    toy_trainer(tmp_path, checkpoint_every=156, **told)
    toy_trainer(tmp_path, checkpoint_every=500, average_span=0.8, **told)


@pytest.mark.parametrize(("kind", "averaged"), [("last", (12, 14, 16)), ("best", (4, 6, 8))])
def test_a_run_that_ends_early_averages_what_lies_together(
    tmp_path: Path, kind: str, averaged: tuple[int, ...]
) -> None:
    """Of 40 updates 16 are made: a quarter of these is 4, and the best is the third of eight validations."""
    scores = itertools.chain([5, 6, 9, 8, 1, 2, 3, 7], itertools.repeat(0))
    validator = Validator("score", 2, True, lambda model: next(scores))
    changes = {"keep": 4, "keep_best": 4, "average": kind, "average_count": 4, "checkpoint_every": 2}
    _, result = train_toy(tmp_path, validators=[validator], monitor="score", patience=5, steps=40, **changes)
    assert (result.reason, result.step) == ("patience", 16)
    assert result.averaged == averaged
