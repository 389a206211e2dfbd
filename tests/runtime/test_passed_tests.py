"""A self-test that passed is not run again; one that failed is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from longstride.ops.cuda import passed_tests

DEVICE, DTYPE = torch.device("cpu"), torch.float16


class Manager:
    """Triton's cache manager, as far as it is used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get_file(self, name: str) -> str | None:
        found = self._folder / name
        return str(found) if found.exists() else None

    def put(self, data: str, name: str) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(data)
        return str(self._folder / name)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], Manager]], None]:
    monkeypatch.setattr(passed_tests, "_key", lambda name, device, dtype: f"{name}-{dtype}")

    def put(made: Callable[[str], Manager]) -> None:
        for name in ("triton", "triton.runtime", "triton.runtime.cache"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["triton.runtime.cache"].get_cache_manager = made  # type: ignore[attr-defined]

    put(lambda key: Manager(tmp_path / key))
    return put


@pytest.mark.usefixtures("manager")
def test_a_test_that_passed_is_not_run_again() -> None:
    runs: list[str] = []

    def test(name: str, reason: str) -> Callable[[], str]:
        return lambda: runs.append(name) or reason  # type: ignore[func-returns-value]

    for _ in range(2):
        assert passed_tests.remembered("values", DEVICE, DTYPE, test("values", "")) == ""
        assert passed_tests.remembered("overlap", DEVICE, DTYPE, test("overlap", "numbers differ")) == "numbers differ"
        assert passed_tests.remembered("values", DEVICE, torch.bfloat16, test("bf16", "")) == ""
    assert runs == ["values", "overlap", "bf16", "overlap"]


def test_without_a_folder_the_test_runs_each_time(manager: Callable[[Callable[[str], Manager]], None]) -> None:
    def none(key: str) -> Manager:
        raise PermissionError(key)

    manager(none)
    runs: list[int] = []
    for _ in range(2):
        assert passed_tests.remembered("values", DEVICE, DTYPE, lambda: runs.append(1) or "") == ""  # type: ignore[func-returns-value]
    assert len(runs) == 2


def test_a_full_disk_loses_only_the_note(manager: Callable[[Callable[[str], Manager]], None], tmp_path: Path) -> None:
    class Full(Manager):
        def put(self, data: str, name: str) -> str:
            raise OSError(28, "No space left on device")

    manager(lambda key: Full(tmp_path / key))
    assert passed_tests.remembered("values", DEVICE, DTYPE, lambda: "") == ""
