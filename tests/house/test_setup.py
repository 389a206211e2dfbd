"""The set-up script's judgement of packages, without installing anything."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest
import torch

from longstride.runtime.native import building
from longstride.runtime.processor import this_processor

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "setup.py"


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("longstride_setup", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "constraints.txt").write_text("numpy==1.0\ntorch==2.13.0\ntriton==3.7.1\n")
    monkeypatch.setattr(module, "VENV", tmp_path)
    monkeypatch.setattr(module, "CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.delenv("TORCH", raising=False)
    return module


def resolving_to(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, *names: str) -> list[tuple[str, ...]]:
    """Let pip resolve to these packages; returns the installs that were then asked for."""
    asked: list[tuple[str, ...]] = []

    def pip(*arguments: str, capture: bool = False) -> str:
        if capture:
            return json.dumps({"install": [{"metadata": {"name": name, "version": "2.13.0"}} for name in names]})
        asked.append(arguments)
        return ""

    monkeypatch.setattr(setup, "pip", pip)
    return asked


def test_a_cpu_build_is_installed(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolving_to(setup, monkeypatch, "torch", "sympy", "networkx")
    setup.look_for_torch()
    setup.install_torch()
    assert [arguments[-1] for arguments in asked] == ["torch==2.13.0"]


@pytest.mark.parametrize(
    "package", ["nvidia-cublas-cu12", "nvidia_cudnn_cu13", "triton", "pytorch-triton", "cuda-toolkit"]
)
def test_cuda_is_not_taken_unasked(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    asked = resolving_to(setup, monkeypatch, "torch", "sympy", package)
    with pytest.raises(SystemExit, match="TORCH=cuda") as stopped:
        setup.look_for_torch()
    assert package in str(stopped.value)
    assert "PIP_FIND_LINKS" in str(stopped.value)
    assert not asked


def test_cuda_is_taken_when_asked_for(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolving_to(setup, monkeypatch, "torch", "triton")
    monkeypatch.setenv("TORCH", "cuda")
    setup.look_for_torch()
    setup.install_torch()
    assert len(asked) == 1
    monkeypatch.setenv("TORCH", "tpu")
    with pytest.raises(SystemExit, match="expects cpu or cuda, found 'tpu'"):
        setup.look_for_torch()


@pytest.mark.parametrize(("torch", "triton"), [("2.11.0+cu128", ""), ("2.13.0+cpu", "triton==3.7.1\n")])
def test_a_torch_that_is_there_is_kept(setup: ModuleType, torch: str, triton: str) -> None:
    """Another version asks for a Triton of its own."""
    assert setup.constraints_keeping(torch).read_text() == f"numpy==1.0\n{triton}torch=={torch}\n"


@pytest.mark.parametrize(("version", "kept"), [("2.13.0", "2.13.0"), ("2.13.0+cpu", "2.13.0+cpu"), ("2.10.1", "")])
def test_a_torch_goes_by_its_packages_version(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, kept: str
) -> None:
    """A build with CUDA calls itself 2.13.0+cu130 and comes as 2.13.0: pip finds no other."""
    (tmp_path / "torch.py").write_text("__version__ = '2.13.0+cu130'\n")
    (tmp_path / f"torch-{version}.dist-info").mkdir()
    (tmp_path / f"torch-{version}.dist-info" / "METADATA").write_text(f"Name: torch\nVersion: {version}\n")
    monkeypatch.setattr(setup, "PYTHON", Path(sys.executable))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert setup.torch_in_environment() == kept


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (("2.13.0+cpu", None, False, 0), "PyTorch 2.13.0+cpu, the CPU build"),
        (("2.13.0", "13.0", True, 3_000_000_000), "PyTorch 2.13.0 for CUDA 13.0"),
        (
            ("2.13.0", "13.0", False, 3_000_000_000),
            "PyTorch 2.13.0 for CUDA 13.0, but there is no GPU here: the CPU build would save 3.0 GB and more.",
        ),
    ],
)
def test_the_installer_says_which_torch_it_took(
    setup: ModuleType, build: tuple[str, str | None, bool, int], told: str
) -> None:
    assert setup.described(build).startswith(told)
    assert ("pytorch.org" in setup.described(build)) == ("no GPU" in told)


def test_the_build_that_is_there_is_known(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "PYTHON", Path(sys.executable))
    version, cuda, gpu, size = setup.build_of_torch()
    assert (version, cuda, gpu) == (torch.__version__, torch.version.cuda, torch.cuda.is_available())
    assert size >= 0


def test_make_and_packaging_ask_for_the_same_python() -> None:
    root = SCRIPT.parents[1]
    needed = tomllib.loads((root / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    check = next(line for line in (root / "Makefile").read_text().splitlines() if line.startswith("NEW_ENOUGH"))
    assert f"({needed.replace('.', ', ')})" in check
    assert f"Python {needed} or newer" in check


@pytest.mark.parametrize(
    ("current", "anyway", "built"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_the_native_runtime_is_compiled_when_it_has_changed(
    setup: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    current: bool,
    anyway: bool,
    built: bool,
) -> None:
    stub = tmp_path / "building.py"
    stub.write_text(
        f"is_current = lambda names: {current}\nbuild = lambda names: {{'amx': 'there was no C compiler'}}\n"
    )
    monkeypatch.setattr(setup, "NATIVE", stub)
    setup.build_native(anyway=anyway)
    assert ("amx was not built: there was no C compiler" in capsys.readouterr().out) == built


def test_the_demo_gets_what_it_needs_and_the_rest_is_added_later(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make demo`, `make test`, `make demo`: packages and libraries of each, and nothing twice."""
    asked = resolving_to(setup, monkeypatch)
    compiled: list[tuple[str, bool]] = []
    monkeypatch.setattr(setup, "native_compiled", lambda level: nullcontext(compiled.append((level, True))))
    monkeypatch.setattr(setup, "build_native", lambda level: compiled.append((level, False)))
    monkeypatch.setattr(setup, "torch_in_environment", lambda: "2.13.0")
    monkeypatch.setattr(setup, "build_of_torch", lambda: ("2.13.0", None, False, 0))
    for name in ("make_environment", "translate_once"):
        monkeypatch.setattr(setup, name, lambda: None)
    monkeypatch.setattr(setup, "PYTHON", Path(sys.executable))
    setup.main("ready-demo")
    assert [path.name for path in tmp_path.glob("ready*")] == ["ready-demo"]
    setup.main("ready")
    setup.main("ready-demo")
    assert [arguments[4:] for arguments in asked if "-e" in arguments] == [("-e", ".", "ctranslate2"), ("-e", ".[dev]")]
    assert compiled == [("ready-demo", True), ("ready", True), ("ready-demo", False)]


def test_make_asks_for_the_demos_set_up_alone() -> None:
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    for goals, levels in (
        (["demo"], ["ready-demo"]),
        (["test"], ["ready"]),
        (["test", "demo"], ["ready-demo", "ready"]),
    ):
        command = ["make", "--dry-run", "--always-make", "-C", str(SCRIPT.parents[1]), *goals]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert [line.split()[-1] for line in said.splitlines() if "scripts/setup.py" in line] == levels


def test_the_demos_library_is_the_one_that_this_processor_takes(setup: ModuleType) -> None:
    processor = this_processor()
    best = [one.name for one in building.variants(processor.machine) if one.needs <= processor.flags]
    assert setup.own_variant(building.variants) == tuple(best[:1])


def test_a_compiler_beside_pip_ends_with_it(setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def sleeping(command: list[str], **settings: object) -> subprocess.Popen[bytes]:
        started.append(popen([sys.executable, "-c", "import time; time.sleep(600)"], **settings))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(setup.subprocess, "Popen", sleeping)
    with pytest.raises(SystemExit), setup.native_compiled("ready-demo"):
        setup.stop("pip failed")
    assert started[0].wait(60) == -signal.SIGTERM
