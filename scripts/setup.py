"""Make `.venv/` ready to work in: pinned packages, the package itself (editable), a PyTorch that is no surprise.

Run by `make`, which sees to it that Python is new enough; needs nothing else. The demo gets the packages that it
imports and the native library of this processor (ready-demo); every other command gets the rest as well (ready). A
build of PyTorch that brings the CUDA packages with it weighs several gigabytes: it is taken only when asked for
(TORCH=cuda). A PyTorch that is already in `.venv/` is always kept. Where a C compiler is there the native runtime is
compiled, again when its sources change. The stamp is written last, so an interrupted set-up is simply taken up again;
when nothing changed, nothing is done.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

TORCH_AT_LEAST = (2, 11)
CUDA_PACKAGE = re.compile(r"(nvidia|cuda|triton|pytorch[-_]triton)([-_.]|$)", re.IGNORECASE)

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
CONSTRAINTS = ROOT / "constraints.txt"
READY, READY_DEMO = "ready", "ready-demo"
"""The stamps in `.venv/`: for every command, for the demo alone."""
PACKAGES = {READY: ("-e", ".[dev]"), READY_DEMO: ("-e", ".", "ctranslate2")}
"""What pip installs for each level; the demo compares with CTranslate2."""
RUNTIME = ROOT / "src" / "longstride" / "runtime"
NATIVE = RUNTIME / "native" / "building.py"

WOULD_BRING_CUDA = """\
The PyTorch that pip finds here, {torch}, brings {count} CUDA packages ({examples}, ...): several gigabytes.
Longstride does not take them unasked. Either
  - accept them:                        TORCH=cuda make {goal}
  - or bring a CPU build of PyTorch, whichever way is easier:
      install one into the environment: .venv/bin/python -m pip install <wheel or index of a CPU build>
      or name a folder that holds one:  PIP_FIND_LINKS=<folder> make {goal}"""


def main(level: str) -> None:
    """Bring the environment up to date, or stop with one message that says what is needed."""
    fingerprint, stamp = wanted(), VENV / level
    if stamp.is_file() and stamp.read_text() == fingerprint and PYTHON.exists():
        build_native(level)
        stamp.touch()
        return
    stamp.unlink(missing_ok=True)
    make_environment()
    # Also the build backend, so that installing the package itself later needs no network.
    pip("install", "--constraint", str(CONSTRAINTS), "setuptools")
    if missing := not torch_in_environment():
        look_for_torch()
    with native_compiled(level):
        if missing:
            install_torch()
        torch = torch_in_environment()
        if not torch:
            stop("PyTorch was installed into .venv/ and cannot be imported; remove .venv/ and run make again.")
        say("installing longstride and the pinned packages")
        pip("install", "--constraint", str(constraints_keeping(torch)), "--no-build-isolation", *PACKAGES[level])
    if level == READY:
        translate_once()
    for name in PACKAGES if level == READY else (level,):
        (VENV / name).write_text(fingerprint)
    say(f"ready: .venv/ with {described(build_of_torch())}")


def wanted() -> str:
    """What the environment is made from; another value means that it has to be looked over again."""
    digest = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", ROOT / "setup.py", CONSTRAINTS, Path(__file__).resolve()):
        digest.update(path.read_bytes())
    digest.update(str(ROOT).encode())
    return digest.hexdigest() + "\n"


def make_environment() -> None:
    """A virtual environment with a working pip; one that was left half-made is completed or made anew."""
    if works("-m", "pip", "--version"):
        return
    say("making the virtual environment .venv/")
    for clear in ([], ["--clear"]):
        made = subprocess.run([sys.executable, "-m", "venv", *clear, str(VENV)], check=False).returncode == 0
        if made and works("-m", "pip", "--version"):
            return
    stop(
        f"{sys.executable} could not make a virtual environment with pip in it; "
        "on Debian and Ubuntu the package python3-venv is needed."
    )


def torch_in_environment() -> str:
    """The version of an importable PyTorch that is new enough, or nothing. It is the package's own, as pip knows it:
    PyTorch may add a `+cu130` that its package has not."""
    look = "import torch; from importlib.metadata import version; print(version('torch'))"
    found = subprocess.run([str(PYTHON), "-c", look], capture_output=True, text=True, check=False)
    version = found.stdout.strip()
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return version if found.returncode == 0 and numbers >= TORCH_AT_LEAST else ""


LOOK = """
import json, torch
from importlib.metadata import distributions
named = [one for one in distributions() if one.metadata["Name"].lower().startswith(("nvidia", "cuda"))]
size = sum(file.size or 0 for one in named for file in one.files or ())
print(json.dumps([torch.__version__, torch.version.cuda, torch.cuda.is_available(), size]))
"""


def build_of_torch() -> tuple[str, str | None, bool, int]:
    """Of the PyTorch in the environment: version, CUDA's version, whether there is a GPU, bytes of CUDA's packages."""
    found = subprocess.run([str(PYTHON), "-c", LOOK], capture_output=True, text=True, check=True)
    version, cuda, gpu, size = json.loads(found.stdout)
    return version, cuda, gpu, size


def described(build: tuple[str, str | None, bool, int]) -> str:
    """In one line; CUDA that nothing here can use, with the way to be rid of it."""
    version, cuda, gpu, size = build
    if cuda is None:
        return f"PyTorch {version}, the CPU build"
    if gpu:
        return f"PyTorch {version} for CUDA {cuda}"
    return (
        f"PyTorch {version} for CUDA {cuda}, but there is no GPU here: the CPU build would save {size / 1e9:.1f} GB "
        "and more. For that remove .venv/, make it anew (python3 -m venv .venv), install PyTorch into it by the line "
        "that pytorch.org shows under Get Started for the platform CPU, and run make again"
    )


def look_for_torch() -> None:
    """Stop where the pinned PyTorch would bring CUDA that was not asked for."""
    cuda = os.environ.get("TORCH", "cpu")
    if cuda not in ("cpu", "cuda"):
        stop(f"TORCH expects cpu or cuda, found {cuda!r}.")
    if cuda == "cuda":
        return
    pin, *arguments = pinned_torch()
    say(f"looking which build of {pin} is at hand")
    resolved = pip("install", "--dry-run", "--report", "-", *arguments, pin, capture=True)
    packages = [item["metadata"] for item in json.loads(resolved)["install"]]
    heavy = sorted(item["name"] for item in packages if CUDA_PACKAGE.match(item["name"]))
    if heavy:
        torch = next((f"torch {item['version']}" for item in packages if item["name"] == "torch"), pin)
        goal = os.environ.get("GOAL", "test")
        stop(WOULD_BRING_CUDA.format(torch=torch, count=len(heavy), examples=", ".join(heavy[:3]), goal=goal))


def install_torch() -> None:
    """Install the pinned PyTorch."""
    pin, *arguments = pinned_torch()
    say(f"installing {pin} (once; a minute or two)")
    pip("install", *arguments, pin)


def pinned_torch() -> tuple[str, ...]:
    """Return the pinned version, and pip's options for it."""
    pin = next(line.strip() for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
    return pin, "--constraint", str(CONSTRAINTS)


def constraints_keeping(torch: str) -> Path:
    """The constraints with the PyTorch that is already there in place of the pinned one. Another version brings a
    Triton of its own."""
    lines = CONSTRAINTS.read_text().splitlines()
    left = ("torch==",) if f"torch=={torch.partition('+')[0]}" in lines else ("torch==", "triton==")
    lines = [line for line in lines if not line.startswith(left)]
    path = VENV / "constraints.txt"
    path.write_text("\n".join([*lines, f"torch=={torch}", ""]))
    return path


def build_native(level: str = READY, anyway: bool = False) -> None:
    """Compile the native runtime where its sources have changed since: for the demo, this processor's library alone."""
    building = runpy.run_path(str(NATIVE))
    names = own_variant(building["variants"]) if level == READY_DEMO else ()
    if not anyway and building["is_current"](names):
        return
    say("compiling the native runtime (half a minute at first)")
    for name, reason in building["build"](names=names).items():
        say(f"native {name} was not built: {reason}")


@contextmanager
def native_compiled(level: str) -> Iterator[None]:
    """Compile the native runtime in a process beside pip, which keeps one core busy."""
    process = subprocess.Popen([sys.executable, __file__, "native", level], start_new_session=True)
    try:
        yield
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        raise
    process.wait()


def own_variant(variants: Callable[[str], Sequence[Any]]) -> tuple[str, ...]:
    """Return the name of the best library that this processor can run, or nothing where it can run none."""
    processor = runpy.run_path(str(RUNTIME / "processor.py"))["this_processor"]()
    return tuple(one.name for one in variants(processor.machine) if one.needs <= processor.flags)[:1]


def translate_once() -> None:
    """So that what every command imports is compiled by now, and a person's first one is as quick as any."""
    compiled = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "LONGSTRIDE_CACHE": ""}
    command = [str(PYTHON), "-m", "longstride", "translate"]
    subprocess.run(command, input=b"Good morning.", env=compiled, capture_output=True, check=False)


def works(*arguments: str) -> bool:
    """Whether the environment's Python carries these arguments out."""
    return (
        PYTHON.exists() and subprocess.run([str(PYTHON), *arguments], capture_output=True, check=False).returncode == 0
    )


def pip(*arguments: str, capture: bool = False) -> str:
    """Run the environment's pip; its own message is the explanation when it fails.

    Python compiles a module when it is first imported; pip would compile all, most of which nobody imports.
    """
    if arguments[0] == "install":
        arguments = ("install", "--no-compile", *arguments[1:])
    # Errors only: warnings about a person's own pip configuration are not ours to show.
    command = [str(PYTHON), "-m", "pip", "-qq", "--disable-pip-version-check", *arguments]
    own = {**os.environ, "LONGSTRIDE_BUILD_NATIVE": "no"}
    done = subprocess.run(
        command, cwd=ROOT, env=own, stdout=subprocess.PIPE if capture else None, text=True, check=False
    )
    if done.returncode != 0:
        stop(f"pip {arguments[0]} failed; mend what it says above and run make again, it goes on from here.")
    return done.stdout or ""


def say(message: str) -> None:
    """One line of progress."""
    print(f"set-up: {message}", flush=True)


def stop(message: str) -> NoReturn:
    """End with a message and no traceback."""
    sys.exit(f"set-up: {message}")


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["native"]:
                build_native(anyway=True)
            case ["native", level]:
                build_native(level)
            case [level]:
                main(level)
    except KeyboardInterrupt:
        stop("interrupted; run make again to go on.")
