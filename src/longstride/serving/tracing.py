"""How an output came about, for those who draw it: every token with the text that it adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longstride.contract import TraceBuilder
from longstride.serving.scheduler import Progress
from longstride.translator import Translator

CONTEXT = 8
"""Tokens before a token that its text may depend on: spaces and characters of several bytes."""


class TracedOutput:
    """Collects the iterations of one sentence, and tells them when it has ended."""

    def __init__(self, translator: Translator) -> None:
        self._translator, self._eos = translator, translator.folder.special.eos
        self._builder = TraceBuilder(self._eos)
        self._seconds: list[float] = []

    def add(self, progress: Progress) -> None:
        """The next iteration."""
        self._builder.put(0, progress.event, progress.whens)
        self._seconds.append(progress.seconds)

    def told(self) -> dict[str, Any]:
        """Steps with positions from 0, ids and texts; drafts likewise, as they continue what stood before them."""
        trace = self._builder.trace(0)
        found, output = trace.as_dict(), trace.replay()
        texts = self._texts([output[max(0, place - CONTEXT) : place + 1] for place in range(len(output))])
        rows = []
        for step in found["steps"]:
            begin = min(step["positions"], default=0)
            before = output[max(0, begin - CONTEXT) : begin]
            rows += [[*before, *path] for path in _paths(step["draft"], step.get("parents"))]
        drafted = iter(self._texts(rows))
        for step, seconds in zip(found["steps"], self._seconds, strict=True):
            step["texts"] = ["" if place >= len(texts) else texts[place] for place in step["positions"]]
            step["draft_texts"] = [next(drafted) for _ in step["draft"]]
            step["decoding_seconds"] = round(seconds, 6)
        return {**found, "eos": self._eos}

    def _texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """What the last token of each row adds to the text of the others; its piece where the others change by it."""
        without = self._translator.text([row[:-1] for row in rows])
        told = self._translator.text(rows)
        pieces = self._translator.target_tokenizer.pieces([row[-1] for row in rows])
        return [
            text[len(before) :] if text.startswith(before) else piece
            for before, text, piece in zip(without, told, pieces, strict=True)
        ]


def _paths(draft: list[int], parents: list[int] | None) -> list[list[int]]:
    """Of each token of a draft all that lead to it, itself the last."""
    found: list[list[int]] = [[]]  # by slot: what is committed, and then the tokens
    for token, parent in zip(draft, parents or range(len(draft)), strict=True):
        found.append([*found[parent], token])
    return found[1:]
