"""Find the places of glossary terms for all requests of a server, in one thread.

A search must not delay other requests: requests take turns after each sentence, model calls take turns with the
schedulers, and a cancelled search ends before its next call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from longstride.serving.errors import STOPPED, CancelledError, DrainingError
from longstride.serving.models import ServedModel
from longstride.terminology import Placing


class Placings:
    """Runs the searches of all requests."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "longstride-placing")

    async def prefixes(
        self, model: ServedModel, asked: Mapping[int, tuple[Placing, Sequence[int]]]
    ) -> dict[int, list[int]]:
        """Return prefixes by number: for each output that lacks a term, the tokens that the next output begins with.
        `asked` has the search and the tokens of the last output by number."""
        left = threading.Event()

        @contextmanager
        def turn() -> Iterator[None]:
            if left.is_set():
                raise CancelledError("The client has gone.")
            if model.stopped:
                raise DrainingError(STOPPED)
            with model.turns:
                yield

        found: dict[int, list[int]] = {}
        try:
            for number, (placing, tokens) in asked.items():
                prefix = await asyncio.get_running_loop().run_in_executor(self._thread, placing, tokens, turn)
                if prefix is not None:
                    found[number] = prefix
        finally:
            left.set()
        return found
