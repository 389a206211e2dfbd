"""How a plot of many points stays legible: where short labels go, and which points are too low to set its range.

Geometry alone, in any one unit of length; knows neither matplotlib nor records. The same input gives the same layout.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

Place = tuple[float, float]

Box = tuple[float, float, float, float]
"""left, bottom, right, top"""

FEW = 8
"""at most one in so many is left out of a range"""

THREAD = 7.0
"""a label farther than this from its point needs a thread to it"""

_GAPS = (1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0, 36.0, 45.0, 55.0, 66.0, 78.0, 91.0, 105.0)
_DIRECTIONS = 16
_ROUNDS = 6
_LOOKS_LIKE_ANOTHERS = 12.0
_CROSSING = 20.0
_UNDER_LINE = 3.0
_COVERING = 1e4


def bulk(values: Sequence[float], kept: Collection[int] = ()) -> tuple[float, float]:
    """The least and the greatest of all values, or of all but a few low ones where these would take half the range.

    Those at the places `kept` are never left out.
    """
    order = sorted(range(len(values)), key=lambda place: values[place])
    low, high = values[order[0]], values[order[-1]]
    for left_out in range(1, len(values) // FEW + 1):
        if order[left_out - 1] in kept:
            break
        lowest = values[order[left_out]]
        if high - lowest <= (high - low) / 2:
            return lowest, high
    return low, high


def labels_beside(
    points: Sequence[Place],
    sizes: Sequence[Place],
    radius: float,
    frame: Box,
    taken: Sequence[Box] = (),
    lines: Sequence[Box] = (),
) -> list[Box]:
    """A box of each size (width, height) near its point: inside the frame, over no point, nothing taken, no other box.

    Points are as wide as `radius` both ways. Lines may be covered, but are not where there is room elsewhere. Only
    where the frame is full do boxes cover something, as little as can be.
    """
    dots = [_around(place, radius) for place in points]
    crowding = [sum(math.dist(one, other) < 8 * radius for other in points) for one in points]
    boxes: dict[int, Box] = {}
    # Those with most neighbours choose first; then each chooses anew, now that it knows the others' places.
    order = sorted(range(len(points)), key=lambda place: (-crowding[place], place))
    for _ in range(_ROUNDS):
        before = dict(boxes)
        for mine in order:
            others = [box for place, box in boxes.items() if place != mine]
            strangers = [place for place in range(len(points)) if place != mine]
            scene = _Scene(
                points[mine], [points[place] for place in strangers], dots, [dots[place] for place in strangers],
                [*others, *taken], lines, frame,
            )  # fmt: skip
            boxes[mine] = _cheapest(_places(points[mine], sizes[mine], radius), scene)
        if boxes == before:
            break
    return [boxes[place] for place in range(len(points))]


def gap_between(place: Place, box: Box) -> float:
    """How far a place is from the nearest edge of a box; 0 inside it."""
    return math.hypot(max(box[0] - place[0], place[0] - box[2], 0), max(box[1] - place[1], place[1] - box[3], 0))


def overlap(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)


def nearest(place: Place, box: Box) -> Place:
    """The place in a box that is nearest to another place."""
    return min(max(place[0], box[0]), box[2]), min(max(place[1], box[1]), box[3])


def _around(place: Place, radius: float) -> Box:
    return place[0] - radius, place[1] - radius, place[0] + radius, place[1] + radius


def _places(point: Place, size: Place, radius: float) -> Iterator[tuple[float, Box]]:
    """Where a label may go, and how far from its point: ever wider around it, above it first."""
    width, height = size
    for gap in _GAPS:
        for step in range(_DIRECTIONS):
            angle = math.pi / 2 - 2 * math.pi * step / _DIRECTIONS
            x = point[0] + math.cos(angle) * (radius + gap + width / 2)
            y = point[1] + math.sin(angle) * (radius + gap + height / 2)
            yield gap, (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


@dataclass(frozen=True)
class _Scene:
    """All that one label has to mind."""

    point: Place
    strangers: Sequence[Place]
    """the other points"""
    dots: Sequence[Box]
    """all points, its own too"""
    strange_dots: Sequence[Box]
    taken: Sequence[Box]
    lines: Sequence[Box]
    frame: Box


def _cheapest(places: Iterator[tuple[float, Box]], scene: _Scene) -> Box:
    """The first of the places that cost least; farther ones cost more than their distance and need no look."""
    lowest, best = math.inf, scene.frame
    for gap, box in places:
        if gap >= lowest:
            break
        # Rounded so that the last digits of a font's metrics, which differ from machine to machine, decide nothing.
        cost = round(gap + _cost(box, scene), 3)
        if cost < lowest:
            lowest, best = cost, box
    return best


def _cost(box: Box, scene: _Scene) -> float:
    frame = scene.frame
    spoilt = sum(overlap(box, other) for other in (*scene.dots, *scene.taken))
    spoilt += max(0.0, frame[0] - box[0]) + max(0.0, box[2] - frame[2])
    spoilt += max(0.0, frame[1] - box[1]) + max(0.0, box[3] - frame[3])
    if spoilt:
        return _COVERING * (1 + spoilt)
    cost = _UNDER_LINE * sum(overlap(box, line) > 0 for line in scene.lines)
    far = gap_between(scene.point, box)
    if far > THREAD:
        end = nearest(scene.point, box)
        return cost + _CROSSING * sum(crosses(scene.point, end, other) for other in (*scene.strange_dots, *scene.taken))
    return cost + _LOOKS_LIKE_ANOTHERS * sum(gap_between(other, box) < far + 1 for other in scene.strangers)


def crosses(start: Place, end: Place, box: Box) -> bool:
    """Whether the straight line between two places goes through the inside of a box."""
    first, last = 0.0, 1.0  # the part of the line that is inside, as far as is known
    for axis in (0, 1):
        step, low, high = end[axis] - start[axis], box[axis] - start[axis], box[axis + 2] - start[axis]
        if step == 0:
            if not low < 0 < high:
                return False
            continue
        enter, leave = sorted((low / step, high / step))
        first, last = max(first, enter), min(last, leave)
    return first < last
