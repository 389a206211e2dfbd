"""Writing files whole or not at all, and devices as they are. Knows nothing of what is in them.

A regular file, and one that is yet to be made, is written beside itself and renamed; a symbolic link stays and its
target is written so. A device, a FIFO, a socket or a descriptor (/dev/stdout, /dev/fd/63) is written to directly.
Folders that are missing on the way are made.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from longstride.contract import OptionError, WorkError
from longstride.text.naming import called

_Path = str | os.PathLike[str]

_DESCRIPTOR = re.compile(r"/dev/fd/(\d+)|/proc/self/fd/(\d+)|/dev/(stdin|stdout|stderr)")
_LINKS = 40
"""Symbolic links that are followed, as many as Linux does"""
_OWN = ".longstride-"
_alive: set[str] = set()
"""Temporaries that this process is writing"""


@dataclass(frozen=True)
class _Target:
    """What writing to a path means."""

    path: Path
    descriptor: int | None = None
    whole: bool = False
    """a regular file, there or not"""


@contextmanager
def output_file(path: _Path) -> Iterator[IO[bytes]]:
    """A file to write bytes to, whole or not at all where `path` is a regular file; what fails is a WorkError."""
    target = _target(path)
    if target.whole:
        with _replacing(target.path, path) as temporary, _written(os.open(temporary, os.O_WRONLY), path) as file:
            yield file
        return
    with _told(path):
        handle = os.dup(target.descriptor) if target.descriptor is not None else os.open(target.path, os.O_WRONLY)
    with _written(handle, path) as file:
        yield file


@contextmanager
def written_whole(path: _Path) -> Iterator[Path]:
    """Give a temporary path of the same ending to write to; it becomes `path` when the block ends well."""
    target = _target(path)
    if target.whole:
        with _replacing(target.path, path) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / f"output{_ending(target.path)}"
        with called(temporary, path):
            yield temporary
        with output_file(path) as file, temporary.open("rb") as made:
            shutil.copyfileobj(made, file)


@contextmanager
def temporary_beside(path: _Path, folder: bool = False) -> Iterator[Path]:
    """A new file or folder beside `path`, to be renamed to it; what is still there when the block ends is removed.

    Those that processes which were killed have left for the same path are removed first.
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    # Of one length whatever the name, which may be as long as names can be; writers choose a compression by the ending.
    tag = f"{_OWN}{hashlib.sha256(os.fsencode(final.name)).hexdigest()[:12]}-"
    _remove_leftovers(final.parent, tag)
    temporary = final.parent / f"{tag}{os.getpid()}-{secrets.token_hex(4)}{_ending(final)}"
    _alive.add(str(temporary))
    handle = None
    try:
        if folder:
            temporary.mkdir()
            handle = os.open(temporary, os.O_RDONLY)
        else:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        lock_file(handle)
        with called(temporary, final):
            yield temporary
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)
        _alive.discard(str(temporary))


def check_writable(*paths: _Path | None) -> None:
    """Refuse files that could not be written, and regular files that are named twice; changes nothing."""
    seen: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        target = _target(path)
        if target.whole:
            if target.path in seen:
                raise OptionError(f"{path}: expected every file to write once, found it twice.")
            seen.add(target.path)
            _check_place(target.path, path)
            if target.path.exists() and not os.access(target.path, os.W_OK):
                raise OptionError(f"{path}: expected a file that may be written, found one that may not.")
        elif target.descriptor is not None:
            with _told(path, OptionError):
                os.close(os.dup(target.descriptor))
        elif not os.access(target.path, os.W_OK):
            raise OptionError(f"{path}: expected a device that may be written, found one that may not.")


def check_folder_writable(path: _Path) -> None:
    """Refuse a folder that could not be made, or not written in; changes nothing."""
    final = Path(os.path.realpath(path))
    if Path(path).name in ("", "-") and str(path) != ".":
        raise OptionError(f"{path}: expected a folder to write, found {str(path)!r}.")
    try:
        str(final).encode("utf-8")
    except UnicodeEncodeError:  # safetensors, ONNX Runtime and CTranslate2 could not read what is in it
        raise OptionError(f"{path}: expected a folder whose path is UTF-8, found other bytes in it.") from None
    with _told(path, OptionError):
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(path)  # links that lead to themselves, say
        there = os.path.exists(final) and not final.is_dir()
    if there:
        raise OptionError(f"{path}: expected a folder to write, found a file.")
    _check_place(final, path)
    if final.is_dir():
        _check_place(final / "file", path)


def regular_target(path: _Path) -> Path | None:
    """The regular file that writing to `path` makes or replaces, symbolic links followed; none for devices."""
    target = _target(path)
    return target.path if target.whole else None


def opens_at_once(path: _Path) -> bool:
    """Return False for a pipe that has a name, which waits for a reader; what is open already may be one."""
    target = _target(path)
    return target.whole or target.descriptor is not None or stat.S_ISCHR(os.stat(target.path).st_mode)


def read_regular(path: _Path) -> bytes:
    """All bytes of a file; OSError where it is a FIFO or a device, which need never end."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "no regular file", os.fspath(path))
    return Path(path).read_bytes()


def file_sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _target(path: _Path) -> _Target:
    """What is at a path; a folder is refused."""
    place = Path(path)
    with _told(path, OptionError):
        for _ in range(_LINKS):
            spelt = os.path.abspath(place)
            if found := _DESCRIPTOR.fullmatch(spelt):
                number = found[1] or found[2] or ("stdin", "stdout", "stderr").index(found[3])
                return _Target(Path(spelt), descriptor=int(number))
            if spelt.startswith("/proc/"):  # what links there say is no path
                return _Target(Path(spelt))
            # Up is up from where a link to a folder leads, not from where the link stands.
            up = place.name == ".."
            place = Path(os.path.realpath(place)) if up else Path(os.path.realpath(place.parent), place.name)
            if not place.is_symlink():
                break
            place = place.parent / os.readlink(place)
        try:
            mode = os.stat(place).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return _Target(place, whole=True)
    if stat.S_ISDIR(mode):
        raise OptionError(f"{path}: expected a file to write, found a folder.")
    return _Target(place, whole=stat.S_ISREG(mode))


@contextmanager
def _replacing(final: Path, path: _Path) -> Iterator[Path]:
    try:
        with temporary_beside(final) as temporary:
            yield temporary
            temporary.chmod(_mode(final))
            temporary.replace(final)
    except OSError as error:
        ours = error.filename is None or _OWN in str(error.filename) or Path(error.filename) in (final, *final.parents)
        if isinstance(error, BrokenPipeError) or not ours:
            raise  # of something else that the block did
        raise WorkError(f"{path}: could not be written ({error.strerror or error}).") from error


def _mode(final: Path) -> int:
    """The permissions of the file that is there, or what open() would give a new one."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(final.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


class _Told(io.FileIO):
    """A file whose failures name what was to be written."""

    def __init__(self, handle: int, path: _Path) -> None:
        super().__init__(handle, "wb")
        self._path = path

    def write(self, content: Any) -> int:
        with _told(self._path):
            return super().write(content) or 0

    def close(self) -> None:
        with _told(self._path):
            super().close()


@contextmanager
def _written(handle: int, path: _Path) -> Iterator[IO[bytes]]:
    with io.BufferedWriter(_Told(handle, path), 1 << 16) as file:
        yield file


@contextmanager
def _told(path: _Path, kind: type[OptionError | WorkError] = WorkError) -> Iterator[None]:
    """What the operating system refuses, as one sentence about `path`."""
    try:
        yield
    except OSError as error:
        raise kind(f"{path}: could not be written ({error.strerror or error}).") from error


def _check_place(final: Path, path: _Path) -> None:
    """Whether a file or folder of this name could be made: its nearest folder that is there is tried."""
    folder = final.parent
    with _told(path, OptionError):
        while not os.path.lexists(folder):
            folder = folder.parent
        if not folder.is_dir():
            raise OptionError(f"{path}: expected a folder to write in, found a file at {folder}.")
        longest = os.pathconf(folder, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
        for name in final.relative_to(folder).parts:
            if len(os.fsencode(name)) > longest:
                raise OptionError(
                    f"{path}: expected names of at most {longest} bytes, found one of {len(os.fsencode(name))}."
                )
        with tempfile.TemporaryFile(dir=folder):
            pass


def _ending(path: Path) -> str:
    ending = "".join(path.suffixes[-2:])
    return ending if len(ending) <= 32 else ""


def lock_file(handle: int) -> bool:
    """Hold an open file or folder for as long as this process lives; says whether nobody else does."""
    try:
        import fcntl
    except ImportError:  # no such thing on Windows: process ids have to do
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # nor in some file systems
        return True
    return True


@contextmanager
def alone_in(folder: _Path) -> Iterator[None]:
    """Refuse to work in a folder that another process works in; later ones are refused until the block ends."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise WorkError(f"{folder}: could not be opened ({error.strerror or error}).") from error
    try:
        if not lock_file(handle):
            raise WorkError(f"{folder}: expected to be the only one to write it, found another process.")
        yield
    finally:
        os.close(handle)


def _remove_leftovers(folder: Path, tag: str) -> None:
    """Remove temporaries of this tag that no process is writing."""
    with suppress(OSError):
        for name in os.listdir(folder):
            left = folder / name
            if name.startswith(tag) and str(left) not in _alive and not _runs(name.removeprefix(tag).split("-")[0]):
                with suppress(OSError):
                    handle = os.open(left, os.O_RDONLY)
                    free = lock_file(handle)  # one of another container or machine has an id of its own there
                    os.close(handle)
                    if free and left.is_dir():
                        shutil.rmtree(left, ignore_errors=True)
                    elif free:
                        left.unlink()


def _runs(process: str) -> bool:
    """Whether another process of this id is there."""
    if not process.isdigit() or int(process) == os.getpid():
        return not process.isdigit()
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


LARGEST = 1 << 24
"""Bytes of a file that is read whole."""
DEEPEST = 64
"""Objects and lists within one another; whoever walks them by recursion stays far from Python's limit."""
LONGEST_NAME = 256
"""Characters; names of options may be dotted paths, which are walked by recursion too."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(file: Path) -> Any:
    """What a file holds; anything but reasonable JSON raises ValueError, a file that cannot be read OSError."""
    with open(file, "rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} bytes")
    return parse_json(content)


def parse_json(content: bytes | str) -> Any:
    """The same of what is in memory."""
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("objects or lists too deep within one another") from None
    _check_depth(value)
    if _SURROGATE.search(text):  # half a character, unless the other half stands beside it
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair in a string") from None
    return value


def write_json(path: _Path, value: Any) -> None:
    """Write JSON that people can read, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def finite(value: Any) -> Any:
    """Plain data with null for numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)[:80]!r} twice in one object")
    if longest := next((name for name in found if len(name) > LONGEST_NAME), None):
        raise ValueError(f"a name of {len(longest):,} characters")
    return found


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        if depth > DEEPEST:
            raise ValueError(f"objects or lists more than {DEEPEST} deep within one another")
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        depth += 1
