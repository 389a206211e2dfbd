"""Which language a text is in, by lingua-language-detector, which is read when it is first asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from functools import cached_property
from typing import Any

from longstride.serving.errors import ServingError

MOST = 500
"""Characters that are looked at: more make no difference."""
SURE = 90.0
"""How sure a language has to be that the server does not have. Of a word or two this is never told for certain: Hello
world is Vietnamese for the detector, and nobody could be answered."""


class Detector:
    """Texts to languages. Looks at the beginning of a text; texts without letters are in none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def detect(self, text: str, expected: Collection[str] = ()) -> tuple[str, float] | None:
        """A language's code and how sure that is, from 0 to 100; None: it has no words.

        Unless it is surely another one, it is the likeliest of those `expected`, of equally likely ones the first.
        """
        if not any(sign.isalpha() for sign in text):
            return None
        return await asyncio.to_thread(self._detect, text[:MOST], expected)

    def _detect(self, text: str, expected: Collection[str]) -> tuple[str, float] | None:
        with self._lock:
            found = self._lingua.compute_language_confidence_values(text)
        if not found:
            return None
        sure = {_code(one.language): round(100 * one.value, 1) for one in found}
        first = _code(found[0].language)
        known = [code for code in expected if code in sure]
        if known and sure[first] < SURE:
            first = max(known, key=lambda code: sure[code])
        return first, sure[first]

    @cached_property
    def _lingua(self) -> Any:
        try:
            from lingua import LanguageDetectorBuilder
        except ImportError:
            raise ServingError(
                "The language auto expects the package lingua-language-detector on the server, which has none.", 501
            ) from None
        return LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()


def _code(language: Any) -> str:
    code = str(language.iso_code_639_1.name).lower()
    return "nb" if code == "no" else code
