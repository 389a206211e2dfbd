"""Run the native runtime's tests with AddressSanitizer and UndefinedBehaviorSanitizer: `make native-asan`.

Builds the library of this processor with both into `build/native-asan/`, then runs pytest with it; arguments are
pytest's. Needs GCC. Also the plugin by which that pytest finds the library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from longstride.runtime.native import building
from longstride.runtime.processor import this_processor

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "native-asan"
WATCHED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
TESTS = ["tests/runtime/native", *sorted(map(str, (ROOT / "tests" / "runtime").glob("test_graph_*.py")))]
TESTS += ["tests/fuzz/test_exactness.py", "-k", "not onnx", "-q"]


def main(arguments: list[str]) -> int:
    """Build, then run pytest; return its exit code."""
    compiler = building.find_compiler()
    if compiler is None:
        sys.exit("native-asan: expected GCC, found no C compiler.")
    preloaded = [_library(compiler, name) for name in ("libasan.so", "libubsan.so")]
    processor = this_processor()
    best = next(one for one in building.variants(processor.machine) if one.needs <= processor.flags)
    building.variants = lambda machine: (best,)
    building.FLAGS = (*building.FLAGS, *WATCHED, "-O1", "-g", "-fno-omit-frame-pointer")
    building.LINKING = (*building.LINKING, *WATCHED)
    building.TIMEOUT = 3600.0
    print(f"native-asan: compiling {best.name} (minutes at first)", flush=True)
    if failed := building.build(FOLDER / "lib", objects=FOLDER / "objects"):
        sys.exit(f"native-asan: {best.name} was not built: {failed[best.name]}.")
    surroundings = {
        "LD_PRELOAD": " ".join(preloaded),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # Python leaves memory to the end of its process
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "scripts"), os.environ.get("PYTHONPATH", ""))),
    }
    command = [sys.executable, "-m", "pytest", "-p", "native_asan", *(arguments or TESTS)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | surroundings, check=False).returncode


def _library(compiler: list[str], name: str) -> str:
    """Where the compiler has a sanitizer's library."""
    found = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False).stdout
    if not Path(found.strip()).is_absolute():
        sys.exit(f"native-asan: expected GCC with {name}, found none beside {compiler[0]}.")
    return found.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
building.LIBRARIES = FOLDER / "lib"
