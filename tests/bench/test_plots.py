import dataclasses
import itertools
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.bench.drawing import spread_apart
from longstride.bench.plots import marker, plots, speed_ticks
from longstride.bench.races import Race

from .conftest import make_latency
from .test_tables import race


def test_a_race_has_three_figures_each_the_same_every_time() -> None:
    pytest.importorskip("matplotlib")
    for plot in plots(race()):
        drawn = plot.svg()
        assert drawn == plot.svg()
        assert marker(plot.digest).encode() in drawn
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert [plot.name.rpartition("-")[2] for plot in plots(race())] == ["quality", "lengths", "sentences"]


def test_few_records_and_equal_scores_can_be_drawn() -> None:
    pytest.importorskip("matplotlib")
    greedy = make_latency("greedy", role="baseline", sentences=1)
    same = make_latency("same", sentences=1, order=1)
    for records in ((greedy,), (greedy, same)):
        for plot in plots(Race(records)):
            assert plot.png().startswith(b"\x89PNG")


def test_figures_change_their_digest_with_the_data_alone() -> None:
    before = [plot.digest for plot in plots(race())]
    assert before == [plot.digest for plot in plots(race())]
    first = race().records[0]
    slower = dataclasses.replace(
        first, latencies_us=tuple(tuple(t + 1 for t in readings) for readings in first.latencies_us)
    )
    after = [plot.digest for plot in plots(Race((slower, *race().records[1:])))]
    assert not set(before) & set(after)
    assert len(set(before)) == 3


def test_without_a_baseline_or_in_batches_nothing_is_drawn() -> None:
    assert plots(Race((make_latency("alone"),))) == []
    assert plots(race(batch_size=8)) == []


@given(st.lists(st.floats(-1000, 1000), max_size=20), st.floats(0.1, 50))
def test_spread_labels_keep_their_distance_and_order(heights: list[float], gap: float) -> None:
    wanted = sorted(heights)
    placed = spread_apart(wanted, gap)
    assert len(placed) == len(wanted)
    assert all(above - below >= gap * (1 - 1e-6) for below, above in itertools.pairwise(placed))
    if all(above - below >= gap for below, above in itertools.pairwise(wanted)):
        assert placed == pytest.approx(wanted)


def test_ticks_are_round_and_enough() -> None:
    assert speed_ticks(0.4, 15.0) == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert speed_ticks(0.6, 1.4) == [0.625, 0.75, 0.875, 1.0, 1.25]
    assert speed_ticks(0.9, 3.5) == [1.0, 1.5, 2.0, 3.0]
