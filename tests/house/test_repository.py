"""What every tracked file of the repository has to hold to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import longstride
from longstride.cli.quick_start import TRIED

ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 1024 * 1024
# Spelt in pieces so that this file does not find itself.
MACHINE_PATHS = [f"/{name}/" for name in ("work", "opt", "home", "root")]
TEXTS = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".jsonl", ".cfg", ".ini", ".sh", ".svg", ""}


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("what git tracks can be asked in a checkout only, and this is none")
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_is_heavy_and_weights_are_few() -> None:
    sizes = {name(path): path.stat().st_size for path in tracked()}
    weights = {path: size for path, size in sizes.items() if path.endswith((".safetensors", ".model"))}
    heavy = {path: size for path, size in sizes.items() if path not in weights and size > MEGABYTE}
    assert not heavy
    assert sum(weights.values()) < 64_000_000


def test_weights_are_data_and_never_code() -> None:
    assert not [name(path) for path in tracked() if path.suffix in {".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt"}]


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = []
    for path in tracked():
        if path.suffix in TEXTS:
            text = path.read_text(encoding="utf-8")
            named = [place for place in MACHINE_PATHS if place in text]  # seldom, and found a hundred times sooner
            found += [f"{name(path)}: {place}" for place in named if re.search(rf"(?<![\w.~>)-]){place}", text)]
    assert not found


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{longstride.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_readme_gives_the_test_command_that_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    assert any(re.search(r"^(\$ )?make test", block, flags=re.MULTILINE) for block in blocks)


def test_constraints_pin_exactly_and_without_a_build() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    whom = r'(; python_version (<|>=) "3\.[0-9]+")?'  # of a package whose one version is not for every Python
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*" + whom, pin) for pin in pins)
    assert any(pin.startswith(tuple(f"torch=={one}" for one in TRIED)) for pin in pins), (
        "a new PyTorch: is it imported quickly too?"
    )
    wanted = [Requirement(pin) for pin in pins]
    for python in ({"python_version": f"3.{minor}"} for minor in range(11, 15)):
        asked = [one.name.lower() for one in wanted if one.marker is None or one.marker.evaluate(python)]
        assert len(set(asked)) == len(asked) == len({one.name.lower() for one in wanted})


def test_nothing_waits_or_measures_by_a_clock_that_can_be_set() -> None:
    """Ages of files go by it, and times that are told to people."""
    asked = {name(path) for path in (ROOT / "src").rglob("*.py") if "time.time()" in path.read_text(encoding="utf-8")}
    assert asked == {"src/longstride/serving/openai.py", "src/longstride/text/folders.py"}
