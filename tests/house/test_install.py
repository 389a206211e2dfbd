"""The wheel in an empty environment: the package, what it declares to need, and nothing else; no compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from longstride.version import __version__

ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 1024 * 1024
BUILD = "import setuptools.build_meta as backend, sys; print(backend.build_wheel(sys.argv[1]))"


def built(copy: Path) -> Path:
    """The wheel as pip builds it, from a copy of what a build reads; what the checkout has compiled is not again."""
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "lib")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored, copy_function=_linked)
    objects = ROOT / "build" / "native"
    objects.mkdir(parents=True, exist_ok=True)
    (copy / "build").mkdir()
    (copy / "build" / "native").symlink_to(objects)
    out = copy / "dist"
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=copy, check=True, capture_output=True)
    (found,) = out.glob("*.whl")
    return found


def _linked(source: str, goal: str) -> None:
    try:
        os.link(source, goal)
    except OSError:  # another disk
        shutil.copy2(source, goal)


def needed(name: str, extras: tuple[str, ...] = ()) -> set[str]:
    """The distributions that one needs, and those that they need."""
    found: set[str] = set()
    waiting = [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        for line in metadata.requires(name) or ():
            told = Requirement(line)
            if told.marker is None or any(told.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                one = re.sub(r"[-_.]+", "-", told.name).lower()
                if one not in found:
                    found.add(one)
                    waiting.append((one, tuple(told.extras)))
    return found


def installed(wheel: Path, folder: Path) -> Path:
    """A virtual environment with the wheel and links to the packages that it needs without any extra."""
    venv.create(folder, symlinks=True)
    (place,) = folder.glob("lib/python*/site-packages")
    for name in needed("longstride"):
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (place / top).exists():
                (place / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    with zipfile.ZipFile(wheel) as content:
        content.extractall(place)
    return folder


def test_the_wheel_alone_translates(tmp_path: Path) -> None:
    """One test, since building takes the longest."""
    wheel = built(tmp_path / "source")
    assert wheel.name.startswith(f"longstride-{__version__}-py3-none-")
    assert wheel.stat().st_size < 100 * MEGABYTE
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        (entries,) = [content.read(name).decode() for name in names if name.endswith("/entry_points.txt")]
    assert "longstride = longstride.cli.entry:run" in entries
    licences = [name.partition("/licenses/")[2] for name in names if "/licenses/" in name]
    assert sorted(licences) == ["LICENSE", "src/longstride/bundled/README.md"]
    assert {name.partition("/")[0] for name in names} == {"longstride", f"longstride-{__version__}.dist-info"}

    folder = installed(wheel, tmp_path / "environment")
    (place,) = folder.glob("lib/python*/site-packages")
    there = {path.name for path in place.iterdir()}
    assert "torch" in there
    assert not {"onnxruntime", "transformers", "ctranslate2", "fastapi", "matplotlib", "mkdocs", "ray"} & there
    code = "import sys; from longstride.cli.entry import run; sys.argv[0] = 'longstride'; run()"
    command = [str(folder / "bin" / "python"), "-I", "-c", code, "translate"]
    alone = {"HOME": str(folder)}  # no PATH: no compiler
    ran = subprocess.run(command, input="Good morning.\n", capture_output=True, text=True, check=False, env=alone)
    assert (ran.returncode, ran.stdout) == (0, "Guten Morgen!\n"), ran.stderr
    assert ("Carried out by native" in ran.stderr) == any(name.endswith(".so") for name in names)
