"""Where terms of requests' glossaries go, looked for in one thread, a call of the model at a time.

One request's search must not make others wait: requests take turns after each sentence, calls of the model take turns
with the schedulers, and a search that nobody waits for any more ends before its next call.
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
    """Those of all requests of a server."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "longstride-placing")

    async def prefixes(
        self, model: ServedModel, asked: Mapping[int, tuple[Placing, Sequence[int]]]
    ) -> dict[int, list[int]]:
        """What outputs begin with that lack terms, by number, for placings and the tokens of their last outputs."""
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
