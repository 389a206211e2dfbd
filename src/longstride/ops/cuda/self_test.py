"""Whether kernels give here what their operations should: a quick check when a runner starts, and all cases of it.

Each case compares one kernel with PyTorch's definition of its operation in float64, and bit for bit with itself: a row
alone, and a slot in a step of its own. The conformance suite and
`longstride doctor` run all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.ops import BlockCausal, Causal, LocalCausal, TreeCausal, TreeRule
from longstride.ops.cuda.passed_tests import remembered
from longstride.ops.cuda.table import MANY_SLOTS, NAMES, inference_table
from longstride.ops.kernels import WAITED, KernelTable, kernels_of, why_not_here

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
"""How far results may be from what they should be, as a share of it or, below one, in all: a few last bits."""
ROWS, STEP, SLOTS, HEADS = 3, 26, 112, 2
"""Of a case: more than one tile of queries and of keys, neither of them full."""
BLOCK = 40
"""Slots of a block of local attention: rows of a case are in different ones, and see past borders of tiles."""
TURNS, INPUTS, LAYERS = 50, 5, 4
"""Of a chain of kernels that overlap: repetitions, different inputs, and how often a layer follows itself."""

Random = Callable[..., Tensor]
"""(*shape) -> random numbers, of the type and on the device that are tried"""


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference; NaN counts as the largest there is."""
    apart = (found.double() - expected.double()).abs() / expected.double().abs().clamp(min=1)
    return float(apart.nan_to_num(float("inf")).max())


def random_of(device: torch.device, dtype: torch.dtype) -> Random:
    """The same numbers each time."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator).to(device, dtype)


# --- one kernel at a time --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One kernel, and arguments of its operation."""

    kernel: str
    operation: str
    arguments: Callable[[Random, int], tuple[Any, ...]]
    """(random numbers, width or width of a head)"""
    rows: tuple[int, ...] = ()
    """places of arguments with rows for their first dimension: no row's bits depend on others"""
    slots: dict[int, int] = field(default_factory=dict)
    """places and dimensions of arguments with the slots of a step: no slot's bits depend on others"""
    written: tuple[int, ...] = ()
    """places of arguments that are written"""


@torch.inference_mode()
def compare(case: Case, table: KernelTable, device: torch.device, dtype: torch.dtype, width: int = 64) -> float:
    """How far a kernel is from what it should give; raises where bits depend on what they should not."""
    given = case.arguments(random_of(device, dtype), width)
    operation = getattr(ops, case.operation)
    chosen = table.find(case.operation, *given)
    if chosen is None or chosen.name != case.kernel:
        raise ArithmeticError(f"{case.operation} is carried out by {chosen and chosen.name}, expected {case.kernel}")

    def run(arguments: tuple[Any, ...]) -> Tensor:
        with kernels_of(table):
            found = operation(*arguments)
        return found[0] if isinstance(found, tuple) else found  # type: ignore[no-any-return]

    ours, exact = _copied(case, given), tuple(_double(argument) for argument in given)
    found, expected = run(ours), operation.__wrapped__(*exact)
    expected = expected[0] if isinstance(expected, tuple) else expected
    worst = apart(found, expected)
    for place in case.written:
        worst = max(worst, apart(ours[place].nan_to_num(0.0), exact[place]))
    for row in range(len(found) if case.rows else 0):
        alone = run(_cut(_copied(case, given), dict.fromkeys(case.rows, 0), row))
        if not torch.equal(alone[0], found[row]):
            raise ArithmeticError("a row's numbers depend on other rows")
    again = _copied(case, given)
    for slot in range(found.shape[1] if case.slots else 0):
        if not torch.equal(run(_cut(again, case.slots, slot))[:, 0], found[:, slot]):
            raise ArithmeticError("a slot's numbers depend on the step's width")
    return worst


def _copied(case: Case, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.clone() if place in case.written else one for place, one in enumerate(given))


def _double(argument: Any) -> Any:
    if isinstance(argument, Causal):
        return _like(argument, argument.slots, lambda: argument.table().double())
    if isinstance(argument, tuple):
        return tuple(_double(one) for one in argument)
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.double().where(~argument.isnan(), 0.0)  # what nobody sees may hold anything
    return argument


def _cut(given: tuple[Any, ...], places: dict[int, int], number: int) -> tuple[Any, ...]:
    cut = list(given)
    for place, dimension in places.items():
        one = given[place]
        if isinstance(one, Causal):
            cut[place] = _like(one, one.slots.narrow(dimension, number, 1), one.table, number)
        elif one is not None:
            cut[place] = one.narrow(dimension, number, 1)
    return tuple(cut)


def _like(bias: Causal, slots: Tensor, table: Callable[[], Tensor], row: int | None = None) -> Causal:
    """A bias of the same kind over other slots; of a tree, of one row alone"""
    if isinstance(bias, LocalCausal):
        return LocalCausal(slots, table, bias.block)
    if not isinstance(bias, TreeCausal):
        return type(bias)(slots, table)
    if row is None:
        return TreeCausal(slots, table, bias.paths)
    paths = None if bias.paths is None else bias.paths[row : row + 1]
    return TreeCausal(slots, lambda: table()[row : row + 1], paths)


def _weights(random: Random, outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
    return random(outputs, inputs) * inputs**-0.5, random(outputs)


def _linear(random: Random, width: int, rows: int, activation: str | None, added: bool = False) -> tuple[Any, ...]:
    x, weights = random(rows, STEP, width), _weights(random, 2 * width, width)
    return x, *weights, activation, random(rows, STEP, 2 * width) if added else None


def _row_product(random: Random, width: int) -> tuple[Any, ...]:
    return random(8, width), *_weights(random, 3 * 10, width), random(8, 10)


def _add_norm(random: Random, width: int) -> tuple[Any, ...]:
    return random(7, width), random(7, width), random(width), random(width), 1e-5


def _embed(random: Random, width: int, started: bool, tree: bool = False) -> tuple[Any, ...]:
    tokens, positions, last = random(9, width), random(40, width), 30
    ids = torch.arange(ROWS * STEP, device=tokens.device).remainder(9).view(ROWS, STEP)
    start = torch.tensor([0, 2, last - 3], device=tokens.device) if started else None
    depth = ids.flip(1).cumsum(1).remainder(5) if tree else None
    return ids, start, tokens, width**0.5, (positions, 3), last, *([depth] if tree else [])


def _cached(random: Random, head: int, rule: str, shared: bool = False, scale: float | None = None) -> tuple[Any, ...]:
    """Rows that begin at slots of their own, in caches where what is not written yet is not a number"""
    step, start = STEP, [0, 37, SLOTS - STEP]
    if shared:  # hypotheses of one sentence, which are equally long
        step, start = (1, [97] * ROWS) if rule == "causal" else (STEP, [SLOTS - STEP] * ROWS)
    packed, slot = random(ROWS, step, 3 * HEADS * head), torch.arange(SLOTS)
    here = torch.tensor(start)[:, None] + torch.arange(step)
    slots, past = here.to(packed.device), (slot < here[:, :1])[:, None, :, None].to(packed.device)
    keys, values = (random(ROWS, HEADS, SLOTS, head).masked_fill(~past, float("nan")) for _ in range(2))
    lines = (slot * 5 + torch.arange(ROWS)[:, None] * 3) // 4 % ROWS
    bias: Any
    if rule == "causal":
        bias = Causal(slots, lambda: ops.additive((slot <= slot[:, None]).to(packed.device), packed))
    elif rule == "local":
        near = (slot <= slot[:, None]) & ops.within_reach(slot, slot, BLOCK)
        bias = LocalCausal(slots, lambda: ops.additive(near.to(packed.device), packed), BLOCK)
    elif rule == "block":
        seen = torch.zeros(SLOTS, SLOTS, dtype=torch.bool)  # by slot: rows look up parts that do not overlap
        for row in here:
            seen[row] = slot <= row[-1]
        bias = BlockCausal(slots, lambda: ops.additive(seen.to(packed.device), packed))
    elif rule == "tree":
        parents = (random(ROWS, step - 1).cpu().double().abs() % 1 * torch.arange(1, step)).long()
        above, _, paths = (one.to(packed.device) for one in ops.tree_shape.__wrapped__(parents))  # type: ignore[attr-defined]
        visible = TreeRule(slots[:, 0], above)(slots, slot.to(packed.device))
        bias = TreeCausal(slots, lambda: ops.additive(visible[:, None], packed), paths)
    else:
        some = (random(ROWS, step, SLOTS).cpu() > 0) & (slot < here[:, :1, None])
        bias = ops.additive((some | (slot == here[..., None]))[:, None].to(packed.device), packed)
        if rule == "heads":  # looked up by distance, heads come last in memory (nn.positions.RelativeBias)
            bias = bias + random(ROWS, step, SLOTS, HEADS).permute(0, 3, 1, 2)
    indirection = lines.int().to(packed.device) if shared else None
    return packed, keys, values, slots, bias, HEADS, indirection, None, scale


def _source(random: Random, head: int, scale: float | None = None) -> tuple[Any, ...]:
    queries, (keys, values) = random(ROWS, STEP, HEADS * head), random(2, ROWS, HEADS, 96, head)
    visible = (random(ROWS, 1, 1, 96) > 0) & (torch.arange(96) < 80).to(queries.device)
    visible[..., 70] = True
    hidden = ~visible[:, 0, 0, :, None]
    keys, values = (one.masked_fill(hidden[:, None], float("nan")) for one in (keys, values))
    return queries, keys, values, ops.additive(visible, queries), HEADS, 0.0, scale


def _source_self(random: Random, head: int) -> tuple[Any, ...]:
    packed = random(ROWS, 80, 3 * HEADS * head)
    visible = (torch.arange(80) < torch.tensor([80, 17, 66])[:, None]).to(packed.device)
    packed[..., HEADS * head :].masked_fill_(~visible[..., None], float("nan"))  # keys and values that nobody sees
    return packed, HEADS, visible[:, None, None]


_CACHED: dict[str, Any] = {"rows": (0, 1, 2, 3, 4), "written": (1, 2)}
CASES = {
    "product": Case("product", "linear", partial(_linear, rows=2, activation=None), (0,), {0: 1}),
    "product, ReLU": Case("product", "linear", partial(_linear, rows=2, activation="relu"), (0,), {0: 1}),
    "product, sum": Case(
        "product", "linear", partial(_linear, rows=2, activation=None, added=True), (0, 4), {0: 1, 4: 1}
    ),
    "relu": Case("relu", "linear", partial(_linear, rows=MANY_SLOTS // STEP + 1, activation="relu")),
    "product of rows": Case("product", "row_product", _row_product, (0, 3)),
    "norm": Case("norm", "add_norm", _add_norm, (0, 1)),
    "embed": Case("embed", "embed", partial(_embed, started=True), (0, 1)),
    "embed tree": Case("embed", "embed", partial(_embed, started=True, tree=True), (0, 1, 6)),
    "embed source": Case("embed", "embed", partial(_embed, started=False), (0,)),
    "step": Case("step", "cached_attention", partial(_cached, rule="causal"), slots={0: 1, 3: 1, 4: 1}, **_CACHED),
    "local": Case("local", "cached_attention", partial(_cached, rule="local"), slots={0: 1, 3: 1, 4: 1}, **_CACHED),
    "step of a block": Case("step", "cached_attention", partial(_cached, rule="block"), **_CACHED),
    "step of a tree": Case("step", "cached_attention", partial(_cached, rule="tree"), **_CACHED),
    "lines": Case("lines", "cached_attention", partial(_cached, rule="causal", shared=True), written=(1, 2)),
    "lines of a block": Case("lines", "cached_attention", partial(_cached, rule="block", shared=True), written=(1, 2)),
    "mask": Case("mask", "cached_attention", partial(_cached, rule="mask"), **_CACHED),
    "step, unscaled": Case("step", "cached_attention", partial(_cached, rule="causal", scale=0.2), **_CACHED),
    "mask, by heads": Case("mask", "cached_attention", partial(_cached, rule="heads", scale=0.2), **_CACHED),
    "source": Case("source", "attention", _source, (0, 1, 2, 3), {0: 1}),
    "source, unscaled": Case("source", "attention", partial(_source, scale=0.2), (0, 1, 2, 3), {0: 1}),
    "source-self": Case("source-self", "self_attention", _source_self, (0, 2)),
}
"""By name. What links choose is compared in tests, since equal scores may be chosen either way."""


def conformance(device: torch.device, dtype: torch.dtype) -> dict[str, str]:
    """What is wrong with each kernel here, by the name of its case; empty where nothing is."""
    table = inference_table(dtype, device=device.type)

    def checked(case: Case) -> str:
        assert table is not None
        worst = compare(case, table, device, dtype)
        return "" if worst <= TOLERANCE[dtype] else f"it is {worst:.1g} away from what it should be"

    return {name: why_not_here(device, dtype, partial(checked, case)) for name, case in CASES.items()}


# --- one after another -----------------------------------------------------------------------------------------------


class Chain:
    """A decoder layer's operations, one after another: what the quick check runs, and overlapping must not change."""

    def __init__(self, random: Random, step: int, layers: int = LAYERS) -> None:
        head, slots, rows = 64, 32, 2
        width = HEADS * head
        sizes = [(3 * width, width), (width, width), (2 * width, width), (width, 2 * width)]
        self.linears = [_weights(random, *size) for size in sizes]
        self.norm = (1 + random(width) / 8, random(width) / 8, 1e-5)
        self.keys, self.values = random(2, rows, HEADS, slots, head)
        self.tokens, self.positions = random(9, width), random(slots, width)
        self.start = torch.arange(rows, device=self.keys.device) * 3 + 5
        self.source = random(2, rows, HEADS, slots // 2, head)
        self.mask = self.keys.new_zeros(rows, 1, 1, slots // 2)
        self.mask[..., slots // 4 :] = float("-inf")
        self.layers, self.shape = layers, (rows, step)

    def inputs(self, turn: int) -> Tensor:
        """[rows, step] ids that differ from turn to turn"""
        rows, step = self.shape
        return (torch.arange(rows * step, device=self.keys.device).view(rows, step) * (turn + 2) + turn) % 9

    def double(self) -> Chain:
        """The same in float64."""
        other = Chain.__new__(Chain)
        other.__dict__.update({name: _double_all(value) for name, value in self.__dict__.items()})
        return other

    def run(self, ids: Tensor) -> Tensor:
        """[rows, step] -> [rows, step, width]"""
        packing, out, up, down = self.linears
        x, slots = ops.embed(ids, self.start, self.tokens, 2.0, (self.positions, 0), len(self.positions) - 1)
        every = torch.arange(self.keys.shape[2], device=ids.device)
        bias = Causal(slots, lambda: ops.additive(every <= every[:, None], self.keys))
        for _ in range(self.layers):
            mixed = ops.cached_attention(ops.linear(x, *packing), self.keys, self.values, slots, bias, HEADS)
            x = ops.add_norm(x, ops.linear(mixed, *out), *self.norm)
            mixed = ops.attention(x, self.source[0], self.source[1], self.mask, HEADS)
            x = ops.norm(x + mixed, *self.norm)  # by the library, among ours
            x = ops.add_norm(x, ops.linear(ops.linear(x, *up, "relu"), *down), *self.norm)
            x = ops.norm(x + ops.self_attention(ops.linear(x, *packing), HEADS, None), *self.norm)
        return x


def _double_all(value: Any) -> Any:
    if isinstance(value, list):
        return [_double(one) for one in value]
    return _double(value)


@cache
def unsupported_reason(device: torch.device, dtype: torch.dtype) -> str:
    """Return why kernels cannot be used here, in a few words; an empty string if a step by them is right."""
    return why_not_here(device, dtype, partial(remembered, "values", device, dtype, partial(_checked, device, dtype)))


def compile_side_by_side(device: torch.device, dtype: torch.dtype) -> None:
    """Compile the kernels of all chains in threads: Triton's passes and the assembler run outside of Python's lock.

    Results are thrown away, and so are errors: the tests that follow meet them again, one at a time.
    """

    def run(step: int, overlap: int) -> None:
        table = inference_table(dtype, tuple(NAMES), overlap=overlap)
        with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream(device)), kernels_of(table):  # type: ignore[no-untyped-call]
            chain = Chain(random_of(device, dtype), step, layers=1)
            chain.run(chain.inputs(0))

    with ThreadPoolExecutor() as pool:
        for future in [pool.submit(run, step, overlap) for step in (1, 9) for overlap in (0, WAITED)]:
            future.exception()
    torch.cuda.synchronize(device)


@torch.inference_mode()
def _checked(device: torch.device, dtype: torch.dtype) -> str:
    compile_side_by_side(device, dtype)
    table, worst = inference_table(dtype, device=device.type), 0.0
    for step in (1, 9):
        chain = Chain(random_of(device, dtype), step, layers=1)
        expected = chain.double().run(chain.inputs(0))
        with kernels_of(table):
            worst = max(worst, apart(chain.run(chain.inputs(0)), expected))
    return "" if worst <= 10 * TOLERANCE[dtype] else f"a step by them is {worst:.1g} away from what it should be"


@cache
def overlap_unsupported_reason(device: torch.device, dtype: torch.dtype, turns: int = 10) -> str:
    """What keeps kernels from starting while the one before them ends; empty where bits are the same with and without.

    Captured chains, each turn with other inputs, so that what is read too early is another turn's and shows. Races show
    rarely: the conformance suite takes many turns.
    """
    test = partial(_overlapped, device, dtype, turns)
    return why_not_here(device, dtype, partial(remembered, f"overlap in {turns} turns", device, dtype, test))


@torch.inference_mode()
def _overlapped(device: torch.device, dtype: torch.dtype, turns: int) -> str:
    from longstride.ops.cuda import overlap

    if against := overlap.unsupported_reason(device):
        return against
    alone, together = (inference_table(dtype, tuple(NAMES), overlap=manner) for manner in (0, WAITED))
    for step in (1, 9):
        chain = Chain(random_of(device, dtype), step)
        with kernels_of(alone):
            expected = [chain.run(chain.inputs(turn)) for turn in range(INPUTS)]
        given = chain.inputs(0).clone()
        torch.cuda.synchronize(device)
        with kernels_of(together):
            chain.run(given)
            torch.cuda.synchronize(device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                found = chain.run(given)
        for turn in range(turns):
            given.copy_(chain.inputs(turn % INPUTS))
            graph.replay()
            if not torch.equal(found, expected[turn % INPUTS]):
                return "kernels that overlap give other numbers than those that do not"
    return ""
