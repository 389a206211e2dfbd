"""Records graphs for the machine: ONNX operators by name, and the blocks it has operators of its own for.

What a value was made by tells what can be left out: heads are split while they are written, slots are cut off by not
being looked at, a Relu is taken along by the product before it, and what is made twice is made once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from longstride.contract import GraphSpec
from longstride.ops.graph_builder import Body, GraphBuilder, Handle
from longstride.runtime.graphs import layer_names
from longstride.runtime.native.fusions import fused, read_by, rectified
from longstride.runtime.native.library import MOST_INPUTS, MOST_OUTPUTS, operator_codes
from longstride.runtime.native.nodes import GraphValue, Node, Recording, attributes_of, folded
from longstride.runtime.native.weights import by_rows, of_norm, packed

INTEGERS, FLOATS = 8, 32
"""Precisions of a product, in bits."""

SPLIT_HEADS = [0, 2, 1, 3]


class NativeBuilder(GraphBuilder):
    """Collects nodes; :meth:`recording` draws a whole graph."""

    def __init__(self, int8: bool) -> None:
        self._precision = INTEGERS if int8 else FLOATS
        self._nodes: list[Node] = []
        self._known: dict[Any, Any] = {}  # constants and results, so that each is made once
        self._codes = operator_codes()

    # --- what systems draw with --------------------------------------------------------------------------------------

    def node(self, kind: str, *inputs: Handle, outputs: int = 1, **attributes: Any) -> Any:
        """One ONNX operator."""
        if kind not in self._codes:
            raise ValueError(f"the operator {kind} is not known here")
        if len(inputs) > MOST_INPUTS or outputs > MOST_OUTPUTS:
            raise ValueError(f"{kind} expects {MOST_INPUTS} inputs and {MOST_OUTPUTS} outputs at most")
        given = [value if isinstance(value, GraphValue) else None for value in inputs]
        node = Node(kind, given, attributes_of(kind, attributes))
        key = (kind, tuple(id(made) for made in given), tuple(node.attributes), outputs)
        if key in self._known:
            return self._known[key]
        node.outputs = [GraphValue(node) for _ in range(outputs)]
        constant = folded(node)
        if constant is not None:
            return self.constant(constant)
        self._nodes.append(node)
        found = node.outputs[0] if outputs == 1 else tuple(node.outputs)
        self._known[key] = found
        return found

    def constant(self, tensor: Tensor) -> Handle:
        """A value that is always the same; a small one is kept once however often it is asked for."""
        tensor = tensor.detach().cpu()
        key = (tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes()) if tensor.numel() <= 16 else None
        if key is None:
            return GraphValue(constant=tensor)
        if key not in self._known:
            self._known[key] = GraphValue(constant=tensor)
        return self._known[key]

    def linear(self, x: Handle, weight: Tensor, bias: Tensor | None = None) -> Handle:
        """A product in the builder's precision."""
        outputs, inputs = weight.shape
        nonnegative = x.maker is not None and x.maker.kind == "Relu"
        attributes = [inputs, outputs, int(nonnegative), 0, self._precision]
        return self._add(Node("Linear", [x], attributes, packed(weight, bias, self._precision)))

    def listed(self, x: Handle, weight: Tensor, ids: Handle) -> Handle:
        """One operator, which reads the listed rows where they lie."""
        outputs, inputs = weight.shape
        return self._add(Node("Listed", [x, ids], [inputs, outputs, self._precision], by_rows(weight, self._precision)))

    def norm(self, x: Handle, weight: Tensor, bias: Tensor | None, eps: float, added: Handle | None = None) -> Handle:
        """Of a sum if need be."""
        (bits,) = struct.unpack("<q", struct.pack("<d", eps))
        factors = of_norm(weight, torch.zeros_like(weight) if bias is None else bias)
        return self._add(Node("Norm", [x, added], [len(weight), bits, int(bias is None)], factors))

    def attend(self, queries: Handle, keys: Handle, values: Handle, mask: Handle, heads: int) -> Handle:
        """Attention in fp32; of slots that were cut off a buffer, the buffer itself is read that far."""
        cuts = [_first_slots(made) for made in (keys, values)]
        seen = None
        if cuts[0] is not None and cuts[1] is not None and cuts[0][1] is cuts[1][1]:
            (keys, seen), (values, _) = cuts[0], cuts[1]
        return self._add(Node("Attend", [queries, keys, values, mask, seen], [heads]))

    def write(self, state: Handle, new: Handle, start: Handle) -> Handle:
        """In place, heads split on the way."""
        whole, heads = _before_split(new)
        return self._add(Node("Write", [state, whole, start], [heads]))

    def move(self, state: Handle, slots: Handle, start: Handle) -> Handle | None:
        """In place."""
        return self._add(Node("Move", [state, slots, start]))

    def assign(self, state: Handle, new: Handle) -> Handle:
        """In place."""
        return self._add(Node("Assign", [state, new]))

    def append(self, state: Handle, new: Handle, start: Handle) -> Handle:
        """In place."""
        return self._add(Node("Append", [state, new, start]))

    def accumulate(self, state: Handle, new: Handle) -> Handle:
        """In place."""
        return self._add(Node("Accumulate", [state, new]))

    def best(self, logits: Handle, forbidden: Handle, vocabulary: int) -> Handle:
        """One operator, which skips what is forbidden."""
        return self._add(Node("Best", [logits, None, forbidden]))

    def largest_allowed(self, logits: Handle, forbidden: Handle, count: int, vocabulary: int) -> tuple[Handle, Handle]:
        """One operator, which skips what is forbidden."""
        found: tuple[Handle, Handle] = self.node("TopK", logits, self.integers(count), forbidden, outputs=2, axis=-1)
        return found

    def link_steps(
        self, before: Tensor, earlier: Handle, factors: Handle, after: Tensor, ids: Handle, values: Handle
    ) -> Handle:
        """One operator, slot by slot."""
        tables = self.constant(before), self.constant(after)
        return self._add(Node("Chain", [tables[0], earlier, factors, tables[1], ids, values]))

    def draft_tree(
        self, values: Handle, ids: Handle, newest: Handle, nodes: int, pairs: tuple[Tensor, Handle, Tensor] | None
    ) -> tuple[Handle, Handle] | None:
        """One operator, with a queue."""
        given = [values, ids, newest]
        if pairs is not None:
            given += [self.constant(pairs[0]), pairs[1], self.constant(pairs[2])]
        node = Node("Tree", given, [nodes])
        node.outputs = [GraphValue(node) for _ in range(2)]
        self._nodes.append(node)
        return node.outputs[0], node.outputs[1]

    def in_portions(
        self, values: Sequence[Handle], most: int, body: Body, kinds: Sequence[torch.dtype]
    ) -> list[Handle]:
        """Between two nodes, the second of which goes back to the first as long as there are rows."""
        begin = Node("Portion", list(values), [most])
        begin.outputs = [GraphValue(begin) for _ in values]
        self._nodes.append(begin)
        known = dict(self._known)
        made = body(*begin.outputs)
        self._known = known  # what was made inside is there inside alone
        end = Node("Join", [values[0], *made], [0, most])
        end.outputs = [GraphValue(end) for _ in kinds]
        self._nodes.append(end)
        return list(end.outputs)

    def _add(self, node: Node) -> GraphValue:
        self._nodes.append(node)
        return node.outputs[0]

    # --- the whole ---------------------------------------------------------------------------------------------------

    def recording(self, spec: GraphSpec) -> Recording:
        """A whole graph."""
        given: dict[str, GraphValue] = {}
        handed: dict[str, Any] = {}
        for name, (_, shape) in {**spec.inputs, **spec.state}.items():
            places, _ = layer_names(spec, name, shape)
            given |= {place: GraphValue() for place in places}
            handed[name] = [given[place] for place in places] if name in spec.layered else given[places[0]]
        recorded = spec.record(self, handed)
        outputs: dict[str, GraphValue] = {}
        for name in spec.outputs:
            outputs[name] = self._outward(recorded[name], outputs.values())
        states: dict[str, GraphValue] = {}
        for name, (_, shape) in spec.state.items():
            places, _ = layer_names(spec, name, shape)
            states |= dict(zip(places, recorded[name] if name in spec.layered else [recorded[name]], strict=True))
        wanted = {*outputs.values(), *states.values()}
        nodes = fused(rectified(read_by(self._nodes, wanted), wanted), wanted)
        return Recording(nodes, given, outputs, states)

    def _outward(self, made: GraphValue, taken: Iterable[GraphValue]) -> GraphValue:
        """What goes out is made by an operator, and goes out once: it has memory of its own."""
        return made if made.maker is not None and made not in taken else self._add(Node("Identity", [made]))


def _first_slots(made: GraphValue) -> tuple[GraphValue, GraphValue] | None:
    """The buffer and the number of slots [1], of what is its first slots."""
    node = made.maker
    if node is None or node.kind != "Slice" or len(node.inputs) != 4:
        return None
    whole, first, last, axis = node.inputs
    if whole is None or last is None or not (_is(first, [0]) and _is(axis, [2])):
        return None
    return whole, last


def _before_split(made: GraphValue) -> tuple[GraphValue, int]:
    """[rows, step, width] before its heads were split, and how many there are; or the value itself, and 0."""
    turned = made.maker
    if turned is not None and turned.kind == "Transpose" and turned.attributes == SPLIT_HEADS:
        (split,) = turned.inputs
        node = None if split is None else split.maker
        if node is not None and node.kind == "Reshape":
            whole, shape = node.inputs
            numbers = None if shape is None or shape.constant is None else shape.constant.tolist()
            if whole is not None and numbers and numbers[:2] == [0, 0] and len(numbers) == 4:
                return whole, int(numbers[2])
    return made, 0


def _is(made: GraphValue | None, numbers: list[int]) -> bool:
    return made is not None and made.constant is not None and made.constant.tolist() == numbers
