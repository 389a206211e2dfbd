"""Schedules against their closed forms, written out a second time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import OptionError
from longstride.contract.options import parse
from longstride.training.options import Schedule, TrainingOptions

steps = st.integers(1, 5000)
warmups = st.integers(1, 1000)


@given(steps, warmups)
def test_noam(step: int, warmup: int) -> None:
    schedule = Schedule(kind="noam", scale=2.0, width=256, warmup=warmup)
    expected = 2.0 * 256**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert schedule.rate(step) == pytest.approx(expected, rel=1e-12)


@given(steps, warmups)
def test_inverse_square_root(step: int, warmup: int) -> None:
    schedule = Schedule(kind="inverse-sqrt", peak=1e-3, warmup=warmup)
    expected = 1e-3 * min(step / warmup, math.sqrt(warmup / step))
    assert schedule.rate(step) == pytest.approx(expected, rel=1e-12)


@given(steps, warmups, st.floats(0, 1e-4))
def test_linear_and_cosine(step: int, warmup: int, floor: float) -> None:
    total = warmup + 2000
    share = min(1.0, max(0, step - warmup) / 2000)
    for kind, remaining in (("linear", 1 - share), ("cosine", (1 + math.cos(math.pi * share)) / 2)):
        schedule = Schedule(kind=kind, peak=1e-3, warmup=warmup, floor=floor, total_steps=total)  # type: ignore[arg-type]
        expected = 1e-3 * step / warmup if step < warmup else floor + (1e-3 - floor) * remaining
        assert schedule.rate(step) == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert schedule.rate(warmup) == pytest.approx(1e-3)
        assert schedule.rate(total) == pytest.approx(floor, abs=1e-15)
        assert schedule.rate(total + 7) == pytest.approx(floor, abs=1e-15)


@given(steps, warmups)
def test_constant(step: int, warmup: int) -> None:
    assert Schedule(kind="constant", peak=0.5, warmup=warmup).rate(step) == pytest.approx(0.5 * min(1, step / warmup))


def test_floors_hold_after_the_warmup() -> None:
    for schedule in (
        Schedule(kind="noam", warmup=10, floor=1e-3),
        Schedule(kind="inverse-sqrt", warmup=10, floor=1e-4, peak=1e-3),
    ):
        assert schedule.rate(10**9) == schedule.floor


def test_no_warmup_starts_at_the_peak() -> None:
    for kind in ("inverse-sqrt", "linear", "cosine", "constant"):
        schedule = Schedule(kind=kind, peak=0.1, warmup=0, total_steps=1000)  # type: ignore[arg-type]
        assert schedule.rate(1) == pytest.approx(0.1, rel=2e-3)


def test_the_run_gives_the_end() -> None:
    schedule = Schedule(kind="linear", peak=1.0, warmup=0)
    with pytest.raises(OptionError, match="total_steps"):
        schedule.rate(1)
    assert schedule.for_run(10).rate(5) == pytest.approx(0.5)
    assert Schedule(kind="linear", peak=1.0, warmup=0, total_steps=20).for_run(10).rate(5) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "steps or epochs"),
        ({"steps": 5, "accumulation": 0}, "accumulation expects a whole number from 1 to 1000000, found 0"),
        ({"steps": 5, "schedule.peak": 0}, "schedule.peak"),
        ({"steps": 5, "schedule.kind": "noam", "schedule.warmup": 0}, "schedule.warmup expects 1"),
        ({"steps": 5, "schedule.kind": "wavy"}, "noam|inverse-sqrt"),
        ({"steps": 5, "optimizer.beta1": 1}, "beta1"),
        ({"steps": 5, "average": "last", "average_count": 4, "keep": 3}, "keep expects at least"),
        ({"steps": 5, "average": "best", "average_count": 2}, "keep_best expects at least"),
    ],
)
def test_options_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(TrainingOptions, options)


def test_options_are_parsed_from_text() -> None:
    options = parse(
        TrainingOptions, {"steps": "5", "schedule.kind": "linear", "freeze": "encoder.*,re:.*bias", "precision": "bf16"}
    )
    assert options.schedule.kind == "linear"
    assert options.freeze == ("encoder.*", "re:.*bias")
