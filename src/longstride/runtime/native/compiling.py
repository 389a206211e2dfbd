"""Makes a library of the C files here, by the machine's own compiler, and keeps it: made once for each processor.

Libraries lie in a folder for such things under a name that tells sources, compiler, flags and processor, and come there
by being renamed, whole or not at all: several processes may do the same at the same time. Which compiler and which
folder is read from the environment (CC, XDG_CACHE_HOME), where compilers and caches are named for all programs alike.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from ctypes import POINTER, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

from longstride.runtime.native.structures import SOURCE, CMachine
from longstride.runtime.processor import CPUINFO

FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC", "-pthread")
FOR_THIS = ("-march=native", "-mcpu=native")
"""The flags that ask for this processor's own instructions; a compiler takes the first, or else the second."""
COMPILERS = ("cc", "gcc", "clang")
PATIENCE = 300.0
"""Seconds a compiler may take."""


class NoLibraryError(Exception):
    """There is none, and none can be made; says why, and what to install."""


@cache
def library() -> ctypes.CDLL:
    """The library, compiled if need be."""
    return load(compiled(find_compiler(), cache_folder()))


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


def compiled(compiler: str, folder: Path, source: Path = SOURCE) -> Path:
    """The library's path: one that is there, or a new one."""
    wanted = folder / f"native-{_fingerprint(compiler, source)}.so"
    if wanted.is_file():
        return wanted
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _make(compiler, wanted, source)
    except OSError:  # a folder that cannot be written, or a full disk: for this process alone, then
        alone = Path(tempfile.mkdtemp(prefix="longstride-native-"))
        return _make(compiler, alone / wanted.name, source)


def _make(compiler: str, wanted: Path, source: Path) -> Path:
    files = sorted(os.fspath(path) for path in source.glob("*.c"))
    number, name = tempfile.mkstemp(prefix=f".{wanted.stem}-", suffix=".so", dir=wanted.parent)
    os.close(number)
    said = ""
    try:
        for native in FOR_THIS:
            command = [compiler, *FLAGS, native, "-o", name, *files, "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            if done.returncode == 0:
                Path(name).chmod(0o755)
                os.replace(name, wanted)
                return wanted
            said = said or next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
    except subprocess.TimeoutExpired:
        said = f"it took longer than {PATIENCE:.0f} s"
    finally:
        Path(name).unlink(missing_ok=True)
    raise NoLibraryError(f"the C compiler {compiler} failed ({said.strip()}): a recent gcc or clang is expected")


def _fingerprint(compiler: str, source: Path) -> str:
    """Of all that a library depends on."""
    told = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    found = hashlib.sha256(repr((told.stdout, FLAGS, FOR_THIS, platform.machine(), _processor())).encode())
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
    """The library at this path, its functions told what they take; a call lets other Python threads run meanwhile."""
    try:
        found = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise NoLibraryError(f"the library that was compiled cannot be loaded ({error})") from None
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
