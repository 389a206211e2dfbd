"""Length filtering against a loop over pairs."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import OptionError
from longstride.text.filtering import FilterReport, LengthFilter

lengths = st.integers(1, 12)


@given(
    pairs=st.lists(st.tuples(lengths, lengths)),
    least=st.integers(1, 4),
    most=st.sampled_from([0, 4, 8]),
    ratio=st.sampled_from([0.0, 1.0, 1.5, 3.0]),
    cut=st.sampled_from([0, 5, 9]),
)
def test_it_keeps_what_a_loop_keeps(
    pairs: list[tuple[int, int]], least: int, most: int, ratio: float, cut: int
) -> None:
    expected, reasons = [], {"too_short": 0, "too_long": 0, "out_of_ratio": 0, "cut": 0}
    for index, (whole, target) in enumerate(pairs):
        source = min(whole, cut or whole)
        if min(source, target) < least:
            reasons["too_short"] += 1
        elif most and max(source, target) > most:
            reasons["too_long"] += 1
        elif ratio and max(source, target) > ratio * min(source, target):
            reasons["out_of_ratio"] += 1
        else:
            expected.append(index)
            reasons["cut"] += source < whole
    arrays = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    kept, report = LengthFilter(least, most, ratio, cut).apply(arrays[:, 0], arrays[:, 1])
    assert kept.tolist() == expected
    assert asdict(report) == {"seen": len(pairs), "kept": len(expected), **reasons}


def test_the_report_reads_as_a_sentence_and_adds_up() -> None:
    report = FilterReport(60, 57, 1, 2, 0) + FilterReport(40, 40)
    assert report.sentence == "kept 97 of 100 pairs (97.0 %); left out 3: 1 too short, 2 too long"
    assert FilterReport(9, 9, cut=2).sentence == "kept 9 of 9 pairs (100.0 %); 2 sources cut"
    assert FilterReport(5, 5).sentence == "kept 5 of 5 pairs (100.0 %)"


@pytest.mark.parametrize("wrong", [{"min_tokens": 0}, {"max_tokens": 1}, {"max_ratio": 0.5}, {"cut_source": 1}])
def test_impossible_options_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(wrong))} expects"):
        LengthFilter(**wrong)  # type: ignore[arg-type]
