"""Labels among many points cover nothing; a few very low values do not set a range."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.bench.crowds import bulk, crosses, gap_between, labels_beside, overlap

FRAME = (0.0, 0.0, 560.0, 290.0)
RADIUS = 4.0
PLACES = st.tuples(st.floats(10, 550), st.floats(10, 280))


def dots(points: list[tuple[float, float]]) -> list[tuple[float, float, float, float]]:
    return [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in points]


@settings(deadline=None, max_examples=15)
@given(st.lists(PLACES, min_size=1, max_size=21))
def test_labels_cover_no_point_and_no_other_label(points: list[tuple[float, float]]) -> None:
    boxes = labels_beside(points, [(14.0, 10.0)] * len(points), RADIUS, FRAME)
    assert boxes == labels_beside(points, [(14.0, 10.0)] * len(points), RADIUS, FRAME)
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert not any(overlap(box, dot) for box in boxes for dot in dots(points))
    assert all(FRAME[0] <= box[0] and FRAME[1] <= box[1] for box in boxes)
    assert all(box[2] <= FRAME[2] and box[3] <= FRAME[3] for box in boxes)


def test_a_label_alone_is_above_its_point_and_keeps_off_lines_and_what_is_taken() -> None:
    point = (100.0, 100.0)
    (alone,) = labels_beside([point], [(14.0, 10.0)], RADIUS, FRAME)
    assert alone == (93.0, 105.0, 107.0, 115.0)
    (moved,) = labels_beside([point], [(14.0, 10.0)], RADIUS, FRAME, taken=[alone])
    assert overlap(moved, alone) == 0
    line = (0.0, 109.0, 560.0, 111.0)
    (off,) = labels_beside([point], [(14.0, 10.0)], RADIUS, FRAME, lines=[line])
    assert overlap(off, line) == 0
    assert gap_between(point, off) < 8


def test_many_at_one_place_get_labels_apart() -> None:
    points = [(300.0, 150.0)] * 12
    boxes = labels_beside(points, [(14.0, 10.0)] * 12, RADIUS, FRAME)
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))


def test_a_full_frame_still_gives_every_label_a_place() -> None:
    points = [(5.0, 5.0)] * 4
    assert len(labels_beside(points, [(14.0, 10.0)] * 4, RADIUS, (0.0, 0.0, 10.0, 10.0))) == 4


def test_a_line_crosses_a_box_only_where_it_goes_through_its_inside() -> None:
    box = (2.0, 2.0, 4.0, 4.0)
    assert crosses((0.0, 0.0), (6.0, 6.0), box)
    assert crosses((3.0, 0.0), (3.0, 6.0), box)
    assert crosses((3.0, 3.0), (9.0, 3.0), box)
    assert not crosses((0.0, 0.0), (1.0, 1.0), box), "it ends before"
    assert not crosses((0.0, 3.0), (3.0, 9.0), box), "it passes by"
    assert not crosses((0.0, 4.0), (6.0, 4.0), box), "it goes along the edge"


def test_few_that_are_far_below_are_left_out_of_the_range() -> None:
    many = [20.0 + place / 4 for place in range(20)]
    assert bulk(many) == (20.0, 24.75)
    assert bulk([*many, 8.9]) == (20.0, 24.75)
    assert bulk([8.9, *many, 2.0]) == (20.0, 24.75), "two of 22"
    assert bulk([*many, 16.0]) == (16.0, 24.75), "it does not take half the range"
    assert bulk([*many, 8.9], kept=[20]) == (8.9, 24.75)
    assert bulk([1.0, 1.1, 1.2, *many[:9]]) == (1.0, 22.0), "three of twelve are no exceptions"


def test_of_few_none_is_left_out() -> None:
    assert bulk([25.0] * 6 + [8.9]) == (8.9, 25.0)
    assert bulk([25.0]) == (25.0, 25.0)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40))
def test_the_range_always_holds_seven_in_eight_and_the_best(values: list[float]) -> None:
    low, high = bulk(values)
    assert high == max(values)
    assert low in values
    assert sum(value < low for value in values) * 8 <= len(values)
