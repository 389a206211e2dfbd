"""Errors name the file or folder that was asked for, not the temporary one that is written in its place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def called(temporary: Path, path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the block name `path`, which they would name by its temporary path."""
    spelt = [(os.path.realpath(temporary), os.fspath(path)), (str(temporary), os.fspath(path))]
    spelt.append((temporary.name, Path(path).name))

    def renamed(text: Any) -> Any:
        for one, other in spelt if isinstance(text, str) else ():
            text = text.replace(one, other)
        return text

    try:
        yield
    except Exception as error:
        error.args = tuple(map(renamed, error.args))
        if isinstance(error, OSError):
            error.filename, error.filename2 = renamed(error.filename), renamed(error.filename2)
        raise
