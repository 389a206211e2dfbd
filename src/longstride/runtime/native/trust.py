"""Whether what lies in a folder can only have come there by its owner or root. Knows POSIX's owners and modes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

ROOT = 0


def why_not_folder(folder: Path) -> str | None:
    """Why a folder cannot be trusted, in words that end a sentence; None where it can, or is not there yet.

    It must be ours (or root's), no link, and writable by nobody else; and so, as far as others are concerned, must be
    every folder above it, by its name as given and by where links lead, or it could be exchanged.
    """
    if folder.is_symlink():
        return f"{folder} is a link"
    try:
        places = (folder.absolute(), Path(os.path.realpath(folder)))
    except (OSError, RuntimeError):
        return f"{folder} is reached by links that lead nowhere"
    for place in places:
        for path in (place, *place.parents):
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"{path}: {error.strerror}"
            others = stat.S_IWGRP | stat.S_IWOTH if path in places else stat.S_IWOTH
            if why := _why_not(path, found, others):
                return why
    return None


def why_not_file(path: Path) -> str | None:
    """Why a file in a trusted folder cannot be trusted, in words that end a sentence; None where it can."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is no regular file"
    return _why_not(path, found, stat.S_IWGRP | stat.S_IWOTH)


def _why_not(path: Path, found: os.stat_result, others: int) -> str | None:
    if found.st_uid not in (os.getuid(), ROOT):
        return f"{path} belongs to another user"
    if stat.S_ISLNK(found.st_mode):  # has no mode of its own; where it leads is looked at too
        return None
    if found.st_mode & others and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
        return f"{path} can be written by other users"
    return None
