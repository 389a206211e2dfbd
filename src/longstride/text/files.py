"""Writing files whole or not at all. Knows nothing of what is in them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path in the folder of `path` (made if need be); it becomes `path` when the block ends well."""
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    # The ending stays the same, because writers choose the compression by it.
    handle, name = tempfile.mkstemp(prefix=f".{final.stem}-", suffix="".join(final.suffixes[-2:]), dir=final.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files that only the owner may read; a finished file gets what open() would have given it.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)


def file_sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
