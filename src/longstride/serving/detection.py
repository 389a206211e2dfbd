"""Which language a text is in, by lingua-language-detector, which is read when it is first asked."""

from __future__ import annotations

import asyncio
import threading
from functools import cached_property
from typing import Any

from longstride.serving.errors import ServingError

MOST = 500
"""Characters that are looked at: more make no difference."""


class Detector:
    """Texts to languages. Looks at the beginning of a text; texts without letters are in none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def detect(self, text: str) -> tuple[str, float] | None:
        """A language's code and how sure that is, from 0 to 100; None: it has no words."""
        if not any(sign.isalpha() for sign in text):
            return None
        return await asyncio.to_thread(self._detect, text[:MOST])

    def _detect(self, text: str) -> tuple[str, float] | None:
        with self._lock:
            found = self._lingua.compute_language_confidence_values(text)
        if not found:
            return None
        code = found[0].language.iso_code_639_1.name.lower()
        return ("nb" if code == "no" else code), round(100 * found[0].value, 1)

    @cached_property
    def _lingua(self) -> Any:
        try:
            from lingua import LanguageDetectorBuilder
        except ImportError:
            raise ServingError(
                "The language auto expects the package lingua-language-detector on the server, which has none.", 501
            ) from None
        return LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()
