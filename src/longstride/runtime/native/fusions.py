"""Operators that are done together where both are done at all: what lies between them is then never written down.

Each of the machine's operators that comes of this gives bit for bit what the plain ones give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from longstride.runtime.native.nodes import GraphValue, Node


def read_by(nodes: Sequence[Node], wanted: Collection[GraphValue]) -> list[Node]:
    """The nodes, in order, without those whose results nobody reads."""
    kept: list[Node] = []
    read = set(wanted)
    for node in reversed(nodes):
        # A Portion stays if its Join does, which has been seen before: it is read by what lies between them.
        if read.intersection(node.outputs):
            kept.append(node)
            read.update(made for made in node.inputs if made is not None)
    return kept[::-1]


def rectified(nodes: Sequence[Node], wanted: Collection[GraphValue]) -> list[Node]:
    """A Relu of what a product gives, and nobody else reads, is the product's own."""
    readers = _readers(nodes, wanted)
    found: list[Node] = []
    for node in nodes:
        before = node.inputs[0] if node.kind == "Relu" else None
        product = None if before is None else before.maker
        if before is None or product is None or product.kind != "Linear" or readers[before] > 1:
            found.append(node)
            continue
        product.attributes[3] = 1
        product.outputs = node.outputs
        node.outputs[0].maker = product
    return found


def fused(nodes: Sequence[Node], wanted: Collection[GraphValue]) -> list[Node]:
    """The nodes in order, with fewer of them; `wanted` are read from outside."""
    readers = _readers(nodes, wanted)
    gone: set[Node] = set()
    largest: dict[tuple[GraphValue | None, int, int], Node] = {}  # by what they read, an axis and whether it is kept
    for node in nodes:
        read = node.inputs[0] if node.inputs else None
        before = _maker(read)
        alone = read is not None and readers[read] == 1
        if before is not None and alone and _is_best_of_sum(node, before):
            _become(node, "Best", [*before.inputs, None], [])
            gone.add(before)
        elif before is not None and alone and _is_share(node, before):
            _become(node, "LogShares", [before.inputs[0], node.inputs[1]], [])
            gone.add(before)
            if (rows := _chosen_rows(before.inputs[0], readers)) is not None:
                node.inputs = [rows.inputs[0], node.inputs[1], rows.inputs[1]]
                gone.add(rows)
        elif (key := _searched(node)) is not None:
            other = largest.setdefault(key, node)
            if other.kind == node.kind:
                continue
            outputs = {one.kind: one.outputs[0] for one in (other, node)}
            gone.add(node)
            _become(other, "Largest", [key[0]], [key[1], key[2]])
            other.outputs = [outputs["ReduceMax"], outputs["ArgMax"]]
            for made in other.outputs:
                made.maker = other
            del largest[key]
    kept = [node for node in nodes if node not in gone]
    _note_largest(kept)
    return _unsplit(kept, set(wanted))


MANY = 2048
"""Outputs of a product in which the best are looked for panel by panel."""


def _note_largest(nodes: Sequence[Node]) -> None:
    """Whoever looks for the best outputs of a product is told the largest of every panel, and reads few of them."""
    for node in nodes:
        product = _maker(node.inputs[0]) if node.kind in ("Best", "TopK") else None
        if product is None or product.kind != "Linear" or product.attributes[1] < MANY:
            continue
        if node.kind == "Best" and len(node.inputs) > 1 and node.inputs[1] is not None:  # of a sum
            continue
        if len(product.outputs) == 1:
            product.outputs.append(GraphValue(product))
        node.inputs = [*node.inputs, *[None] * (3 - len(node.inputs)), product.outputs[1]]


def _unsplit(nodes: Sequence[Node], wanted: set[GraphValue]) -> list[Node]:
    """Queries, keys and values that lie side by side are read where they lie, if that is all they are read for."""
    splits = {node for node in nodes if _is_equal_split(node) and not wanted.intersection(node.outputs)}
    reads = [
        (node, place, made, made.maker)
        for node in nodes
        for place, made in enumerate(node.inputs)
        if made is not None and made.maker in splits
    ]
    for node, place, _, split in reads:
        if (node.kind, place) not in READ_IN_PARTS or not node.attributes[0]:  # heads that are apart already
            splits.discard(split)
    for node, place, made, split in reads:
        if split in splits:
            node.attributes = [node.attributes[0], split.outputs.index(made), len(split.outputs)]
            node.inputs[place] = split.inputs[0]
    return [node for node in nodes if node not in splits]


READ_IN_PARTS = {("Attend", 0), ("Write", 1)}
"""What may be one of several equal parts of wider rows: queries, and what is written."""


def _readers(nodes: Sequence[Node], wanted: Collection[GraphValue]) -> Counter[GraphValue]:
    """How often each value is read."""
    inputs = (made for node in nodes for made in node.inputs if made is not None)
    return Counter(wanted) + Counter(inputs)


def _maker(made: GraphValue | None) -> Node | None:
    return None if made is None else made.maker


def _is_equal_split(node: Node) -> bool:
    return node.kind == "Split" and len(node.inputs) == 1 and node.attributes[0] == -1


def _become(node: Node, kind: str, inputs: list[GraphValue | None], attributes: list[int]) -> None:
    node.kind, node.inputs, node.attributes = kind, inputs, attributes


def _is_best_of_sum(node: Node, before: Node) -> bool:
    """The best of two products' sum: of numbers that surely have the same shape"""
    if node.kind != "ArgMax" or node.attributes != [-1, 0] or before.kind != "Add":
        return False
    makers = [made.maker for made in before.inputs if made is not None]
    widths = [maker.attributes[1] for maker in makers if maker is not None and maker.kind == "Linear"]
    return len(widths) == 2 and widths[0] == widths[1]


def _is_share(node: Node, before: Node) -> bool:
    """Some of a row's logarithms of shares"""
    last = node.kind == "GatherElements" and node.attributes == [-1]
    return last and before.kind == "LogSoftmax" and before.attributes == [-1]


def _chosen_rows(read: GraphValue | None, readers: Counter[GraphValue]) -> Node | None:
    """What chooses some of the rows of each batch, where nobody else reads them"""
    node = _maker(read)
    alone = node is not None and node.kind == "GatherND" and node.attributes == [1] and readers[node.outputs[0]] == 1
    return node if alone else None


def _searched(node: Node) -> tuple[GraphValue | None, int, int] | None:
    """What a search for the largest reads, its axis, and whether that is kept"""
    if node.kind == "ArgMax":
        return node.inputs[0], node.attributes[0], node.attributes[1]
    if node.kind != "ReduceMax" or len(node.inputs) != 2:
        return None
    axes = node.inputs[1].constant if node.inputs[1] is not None else None
    if axes is None or axes.numel() != 1:
        return None
    return node.inputs[0], int(axes), node.attributes[0]
