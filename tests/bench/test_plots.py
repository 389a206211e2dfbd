"""Figures of a run: every decoder told apart, nothing over anything else, the same bytes for the same data."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.bench.comparison import BenchRun
from longstride.bench.figure import marker
from longstride.bench.plots import main_range, plots

from .conftest import make_latency
from .test_tables import bench_run

# Name, family, speed, BLEU: many on the baseline's line, some nearly on one another, one far below.
MANY = (
    ("verifier beam width=4", "beam", 0.33, 25.1),
    ("small-2 greedy", "greedy", 2.7, 21.9),
    ("small-1 greedy", "greedy", 3.6, 21.5),
    ("heads-tuned blockwise", "blockwise", 2.1, 24.1),
    ("shared draft-verify", "draft-verify", 1.35, 25.0),
    ("shared draft-verify accept=top:3,gap:1", "draft-verify", 1.4, 25.1),
    ("shared draft", "draft", 0.34, 8.9),
    ("heads-frozen blockwise k=4", "blockwise", 1.4, 25.0),
    ("heads-tuned-linked blockwise", "blockwise", 2.2, 24.7),
    ("linked draft-verify", "draft-verify", 2.15, 25.0),
    ("linked draft-verify accept=top:3,gap:1", "draft-verify", 2.25, 24.7),
    ("linked-5 draft-verify", "draft-verify", 2.1, 25.0),
    ("both interleaved", "interleaved", 0.9, 25.5),
    ("both interleaved width=4", "interleaved", 0.4, 25.5),
    ("lattice lattice", "lattice", 6.1, 22.1),
    ("lattice lattice candidates=32", "lattice", 7.0, 20.1),
)


def many_decoders() -> BenchRun:
    records = [
        make_latency("verifier greedy", 1.0, 25.0, "baseline", 0, spread=0.05),
        make_latency("verifier beam", 0.3, 25.1, "baseline", 1, spread=0.05),
    ]
    for order, (name, family, speed, bleu) in enumerate(MANY, start=2):
        made = make_latency(name, speed, bleu, order=order, spread=0.05)
        records.append(dataclasses.replace(made, decoder=f"{family}|fp16"))
    return BenchRun(tuple(records))


class Drawn:
    """A plot's figure itself, laid out as it is in the file."""

    def __init__(self, kind: str) -> None:
        pytest.importorskip("matplotlib")
        (plot,) = [plot for plot in plots(many_decoders()) if plot.name.endswith(f"-{kind}")]
        seen: list[Any] = []

        def draw(figure: Any) -> None:
            plot.draw(figure)
            seen.append(figure)

        dataclasses.replace(plot, draw=draw).svg()
        self.figure = seen[0]
        self.figure.draw_without_rendering()
        self.axes = self.figure.axes[0]
        legends = [*self.figure.legends, *(one.get_legend() for one in self.figure.axes if one.get_legend())]
        self.legend = legends[0] if legends else None

    def box(self, artist: Any) -> tuple[float, float, float, float]:
        extent = artist.get_window_extent(self.figure.canvas.get_renderer())
        return extent.x0, extent.y0, extent.x1, extent.y1


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return min(one[2], other[2]) > max(one[0], other[0]) and min(one[3], other[3]) > max(one[1], other[1])


def test_a_run_has_three_figures_each_the_same_every_time() -> None:
    pytest.importorskip("matplotlib")
    for plot in plots(bench_run()):
        drawn = plot.svg()
        assert drawn == plot.svg()
        assert marker(plot.digest) in drawn
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert [plot.name.rpartition("-")[2] for plot in plots(bench_run())] == ["quality", "lengths", "sentences"]


def test_few_records_and_equal_scores_can_be_drawn() -> None:
    pytest.importorskip("matplotlib")
    greedy = make_latency("greedy", role="baseline", sentences=1)
    same = make_latency("same", sentences=1, order=1)
    for records in ((greedy,), (greedy, same)):
        for plot in plots(BenchRun(records)):
            assert ElementTree.fromstring(plot.svg()).tag.endswith("svg")


def test_figures_change_their_digest_with_the_data_alone() -> None:
    before = [plot.digest for plot in plots(bench_run())]
    assert before == [plot.digest for plot in plots(bench_run())]
    first = bench_run().records[0]
    slower = dataclasses.replace(
        first, latencies_us=tuple(tuple(t + 1 for t in readings) for readings in first.latencies_us)
    )
    after = [plot.digest for plot in plots(BenchRun((slower, *bench_run().records[1:])))]
    assert not set(before) & set(after)
    assert len(set(before)) == 3


def test_without_a_baseline_or_in_batches_nothing_is_drawn() -> None:
    assert plots(BenchRun((make_latency("alone"),))) == []
    assert plots(bench_run(batch_size=8)) == []


@pytest.mark.parametrize("kind", ["quality", "lengths"])
def test_the_legend_tells_every_decoder_apart_and_covers_nothing(kind: str) -> None:
    drawn = Drawn(kind)
    texts = drawn.legend.get_texts()
    assert {text.get_text().partition(" ↓")[0] for text in texts} == {one.candidate for one in many_decoders().records}
    looks = {(line.get_color(), line.get_marker(), line.get_markerfacecolor()) for line in drawn.legend.get_lines()}
    assert len(looks) == len(texts)
    boxes = [drawn.box(text) for text in texts]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    around = [drawn.box(drawn.axes), *(drawn.box(one) for one in drawn.figure.texts)]
    assert not any(overlap(box, other) for box in boxes for other in around)
    right, top = drawn.figure.bbox.x1, drawn.figure.bbox.y1
    assert all(box[0] >= 0 and box[1] >= 0 and box[2] <= right and box[3] <= top for box in boxes)


def test_names_of_the_spread_over_sentences_have_room() -> None:
    drawn = Drawn("sentences")
    boxes = [drawn.box(tick) for tick in drawn.axes.get_yticklabels()]
    assert len(boxes) == len(MANY)
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert all(box[0] >= 0 for box in boxes)


def test_one_far_below_is_at_the_lower_edge_with_its_value() -> None:
    drawn = Drawn("quality")
    low, high = drawn.axes.get_ylim()
    assert 19 < low < 20.1
    assert high < 27
    (below,) = [line for line in drawn.axes.lines if "↓" in str(line.get_label())]
    assert below.get_label().endswith(" ↓ 8.90")
    assert low < below.get_ydata()[0] < low + 0.1 * (high - low)


def test_few_that_are_far_below_are_left_out_of_the_range() -> None:
    many = [20.0 + place / 4 for place in range(20)]
    assert main_range(many) == (20.0, 24.75)
    assert main_range([*many, 8.9]) == (20.0, 24.75)
    assert main_range([8.9, *many, 2.0]) == (20.0, 24.75), "two of 22"
    assert main_range([*many, 16.0]) == (16.0, 24.75), "it does not take half the range"
    assert main_range([*many, 8.9], kept=[20]) == (8.9, 24.75)
    assert main_range([1.0, 1.1, 1.2, *many[:9]]) == (1.0, 22.0), "three of twelve are no exceptions"
    assert main_range([25.0] * 6 + [8.9]) == (8.9, 25.0), "of few none is left out"


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40))
def test_the_range_always_holds_seven_in_eight_and_the_best(values: list[float]) -> None:
    low, high = main_range(values)
    assert high == max(values)
    assert low in values
    assert sum(value < low for value in values) * 8 <= len(values)
