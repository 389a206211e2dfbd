"""A recorded graph as the machine reads it: an array of instructions over a table of values, and each one's buffer.

A buffer is memory that values share which never live at the same time. Sizes are found while the graph runs: one plan
serves calls of all shapes, and all machines that run it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longstride.runtime.native.library import (
    KIND,
    MOST_DIMENSIONS,
    CInstruction,
    CValue,
    operator_codes,
)
from longstride.runtime.native.nodes import GraphValue, Node, Recording
from longstride.runtime.native.weights import held

ALWAYS_ALIAS = frozenset(
    {"Accumulate", "Append", "Assign", "Identity", "Move", "Portion", "Reshape", "Squeeze", "Unsqueeze", "Write"}
)
"""Their results are their first input's memory (of a Portion, each its own input's)."""

MAY_ALIAS = frozenset({"Cast", "Expand", "Pad", "Slice", "Split", "Transpose"})
"""Theirs may be, where nothing has to be changed."""

VALUE = np.dtype(
    {
        "names": ["data", "kind", "rank", "sizes", "buffer", "fixed", "held"],
        "formats": ["<u8", "<i4", "<i4", ("<i8", (MOST_DIMENSIONS,)), "<i4", "<i4", "<i8"],
        "offsets": [getattr(CValue, name).offset for name, _ in CValue._fields_],
        "itemsize": ctypes.sizeof(CValue),
    }
)
Values = npt.NDArray[np.void]

NOWHERE = -1
"""The buffer of what lies in memory from outside, or in another value's."""


@dataclass(frozen=True)
class Lifetime:
    """From the instruction that makes a value to the last that reads it, or something that lies in its memory."""

    first: int
    last: int


class ExecutionPlan:
    """One graph, which any number of machines may run."""

    def __init__(self, recording: Recording) -> None:
        for name, made in recording.states.items():
            if _origin(made) is not recording.given[name]:
                raise ValueError(f"the new value of the state {name} is expected in the memory of the old")
        self.nodes = recording.nodes
        self.numbers = _numbered(recording)
        self.given = {name: self.numbers[made] for name, made in recording.given.items()}
        self.outputs = {name: self.numbers[made] for name, made in recording.outputs.items()}
        outside = {*recording.given.values(), *recording.outputs.values()}
        self.liveness = liveness(recording.nodes, recording.outputs.values())
        buffers = assigned(
            {made: lifetime for made, lifetime in self.liveness.items() if made not in outside and _has_buffer(made)}
        )
        self.buffers = {self.numbers[made]: buffer for made, buffer in buffers.items()}
        self.buffer_count = 1 + max(buffers.values(), default=-1)
        self._held = [node.weights for node in recording.nodes if node.weights is not None]
        self.values = self._table()
        self.instructions = self._written()

    def _table(self) -> Values:
        """A table that machines take copies of; constants are in it."""
        table: Values = np.zeros(len(self.numbers), VALUE)
        table["buffer"] = NOWHERE
        for number, buffer in self.buffers.items():
            table["buffer"][number] = buffer
        for made, number in self.numbers.items():
            if made.constant is None:
                continue
            kept = held(made.constant)
            self._held.append(kept)
            made.constant = kept.tensor  # one for all graphs; what was recorded, a scaled table say, is given back
            shape = kept.tensor.shape
            table["data"][number] = kept.address
            table["kind"][number] = KIND[kept.tensor.dtype]
            table["rank"][number] = len(shape)
            table["sizes"][number, : len(shape)] = shape
            table["fixed"][number] = 1
        return table

    def _written(self) -> ctypes.Array[CInstruction]:
        codes = operator_codes()
        found = (CInstruction * max(1, len(self.nodes)))()
        begin = 0
        for place, (node, written) in enumerate(zip(self.nodes, found, strict=False)):
            written.code = codes[node.kind]
            written.inputs, written.outputs = len(node.inputs), len(node.outputs)
            inputs = [-1 if made is None else self.numbers[made] for made in node.inputs]
            written.input[: len(inputs)] = inputs
            written.output[: len(node.outputs)] = [self.numbers[made] for made in node.outputs]
            written.attribute[: len(node.attributes)] = node.attributes
            written.weights = None if node.weights is None else node.weights.address
            if node.kind == "Portion":
                begin = place
            elif node.kind == "Join":
                written.attribute[0] = place - begin
        return found


def _numbered(recording: Recording) -> dict[GraphValue, int]:
    """Every value there is; what is given comes first, so that the layers of one input lie side by side."""
    found: dict[GraphValue, int] = {}
    every = [*recording.given.values(), *(made for node in recording.nodes for made in (*node.inputs, *node.outputs))]
    for made in every:
        if made is not None:
            found.setdefault(made, len(found))
    return found


def _has_buffer(made: GraphValue) -> bool:
    return made.constant is None and made.maker is not None and made.maker.kind not in ALWAYS_ALIAS


def _beneath(made: GraphValue) -> GraphValue | None:
    """The value whose memory this one may lie in."""
    node = made.maker
    if node is None or node.kind not in ALWAYS_ALIAS | MAY_ALIAS:
        return None
    return node.inputs[node.outputs.index(made) if node.kind == "Portion" else 0]


def _origin(made: GraphValue) -> GraphValue:
    """The value whose memory this one surely lies in."""
    while made.maker is not None and made.maker.kind in ALWAYS_ALIAS:
        before = _beneath(made)
        assert before is not None
        made = before
    return made


def liveness(nodes: Sequence[Node], outward: Iterable[GraphValue] = ()) -> dict[GraphValue, Lifetime]:
    """When each value that an operator makes is needed; what goes outward, to the end."""
    first = {made: place for place, node in enumerate(nodes) for made in node.outputs}
    last = dict(first)
    begin = 0
    for place, node in enumerate(nodes):
        for made in node.inputs:
            if made in first:
                last[made] = place
        if node.kind == "Portion":
            begin = place
        elif node.kind == "Join":
            # All of it is read, and the results are written to, as often as there are portions.
            for again in nodes[begin : place + 1]:
                last |= {made: place for made in again.inputs if made is not None and first.get(made, begin) < begin}
            first |= dict.fromkeys(node.outputs, begin)
    last |= {made: len(nodes) for made in outward if made in last}
    for node in reversed(nodes):
        for made in node.outputs:
            beneath = _beneath(made)
            if beneath in last:
                last[beneath] = max(last[beneath], last[made])
    return {made: Lifetime(first[made], last[made]) for made in first}


def assigned(lifetimes: Mapping[GraphValue, Lifetime]) -> dict[GraphValue, int]:
    """A buffer for each, so that no two live in one at a time; the one that was left last, whose memory is near."""
    found: dict[GraphValue, int] = {}
    free: list[int] = []
    taken: list[tuple[int, int]] = []  # until when, and which
    count = 0
    for made, lifetime in sorted(lifetimes.items(), key=lambda item: item[1].first):
        left = sorted(entry for entry in taken if entry[0] < lifetime.first)
        taken = [entry for entry in taken if entry[0] >= lifetime.first]
        free += [buffer for _, buffer in left]
        if not free:
            free.append(count)
            count += 1
        found[made] = free.pop()
        taken.append((lifetime.last, found[made]))
    return found
