"""What a lattice would bring as a drafter: tokens an iteration if its paths, searched again from every accepted prefix,
were drafted for the autoregressive model of the same folder.

    python benchmarks/lattice_drafts.py -m bundled -s test.en [--lines 100]

No decoder drafts so: greedy's outputs are known, so that what would stand can be counted. A lattice is scored once per
sentence. Its posterior (all paths, forward and backward) says how likely each word is after the one before it; the last
committed token is looked for in the column of its position, or in a near one.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

import longstride
from longstride.contract import Source
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.text.corpus import read_lines

EACH = 16
"""Children of a node that are looked at."""

Paths = set[tuple[int, ...]]


@dataclass(frozen=True)
class Posterior:
    """A sentence's lattice as a chain of shares."""

    ids: list[list[int]]
    """by column, the words of its states, then EOS and PAD"""
    first: Tensor
    """[states] logarithms of the shares in column 0"""
    after: list[Tensor]
    """by column, [states, states of the next]"""
    alone: list[Tensor]
    """by column, [states], whatever stands before"""

    @staticmethod
    def of(decoder: LatticeDecoder, sentence: list[int]) -> Posterior:
        """By sums over all paths."""
        lattice, _ = decoder.lattices(Source.of([sentence]))
        first, edges = lattice.first[0].double(), lattice.edges[0].double()
        to_end = [torch.zeros_like(first)]
        for into in reversed(list(edges)):
            to_end.insert(0, (into + to_end[0]).logsumexp(dim=1))
        from_start = [first]
        for into in edges:
            from_start.append((from_start[-1][:, None] + into).logsumexp(dim=0))
        after = [(into + rest).log_softmax(dim=1) for into, rest in zip(edges, to_end[1:], strict=True)]
        alone = [(before + rest).log_softmax(dim=0) for before, rest in zip(from_start, to_end, strict=True)]
        return Posterior(lattice.ids[0].tolist(), alone[0], after, alone)

    def following(self, committed: list[int], window: int) -> tuple[Tensor | None, int]:
        """Shares of what comes next, and its column."""
        if not committed:
            return self.first, 0
        place, last = len(committed) - 1, committed[-1]
        near = sorted(
            range(max(0, place - window), min(len(self.ids), place + window + 1)), key=lambda c: abs(c - place)
        )
        for column in near:
            if last in self.ids[column][:-1]:
                more = column < len(self.after)
                return (self.after[column][self.ids[column].index(last)] if more else None), column + 1
        return (self.alone[place + 1] if place + 1 < len(self.alone) else None), place + 1


def tree(lattice: Posterior, committed: list[int], nodes: int, depth: int, window: int, eos: int, pad: int) -> Paths:
    """The likeliest paths, best first."""
    shares, column = lattice.following(committed, window)
    found: Paths = set()
    queue: list[tuple[float, tuple[int, ...], int, int]] = []

    def offer(path: tuple[int, ...], base: float, shares: Tensor, column: int) -> None:
        for share, state in zip(*(one.tolist() for one in shares.topk(min(EACH, len(shares)))), strict=True):
            if share > -1e9 and (token := lattice.ids[column][state]) != pad:
                heapq.heappush(queue, (base - share, (*path, token), column, state))

    if shares is not None:
        offer((), 0.0, shares, column)
    while queue and len(found) < nodes:
        cost, path, column, state = heapq.heappop(queue)
        found.add(path)
        if path[-1] != eos and len(path) < depth and column < len(lattice.after):
            offer(path, cost, lattice.after[column][state], column + 1)
    return found


def chain(lattice: Posterior, committed: list[int], length: int, window: int, eos: int) -> Paths:
    """The likeliest next word, again and again."""
    shares, column = lattice.following(committed, window)
    path: tuple[int, ...] = ()
    found: Paths = set()
    while shares is not None and len(path) < length:
        state = int(shares.argmax())
        path = (*path, lattice.ids[column][state])
        found.add(path)
        if path[-1] == eos or column >= len(lattice.after):
            break
        shares, column = lattice.after[column][state], column + 1
    return found


def tokens_per_iteration(
    lattices: list[Posterior], outputs: list[list[int]], draft: Callable[[Posterior, list[int]], Paths]
) -> float:
    """EOS counted."""
    iterations = 0
    for lattice, output in zip(lattices, outputs, strict=True):
        done = 0
        while done < len(output):
            paths, stood = draft(lattice, output[:done]), 0
            while done + stood < len(output) and tuple(output[done : done + stood + 1]) in paths:
                stood += 1
            done, iterations = done + stood + 1, iterations + 1
    return sum(map(len, outputs)) / iterations


@torch.inference_mode()
def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-m", "--model", default="bundled")
    parser.add_argument("-s", "--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=100)
    parser.add_argument("--window", type=int, default=3)
    asked = parser.parse_args()
    translator = longstride.load(asked.model, device="cpu")
    eos, pad = translator.folder.special.eos, translator.folder.special.pad
    lines = [line for line in islice(read_lines(asked.source), asked.lines) if line.strip()]
    outputs = [[*one.tokens, eos] for one in translator.translate(lines, "greedy")]
    decoder, _ = translator.decoder("lattice")
    assert isinstance(decoder, LatticeDecoder)
    lattices = [Posterior.of(decoder, ids) for ids in translator.encode(lines)]
    window = asked.window
    for length in (10, 40):
        found = tokens_per_iteration(lattices, outputs, lambda one, y, n=length: chain(one, y, n, window, eos))
        print(f"chain of {length}: {found:.2f} tokens an iteration")
    for nodes in (16, 32, 64):
        found = tokens_per_iteration(lattices, outputs, lambda one, y, n=nodes: tree(one, y, n, 20, window, eos, pad))
        print(f"tree of {nodes}: {found:.2f}")


if __name__ == "__main__":
    main()
