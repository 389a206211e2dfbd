"""Writing folders whole or not at all: what is there is replaced, and put back if a process was killed over it."""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from longstride.contract.errors import ModelFolderError, WorkError
from longstride.text.files import alone_in
from longstride.text.naming import called

LEFT_OVER = 3600.0
"""Seconds after which what a killed process left behind is removed."""


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill; it takes the place of `path`, for everybody to read, when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = re.compile(rf"\.{re.escape(path.name)}-(old-)?[a-z0-9_]{{8}}")
    remove_left_over(each for each in path.parent.iterdir() if hidden.fullmatch(each.name))
    building = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        with called(building, path), alone_in(building):
            yield building
            os.chmod(building, 0o755)
            for file in building.iterdir():
                os.chmod(file, 0o644)
            _put(building, path)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def check_plain(folder: Path) -> None:
    """Refuse a folder with a FIFO, a socket or a device in it, which somebody might wait for or read for ever."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a link that leads nowhere
                mode = entry.stat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    kind = "a FIFO" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
                    raise ModelFolderError(f"{folder / entry.name}: expected a regular file, found {kind}.")


def recover(path: Path) -> None:
    """Put a folder back that a process was killed over while it replaced it; where all is well, nothing is done."""
    if os.path.lexists(path) or not path.name:
        return
    for moved in sorted(path.parent.glob(f".{glob.escape(path.name)}-old-*/was")):
        try:
            os.replace(moved, path)
        except OSError:  # whoever replaces the folder is still at it, or another process was quicker
            continue
        shutil.rmtree(moved.parent, ignore_errors=True)
        return


def _put(building: Path, path: Path) -> None:
    """Let a finished folder take the place of what is there."""
    if not path.exists():
        os.replace(building, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
    os.replace(path, old / "was")
    try:
        os.replace(building, path)
    except BaseException:
        if not path.exists():
            os.replace(old / "was", path)
        shutil.rmtree(old, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def remove_left_over(found: Iterable[Path]) -> None:
    """Remove what killed processes left behind: hidden folders of ours that have not changed for long, as far as clocks
    tell, and that no process holds."""
    for each in found:
        try:
            if each.is_dir() and not each.is_symlink() and time.time() - each.stat().st_mtime > LEFT_OVER:
                with alone_in(each):
                    shutil.rmtree(each, ignore_errors=True)
        except (OSError, WorkError):
            continue
