"""What drafts would save an exact beam search: steps a model call, and what a call costs.

    python benchmarks/beam_drafts.py -m bundled -s test.en [--lines 40] [--widths 2,4]

`draft-beam` was predicted by this; it has a tree of its own behind each hypothesis. A call reads all live hypotheses
and drafted tokens behind them. The next step needs no call if *all* hypotheses that live on are among what was read; so
does the one after it, and so on. The steps are those of `beam` itself. Drafts are grown for all hypotheses together: a
level of the tree has the `each` likeliest tokens behind any of them, by what the search says of the hypothesis and the
drafter of what follows; `levels` of them. The drafter is asked for every hypothesis, or for the best alone: then its
slots serve the others too, each behind its own tokens.

Costs are of native int8 calls on one thread, in processor time, which other processes on the machine change least: the
model's call over so many slots, and a proposal of the drafter for one row and for all.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import longstride
from longstride.contract import Limits, Source
from longstride.nn import programs
from longstride.search.candidates import with_best_words
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.text.corpus import read_lines
from longstride.verification.drafting import View

Prefix = tuple[int, ...]
Live = dict[Prefix, float]
"""Hypotheses with their log-probabilities"""

SHAPES = tuple((levels, each) for levels in (1, 2, 3, 4) for each in (4, 6, 8, 12))
REPEATS = 15


@dataclass(frozen=True)
class Drafted:
    """What the drafter says of the slots behind one prefix."""

    logits: Tensor
    """[block, vocabulary] of each slot by itself"""
    factors: Tensor | None
    """[block, rank] what a link weighs pairs of neighbours by"""


def live_by_step(decoder: Any, limits: Limits, source: Source) -> list[Live]:
    """The hypotheses that each step of `beam` goes on from."""
    session = decoder.start(1, limits, source.longest)
    session.admit(source)
    steps: list[Live] = []
    while not session.take_finished():
        state = session.table.state
        length = int(state.length[0])
        rows = zip(state.words[0].tolist(), state.live[0].tolist(), strict=True)
        steps.append({tuple(words[:length]): score for words, score in rows if score > float("-inf")})
        session.advance()
    session.close()
    return steps


class Drafts:
    """Drafted continuations of any prefixes of one sentence."""

    def __init__(self, decoder: DraftVerify, model: Any, source: Source, longest: int) -> None:
        self._drafter: Any = decoder.plan(Limits()).drafter
        self._model, self._special, self._longest = self._drafter._drafter, model.special, longest + 64
        memory = model.encode_source(source.ids, source.lengths)
        self._state = self._drafter.begin(1, source.longest, self._longest, source.ids.device)
        self._drafter.admit(self._state, torch.tensor([0]), source, memory)
        self._said: dict[Prefix, Drafted] = {}
        self._children: dict[tuple[Prefix, int, int], list[tuple[int, float]]] = {}

    def _of(self, prefix: Prefix) -> Drafted:
        if prefix not in self._said:
            drafter, length = self._drafter, torch.tensor([len(prefix)])
            tokens = torch.zeros(1, self._longest, dtype=torch.int64)
            tokens[0, : len(prefix)] = torch.tensor(prefix, dtype=torch.int64)
            newest = torch.tensor([prefix[-1] if prefix else self._special.start])
            limits = (torch.full_like(length, self._longest), torch.zeros(0, dtype=torch.int64))
            view = View(tokens, length, newest, newest < 0, *limits, window=len(prefix) + 1)
            made = drafter._pass(*drafter._arguments(self._state, view, drafter.depth))
            link = self._model.link
            hidden = made.hidden[0]
            self._said[prefix] = Drafted(self._model.logits(hidden), None if link is None else link.factors(hidden))
        return self._said[prefix]

    def children(self, asked: Prefix, slot: int, before: int, each: int) -> list[tuple[int, float]]:
        """The likeliest tokens of a slot behind `asked`, after one token, with their log-probabilities."""
        key = (asked, slot, before)
        if key not in self._children:
            said, link = self._of(asked), self._model.link
            if slot >= len(said.logits):
                return []
            logits = said.logits[slot]
            if said.factors is not None:
                logits = link.tied(logits[None], said.factors[slot][None], torch.tensor([before]))[0]
            shares, ids = logits.double().log_softmax(dim=-1).topk(max(each for _, each in SHAPES) + 1)
            found = zip(ids.tolist(), shares.tolist(), strict=True)
            self._children[key] = [(token, share) for token, share in found if token != self._special.eos]
        return self._children[key][:each]

    def read(self, live: Live, levels: int, each: int, alone: bool) -> set[Prefix]:
        """All that a call with these hypotheses and their drafts reads."""
        best = max(live, key=lambda one: live[one])
        found, level = set(live), [(score, prefix, prefix) for prefix, score in live.items()]
        for slot in range(levels):
            grown = []
            for score, prefix, root in level:
                before = prefix[-1] if prefix else self._special.start
                for token, share in self.children(best if alone else root, slot, before, each):
                    grown.append((score + share, (*prefix, token), root))
            level = sorted(grown, reverse=True)[:each]
            found |= {prefix for _, prefix, _ in level}
        return found


def calls(steps: list[Live], drafts: Drafts, levels: int, each: int, alone: bool) -> int:
    """Model calls that these steps would take."""
    count, known = 0, set[Prefix]()
    for live in steps:
        if not known.issuperset(live):
            known, count = drafts.read(live, levels, each, alone), count + 1
    return count


# --- what calls cost -------------------------------------------------------------------------------------------------


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds of processor time."""
    for _ in range(3):
        call()
    found = []
    for _ in range(REPEATS):
        begun = time.thread_time()
        call()
        found.append(time.thread_time() - begun)
    return 1000 * median(found)


class Costs:
    """Milliseconds of native int8 calls on one thread."""

    def __init__(self, folder: str, source: Source) -> None:
        self._translator = longstride.load(folder, device="cpu", runtime="native", precision="int8", threads=1)
        self._model: Any = self._translator.part("model")
        decoder, _ = self._translator.decoder("greedy")
        self._runner = decoder._runner  # type: ignore[attr-defined]
        self._memory = self._runner.call(programs.encode_source(self._model), source.ids, source.lengths)
        self._source = source
        self._known: dict[tuple[int, int], float] = {}

    def model(self, rows: int, step: int) -> float:
        """A call of the model over rows [rows, step] of one sentence, with the best words of every slot."""
        if (rows, step) not in self._known:
            model, start = self._model, torch.full((rows,), 20)
            program = with_best_words(programs.extend(model), model.options.vocabulary, rows, model.special.eos)
            ids, banned = torch.full((rows, step), 9), torch.tensor([0, 1, 2])
            given = (banned, ids, start, model.new_cache(rows, 128), self._memory, 128)
            self._known[rows, step] = timed(self._runner.bound(program, *given))
        return self._known[rows, step]

    def step(self, width: int) -> float:
        """A step of `beam`, all of it."""
        decoder, limits = self._translator.decoder("beam", width=width)
        session = decoder.start(1, limits, self._source.longest)
        session.admit(self._source)
        found = []
        while not session.take_finished():
            begun = time.thread_time()
            session.advance()
            found.append(time.thread_time() - begun)
        return 1000 * median(found)

    def drafter(self, rows: int, depth: int) -> float:
        """A proposal for so many rows: an iteration with a draft of one token less one that is given it."""
        decoder, limits = self._translator.decoder("draft-verify", k=depth)
        every = Source.of([self._source.ids[0].tolist()] * rows)
        found = []
        session = decoder.start(rows, limits, every.longest)
        session.admit(every)
        while not session.take_finished():
            begun = time.thread_time()
            session.advance()
            found.append(time.thread_time() - begun)
        return 1000 * median(found) - self.model(rows, depth + 1)


@torch.inference_mode()
def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-m", "--model", default="bundled")
    parser.add_argument("-s", "--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--widths", default="2,4")
    asked = parser.parse_args()
    translator = longstride.load(asked.model, device="cpu", runtime="eager", precision="fp32")
    lines = [line for line in islice(read_lines(asked.source), asked.lines) if line.strip()]
    sources = [Source.of([ids]) for ids in translator.encode(lines)]
    model: Any = translator.part("model")
    drafter, _ = translator.decoder("draft-verify")
    assert isinstance(drafter, DraftVerify)
    every = [Drafts(drafter, model, source, 2 * source.longest + 10) for source in sources]
    costs = Costs(asked.model, sorted(sources, key=lambda one: one.longest)[len(sources) // 2])
    proposals = {(rows, depth): costs.drafter(rows, depth) for rows in (1, 2, 4) for depth in (1, 2, 4, 6)}
    print("proposals", {key: round(value, 2) for key, value in proposals.items()}, flush=True)
    for width in map(int, asked.widths.split(",")):
        decoder, limits = translator.decoder("beam", width=width)
        searched = [live_by_step(decoder, limits, source) for source in sources]
        steps, one = sum(map(len, searched)), costs.step(width)
        print(f"width {width}: {steps} steps of {one:.2f} ms, model {costs.model(width, 1):.2f}", flush=True)
        for alone in (True, False):
            for levels, each in SHAPES:
                if each < width:
                    continue
                found = zip(searched, every, strict=True)
                needed = sum(calls(live, drafts, levels, each, alone) for live, drafts in found)
                slots = -(-(width + levels * each) // width)
                call = costs.model(width, slots)
                rest = one - costs.model(width, 1)
                print(
                    f"width {width}, {levels} levels of {each}, drafter asked for {'one' if alone else 'all'}: "
                    f"{steps / needed:.2f} steps a call of {width * slots} slots, {call:.2f} ms;"
                    f" gain with free drafts {steps * one / (needed * call + steps * rest):.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
