"""The package's own setup.py, on a package of one C file: what is in wheels, and where editable installs build."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from longstride.runtime.native import building

ROOT = Path(__file__).resolve().parents[2]
NATIVE = Path("src", "longstride", "runtime", "native")
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "longstride"
version = "1"
[tool.setuptools.packages.find]
where = ["src"]
"""

pytest.importorskip("setuptools.build_meta")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / NATIVE / "source").mkdir(parents=True)
    for folder in (tmp_path / "src" / "longstride", tmp_path / NATIVE.parent, tmp_path / NATIVE):
        (folder / "__init__.py").touch()
    (tmp_path / NATIVE / "source" / "one.c").write_text("int one(void) { return 1; }\n")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copy(ROOT / NATIVE / "building.py", tmp_path / NATIVE)
    return tmp_path


def made(project: Path, hook: str) -> zipfile.ZipFile:
    """By the hook that pip calls."""
    command = f"import setuptools.build_meta as backend; backend.{hook}('out')"
    subprocess.run([sys.executable, "-c", command], cwd=project, check=True, capture_output=True)
    (wheel,) = (project / "out").glob("*.whl")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl") or hook == "build_editable"
    return zipfile.ZipFile(wheel)


@pytest.mark.parametrize("compiler", [True, False])
def test_libraries_are_in_the_wheel(project: Path, compiler: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiler:
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CC", raising=False)
    elif building.find_compiler() is None:
        pytest.skip("there is no C compiler")
    names = [name for name in made(project, "build_wheel").namelist() if "/native/lib/" in name]
    assert "longstride/runtime/native/lib/build.json" in names
    assert any(name.endswith(".so") for name in names) == compiler
    assert not (project / NATIVE / "lib").exists()


def test_an_editable_install_builds_beside_the_sources(project: Path) -> None:
    names = made(project, "build_editable").namelist()
    assert not any(name.endswith(".so") for name in names)
    assert building.noted(project / NATIVE / "lib")["fingerprint"] == building.fingerprint(project / NATIVE / "source")


def test_an_editable_install_leaves_them_to_who_builds_them(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGSTRIDE_BUILD_NATIVE", "no")
    made(project, "build_editable")
    assert not (project / NATIVE / "lib").exists()
