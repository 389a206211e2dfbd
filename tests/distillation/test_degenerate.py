from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import OptionError
from longstride.distillation.degenerate import Rules, longest_loop, longest_run, why_degenerate

tokens = st.lists(st.integers(5, 7), max_size=24)


def slow_loop(row: list[int], period: int) -> int:
    """By trying every group at every place."""
    best = 1 if len(row) >= period else 0
    for start in range(len(row) - period + 1):
        group = row[start : start + period]
        if period > 1 and len(set(group)) == 1:
            continue
        count = 1
        while row[start + count * period : start + (count + 1) * period] == group:
            count += 1
        best = max(best, count)
    return best


@given(tokens, st.integers(1, 6))
def test_longest_loop_equals_trying_every_group(row: list[int], period: int) -> None:
    assert longest_loop(row, period) == slow_loop(row, period)


@given(tokens)
def test_a_run_is_a_loop_of_period_one(row: list[int]) -> None:
    assert longest_run(row) == slow_loop(row, 1)


def slow_verdict(source: list[int], output: list[int], limit: int, rules: Rules) -> str | None:
    """The rules without the count that lets most outputs through early."""
    if not output:
        return "empty output" if source else None
    if len(output) >= limit:
        return "length limit"
    if slow_loop(output, 1) > max(rules.max_run, slow_loop(source, 1)):
        return "repeated token"
    for period in range(2, rules.max_period + 1):
        if slow_loop(output, period) > max(rules.max_loops, slow_loop(source, period)):
            return "loop"
    a, b = len(source) + rules.slack, len(output) + rules.slack
    return "length ratio" if max(a, b) > rules.max_ratio * min(a, b) else None


@given(tokens, tokens, st.integers(1, 30), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_verdict_equals_its_slow_twin(
    source: list[int], output: list[int], limit: int, run: int, period: int, loops: int
) -> None:
    rules = Rules(max_run=run, max_period=period, max_loops=loops, max_ratio=1.5, slack=2)
    assert why_degenerate(source, output, limit, rules) == slow_verdict(source, output, limit, rules)


@pytest.mark.parametrize(
    ("source", "output", "limit", "reason"),
    [
        ([5, 6], [], 9, "empty output"),
        ([], [], 9, None),
        ([5, 6], [7, 8, 9], 3, "length limit"),
        ([5, 6, 7], [8] * 8, 99, "repeated token"),
        ([5] * 8, [8] * 8, 99, None),
        ([5, 6, 7], [8, 9] * 4, 99, "loop"),
        ([5, 6] * 4, [8, 9] * 4, 99, None),
        ([5], list(range(10, 40)), 99, "length ratio"),
        (list(range(10, 40)), [5], 99, "length ratio"),
        ([5, 6, 7], [8, 9, 10], 99, None),
    ],
)
def test_each_rule(source: list[int], output: list[int], limit: int, reason: str | None) -> None:
    assert why_degenerate(source, output, limit, Rules()) == reason


@pytest.mark.parametrize("wrong", [{"max_run": 0}, {"max_period": 0}, {"max_ratio": 0.5}, {"slack": -1}])
def test_senseless_rules_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Rules(**wrong)
