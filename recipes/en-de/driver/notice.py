"""A file that asks for stillness: every driver that was told of it holds its jobs still while it is there.

A driver puts it up while it reads a clock, with its process number in it, so that a notice whose writer is dead counts
for nothing; a person may put up an empty one by hand.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Notice:
    """One driver's view of the file; without a path nobody ever asks."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._ours = False

    @property
    def asked(self) -> bool:
        """Whether somebody else wants stillness."""
        if self._path is None or self._ours or not self._path.exists():
            return False
        try:
            writer = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return self._path.exists()
        if writer.isdigit() and not _alive(int(writer)):
            self._path.unlink(missing_ok=True)
            return False
        return True

    def put_up(self) -> bool:
        """Ask for stillness; false where somebody else does."""
        if self._path is None or self._ours:
            return True
        # Linked into place, so that it is never seen without its writer, and never replaces another's.
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.write_text(f"{os.getpid()}\n", encoding="ascii")
        try:
            os.link(draft, self._path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        self._ours = True
        return True

    def take_down(self) -> None:
        """Ask no more."""
        if self._ours and self._path is not None:
            self._path.unlink(missing_ok=True)
        self._ours = False


def _alive(process: int) -> bool:
    try:
        with contextlib.suppress(PermissionError):  # another user's
            os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
