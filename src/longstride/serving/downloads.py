"""Translated files, kept for a while under names that cannot be guessed."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic

from longstride.serving.errors import ServingError

SUFFIXES = [".txt", ".srt", ".html", ".docx"]
MOST_BYTES, MOST_FILES = 64 << 20, 1000
"""Of all that is kept; the oldest goes first."""
_UNSOUND = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Download:
    """A file to be fetched."""

    name: str
    content: bytes
    expires: float


class Downloads:
    """Files in memory: nothing that a client names is ever a path."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[str, Download] = OrderedDict()
        self._bytes = 0

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file; the name to fetch it by."""
        sound = _UNSOUND.sub("_", name.replace("\\", "/").rpartition("/")[2])[-80:].lstrip(".") or "file"
        token = f"{secrets.token_urlsafe(16)}.{sound}"
        self._kept[token] = Download(sound, content, monotonic() + self._seconds)
        self._bytes += len(content)
        self._tidy()
        return token

    def fetch(self, token: str) -> Download:
        """A file that was kept."""
        self._tidy()
        if token not in self._kept:
            raise ServingError("Invalid filename", 404)
        return self._kept[token]

    def _tidy(self) -> None:
        now = monotonic()
        while self._kept:
            token, oldest = next(iter(self._kept.items()))
            if oldest.expires > now and self._bytes <= MOST_BYTES and len(self._kept) <= MOST_FILES:
                return
            self._bytes -= len(self._kept.pop(token).content)
