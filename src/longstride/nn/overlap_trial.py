"""Whether kernels of our own give the same bits when they overlap: a captured chain of them, again and again.

Every turn has other inputs, so that what is read too early is another turn's and shows. Races show rarely: hence the
many turns, and a chain in which each kernel reads what the one before it has just written, in memory that is used anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from longstride.nn import overlap
from longstride.nn.decode_attention import extend, read
from longstride.nn.decode_product import product
from longstride.nn.fused import add_norm

TURNS, INPUTS, LAYERS = 50, 5, 4
"""of a trial: repetitions, different inputs, and how often a layer's kernels follow each other"""
ROWS, HEADS, HEAD, SLOTS = 2, 2, 64, 32

Random = Callable[..., Tensor]


@dataclass(frozen=True)
class Chain:
    """A decoder layer's kernels, one after another, several times over."""

    linears: list[nn.Linear]
    """queries, keys and values; out of attention; up; down"""
    norm: nn.LayerNorm
    cache: Tensor
    """[2, rows, heads, slots, head]"""
    slots: Tensor
    """[rows, step]"""
    mask: Tensor
    """[rows, 1, 1, slots]"""

    @staticmethod
    def of(random: Random, step: int) -> Chain:
        """One with random weights."""
        width = HEADS * HEAD
        sizes = [(width, 3 * width), (width, width), (width, 2 * width), (2 * width, width)]
        weights = [(random(outputs, inputs) * inputs**-0.5, random(outputs)) for inputs, outputs in sizes]
        start = torch.arange(ROWS)[:, None] * 3 + 5
        cache = random(2, ROWS, HEADS, SLOTS, HEAD)
        mask = cache.new_zeros(ROWS, 1, 1, SLOTS)
        mask[..., SLOTS // 2 :] = float("-inf")
        norm = nn.LayerNorm(width).to(cache.device, cache.dtype)
        slots = (start + torch.arange(step)).to(cache.device)
        return Chain([_linear(*one) for one in weights], norm, cache, slots, mask)

    def run(self, x: Tensor) -> Tensor:
        """[rows, step, width] -> [rows, step, width]"""
        packing, out, up, down = self.linears
        keys, values = self.cache
        for _ in range(LAYERS):
            mixed = extend(product(x, packing), self.slots, keys, values)
            x = add_norm(x, product(mixed, out), self.norm)
            mixed = read(x, keys[:, :, : SLOTS // 2], values[:, :, : SLOTS // 2], self.mask[..., : SLOTS // 2], False)
            x = self.norm(x + mixed)  # by the library, among ours
            x = add_norm(x, product(product(x, up, relu=True), down), self.norm)
        return x


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device, dtype=weight.dtype)
    linear.weight.copy_(weight)
    linear.bias.copy_(bias)
    return linear


def trial(random: Random) -> float:
    """0 where chains of one slot a row and of several give the same; an error says what keeps them from it."""
    before = overlap.switched_on()
    try:
        for step in (1, 9):
            _try(Chain.of(random, step), [random(ROWS, step, HEADS * HEAD) for _ in range(INPUTS)])
    finally:
        overlap.switch(before)
    return 0.0


def _try(chain: Chain, inputs: list[Tensor]) -> None:
    device = inputs[0].device
    against = overlap.why_not(device)
    if against:
        raise RuntimeError(against)
    overlap.switch(False)
    expected = [chain.run(x) for x in inputs]
    given = inputs[0].clone()
    torch.cuda.synchronize(device)
    overlap.switch(True)
    chain.run(given)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found = chain.run(given)
    for turn in range(TURNS):
        given.copy_(inputs[turn % INPUTS])
        graph.replay()
        if not torch.equal(found, expected[turn % INPUTS]):
            raise ArithmeticError("kernels that overlap give other numbers than those that do not")
