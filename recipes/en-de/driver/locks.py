"""The lock of a folder of records, as seen by who stops jobs. Knows no job.

Whoever appends to a file of records holds its folder against others for that moment. A job that is stopped in the
middle of it keeps the lock for as long as it is stopped, and a clock that others are held still for could then never
write down what it read. So who stops jobs takes the lock first, and gives it back once they have stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 10.0
"""to wait for others' records; what takes longer than that is not in the middle of a write"""
POLL = 0.02


@contextmanager
def nobody_writes(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock for the length of a block; false where somebody would not give it back."""
    try:
        import fcntl
    except ImportError:  # as where records are written
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    until = time.monotonic() + SECONDS
    ours = False
    try:
        while not ours and time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = True
            except BlockingIOError:
                time.sleep(POLL)
        yield ours
    finally:
        os.close(handle)
