"""Makes a library of the C files here, by the machine's own compiler, and keeps it: made once for each processor.

Libraries lie in a folder for such things under a name that tells sources, flags and processor, and the hash of the
library itself: one that is cut or spoilt is not loaded but made anew, as is one that does not load. They come there by
being renamed, whole or not at all: several processes may do the same at the same time. A folder or file that somebody
else may have written is not used. No compiler is needed where a good library is. Compiler and folder are read from the
environment (CC, XDG_CACHE_HOME), where compilers and caches are named for all programs alike.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import POINTER, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from threading import Lock

from longstride.runtime.native.structures import SOURCE, CMachine
from longstride.runtime.native.trust import why_not_file, why_not_folder
from longstride.runtime.processor import CPUINFO

FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC", "-pthread")
FOR_THIS = ("-march=native", "-mcpu=native")
"""The flags that ask for this processor's own instructions; a compiler takes the first, or else the second."""
COMPILERS = ("cc", "gcc", "clang")
PATIENCE = 300.0
"""Seconds a compiler may take."""
MAKING = ".making-"
"""Begins the name of a folder in which a library is being made."""

Tell = Callable[[str], None]

_loaded: list[ctypes.CDLL] = []
_loading = Lock()


class NoLibraryError(Exception):
    """There is none, and none can be made; says why, and what to install."""


def library(tell: Tell | None = None) -> ctypes.CDLL:
    """The library, compiled if need be; `tell` hears of what takes long."""
    with _loading:
        if not _loaded:
            _loaded.append(declared(opened(cache_folder(), tell=tell)))
    return _loaded[0]


def find_compiler() -> str:
    """A C compiler's path; $CC first."""
    for name in (os.environ.get("CC", "").strip(), *COMPILERS):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    raise NoLibraryError(f"a C compiler is expected ({', '.join(COMPILERS)}; on Debian: apt install gcc), found none")


def cache_folder() -> Path:
    """Where libraries are kept."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if named else Path.home() / ".cache") / "longstride" / "native"


def opened(folder: Path, source: Path = SOURCE, tell: Tell | None = None) -> ctypes.CDLL:
    """A good library out of this folder, or a new one."""
    tell = tell or (lambda said: None)
    name = f"native-{_fingerprint(source)}"
    why = why_not_folder(folder)
    if why is None and (found := _kept(folder, name, tell)) is not None:
        return found
    compiler = find_compiler()
    tell("Compiling the native runtime, once (about 15 s).")
    if why is None:
        try:
            _make_folder(folder)
            return load(_make(compiler, folder, name, source))
        except OSError as error:  # a folder that cannot be written, or a full disk
            why = f"{error.filename or folder}: {error.strerror}"
    tell(f"The library is kept for this process alone: {why}.")
    with tempfile.TemporaryDirectory(prefix="longstride-native-") as alone:  # nobody else can look into it
        return load(_make(compiler, Path(alone), name, source))


def _kept(folder: Path, name: str, tell: Tell) -> ctypes.CDLL | None:
    """A library that was made before; what is not as it was made is taken away."""
    for path in sorted(folder.glob(f"{name}-*.so")):
        if why := why_not_file(path):
            tell(f"A library is not used: {why}.")
        else:
            with suppress(OSError, NoLibraryError):
                if _hash(path) == path.stem.removeprefix(f"{name}-"):
                    return load(path)
        with suppress(OSError):
            path.unlink()
    return None


def _make_folder(folder: Path) -> None:
    """Ours is nobody else's business; folders above it are made as all are."""
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for path in (folder.parent, folder):
        path.mkdir(mode=0o700, exist_ok=True)
    for path in folder.glob(f"{MAKING}*"):  # of processes that were killed
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > 2 * len(FOR_THIS) * PATIENCE:
                shutil.rmtree(path)


def _make(compiler: str, folder: Path, name: str, source: Path) -> Path:
    files = sorted(os.fspath(path) for path in source.glob("*.c"))
    said = ""
    with tempfile.TemporaryDirectory(prefix=MAKING, dir=folder) as private:
        made = Path(private) / f"{name}.so"
        try:
            for native in FOR_THIS:
                command = [compiler, *FLAGS, native, "-o", os.fspath(made), *files, "-lm"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
                if done.returncode == 0:
                    made.chmod(0o700)
                    wanted = folder / f"{name}-{_hash(made)}.so"
                    os.replace(made, wanted)
                    return wanted
                said = said or next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        except subprocess.TimeoutExpired:
            said = f"it took longer than {PATIENCE:.0f} s"
    raise NoLibraryError(f"the C compiler {compiler} failed ({said.strip()}): a recent gcc or clang is expected")


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:24]


def _fingerprint(source: Path) -> str:
    """Of all that a library depends on, but the compiler: where there is none, a library may be there."""
    found = hashlib.sha256(repr((FLAGS, FOR_THIS, platform.system(), platform.machine(), _processor())).encode())
    for path in sorted(source.glob("*.[ch]")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:24]


def _processor() -> list[str]:
    """The lines that say what one core is and has, where Linux tells."""
    if not CPUINFO.is_file():
        return [platform.processor()]
    first = CPUINFO.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
    telling = ("model name", "flags", "Features", "CPU part", "CPU implementer", "CPU variant")
    return [line for line in first.splitlines() if line.startswith(telling)]


def load(path: Path) -> ctypes.CDLL:
    """The library at this path; a call lets other Python threads run meanwhile."""
    try:
        return ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise NoLibraryError(f"the library that was compiled cannot be loaded ({error})") from None


def declared(found: ctypes.CDLL) -> ctypes.CDLL:
    """The library, its functions told what they take."""
    found.run.argtypes, found.run.restype = [c_void_p], c_int64
    found.empty.argtypes, found.empty.restype = [POINTER(CMachine)], None
    found.sizes_of.argtypes, found.sizes_of.restype = [POINTER(c_int64)], None
    found.make_pool.argtypes, found.make_pool.restype = [c_int], c_void_p
    found.end_pool.argtypes, found.end_pool.restype = [c_void_p], None
    found.pack_linear.argtypes = [POINTER(c_float), POINTER(c_float), c_int64, c_int64, c_int64, c_int64]
    found.pack_linear.restype = c_void_p
    found.free_linear.argtypes, found.free_linear.restype = [c_void_p], None
    found.has_integer_products.argtypes, found.has_integer_products.restype = [], c_int
    return found
