"""Drafters that follow a script: good, bad, empty, hostile. The verifier must not care."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from longstride.contract import EOS, Source
from longstride.nn.cache import EncoderState
from longstride.verification.drafting import Drafter, Proposal, View


class Scripted(Drafter):
    """Proposes, for each row, what `script` says of its source, position and block: a list of ids, any length."""

    def __init__(self, block: int, script: Any) -> None:
        self.block = block
        self._script = script
        self.observed: list[list[int]] = []

    def begin(
        self, rows: int, longest_source: int, longest_output: int, device: torch.device
    ) -> dict[int, tuple[int, ...]]:
        return {}

    def admit(self, state: Any, rows: Tensor, source: Source, memory: EncoderState) -> None:
        for place, row in enumerate(rows.tolist()):
            state[row] = tuple(source.ids[place, : source.lengths[place]].tolist())
        assert memory.states is not None
        assert memory.states.shape[0] == len(rows)

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        ids = torch.full((len(view.length), block), 7)
        count = torch.zeros(len(view.length), dtype=torch.int64)
        for row, length in enumerate(view.length.tolist()):
            if row in state and not bool(view.done[row]):
                draft = list(self._script(state[row], view.tokens[row, :length].tolist(), block))[:block]
                ids[row, : len(draft)] = torch.tensor(draft, dtype=torch.int64)
                count[row] = len(draft)
        return Proposal(ids, count)

    def observe(self, state: Any, accepted: Tensor, view: View, hidden: Tensor) -> None:
        assert hidden.shape[0] == len(accepted)
        self.observed.append(accepted.tolist())


def oracle(outputs: dict[tuple[int, ...], list[int]]) -> Any:
    """Proposes what greedy search will write."""
    return lambda source, prefix, block: [*outputs[source], EOS][len(prefix) : len(prefix) + block]


def always_wrong(outputs: dict[tuple[int, ...], list[int]], vocabulary: int) -> Any:
    """Proposes what greedy search will not write."""

    def script(source: tuple[int, ...], prefix: list[int], block: int) -> list[int]:
        right = [*outputs[source], EOS][len(prefix) : len(prefix) + block]
        return [5 + (token - 4) % (vocabulary - 5) if token >= 5 else 5 for token in right]

    return script


def at_random(seed: int, vocabulary: int) -> Any:
    """Any ids at all, any number of them, reserved ones too."""
    generator = torch.Generator().manual_seed(seed)

    def script(source: tuple[int, ...], prefix: list[int], block: int) -> list[int]:
        count = int(torch.randint(0, block + 1, (1,), generator=generator)) if block else 0
        return torch.randint(0, vocabulary, (count,), generator=generator).tolist()

    return script


def half_right(outputs: dict[tuple[int, ...], list[int]], seed: int, vocabulary: int) -> Any:
    """Right, except where a coin says otherwise; past the end, nonsense."""
    generator = torch.Generator().manual_seed(seed)

    def script(source: tuple[int, ...], prefix: list[int], block: int) -> list[int]:
        right = [*outputs[source], EOS, *[6] * block][len(prefix) : len(prefix) + block]
        wrong = torch.randint(0, vocabulary, (len(right),), generator=generator).tolist()
        coins = torch.rand(len(right), generator=generator).tolist()
        return [bad if coin < 0.25 else good for good, bad, coin in zip(right, wrong, coins, strict=True)]

    return script


def script_of(kind: str, outputs: Any, seed: int, vocabulary: int) -> Any:
    """A way of drafting by its name."""
    scripts: dict[str, Any] = {
        "random": at_random(seed, vocabulary),
        "oracle": oracle(outputs),
        "wrong": always_wrong(outputs, vocabulary),
        "empty": lambda source, prefix, block: [],
        "all-eos": lambda source, prefix, block: [EOS] * block,
        "half": half_right(outputs, seed, vocabulary),
        "always-same": lambda source, prefix, block: [6] * block,
    }
    return scripts[kind]
