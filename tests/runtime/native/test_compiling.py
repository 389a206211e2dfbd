"""Libraries are made once, whole or not at all, and a compiler that is missing or fails is said."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from longstride.runtime.native import compiling
from longstride.runtime.native.compiling import NoLibraryError, cache_folder, compiled, find_compiler, load
from tests.runtime.native.harness import needs_compiler

pytestmark = needs_compiler()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "one.c").write_text("int one(void) { return 1; }\n")
    return folder


def test_a_library_is_made_once_for_its_sources(source: Path, tmp_path: Path) -> None:
    first = compiled(find_compiler(), tmp_path / "kept", source)
    made = first.stat().st_mtime_ns
    assert compiled(find_compiler(), tmp_path / "kept", source) == first
    assert first.stat().st_mtime_ns == made
    (source / "one.c").write_text("int one(void) { return 2; }\n")
    assert compiled(find_compiler(), tmp_path / "kept", source) != first
    assert len(list((tmp_path / "kept").iterdir())) == 2  # nothing but whole libraries is left


def test_several_may_do_so_at_once(source: Path, tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(compiled(find_compiler(), tmp_path / "kept", source)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [found[0].name]


def test_a_folder_that_cannot_be_written_is_done_without(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = compiled(find_compiler(), tmp_path / "file" / "kept", source)
    assert found.is_file()
    shutil.rmtree(found.parent)


def test_a_compiler_that_fails_is_said(source: Path, tmp_path: Path) -> None:
    (source / "one.c").write_text("int one(void) { return nothing; }\n")
    with pytest.raises(NoLibraryError, match=r"failed \(.*nothing.*a recent gcc or clang is expected"):
        compiled(find_compiler(), tmp_path / "kept", source)
    assert list((tmp_path / "kept").iterdir()) == []


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NoLibraryError, match="apt install gcc"):
        find_compiler()


def test_the_environment_names_compiler_and_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own-cc"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("CC", os.fspath(own))
    assert find_compiler() == os.fspath(own)
    monkeypatch.setenv("CC", "")
    assert Path(find_compiler()).name in compiling.COMPILERS
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    assert cache_folder() == tmp_path / "longstride" / "native"


def test_what_is_no_library_is_said(tmp_path: Path) -> None:
    (tmp_path / "none.so").write_text("no")
    with pytest.raises(NoLibraryError, match="cannot be loaded"):
        load(tmp_path / "none.so")
