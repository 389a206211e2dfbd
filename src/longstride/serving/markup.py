"""Tags that stood within a text in its translation: each element around the words that came of what was in it.

An element gets one run of words, inside the one that its parent has and apart from its neighbours', so that whatever is
written is well-formed, and every tag stands there once. Knows no HTML and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

OTHERS = 2.0
"""What it costs an element to have a word that is another's."""


class Words(Protocol):
    """Words of a translation."""

    @property
    def spans(self) -> Sequence[tuple[int, int]]:
        """The first character of each, and the one behind its last."""

    def within(self, start: int, end: int) -> Sequence[float]:
        """Return for each word the share, from 0 to 1, that comes from these characters of the source."""


@dataclass
class Mark:
    """An element within a text, or a tag by itself."""

    start: int
    end: int
    """characters of the text; a tag by itself, and an element with nothing in it, stand between two"""
    opening: str
    closing: str = ""
    inner: list[Mark] = field(default_factory=list)


class _All:
    """All words of a translation; nothing is computed twice."""

    def __init__(self, words: Sequence[Words]) -> None:
        self._words = words
        self._known: dict[tuple[int, int], list[float]] = {}
        self.spans = [span for some in words for span in some.spans]

    def within(self, start: int, end: int) -> list[float]:
        if (found := self._known.get((start, end))) is None:
            found = [share for some in self._words for share in some.within(start, end)]
            self._known[start, end] = found
        return found


@dataclass(frozen=True)
class _Room:
    """A run of words, and the characters that belong to it."""

    first: int
    last: int
    """the one behind it"""
    start: int
    end: int


def needs_words(text: str, marks: Sequence[Mark], start: int = 0, end: int | None = None) -> bool:
    """Whether it hangs on the words where tags go: not where all stand at the ends."""
    end = len(text) if end is None else end
    return any(
        needs_words(text, mark.inner, mark.start, mark.end)
        if _covers(text, mark, start, end)
        else _place(text, mark, start, end) is None
        for mark in marks
    )


def marked(
    text: str, marks: Sequence[Mark], translation: str, words: Sequence[Words], escape: Callable[[str], str]
) -> str:
    """The translation of a text, `escape`d, with its marks; its words may come in several parts."""
    every = _All(words)
    whole = _Room(0, len(every.spans), 0, len(translation))
    return _written(text, marks, 0, len(text), translation, every, whole, escape)


def _written(
    text: str,
    marks: Sequence[Mark],
    start: int,
    end: int,
    translation: str,
    words: _All,
    room: _Room,
    escape: Callable[[str], str],
) -> str:
    """What stands in a room, with marks that stood between two characters of the text."""
    rooms = _rooms(text, marks, start, end, words, room)
    parts, at = [], room.start
    for number in sorted(range(len(marks)), key=lambda one: (rooms[one].start, rooms[one].end, one)):
        mark, own = marks[number], rooms[number]
        inner = _written(text, mark.inner, mark.start, mark.end, translation, words, own, escape)
        parts += [escape(translation[at : own.start]), mark.opening, inner, mark.closing]
        at = own.end
    return "".join([*parts, escape(translation[at : room.end])])


def _rooms(text: str, marks: Sequence[Mark], start: int, end: int, words: _All, room: _Room) -> list[_Room]:
    """One for each of some neighbours, apart from each other."""
    rooms: dict[int, _Room] = {}
    full = [number for number, mark in enumerate(marks) if text[mark.start : mark.end].strip()]
    places = range(room.first, room.last)
    shares = {number: words.within(marks[number].start, marks[number].end)[room.first : room.last] for number in full}
    largest = [max(column) for column in zip(*shares.values(), strict=True)] if full else []
    taken = [False] * len(places)
    for number in full:
        if _covers(text, marks[number], start, end):
            rooms[number] = room
            continue
        gains = [
            share - 0.5 - OTHERS * (most > max(share, 0.5)) for share, most in zip(shares[number], largest, strict=True)
        ]
        if (found := _best(gains, taken)) is None:
            continue
        for at in range(*found):
            taken[at] = True
        first, last = room.first + found[0], room.first + found[1]
        rooms[number] = _Room(first, last, words.spans[first][0], words.spans[last - 1][1])
    inside = {at for number in full if number in rooms for at in range(rooms[number].first + 1, rooms[number].last)}
    for number, mark in enumerate(marks):
        if number not in rooms:
            rooms[number] = _point(text, mark, start, end, words, room, inside)
    return [rooms[number] for number in range(len(marks))]


def _covers(text: str, mark: Mark, start: int, end: int) -> bool:
    """Whether nothing but white space stands between an element's ends and these."""
    inside = text[mark.start : mark.end].strip()
    return bool(inside) and not text[start : mark.start].strip() and not text[mark.end : end].strip()


def _place(text: str, mark: Mark, start: int, end: int) -> bool | None:
    """Of a mark with nothing in it: whether it stands at the beginning (False: at the end); None: within."""
    if text[mark.start : mark.end].strip():
        return None
    if not text[start : mark.start].strip():
        return True
    return None if text[mark.end : end].strip() else False


def _best(gains: Sequence[float], taken: Sequence[bool]) -> tuple[int, int] | None:
    """The run of free places with the largest sum; at least one place, None: none is free."""
    best, found, total, begun = -float("inf"), None, 0.0, 0
    for at, (gain, gone) in enumerate(zip(gains, taken, strict=True)):
        if gone:
            total, begun = 0.0, at + 1
            continue
        if total < 0 or begun == at:
            total, begun = 0.0, at
        total += gain
        if total > best:
            best, found = total, (begun, at + 1)
    return found


def _point(text: str, mark: Mark, start: int, end: int, words: _All, room: _Room, inside: Set[int]) -> _Room:
    """A place between two words, not inside others' rooms: as much as can be of what stood before it is before it."""
    at_first = _place(text, mark, start, end)
    costs = {}
    shares = words.within(start, mark.start)
    behind = sum(shares[room.first : room.last])
    before = 0.0
    for at in range(room.first, room.last + 1):
        if at not in inside:
            costs[at] = before + behind
        if at < room.last:
            before, behind = before + 1 - shares[at], behind - shares[at]
    if at_first is not None or not costs:
        at = room.first if at_first or not costs else room.last
    else:
        at = min(costs, key=lambda one: costs[one])
    # Without words, which nobody looks for where all stands at the ends, a room's first place is its last as well.
    at_end = at == room.last and (at > room.first or at_first is False)
    place = room.end if at_end else room.start if at == room.first else words.spans[at][0]
    return _Room(at, at, place, place)
