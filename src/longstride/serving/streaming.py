"""What was committed so far, as text that only grows."""

from __future__ import annotations

from longstride.contract.trace import Event
from longstride.translator import Translator

_UNFINISHED = "\ufffd"
"""A character of which only some bytes are there."""


class GrowingText:
    """Makes text of the tokens of an output that is written from left to right."""

    def __init__(self, translator: Translator) -> None:
        self._translator, self._eos = translator, translator.folder.special.eos
        self.tokens: list[int] = []
        self.text = ""
        """what was given so far"""

    def add(self, event: Event) -> tuple[list[int], str]:
        """The tokens that an iteration made final at the end of the output, and the text that is new by them; none of
        outputs that are written elsewhere first."""
        if not event.final or event.positions != tuple(range(len(self.tokens), len(self.tokens) + len(event.ids))):
            return [], ""
        new = [token for token in event.ids if token != self._eos]
        self.tokens += new
        return new, self._grown(self._translator.text([self.tokens])[0])

    def end(self, tokens: list[int]) -> tuple[list[int], str]:
        """The rest, once all tokens are known."""
        new, self.tokens = tokens[len(self.tokens) :], tokens
        return new, self._grown(self._translator.text([tokens])[0], whole=True)

    def _grown(self, text: str, whole: bool = False) -> str:
        stable = text if whole else text.rstrip(_UNFINISHED)
        if not stable.startswith(self.text):
            return ""
        new, self.text = stable[len(self.text) :], stable
        return new
