"""Builds the native libraries: the C files of source/ once for each instruction set, into lib/, with a note of it.

Run by setup.py when the package is installed or its wheel is made, and by `make native`. Knows the standard library
alone, as nothing else may be there at that time. An install never fails here: why something was not built is noted.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "source"
LIBRARIES = HERE / "lib"
OBJECTS = HERE.parents[3] / "build" / "native"
"""Where object files are kept in a checkout, so that a changed file alone is compiled again."""
NOTE = "build.json"
"""What a folder of libraries was built from, what is in it, and why the rest is not."""

COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-O3",
    "-std=gnu11",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-pthread",
    "-Werror=implicit-function-declaration",
)
LINKING = ("-shared", "-pthread", *(("-Wl,-Bsymbolic",) if platform.system() == "Linux" else ()))
"""Calls from file to file stay within the library, whatever other libraries call theirs."""
TIMEOUT = 300.0
"""Seconds that one call of the compiler may take."""


class Variant(NamedTuple):
    """One way to compile the sources."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]
    """flags of the processor, as Linux names them"""


_AVX2 = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VNNI = _AVX512 | {"avx512_vnni"}
_DOT = frozenset({"asimddp", "atomics"})

X86 = (
    Variant("amx", ("-march=cascadelake", "-mamx-tile", "-mamx-int8"), _VNNI | {"amx_tile", "amx_int8"}),
    Variant("avx512vnni", ("-march=cascadelake",), _VNNI),
    Variant("avx512", ("-march=skylake-avx512",), _AVX512),
    Variant("avxvnni", ("-march=haswell", "-mavxvnni"), _AVX2 | {"avx_vnni"}),
    Variant("avx2", ("-march=haswell",), _AVX2),
)
ARM = (
    Variant("neon-i8mm", ("-march=armv8.2-a+dotprod+i8mm",), _DOT | {"i8mm"}),
    Variant("neon-dot", ("-march=armv8.2-a+dotprod",), _DOT),
    Variant("neon", ("-march=armv8-a",), frozenset()),
)
OTHER = (Variant("plain", (), frozenset()),)


def variants(machine: str) -> tuple[Variant, ...]:
    """Those for a kind of machine (platform.machine()), best first."""
    return {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}.get(machine.lower(), OTHER)


def library_name(variant: str) -> str:
    """Its file in a folder of libraries."""
    return f"native-{variant}.so"


def fingerprint(source: Path = SOURCE) -> str:
    """Of all that libraries are made from: the sources and this file."""
    return _hash(Path(__file__), *sorted(source.glob("*.[ch]")))


def is_current(names: Collection[str] = ()) -> bool:
    """Whether the variants of these names (default: all) were built, from the sources as they are now."""
    note = noted()
    built = note.get("built")
    wanted = names or {one.name for one in variants(platform.machine())}
    return note.get("fingerprint") == fingerprint() and isinstance(built, list) and set(wanted) <= set(built)


def noted(folder: Path = LIBRARIES) -> dict[str, object]:
    """What was noted when a folder of libraries was built; empty where nothing was."""
    try:
        found = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def build(
    folder: Path = LIBRARIES, source: Path = SOURCE, objects: Path = OBJECTS, names: Collection[str] = ()
) -> dict[str, str]:
    """Build the variants of these names (default: all) into a folder; return why others could not be built, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*folder.glob("*.so"), folder / NOTE):
        path.unlink(missing_ok=True)
    failed: dict[str, str] = {}
    wanted = [one for one in variants(platform.machine()) if not names or one.name in names]
    compiler = find_compiler()
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        for variant in wanted:
            if compiler is None:
                failed[variant.name] = f"there was no C compiler ({', '.join(COMPILERS)})"
            elif reason := _build_one(compiler, variant, folder, source, objects / variant.name, workers):
                failed[variant.name] = reason
    built = [variant.name for variant in wanted if variant.name not in failed]
    note = {"fingerprint": fingerprint(source), "built": built, "failed": failed}
    (folder / NOTE).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
    return failed


def find_compiler() -> list[str] | None:
    """The command of a C compiler; $CC first."""
    for name in (os.environ.get("CC", ""), *COMPILERS):
        command = shlex.split(name)
        if command and shutil.which(command[0]):
            return command
    return None


def _build_one(
    compiler: list[str], variant: Variant, folder: Path, source: Path, objects: Path, workers: ThreadPoolExecutor
) -> str | None:
    """One library; the reason where it cannot be built."""
    objects.mkdir(parents=True, exist_ok=True)
    flags = [*FLAGS, *variant.flags]
    shared = _hash(*sorted(source.glob("*.h"))) + repr((compiler, flags))
    made = []
    waiting = []
    for path in sorted(source.glob("*.c")):
        digest = hashlib.sha256(shared.encode() + path.read_bytes()).hexdigest()[:24]
        made.append(objects / f"{path.stem}-{digest}.o")
        if not made[-1].is_file():
            command = [*compiler, *flags, "-c", path.name]  # relative: no folder's name gets into what is built
            waiting.append(workers.submit(_run, command, source, made[-1]))
    for reason in [one.result() for one in waiting]:
        if reason:
            return reason
    for path in set(objects.glob("*.o")) - set(made):
        path.unlink()
    command = [*compiler, *LINKING, *(path.name for path in made), "-lm"]
    return _run(command, objects, folder / library_name(variant.name))


def _run(command: list[str], within: Path, output: Path) -> str | None:
    """Run the compiler; its output is there whole or not at all. Gives what it said where it failed."""
    with tempfile.TemporaryDirectory(dir=output.parent) as private:
        made = Path(private) / output.name
        try:
            done = subprocess.run(
                [*command, "-o", os.fspath(made.resolve())],
                cwd=within,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the C compiler {command[0]} failed ({error})"
        if done.returncode == 0:
            made.replace(output)
            return None
    lines = done.stderr.splitlines() or [f"exit code {done.returncode}"]
    said = next((line for line in lines if "error" in line), lines[0])
    return f"the C compiler {command[0]} failed ({said.strip()})"


def _hash(*paths: Path) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:24]
