"""Tiny interleaved models, and slow twins of their search: one sentence, no cache, no table, by the definition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from longstride.contract import DEFAULT_IDS, EOS, START, Limits
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.interleaved.model import InterleavedModel, Interleaving
from longstride.systems.interleaved.options import InterleavingOptions
from tests.decoding.oracles import longest_output
from tests.models import seeded, tiny_model

VARIANTS: list[dict[str, Any]] = [
    {"h": 1, "c": 1},
    {"h": 1, "c": 2},
    {"h": 1, "c": 3},
    {"h": 2, "c": 1},
    {"h": 2, "c": 2},
    {"h": 2, "c": 1, "mask": "vanilla"},
    {"h": 2, "c": 1, "mask": "vanilla", "independent": True},
    {"h": 2, "c": 1, "signal": "vanilla"},
    {"h": 2, "c": 1, "order": "middle-to-side"},
    {"h": 2, "c": 2, "independent": True},
    {"h": 2, "c": 1, "autoregressive": True},
    {"h": 2, "c": 1, "start": "zeros"},
    {"h": 4, "c": 1},
    {"h": 4, "c": 2},
    {"h": 4, "c": 1, "start": "learned"},
    {"h": 4, "c": 1, "order": "middle-to-side"},
    {"h": 6, "c": 1},
]
LINKED: list[dict[str, Any]] = [
    {"h": 1, "c": 2, "link": 3},
    {"h": 1, "c": 3, "link": 2},
    {"h": 2, "c": 2, "link": 3},
    {"h": 2, "c": 2, "link": 3, "mask": "vanilla", "order": "middle-to-side"},
    {"h": 2, "c": 3, "link": 1, "independent": True},
    {"h": 4, "c": 2, "link": 3, "start": "learned"},
]
"""the same with neighbouring words of a step linked"""
EVERY = [*VARIANTS, *LINKED]


def tiny_interleaved(
    seed: int = 0, variant: dict[str, Any] | None = None, ending: float = 0.0, **changes: Any
) -> InterleavedModel:
    """`ending` is added to the logit of EOS everywhere: several slots of a step then want to end. Links are as wild."""
    model = tiny_model(seed, **changes)
    variant = {"vocabulary": model.options.vocabulary, **variant} if variant and variant.get("link") else variant
    if ending:
        with torch.no_grad():
            model.decoder_layers()[-1].feed_forward_residual.norm.bias[0] += 2.0
            model.output_weight[:, 0] = 0.0
            model.output_weight[EOS, 0] = ending / 2.0
    with seeded(seed):
        interleaving = Interleaving(InterleavingOptions(model.options.width, **(variant or {})))
        if interleaving.link is not None:
            for weight in interleaving.link.parameters():
                torch.nn.init.normal_(weight)
    return InterleavedModel(model, interleaving).double().eval().requires_grad_(False)


def in_order(words: list[Any], options: InterleavingOptions) -> list[Any]:
    """The sentence that words in the order of writing make: every direction gathers its own, then segments join."""
    if options.h == 1:
        return list(words)
    sentence: list[Any] = []
    for first in range(0, options.h, 2):
        left, right = words[first :: options.h], words[first + 1 :: options.h]
        sentence += left + right[::-1] if options.order == "side-to-middle" else left[::-1] + right
    return sentence


Scores = Callable[[list[int]], list[float]]
"""what stands in a step so far -> [vocabulary] log-probabilities of its next slot"""


def next_step(model: InterleavedModel, source: list[int], words: list[int]) -> Scores:
    """Of the step after these words, by a whole forward pass."""
    step, h, link = model.options.step, model.options.h, model.interleaving.link
    memory = model.model.encode(torch.tensor([source]), None)
    hidden = model.decode(torch.tensor([[START] * step + words]), memory, None)[0, -step:]
    logits = model.model.logits(hidden)
    known: dict[tuple[int, int], list[float]] = {}

    def scores(so_far: list[int]) -> list[float]:
        slot = len(so_far)
        neighbour = so_far[slot - h] if link is not None and slot >= h else -1
        if (slot, neighbour) not in known:
            found = logits[slot]
            if link is not None and neighbour >= 0:
                weighed = link.before.weight[neighbour] * (1 + link.gate.weight @ hidden[slot])
                found = found + link.after.weight @ weighed
            known[slot, neighbour] = found.log_softmax(-1).tolist()
        return known[slot, neighbour]

    return scores


def allowed(slot: int, longest: int, earliest: int, limits: Limits, vocabulary: int) -> list[int]:
    if slot >= longest:
        return [EOS]
    never = {*DEFAULT_IDS.never_generated, *limits.banned} | ({EOS} if slot < earliest else set())
    return [token for token in range(vocabulary) if token not in never]


def earliest(model: InterleavedModel, limits: Limits, paper: bool) -> int:
    return max(limits.min_length, model.options.step if paper else 0)


def greedy(model: InterleavedModel, source: list[int], limits: Limits, paper: bool = False) -> tuple[list[int], float]:
    words: list[int] = []
    total, ended = 0.0, False
    while not ended:
        scores = next_step(model, source, words)
        begin = len(words)
        said: list[int] = []  # dropped words too: the next may be linked to one
        for slot in range(begin, begin + model.options.step):
            row = scores(said)
            choices = allowed(slot, longest_output(source, limits), earliest(model, limits, paper), limits, len(row))
            best = max(choices, key=lambda token: row[token])
            said.append(best)
            if not ended or paper:
                total += row[best]
            ended = ended or best == EOS
            if not ended:
                words.append(best)
    return in_order(words, model.options), total


Found = list[tuple[list[int], float]]


def beam(
    model: InterleavedModel, source: list[int], limits: Limits, width: int, penalty: LengthPenalty, n_best: int
) -> Found:
    """Every continuation of every hypothesis slot by slot; what ends competes with what is equally long."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    longest, first = longest_output(source, limits), earliest(model, limits, False)
    while live:
        scored = [next_step(model, source, words) for _, words in live]
        begin = len(live[0][1])
        partial = [[one] for one in live]
        for _ in range(model.options.step):
            ended: list[tuple[float, list[int], bool]] = []
            grown: list[list[tuple[float, list[int]]]] = []
            for parts, scores in zip(partial, scored, strict=True):
                more = []
                for total, words in parts:
                    row = scores(words[begin:])
                    for token in allowed(len(words), longest, first, limits, len(row)):
                        if token == EOS:
                            ended.append((total + row[token], words, True))
                        else:
                            more.append((total + row[token], [*words, token]))
                grown.append(sorted(more, key=lambda item: -item[0])[:width])
            pool = [*ended, *((total, words, False) for parts in grown for total, words in parts)]
            pool.sort(key=lambda item: -item[0])
            finished += [(total, words) for total, words, end in pool[: width - len(finished)] if end]
            partial = grown
        every = sorted((one for parts in partial for one in parts), key=lambda item: -item[0])
        live = every[: width - len(finished)]
    ranked = [(in_order(w, model.options), total / float(penalty(torch.tensor(len(w) + 1)))) for total, w in finished]
    return sorted(ranked, key=lambda item: -item[1])[:n_best]


def paper_beam(
    model: InterleavedModel, source: list[int], limits: Limits, width: int, penalty: LengthPenalty, n_best: int
) -> Found:
    """Every combination of tokens for a step, ended if there is an EOS anywhere in it; all of it is scored."""

    def grown(total: float, scores: Scores, choices: list[list[int]]) -> list[tuple[float, list[int]]]:
        return [
            (total + sum(scores(list(tokens[:at]))[token] for at, token in enumerate(tokens)), list(tokens))
            for tokens in itertools.product(*choices)
        ]

    return _paper_search(model, source, limits, width, penalty, n_best, grown)


def pruned_paper_beam(
    model: InterleavedModel, source: list[int], limits: Limits, width: int, penalty: LengthPenalty, n_best: int
) -> Found:
    """The same slot by slot: of every hypothesis, the best partial steps without an EOS are kept, and the best with."""

    def grown(total: float, scores: Scores, choices: list[list[int]]) -> list[tuple[float, list[int]]]:
        going: list[tuple[float, list[int]]] = [(total, [])]
        ended: list[tuple[float, list[int]]] = []
        for tokens in choices:
            every = [(score + scores(said)[token], [*said, token]) for score, said in going + ended for token in tokens]
            every.sort(key=lambda item: -item[0])
            going = [one for one in every if EOS not in one[1]][:width]
            ended = [one for one in every if EOS in one[1]][:width]
        return going + ended

    return _paper_search(model, source, limits, width, penalty, n_best, grown)


def _paper_search(
    model: InterleavedModel,
    source: list[int],
    limits: Limits,
    width: int,
    penalty: LengthPenalty,
    n_best: int,
    grown: Callable[[float, Scores, list[list[int]]], list[tuple[float, list[int]]]],
) -> Found:
    """Steps of a hypothesis as `grown` makes them from its total, its scores and each slot's choices."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int], int]] = []
    longest, first = longest_output(source, limits), earliest(model, limits, True)
    step, size = model.options.step, model.model.options.vocabulary
    while live:
        pool: list[tuple[float, list[int], int | None]] = []
        for total, words in live:
            choices = [allowed(len(words) + at, longest, first, limits, size) for at in range(step)]
            for score, tokens in grown(total, next_step(model, source, words), choices):
                kept = list(itertools.takewhile(lambda token: token != EOS, tokens))
                pool.append((score, [*words, *kept], len(words) + step if EOS in tokens else None))
        pool.sort(key=lambda item: -item[0])
        places = width - len(finished)
        finished += [(score, words, counted) for score, words, counted in pool[:places] if counted is not None]
        live = [(score, words) for score, words, counted in pool if counted is None][: width - len(finished)]
    ranked = [
        (in_order(words, model.options), total / float(penalty(torch.tensor(counted))))
        for total, words, counted in finished
    ]
    return sorted(ranked, key=lambda item: -item[1])[:n_best]
