"""Slow twins: decoders without a cache, a batch or a table, one sentence at a time, by the definition."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import torch

from longstride.contract import DEFAULT_IDS, EOS, START, Limits
from longstride.nn.transformer import Transformer
from longstride.search.length_penalty import LengthPenalty


def log_probabilities(models: list[Transformer], source: list[int], prefix: list[int]) -> torch.Tensor:
    """[vocabulary] after a prefix, by a whole forward pass of every model; probabilities averaged."""
    every = []
    for model in models:
        memory = model.encode(torch.tensor([source]), None)
        hidden = model.decode(torch.tensor([[START, *prefix]]), memory, None)
        every.append(model.logits(hidden)[0, -1].log_softmax(-1))
    return torch.stack(every).logsumexp(0) - torch.tensor(float(len(every))).double().log()


def allowed(position: int, longest: int, limits: Limits, vocabulary: int) -> list[int]:
    if position >= longest:
        return [EOS]
    never = {*DEFAULT_IDS.never_generated, *limits.banned} | ({EOS} if position < limits.min_length else set())
    return [token for token in range(vocabulary) if token not in never]


def may_follow(prefix: list[int], longest: int, limits: Limits, vocabulary: int) -> list[int]:
    """The same after a prefix, under limits that depend on it too."""
    if len(prefix) == longest - 1 and limits.forced_last is not None:
        return [limits.forced_last]
    if not prefix and limits.forced_first is not None:
        return [limits.forced_first]
    choices = allowed(len(prefix), longest, limits, vocabulary)
    if len(prefix) >= longest:
        return choices
    n, inputs = limits.no_repeat_ngram, [START, *prefix]
    grams = [inputs[at : at + n] for at in range(len(inputs) - n + 1)] if n else []
    again = {gram[-1] for gram in grams if gram[:-1] == inputs[len(inputs) - n + 1 :]}
    return [token for token in choices if token not in again and not loops([*inputs, token], limits.max_repeats)]


def loops(tokens: list[int], most: int) -> bool:
    """Whether they end in more than `most` times the same n-gram."""
    times = most + 1
    return most > 0 and any(tokens[-n:] * times == tokens[-n * times :] for n in range(1, 17))


def longest_output(source: list[int], limits: Limits) -> int:
    return int(limits.longest_outputs(torch.tensor(len(source))))


@dataclass(frozen=True)
class Begun:
    """What one output begins with, and what may not stand right behind that."""

    prefix: tuple[int, ...] = ()
    never_next: frozenset[int] = frozenset()

    def among(self, choices: list[int], tokens: list[int], longest: int) -> list[int]:
        """Of what may follow otherwise, what may follow under this."""
        if len(tokens) < min(len(self.prefix), longest):
            return [self.prefix[len(tokens)]]
        behind = self.prefix and len(tokens) == len(self.prefix) < longest
        return [token for token in choices if token not in self.never_next] if behind else choices


FREE = Begun()


def greedy(model: Transformer, source: list[int], limits: Limits, begun: Begun = FREE) -> tuple[list[int], float]:
    tokens: list[int] = []
    total, longest = 0.0, longest_output(source, limits)
    while True:
        scores = log_probabilities([model], source, tokens)
        choices = begun.among(may_follow(tokens, longest, limits, len(scores)), tokens, longest)
        best = max(choices or [EOS], key=lambda token: float(scores[token]))
        total += float(scores[best])
        if best == EOS:
            return tokens, total
        tokens.append(best)


def beam(
    models: list[Transformer],
    source: list[int],
    limits: Limits,
    width: int,
    penalty: LengthPenalty,
    n_best: int,
    begun: Begun = FREE,
) -> list[tuple[list[int], float]]:
    """Places are shared by live and finished hypotheses; no early stop at all, so the table's must be exact."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    longest = longest_output(source, limits)
    while live:
        grown, ending = [], []
        for total, tokens in live:
            scores = log_probabilities(models, source, tokens)
            first, last = not tokens, len(tokens) == longest - 1
            forced = (first and limits.forced_first is not None) or (last and limits.forced_last is not None)
            if forced or len(tokens) < min(len(begun.prefix), longest):
                scores = torch.zeros_like(scores)  # what is forced costs nothing
            for token in begun.among(may_follow(tokens, longest, limits, len(scores)), tokens, longest):
                grown.append((total + float(scores[token]), [*tokens, token]))
            ending.append((total + float(scores[EOS]), [*tokens, EOS]))
        if not grown and not finished:  # limits leave nothing: what there is ends here
            grown = ending
        grown.sort(key=lambda item: -item[0])
        grown = grown[: 2 * width]
        places = width - len(finished)
        finished += [(total, tokens[:-1]) for total, tokens in grown[:places] if tokens[-1] == EOS]
        going_on = [item for item in grown if item[1][-1] != EOS]
        live = going_on[: width - len(finished)]
    ranked = [(tokens, total / float(penalty(torch.tensor(len(tokens) + 1)))) for total, tokens in finished]
    ranked.sort(key=lambda item: -item[1])
    return ranked[:n_best]


def enumerate_all(
    model: Transformer, source: list[int], limits: Limits, penalty: LengthPenalty
) -> list[tuple[list[int], float]]:
    """Every output there is, best first."""
    longest = longest_output(source, limits)
    words = [
        token for token in allowed(limits.min_length, longest + 1, limits, model.options.vocabulary) if token != EOS
    ]
    found = []

    @cache
    def after(prefix: tuple[int, ...]) -> list[float]:
        """The same for all outputs that begin so."""
        scores: list[float] = log_probabilities([model], source, list(prefix)).tolist()
        return scores

    for length in range(limits.min_length, longest + 1):
        for tokens in itertools.product(words, repeat=length):
            total = 0.0
            for position, token in enumerate([*tokens, EOS]):
                total += after(tokens[:position])[token]
            found.append((list(tokens), total / float(penalty(torch.tensor(length + 1)))))
    return sorted(found, key=lambda item: -item[1])
