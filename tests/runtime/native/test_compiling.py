"""Libraries are made once, whole or not at all; what another may have written, or is spoilt, is never loaded."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest

from longstride.runtime.native import compiling
from longstride.runtime.native.compiling import NoLibraryError, cache_folder, find_compiler, load, opened
from longstride.runtime.native.trust import why_not_folder
from tests.runtime.native.harness import needs_compiler

pytestmark = needs_compiler()
root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
STRANGER = 12345


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "one.c").write_text("int one(void) { return 1; }\n")
    return folder


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where libraries are kept."""
    return tmp_path / "cache" / "longstride" / "native"


@pytest.fixture
def made(source: Path, kept: Path) -> Path:
    """A library that was made."""
    assert opened(kept, source).one() == 1
    return the_library(kept)


def the_library(kept: Path) -> Path:
    (found,) = kept.iterdir()  # nothing but whole libraries is left
    return found


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise NoLibraryError("found none")

    monkeypatch.setattr(compiling, "find_compiler", refuse)


def replaced(path: Path, content: bytes) -> None:
    """Another file under its name: what is loaded stays as it was."""
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o700)


def test_a_library_is_made_once_for_its_sources(source: Path, kept: Path, made: Path) -> None:
    told: list[str] = []
    assert opened(kept, source, told.append).one() == 1
    assert told == []
    assert the_library(kept) == made
    (source / "one.c").write_text("int one(void) { return 2; }\n")
    assert opened(kept, source, told.append).one() == 2
    assert told == ["Compiling the native runtime, once (about 15 s)."]
    assert len(list(kept.iterdir())) == 2


def test_a_good_library_needs_no_compiler(source: Path, kept: Path, made: Path, no_compiler: None) -> None:
    assert opened(kept, source).one() == 1
    replaced(made, b"")
    with pytest.raises(NoLibraryError, match="found none"):
        opened(kept, source)


def test_several_may_do_so_at_once(source: Path, kept: Path) -> None:
    found: list[ctypes.CDLL] = []
    threads = [threading.Thread(target=lambda: found.append(opened(kept, source))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.one() for one in found] == [1, 1, 1]
    assert the_library(kept).is_file()


def test_a_spoilt_library_is_made_anew(source: Path, kept: Path, made: Path) -> None:
    whole = made.read_bytes()
    for spoilt in (whole[: len(whole) // 2], whole[:-1], b"", b"\x7fELF nonsense", whole[:-1] + b"x"):
        replaced(made, spoilt)
        assert opened(kept, source).one() == 1
        assert the_library(kept).read_bytes() == whole


def test_a_library_that_does_not_load_is_made_anew(source: Path, kept: Path, made: Path) -> None:
    """Of another machine, whole as it is."""
    foreign = bytearray(made.read_bytes())
    foreign[18:20] = b"\xff\x7f"  # the machine, in an ELF header
    name = made.stem.rpartition("-")[0]
    for content in (bytes(foreign), b"nothing of the kind"):
        made.unlink()
        (kept / "other").write_bytes(content)
        planted = kept / f"{name}-{compiling._hash(kept / 'other')}.so"
        (kept / "other").rename(planted)
        planted.chmod(0o700)
        assert opened(kept, source).one() == 1
        assert the_library(kept) == made


def evil(kept: Path, made: Path, source: Path) -> Path:
    """A library under the right name, with the right hash, that does something else."""
    (source / "one.c").write_text("int one(void) { return 666; }\n")
    assert opened(kept, source).one() == 666
    (other,) = set(kept.iterdir()) - {made}
    (source / "one.c").write_text("int one(void) { return 1; }\n")
    made.unlink()
    planted = kept / f"{made.stem.rpartition('-')[0]}-{other.stem.rpartition('-')[2]}.so"
    return other.rename(planted)


def test_what_others_can_write_is_not_loaded(source: Path, kept: Path, made: Path) -> None:
    for mode in (0o722, 0o702, 0o720):
        evil(kept, the_library(kept), source).chmod(mode)
        told: list[str] = []
        assert opened(kept, source, told.append).one() == 1
        assert "can be written by other users" in told[0]


def test_links_are_not_followed(source: Path, kept: Path, made: Path, tmp_path: Path) -> None:
    planted = evil(kept, made, source)
    elsewhere = planted.rename(tmp_path / "elsewhere.so")
    planted.symlink_to(elsewhere)
    assert opened(kept, source).one() == 1
    assert not the_library(kept).is_symlink()
    kept.rename(tmp_path / "moved")
    kept.symlink_to(tmp_path / "moved")
    told: list[str] = []
    assert opened(kept, source, told.append).one() == 1
    assert told[-1].endswith(f"for this process alone: {kept} is a link.")


@root
def test_what_another_user_planted_is_not_loaded(source: Path, kept: Path, made: Path) -> None:
    os.chown(evil(kept, made, source), STRANGER, STRANGER)
    told: list[str] = []
    assert opened(kept, source, told.append).one() == 1
    assert "belongs to another user" in told[0]
    assert the_library(kept).stat().st_uid == os.getuid()


@pytest.mark.parametrize("loose", ["native", "longstride", "cache"])
def test_a_folder_that_others_can_write_to_is_done_without(
    source: Path, kept: Path, made: Path, tmp_path: Path, loose: str
) -> None:
    evil(kept, made, source)
    folder = next(path for path in (kept, *kept.parents) if path.name == loose)
    folder.chmod(0o777)
    told: list[str] = []
    assert opened(kept, source, told.append).one() == 1
    assert told[-1] == f"The library is kept for this process alone: {folder} can be written by other users."
    folder.chmod(0o1777)  # like /tmp: nobody can exchange what is another's
    assert why_not_folder(kept) is None


@root
@pytest.mark.parametrize("given", ["native", "longstride", "cache"])
def test_a_folder_of_another_user_is_done_without(source: Path, kept: Path, made: Path, given: str) -> None:
    evil(kept, made, source)
    os.chown(next(path for path in (kept, *kept.parents) if path.name == given), STRANGER, STRANGER)
    told: list[str] = []
    assert opened(kept, source, told.append).one() == 1
    assert told[-1].endswith("belongs to another user.")


def test_folders_are_our_own(made: Path) -> None:
    assert [path.stat().st_mode & 0o777 for path in (made, made.parent, made.parent.parent)] == [0o700] * 3


def test_a_folder_that_cannot_be_written_is_done_without(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[str] = []
    assert opened(tmp_path / "file" / "kept", source, told.append).one() == 1
    assert "for this process alone" in told[-1]
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert opened(tmp_path / "round" / "kept", source, told.append).one() == 1


def test_what_killed_processes_left_is_taken_away(source: Path, kept: Path) -> None:
    for name, age in ((".making-old", 1e6), (".making-new", 0.0)):
        (kept / name).mkdir(parents=True)
        now = (kept / name).stat().st_mtime
        os.utime(kept / name, (now - age, now - age))
    for path in (kept, kept.parent):
        path.chmod(0o700)
    opened(kept, source)
    assert {path.name for path in kept.iterdir()} > {".making-new"}
    assert not (kept / ".making-old").exists()


def test_a_compiler_that_fails_is_said(source: Path, kept: Path) -> None:
    (source / "one.c").write_text("int one(void) { return nothing; }\n")
    with pytest.raises(NoLibraryError, match=r"failed \(.*nothing.*a recent gcc or clang is expected"):
        opened(kept, source)
    assert list(kept.iterdir()) == []


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
