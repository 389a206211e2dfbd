"""Quality against speed-up of many decoders: numbers that cover nothing, a list of names, outliers at the edge."""

from __future__ import annotations

import dataclasses
import re
from itertools import combinations
from typing import Any

import pytest

from longstride.bench import drawing
from longstride.bench.crowds import overlap
from longstride.bench.plots import MOST_NAMES, WIDTH, Plot, plots
from longstride.bench.races import Race

from .conftest import make_latency

# Name, family, speed, BLEU: many on the baseline's line, some nearly on one another, one far below.
CROWD = (
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
    ("both-sa interleaved", "interleaved", 1.5, 22.9),
    ("both-sa interleaved width=4", "interleaved", 0.6, 23.5),
    ("lattice lattice", "lattice", 6.1, 22.1),
    ("lattice lattice candidates=128", "lattice", 4.6, 22.6),
    ("lattice lattice candidates=32", "lattice", 7.0, 20.1),
)


def crowd(rows: tuple[tuple[str, str, float, float], ...] = CROWD) -> Race:
    records = [
        make_latency("verifier greedy", 1.0, 25.0, "baseline", 0, spread=0.05),
        make_latency("verifier beam", 0.3, 25.1, "baseline", 1, spread=0.05),
    ]
    for order, (name, family, speed, bleu) in enumerate(rows, start=2):
        made = make_latency(name, speed, bleu, order=order, spread=0.05)
        records.append(dataclasses.replace(made, decoder=f"{family}|fp16"))
    return Race(tuple(records))


def quality_plot(race: Race) -> Plot:
    (found,) = [plot for plot in plots(race) if plot.name.endswith("-quality")]
    return found


def drawn(race: Race) -> Any:
    """The figure itself, laid out as it is in the file."""
    pytest.importorskip("matplotlib")
    seen: list[Any] = []
    plot = quality_plot(race)

    def draw(figure: Any) -> None:
        plot.draw(figure, plot.race)
        seen.append(figure)

    drawing.rendered(draw, (WIDTH, plot.height))
    seen[0].draw_without_rendering()
    return seen[0]


@pytest.fixture(scope="module")
def figure() -> Any:
    """The crowd's."""
    return drawn(crowd())


def box_of(artist: Any) -> tuple[float, float, float, float]:
    extent = artist.get_window_extent(artist.figure.canvas.get_renderer())
    return extent.x0, extent.y0, extent.x1, extent.y1


def texts(axes: Any) -> list[Any]:
    return [text for text in axes.texts if text.get_text()]


def labels_of(axes: Any) -> list[Any]:
    return [text for text in texts(axes) if re.fullmatch(r"\d+( ↓ .*)?", text.get_text())]


def point_boxes(axes: Any) -> list[tuple[float, float, float, float]]:
    """The markers as drawn, by their size in points."""
    found = []
    for line in axes.lines:
        if line.get_marker() in ("o", "s", "v"):
            x, y = axes.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
            half = line.get_markersize() / 2 * axes.figure.dpi / 72
            found.append((x - half, y - half, x + half, y + half))
    return found


def test_numbers_of_many_cover_no_point_and_no_other_number(figure: Any) -> None:
    axes, _ = figure.axes
    labels = labels_of(axes)
    assert len(labels) == len(point_boxes(axes)) == len(CROWD) + 2
    boxes = [box_of(label) for label in labels]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert not any(overlap(box, point) for box in boxes for point in point_boxes(axes))
    frame = box_of(axes)
    assert all(overlap(box, frame) == pytest.approx((box[2] - box[0]) * (box[3] - box[1])) for box in boxes)


def test_the_list_names_each_number_family_by_family_and_has_room_for_all(figure: Any) -> None:
    _, below = figure.axes
    shown = [text.get_text() for text in texts(below)]
    numbers, names = shown[::2], shown[1::2]
    assert numbers == [str(place) for place in range(1, len(CROWD) + 3)]
    assert names[:6] == [
        "verifier greedy", "verifier beam", "verifier beam width=4", "small-2 greedy", "small-1 greedy",
        "heads-tuned blockwise",
    ]  # fmt: skip
    assert names[6:8] == ["heads-frozen blockwise k=4", "heads-tuned-linked blockwise"]
    assert names[-3:] == ["lattice", "lattice candidates=128", "lattice candidates=32"]
    boxes = [box_of(text) for text in texts(below)]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert max(box[2] for box in boxes) <= figure.bbox.x1
    assert min(box[1] for box in boxes) >= figure.bbox.y0


def test_one_far_below_is_at_the_lower_edge_with_its_value(figure: Any) -> None:
    axes, _ = figure.axes
    low, high = axes.get_ylim()
    assert 19 < low < 20.1
    assert high < 27
    (label,) = [text for text in labels_of(axes) if "↓" in text.get_text()]
    assert label.get_text().endswith(" ↓ 8.90")
    (pointer,) = [line for line in axes.lines if line.get_marker() == "v"]
    assert low < pointer.get_ydata()[0] < low + 0.1 * (high - low)
    (level,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert list(level.get_ydata()) == [25.0, 25.0]


def test_few_have_their_names_beside_them_and_no_list() -> None:
    race = crowd(CROWD[-7:])
    assert len(race.records) == MOST_NAMES
    assert quality_plot(race).height == 5.0 < quality_plot(crowd(CROWD[-8:])).height
    (axes,) = drawn(race).axes
    shown = [text.get_text() for text in axes.texts]
    assert "lattice candidates=32" in shown
    assert "verifier greedy" in shown
    assert not labels_of(axes)


def test_names_that_would_become_alike_stay_whole() -> None:
    rows = (("lattice", "lattice", 2.0, 24.0), ("lattice lattice", "lattice", 3.0, 23.0))
    (axes,) = drawn(crowd(rows)).axes
    assert {"lattice", "lattice lattice"} <= {text.get_text() for text in axes.texts}


def test_many_are_drawn_the_same_every_time() -> None:
    pytest.importorskip("matplotlib")
    assert quality_plot(crowd()).svg() == quality_plot(crowd()).svg()
