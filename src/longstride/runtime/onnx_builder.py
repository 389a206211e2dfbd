"""Draws ONNX graphs with a model's weights in them, in fp32 or int8. Needs the package onnx.

In int8 a product's weights have one scale per output, its activations one scale per row: a row's numbers depend on that
row alone, and since integers are summed, on nothing else, so that a block of tokens gives bit for bit what its tokens
give one by one. Attention, norms and sums stay in fp32.

By what this is done depends on the processor (processor.Operators), and is checked on the machine first: the operator
that quantizes may be told every row's scale, which saves nodes. On ARM activations are signed, and a step's products,
which are small, are MatMulNBits, one node that quantizes for itself, inputs and weights alike in blocks; its rows are
independent as well. Elsewhere, and in what is exported, activations are unsigned with zero point 128, since signed ones
took a path there that is many times slower; in what is exported rows are divided before they are quantized.

A graph for steps of width one (`one_token`) hands its attention two equal queries and drops the second answer: ONNX
Runtime's products of a single row are computed in another order than wider ones, which all agree. For the same reason
attention is one operator over a past that ends at a border (MultiHeadAttention over a multiple of 16 slots):
GroupQueryAttention, which would look no further than needed, gave other bits at other widths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from longstride.contract import GraphSpec, Program, WorkError
from longstride.contract.running import Shape
from longstride.ops.graph_builder import Body, GraphBuilder, Handle
from longstride.runtime.graphs import layer_names
from longstride.runtime.processor import PLAIN, Operators

OPSET = 24
"""The first with TensorScatter, which writes a cache in place."""
IR_VERSION = 10
CONTRIB = "com.microsoft"
CONTRIBUTED = {"MatMulNBits", "MultiHeadAttention", "SkipLayerNormalization"}
"""Operators of ONNX Runtime's own set that are used here."""
ZERO_POINT = 128
LEVELS = 127
FEWER_LEVELS = 63
"""Of weights, where a processor sums two products in 16 bits: 2 x 255 x 63 still fits."""
SMALLEST = torch.finfo(torch.float32).tiny * LEVELS
"""A scale is never zero, nor too small to divide by."""

VECTOR = 16
"""A row of a multiple of so many numbers begins at a border of vectors wherever it stands, and so is summed alike."""

BLOCK_SIZES = (256, 128, 64, 32, 16)
"""Inputs that share a scale in MatMulNBits, the best first: fewer scales are less work."""
MANY_OUTPUTS = 4096
"""With more outputs than that a product takes so long that the nodes around it do not matter."""

Quantized = tuple[Handle, Handle, tuple[Handle, ...], int]
"""Codes; a number for each row [..., 1]; a zero point, if need be; a step is worth that number over this one"""

ELEMENT = {
    torch.float64: TensorProto.DOUBLE,
    torch.float32: TensorProto.FLOAT,
    torch.int64: TensorProto.INT64,
    torch.bool: TensorProto.BOOL,
}


def quantize(weight: Tensor, levels: int = LEVELS) -> tuple[Tensor, Tensor]:
    """[outputs, inputs] -> int8 of the same shape, and scales [outputs]: symmetric, one scale per output"""
    scale = weight.abs().amax(dim=1).clamp(min=SMALLEST) / levels
    return (weight / scale[:, None]).round().clamp(-levels, levels).to(torch.int8), scale


class OnnxBuilder(GraphBuilder):
    """Collects nodes and weights; :meth:`model` makes a graph of them."""

    def __init__(self, int8: bool, one_token: bool = False, narrow: bool = False, operators: Operators = PLAIN) -> None:
        """`one_token`: for steps of width one; `narrow`: integer weights in 7 bits; `operators`: those that passed"""
        self._int8 = int8
        self._one_token = one_token
        self._operators = operators
        self._few = False  # whether products have few rows: those of a step
        self._levels = FEWER_LEVELS if narrow else LEVELS
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._known: dict[Any, Any] = {}  # constants and quantized activations, so that each is made once
        self._count = 0

    # --- what systems draw with --------------------------------------------------------------------------------------

    def node(self, kind: str, *inputs: Handle, outputs: int = 1, **attributes: Any) -> Any:
        """One operator."""
        names = [self._name(kind) for _ in range(outputs)]
        domain = CONTRIB if kind in CONTRIBUTED else ""
        self._nodes.append(helper.make_node(kind, list(inputs), names, name=names[0], domain=domain, **attributes))
        if kind == "Relu":
            self._known["relu", names[0]] = inputs[0]
        if kind == "Relu" or (kind == "Split" and attributes["axis"] == -1):
            for name in names:
                self._same_rows(name, inputs[0])
        return names[0] if outputs == 1 else tuple(names)

    def constant(self, tensor: Tensor) -> Handle:
        """A value that is always the same; a small one is kept once however often it is asked for."""
        array = tensor.detach().cpu().numpy()
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 16 else None
        if key is not None and key in self._known:
            return self._known[key]
        name = self._name("constant")
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        if key is not None:
            self._known[key] = name
        return name

    def linear(self, x: Handle, weight: Tensor, bias: Tensor | None = None) -> Handle:
        """A product in the builder's precision."""
        if self._int8:
            size = self._block_size(weight)
            found = self._blockwise_linear(x, weight, bias, size) if size else self._integer_linear(x, weight, bias)
            return self._same_rows(found, x)
        product = self.node("MatMul", self._doubled(x), self.constant(weight.t()))
        product = self._halved(product)
        return product if bias is None else self.node("Add", product, self.constant(bias))

    def norm(self, x: Handle, weight: Tensor, bias: Tensor | None, eps: float, added: Handle | None = None) -> Handle:
        """Of a sum if need be."""
        if bias is None:
            return self._rms_norm(x if added is None else self.node("Add", x, added), weight, eps)
        weights = self.constant(weight), self.constant(bias)
        if added is None:
            found = self.node("LayerNormalization", x, *weights, epsilon=eps, axis=-1)
            return self._same_rows(found, x)
        if len(weight) % VECTOR:
            return self.node("SkipLayerNormalization", x, added, *weights, epsilon=eps)
        if self._operators.whole_norms:
            return self._same_rows(self.norm(self.node("Add", x, added), weight, bias, eps), x)
        # Every slot as a channel of its own: unlike the operators for layer norms, this one takes vector instructions.
        ones, zeros = self._channels(x)
        found = self.node("InstanceNormalization", self.node("Add", x, added), ones, zeros, epsilon=eps)
        found = self.node("Add", self.node("Mul", found, weights[0]), weights[1])
        self._known["channels", found] = (ones, zeros)
        return self._same_rows(found, x)

    def _rms_norm(self, x: Handle, weight: Tensor, eps: float) -> Handle:
        mean = self.node("ReduceMean", self.node("Mul", x, x), self.integers(-1), keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.constant(torch.tensor(eps))))
        return self._same_rows(self.node("Mul", self.node("Div", x, root), self.constant(weight)), x)

    def _channels(self, x: Handle) -> tuple[Handle, Handle]:
        """Ones and zeros [step] for x [rows, step, width]; made once for all that are norms of norms of x"""
        if ("channels", x) not in self._known:
            step = self.size(x, 1)
            filled = (self.node("Expand", self.constant(torch.tensor([value])), step) for value in (1.0, 0.0))
            self._known["channels", x] = tuple(filled)
        found: tuple[Handle, Handle] = self._known["channels", x]
        return found

    def _doubled_mask(self, mask: Handle) -> Handle:
        """One for all layers that are given the same."""
        if self._one_token and ("doubled", mask) not in self._known:
            self._known["doubled", mask] = self._doubled(mask)
        return self._known["doubled", mask] if self._one_token else mask

    def attend(self, queries: Handle, keys: Handle, values: Handle, mask: Handle, heads: int) -> Handle:
        """Attention in fp32."""
        inputs = (self._doubled(queries), keys, values, "", "", self._doubled_mask(mask))
        return self._same_rows(self._halved(self.node("MultiHeadAttention", *inputs, num_heads=heads)), queries)

    def write(self, state: Handle, new: Handle, start: Handle) -> Handle:
        """In place, where the runner binds the result to the memory of `state`."""
        return self.node("TensorScatter", state, new, start, axis=2)

    def in_portions(
        self, values: Sequence[Handle], most: int, body: Body, kinds: Sequence[torch.dtype]
    ) -> list[Handle]:
        """A Loop over portions of equal size; the last is filled up with its last row, which is dropped again."""
        one = self.integers(1)
        rows = self.size(values[0], 0)
        number = self._quotient(rows, self.integers(most))
        each = self._quotient(rows, number)  # two rows or more, wherever there are two: see `one_token`
        here, last = self.arange(each), self.node("Sub", rows, one)
        portion, going = self._name("portion"), self._name("going")
        outer, known = self._nodes, dict(self._known)
        self._nodes = []
        places = self.node("Min", self.node("Add", self.node("Mul", portion, each), here), last)
        found = body(*(self.node("Gather", value, places, axis=0) for value in values))
        names = [self.node("Identity", value) for value in (going, *found)]
        wanted = [helper.make_tensor_value_info(portion, TensorProto.INT64, [])]
        wanted.append(helper.make_tensor_value_info(going, TensorProto.BOOL, []))
        types = [TensorProto.BOOL, *(ELEMENT[kind] for kind in kinds)]
        given = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, types, strict=True)]
        graph = helper.make_graph(self._nodes, self._name("body"), wanted, given)
        self._nodes = outer
        # What was quantized inside exists inside alone.
        inside = ("codes", "relu", "channels", "doubled", "rows", "zero points")
        self._known = {key: value for key, value in self._known.items() if key in known or key[0] not in inside}
        true = self.scalar(self.constant(torch.tensor([True])))
        stacked = self.node("Loop", self.scalar(number), true, outputs=len(kinds), body=graph)
        parts = [stacked] if len(kinds) == 1 else list(stacked)
        return [self.cut(self._joined(part), self.integers(0), rows, 0) for part in parts]

    def _quotient(self, size: Handle, by: Handle) -> Handle:
        """[1] rounded up"""
        return self.node("Div", self.node("Sub", self.node("Add", size, by), self.integers(1)), by)

    def _joined(self, x: Handle) -> Handle:
        """[portions, rows, ...] -> [portions · rows, ...]"""
        rest = self.node("Shape", x, start=2)
        return self.node("Reshape", x, self.node("Concat", self.integers(-1), rest, axis=0))

    # --- int8 --------------------------------------------------------------------------------------------------------

    def _block_size(self, weight: Tensor) -> int:
        """How many inputs share a scale, where a product is best left to one node; otherwise 0."""
        outputs, inputs = weight.shape
        if not (self._operators.blockwise and self._few) or outputs > MANY_OUTPUTS:
            return 0
        return next((size for size in BLOCK_SIZES if inputs % size == 0), 0)

    def _blockwise_linear(self, x: Handle, weight: Tensor, bias: Tensor | None, size: int) -> Handle:
        """Everything in one node: it quantizes x for itself, each row by itself in blocks of so many inputs."""
        outputs, inputs = weight.shape
        codes, scale = quantize(weight.detach().float().cpu().reshape(-1, size))
        unsigned = (codes.to(torch.int16) + ZERO_POINT).to(torch.uint8).reshape(outputs, inputs // size, size)
        given = [x, self.constant(unsigned), self.constant(scale)]
        if bias is not None:
            given += ["", "", self.constant(bias)]
        shape = {"K": inputs, "N": outputs, "bits": 8, "block_size": size}
        return self.node("MatMulNBits", *given, accuracy_level=4, **shape)

    def _integer_linear(self, x: Handle, weight: Tensor, bias: Tensor | None) -> Handle:
        codes, size, zero_point, levels = self._quantized(x, weight.shape[1])
        whole, weight_scale = quantize(weight.detach().float().cpu(), self._levels)
        product = self.node("MatMulInteger", codes, self.constant(whole.t()), *zero_point)
        product = self.node("Mul", self.node("Cast", product, to=TensorProto.FLOAT), size)
        product = self.node("Mul", product, self.constant(weight_scale / levels))
        return product if bias is None else self.node("Add", product, self.constant(bias))

    def _quantized(self, x: Handle, width: int) -> Quantized:
        """[..., width] in 8 bits, made once for all that read it"""
        if ("codes", x) not in self._known:
            # What a Relu gives needs no sign, and what it takes away quantizing takes away as well.
            before = self._known.get(("relu", x))
            by_rows = self._operators.by_rows
            self._known["codes", x] = self._by_rows(x, before, width) if by_rows else self._by_parts(x, before)
        found: Quantized = self._known["codes", x]
        return found

    def _by_rows(self, x: Handle, before: Handle | None, width: int) -> Quantized:
        """The operator is given a scale for each row: a block as long as a row"""
        levels = LEVELS if before is None else 2 * LEVELS + 1
        largest = self._largest(x, before)
        if before is not None:  # it may be below zero; without a Relu, a row of zeros has any codes and the scale zero
            largest = self.node("Clip", largest, self.constant(torch.tensor(SMALLEST)))
        scale = self.node("Mul", largest, self.constant(torch.tensor(1 / levels)))
        blocks = {"axis": -1, "block_size": width}
        if before is not None:
            return self.node("QuantizeLinear", before, scale, output_dtype=TensorProto.UINT8, **blocks), scale, (), 1
        if self._operators.signed:
            return self.node("QuantizeLinear", x, scale, output_dtype=TensorProto.INT8, **blocks), scale, (), 1
        zero_point = self.constant(torch.tensor(ZERO_POINT, dtype=torch.uint8))
        return (
            self.node("QuantizeLinear", x, scale, self._zero_points(x, zero_point), **blocks),
            scale,
            (zero_point,),
            1,
        )

    def _zero_points(self, x: Handle, zero_point: Handle) -> Handle:
        """[..., 1] one for each row of x [..., width]; made once for all that have as many rows"""
        x = self._known.get(("rows", x), x)
        if ("zero points", x) not in self._known:
            rows = self.node("Concat", self.node("Shape", x, end=-1), self.integers(1), axis=0)
            self._known["zero points", x] = self.node("Expand", zero_point, rows)
        return self._known["zero points", x]

    def _same_rows(self, found: Handle, x: Handle) -> Handle:
        """`found` [..., any width], of which is remembered that it has the rows of x [..., width]"""
        self._known["rows", found] = self._known.get(("rows", x), x)
        return found

    def _by_parts(self, x: Handle, before: Handle | None) -> Quantized:
        """Rows are first divided by their largest value; unsigned"""
        zero, levels = (ZERO_POINT, LEVELS) if before is None else (0, 2 * LEVELS + 1)
        largest = self.node("Clip", self._largest(x, before), self.constant(torch.tensor(SMALLEST)))
        part = self.node("Mul", x if before is None else before, self.node("Reciprocal", largest))
        zero_point = self.constant(torch.tensor(zero, dtype=torch.uint8))
        codes = self.node("QuantizeLinear", part, self.constant(torch.tensor(1 / levels)), zero_point)
        return codes, largest, (zero_point,), levels

    def _largest(self, x: Handle, before: Handle | None) -> Handle:
        """[..., width] -> [..., 1]"""
        return self.node("ReduceMax", self.node("Abs", x) if before is None else before, self.integers(-1), keepdims=1)

    # --- steps of width one ------------------------------------------------------------------------------------------

    def _doubled(self, x: Handle) -> Handle:
        return self.node("Concat", x, x, axis=-2) if self._one_token else x

    def _halved(self, x: Handle) -> Handle:
        return self.node("Split", x, outputs=2, axis=-2, num_outputs=2)[0] if self._one_token else x

    # --- the whole ---------------------------------------------------------------------------------------------------

    def model(self, name: str, spec: GraphSpec) -> onnx.ModelProto:
        """A whole graph. Of what is layered there is one input, or output, a layer: ``keys.0``, ``keys.1``.

        The new value of a state is called ``new_keys.0`` and may lie in the memory of the old.
        """
        self._few = bool(spec.state)
        inputs: list[onnx.ValueInfoProto] = []
        given: dict[str, Any] = {}
        for name_, (dtype, shape) in {**spec.inputs, **spec.state}.items():
            places, each = layer_names(spec, name_, shape)
            inputs += [helper.make_tensor_value_info(place, ELEMENT[dtype], each) for place in places]
            given[name_] = places if name_ in spec.layered else places[0]
        recorded = spec.record(self, given)
        outputs: list[onnx.ValueInfoProto] = []
        for name_, (dtype, shape) in spec.outputs.items():
            outputs.append(self._output(recorded[name_], name_, dtype, shape))
        for name_, (dtype, shape) in spec.state.items():
            places, each = layer_names(spec, name_, shape)
            values = recorded[name_] if name_ in spec.layered else [recorded[name_]]
            for place, value in zip(places, values, strict=True):
                outputs.append(self._output(value, f"new_{place}", dtype, each))
        nodes = _read_by(self._nodes, {output.name for output in outputs})
        read = {name for node in _every(nodes) for name in node.input}
        weights = [weight for weight in self._weights if weight.name in read]
        graph = helper.make_graph(nodes, name, inputs, outputs, weights)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="longstride")

    def _output(self, value: Handle, name: str, dtype: torch.dtype, shape: Shape) -> onnx.ValueInfoProto:
        """Give a value its outward name: the node that makes it is told so, and all that read it."""
        makers = [node for node in self._nodes if value in node.output]
        assert makers, f"{name} is an input handed through, which no graph of ours should have"
        for node in _every(self._nodes):
            node.input[:] = [name if read == value else read for read in node.input]
            node.output[:] = [name if made == value else made for made in node.output]
        return helper.make_tensor_value_info(name, ELEMENT[dtype], list(shape))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"


def _read_by(nodes: Sequence[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """The nodes, in order, without those whose results nobody reads (a Relu that quantizing took over)."""
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(name for inner in _every([node]) for name in inner.input)
    return kept[::-1]


def _every(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """These, and those of the graphs within them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _every(attribute.g.node)


LARGEST = 2**31 - 1
"""Bytes that a protobuf message may have; weights of larger graphs lie in a file of their own."""


def write_graph(program: Program, path: Path, int8: bool) -> None:
    """Write the graph of a program that has a spec, for steps of two tokens or more.

    Where it will be run nobody knows, so that integer weights have 7 bits: no processor's sums overflow with them.
    """
    if program.graph is None:
        raise WorkError(f"The program {program.name!r} has no spec that a graph could be made of.")
    model = OnnxBuilder(int8, narrow=True).model(program.name, program.graph)
    external = model.ByteSize() >= LARGEST
    onnx.save_model(
        model, str(path), save_as_external_data=external, location=f"{path.name}.data" if external else None
    )
