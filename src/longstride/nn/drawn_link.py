"""A link between neighbouring tokens, drawn: twins of methods of :class:`longstride.nn.link.Link`."""

from __future__ import annotations

import torch

from longstride.nn.link import Link
from longstride.nn.pen import HIDDEN, Pen, Value


def chained(pen: Pen, link: Link, logits: Value, hidden: Value, newest: Value, longest: int) -> Value:
    """logits [rows, block, vocabulary] of `longest` slots at most, hidden [rows, block, width], newest [rows]: twin of
    :meth:`~longstride.nn.link.Link.chained`"""
    weights = factors(pen, link, hidden)
    chain = _chain(pen, link, logits, weights, newest, longest)
    before = pen.cut(pen.node("Concat", pen.column(newest), chain, axis=1), pen.integers(0), pen.size(logits, 1), 1)
    return tied(pen, link, logits, weights, before)


def drafted(pen: Pen, link: Link, logits: Value, hidden: Value, newest: Value, longest: int) -> Value:
    """The same values -> tokens [rows, block]: twin of :meth:`~longstride.nn.link.Link.drafted`"""
    if link.looks_twice:
        return pen.node("ArgMax", chained(pen, link, logits, hidden, newest, longest), axis=-1, keepdims=0)
    return _chain(pen, link, logits, factors(pen, link, hidden), newest, longest)


def factors(pen: Pen, link: Link, hidden: Value) -> Value:
    """Twin of :meth:`~longstride.nn.link.Link.factors`."""
    return pen.node("Add", pen.linear(hidden, link.gate.weight), pen.constant(torch.ones(())))


def tied(pen: Pen, link: Link, logits: Value, factors: Value, previous: Value) -> Value:
    """Twin of :meth:`~longstride.nn.link.Link.tied`."""
    asked = pen.node("Mul", pen.look_up(link.before.weight, previous), factors)
    return pen.node("Add", logits, pen.linear(asked, link.after.weight))


def _chain(pen: Pen, link: Link, logits: Value, factors: Value, newest: Value, longest: int) -> Value:
    """[rows, block] what each slot has chosen"""
    classes, block = link.candidates, pen.size(logits, 1)
    values, ids = _best_of_classes(pen, logits, classes, link.before.weight.shape[0])
    first = pen.node("Expand", pen.column(pen.column(newest)), pen.integers(1, 1, classes))
    before = pen.cut(pen.node("Concat", first, ids, axis=1), pen.integers(0), block, 1)
    onward = pen.link_steps(link.before.weight, before, factors, link.after.weight, ids, values)
    # Where a chain stands after each slot: steps put together, then pairs of them, then fours, ...
    reach = 1
    while reach < longest:
        still = pen.node("Mul", pen.cut(onward, pen.integers(0), pen.integers(1), 1), pen.integer(0))
        still = pen.node(
            "Expand", pen.node("Add", still, pen.constant(torch.arange(classes))), pen.integers(1, reach, 1)
        )
        earlier = pen.cut(pen.node("Concat", still, onward, axis=1), pen.integers(0), block, 1)
        onward = pen.node("GatherElements", onward, earlier, axis=2)
        reach *= 2
    place = pen.cut(onward, pen.integers(0), pen.integers(1), 2)
    return pen.node("Squeeze", pen.node("GatherElements", ids, place, axis=2), pen.integers(2))


def _best_of_classes(pen: Pen, logits: Value, classes: int, vocabulary: int) -> tuple[Value, Value]:
    """Twin of :func:`longstride.nn.link.best_of_classes`."""
    if spare := -vocabulary % classes:
        ends = pen.integers(0, spare)
        logits = pen.node("Pad", logits, ends, pen.constant(torch.tensor(HIDDEN)), pen.integers(2))
    rounds = pen.node("Reshape", logits, pen.integers(0, 0, -1, classes))
    values = pen.node("ReduceMax", rounds, pen.integers(2), keepdims=0)
    which = pen.node("ArgMax", rounds, axis=2, keepdims=0)
    numbers = pen.constant(torch.arange(classes))
    return values, pen.node("Add", pen.node("Mul", which, pen.integer(classes)), numbers)
