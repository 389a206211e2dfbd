"""A lock that is given in the order it was asked for: schedulers of one device take turns."""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """Whoever has asked first is next; Python's own lock may be taken again and again by the thread that left it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        mine = threading.Event()
        with self._lock:
            self._queue.append(mine)
            if len(self._queue) == 1:
                mine.set()
        mine.wait()

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._queue.popleft()
            if self._queue:
                self._queue[0].set()
