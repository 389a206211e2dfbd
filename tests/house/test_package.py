"""What every module of the package has to hold to."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.resources
import pkgutil
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import longstride

PACKAGE = Path(longstride.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 600
ROOMS = [path for path in FILES if path.name == "__init__.py"]


def module(path: Path) -> str:
    return ".".join(["longstride", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def every_module() -> list[str]:
    found = pkgutil.walk_packages(longstride.__path__, "longstride.")
    return ["longstride", *(one.name for one in found if not one.name.rpartition(".")[2].startswith("__main__"))]


def test_types_are_shipped() -> None:
    assert (importlib.resources.files("longstride") / "py.typed").is_file()


def test_the_version_is_the_installed_one() -> None:
    assert importlib.metadata.version("longstride") == longstride.__version__


@pytest.mark.parametrize("name", every_module())
def test_what_a_module_exports_is_there(name: str) -> None:
    file = PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py")
    if file.is_file() and "\nimport triton\n" in file.read_text(encoding="utf-8"):
        pytest.importorskip("triton")  # what has a GPU imports these, and nothing else does
    loaded = importlib.import_module(name)
    exported = getattr(loaded, "__all__", [])
    assert [one for one in exported if not hasattr(loaded, one)] == []
    assert len(set(exported)) == len(exported)


@pytest.mark.parametrize("room", ROOMS, ids=module)
def test_a_room_exports_all_that_it_imports_for_others(room: Path) -> None:
    tree = ast.parse(room.read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module not in ("__future__", "typing")
        for alias in node.names
    }
    if imported:
        exported = set(getattr(importlib.import_module(module(room)), "__all__", []))
        assert {name for name in imported if not name.startswith("_") or name == "__version__"} <= exported


@dataclass(frozen=True)
class Looked:
    """What the tests below ask of a file."""

    lines: int
    described: bool
    marks: list[str]
    prints: list[int]


@cache
def looked_at() -> dict[str, Looked]:
    """Every file of the package, read once: a test for each of hundreds takes longer than what it looks at."""
    found = {}
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        prints = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        ]
        marks = re.findall(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b", text)
        found[module(path)] = Looked(len(text.splitlines()), bool(ast.get_docstring(tree)), marks, prints)
    assert len(found) == len(FILES) > 100
    return found


def test_a_file_holds_one_idea_and_says_which() -> None:
    assert {name: one.lines for name, one in looked_at().items() if one.lines > MOST_LINES} == {}
    assert [name for name, one in looked_at().items() if not one.described] == [], "expected a module docstring"


def test_nothing_is_left_for_later() -> None:
    assert {name: one.marks for name, one in looked_at().items() if one.marks} == {}


def test_only_the_command_line_prints() -> None:
    others = {name: one.prints for name, one in looked_at().items() if "cli" not in name.split(".")}
    assert len(others) < len(FILES)
    assert {name: lines for name, lines in others.items() if lines} == {}


def test_importing_has_no_side_effects_on_torch() -> None:
    import torch

    assert torch.get_default_dtype() == torch.float32
    assert not torch.are_deterministic_algorithms_enabled()


def test_importing_the_package_stays_light() -> None:
    """What compiles, exports or plots is imported where it is used: a command would start seconds later."""
    heavy = ("torch._dynamo", "torch._inductor", "onnxruntime", "onnx", "ctranslate2", "transformers", "matplotlib")
    code = f"import sys, longstride.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
