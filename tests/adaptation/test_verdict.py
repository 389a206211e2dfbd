"""The card tells an undertrained drafter from one that does not pay, and what to try."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from longstride.adaptation.options import AdaptOptions
from longstride.adaptation.verdict import over_greedy, steps_of_an_iteration, verdict
from tests.bench.conftest import make_latency

UNDERTRAINED, HOPELESS, PAYS = "The drafter is undertrained", "Drafts do not pay here.", "Drafts pay here."


def stages(
    right: list[float], passes: float = 10.0, tokens: float | None = None, updates: int = 1_000
) -> dict[str, Any]:
    """Return the figures of a run; losses fall as drafts grow."""
    curve = [{"updates": 10 * place, "loss": 6 - one, "right": one} for place, one in enumerate(right, start=1)]
    found = {"k": 10, "tokens_per_iteration": right[-1] + 1 if tokens is None else tokens}
    return {
        "decode": {"tokens": 20_000, "kept": 1_000},
        "train": {"updates": 1_000, "passes": passes, "epochs": int(passes), "curve": curve},
        "exactness": {"1": found, "32": found, "seconds": 1.0},
        "lengths": {"lengths": "1:10", "milliseconds": {"1": {"0": 2.0, "10": 3.0}}},
    }


GROWING = [place / 5 for place in range(1, 11)]
FLAT = [1.0, 1.2, 1.3, 1.35, 1.38, 1.39, 1.395, 1.4, 1.4, 1.4]


def test_a_training_that_was_too_short_is_not_held_against_drafts() -> None:
    for found in (stages(GROWING), stages(FLAT, passes=0.9), stages([1.0, 1.0])):
        told = verdict(found, False, [], AdaptOptions(minutes=2))
        assert told.startswith(UNDERTRAINED)
        assert "To try: `--minutes 20`" in told
        assert HOPELESS not in told
    assert "`--updates 4000`" in verdict(stages(GROWING), False, [], AdaptOptions(updates=1_000))
    assert "`--minutes 80`" in verdict(stages(GROWING), True, [], AdaptOptions())


def test_where_nothing_more_is_learnt_drafts_do_not_pay_and_it_says_why() -> None:
    told = verdict(stages(FLAT), False, [], AdaptOptions())
    assert told.startswith(HOPELESS)
    assert "2.40 tokens an iteration after 1,000 updates, 10.0 passes over the lines" in told
    assert "An iteration with a draft takes as long as 3.6 steps of greedy search" in told
    assert "allow 11.0." in told
    assert "--minutes" not in told
    assert steps_of_an_iteration({**stages(FLAT), "lengths": {"lengths": "1:10"}}) is None


def test_where_an_iteration_costs_more_than_outputs_are_long_training_is_not_advised() -> None:
    """A model of one layer and outputs of a few tokens: a draft of ten costs as much as the whole output."""
    found = stages(GROWING)
    assert verdict(found, False, [], AdaptOptions()).startswith(UNDERTRAINED)
    found["decode"] = {"tokens": 6_000, "kept": 1_000}
    told = verdict(found, False, [], AdaptOptions())
    assert told.startswith("Drafts can hardly pay on this device")
    assert "as long as 4.5 steps of greedy search" in told
    assert "the lengths of outputs and drafts allow 7.0." in told
    assert "--minutes" not in told


def test_few_lines_and_missing_kinds_of_text_are_named() -> None:
    assert "To try: more lines." in verdict(stages(FLAT, passes=200), True, [], AdaptOptions())
    assert "like those held out" in verdict(stages(FLAT, tokens=1.5), True, [], AdaptOptions())
    assert "To try" not in verdict(stages(FLAT), True, [], AdaptOptions())


@given(st.lists(st.floats(0.01, 9), min_size=1, max_size=10), st.floats(0, 500), st.floats(1, 12), st.booleans())
def test_hopeless_is_said_only_of_a_flat_curve_after_enough_passes(
    right: list[float], passes: float, tokens: float, pays: bool
) -> None:
    told = verdict(stages(right, passes, tokens), pays, [], AdaptOptions())
    assert told.startswith(PAYS) == pays
    if HOPELESS in told:
        assert passes >= 3
        assert right[-1] <= 1.02 * right[-3]
    assert (UNDERTRAINED in told) <= ("To try: `--minutes" in told)


def test_ratios_have_an_interval_where_there_are_readings_enough() -> None:
    greedy, fast = make_latency("greedy"), make_latency("draft-verify", 2.0)
    assert over_greedy(greedy, greedy) == "1.00"
    told = over_greedy(fast, greedy)
    value, low, high = (float(part) for part in told.replace("(", "").replace(")", "").replace(" to", "").split())
    assert 1.8 < low < value < high < 2.3
    few = [make_latency(name, speed, sentences=7) for name, speed in (("greedy", 1.0), ("draft-verify", 2.0))]
    assert float(over_greedy(few[1], few[0])) > 1.5, "no interval of seven sentences"
    sample = make_latency("hf generate", sample=tuple(range(5)))
    assert "(" not in over_greedy(sample, greedy)
