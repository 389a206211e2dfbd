"""What drafts would save an exact beam search: steps a model call, if every live hypothesis were given a drafted tree.

    python benchmarks/beam_drafts.py -m bundled -s test.en [--lines 40] [--widths 1,2,4]

No decoder searches so. A call reads all live hypotheses and, behind each, its own tree of drafted tokens. The next step
needs no call if *all* hypotheses that live on are among what was read; so does the one after it, and so on. Width 1 is
greedy search, for comparison. Scores are sums of logarithms; ended hypotheses leave their places to others.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import longstride
from longstride.contract import Limits, Source
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.text.corpus import read_lines
from longstride.verification.drafting import View

Prefix = tuple[int, ...]


def live_by_step(model: Any, source: Source, width: int, longest: int) -> list[list[Prefix]]:
    """The hypotheses that each step goes on from, until `width` have ended or none is left to overtake them."""
    special = model.special
    visible = torch.ones_like(source.ids, dtype=torch.bool)
    memory = model.encode(source.ids, visible)
    forbidden = [one for one in (special.pad, special.start, special.unk, special.mask) if one is not None]
    live: list[tuple[float, Prefix]] = [(0.0, ())]
    ended: list[float] = []
    steps: list[list[Prefix]] = []
    while live and len(steps) < longest:
        steps.append([prefix for _, prefix in live])
        ids = torch.tensor([[special.start, *prefix] for _, prefix in live])
        rows = len(live)
        hidden = model.decode(ids, memory.expand(rows, -1, -1), visible.expand(rows, -1))[:, -1]
        scores = model.logits(hidden).double().index_fill(1, torch.tensor(forbidden), float("-inf")).log_softmax(dim=-1)
        scores = scores + torch.tensor([score for score, _ in live], dtype=torch.float64)[:, None]
        best, places = scores.flatten().topk(2 * width)
        going: list[tuple[float, Prefix]] = []
        for score, place in zip(best.tolist(), places.tolist(), strict=True):
            row, token = divmod(place, scores.shape[1])
            if token == special.eos:
                ended.append(score)
            elif len(going) < width:
                going.append((score, (*live[row][1], token)))
        live = going
        if len(ended) >= width or (ended and live[0][0] < max(ended)):
            break
    return steps


class Drafts:
    """Drafted continuations of any prefixes of one sentence."""

    def __init__(self, decoder: DraftVerify, model: Any, source: Source, width: int, longest: int) -> None:
        self._drafter = decoder.plan(Limits()).drafter
        self._special, self._longest, self._width = model.special, longest + 64, width
        memory = model.encode_source(source.ids, source.lengths)
        self._state = self._drafter.begin(width, source.longest, self._longest, source.ids.device)
        for row in range(width):
            self._drafter.admit(self._state, torch.tensor([row]), source, memory)

    def read(self, prefixes: list[Prefix]) -> set[Prefix]:
        """All that a call with these prefixes and their drafts reads."""
        filled = [*prefixes, *([prefixes[0]] * (self._width - len(prefixes)))]
        length = torch.tensor([len(one) for one in filled])
        tokens = torch.zeros(len(filled), self._longest, dtype=torch.int64)
        for row, one in enumerate(filled):
            tokens[row, : len(one)] = torch.tensor(one, dtype=torch.int64)
        newest = torch.tensor([one[-1] if one else self._special.start for one in filled])
        none = torch.zeros(len(filled), dtype=torch.bool)
        limits = (torch.full_like(length, self._longest), torch.zeros(0, dtype=torch.int64))
        view = View(tokens, length, newest, none, *limits, window=int(length.max()) + 1)
        draft = self._drafter.propose(self._state, view, self._drafter.block)
        found = set(prefixes)
        for row, prefix in enumerate(prefixes):
            paths: list[Prefix] = [prefix]
            for place, token in enumerate(draft.ids[row].tolist()):
                parent = place if draft.parents is None else int(draft.parents[row, place])
                paths.append((*paths[parent], token))
            found |= set(paths)
        return found


def calls(steps: list[list[Prefix]], drafts: Drafts) -> int:
    """Model calls that these steps would take."""
    count, known = 0, set[Prefix]()
    for live in steps:
        if not known.issuperset(live):
            known, count = drafts.read(live), count + 1
    return count


@torch.inference_mode()
def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-m", "--model", default="bundled")
    parser.add_argument("-s", "--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--widths", default="1,2,4")
    asked = parser.parse_args()
    translator = longstride.load(asked.model, device="cpu", runtime="eager", precision="fp32")
    lines = [line for line in islice(read_lines(asked.source), asked.lines) if line.strip()]
    sources = [Source.of([ids]) for ids in translator.encode(lines)]
    model: Any = translator.part("model")
    for width in map(int, asked.widths.split(",")):
        searched = [live_by_step(model, source, width, 2 * source.longest + 10) for source in sources]
        steps = sum(map(len, searched))
        for options in ({}, {"tree": 16}, {"tree": 32}):
            decoder, _ = translator.decoder("draft-verify", **options)
            assert isinstance(decoder, DraftVerify)
            needed = 0
            for source, found in zip(sources, searched, strict=True):
                needed += calls(found, Drafts(decoder, model, source, width, 2 * source.longest + 10))
            named = f"trees of {options['tree']}" if options else "chains"
            print(f"width {width}, {named}: {steps / needed:.2f} steps a model call", flush=True)


if __name__ == "__main__":
    main()
