"""Writing: regular files whole or not at all, links stay, devices are written to, leftovers go, bad places are told."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import LongstrideError, OptionError, WorkError
from longstride.text import files
from longstride.text.files import (
    check_folder_writable,
    check_writable,
    output_file,
    regular_target,
    temporary_beside,
    written_whole,
)


def write(path: Path, content: bytes, by_path: bool = False) -> None:
    """By either way of writing a file."""
    if by_path:
        with written_whole(path) as temporary:
            temporary.write_bytes(content)
    else:
        with output_file(path) as file:
            file.write(content)


@pytest.mark.parametrize("by_path", [False, True])
def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path: Path, by_path: bool) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "target"
    (tmp_path / "middle").symlink_to(Path("there") / "target")
    (tmp_path / "link").symlink_to("middle")
    for content in (b"made", b"replaced"):
        write(tmp_path / "link", content, by_path)
        assert target.read_bytes() == content
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert os.listdir(tmp_path / "there") == ["target"]


@pytest.mark.parametrize("by_path", [False, True])
def test_a_fifo_is_written_to(tmp_path: Path, by_path: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "fifo").read_bytes()))
    reader.start()
    write(tmp_path / "fifo", b"through", by_path)
    reader.join()
    assert read == [b"through"]
    assert stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)


@pytest.mark.parametrize("by_path", [False, True])
def test_a_device_is_written_to(tmp_path: Path, by_path: bool) -> None:
    (tmp_path / "null").symlink_to("/dev/null")  # a replaced link harms nobody, should this fail
    write(tmp_path / "null", b"gone", by_path)
    assert (tmp_path / "null").is_symlink()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("by_path", [False, True])
@pytest.mark.parametrize("where", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_a_descriptor_is_written_to_where_it_stands(tmp_path: Path, where: str, by_path: bool) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    with log.open("ab") as appending:
        name = where.format(appending.fileno())
        (tmp_path / "link").symlink_to(name)
        write(Path(name), b"one\n", by_path)
        write(tmp_path / "link", b"two\n", by_path)
    assert log.read_bytes() == b"before\none\ntwo\n"


def test_a_folder_and_a_full_disk_are_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"expected a file to write, found a folder\."):
        write(tmp_path, b"x")
    for by_path in (False, True):
        with pytest.raises(WorkError, match=r"^/dev/full: could not be written \(No space left on device\)\.$"):
            write(Path("/dev/full"), b"x" * 100, by_path)


def test_a_file_that_grows_too_large_is_told_and_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from longstride.text.files import output_file, written_whole
from longstride.contract import WorkError
for way in (output_file, written_whole):
    try:
        with way({str(file)!r}) as made:
            made.write(bytes(9999)) if way is output_file else made.write_bytes(bytes(9999))
    except WorkError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{file}: could not be written (File too large).\n" * 2
    assert os.listdir(tmp_path) == ["file"]
    assert file.read_bytes() == b"old"


@given(mode=st.integers(0o600, 0o777))
def test_the_mode_of_a_file_that_is_there_is_kept(tmp_path_factory: pytest.TempPathFactory, mode: int) -> None:
    file = tmp_path_factory.mktemp("mode") / "file"
    file.touch()
    file.chmod(mode)
    write(file, b"x")
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_a_new_file_has_the_mode_that_open_gives(tmp_path: Path) -> None:
    write(tmp_path / "ours", b"")
    (tmp_path / "plain").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@given(length=st.integers(1, 255), ending=st.sampled_from(["", ".gz", ".tar.gz", "." + "x" * 99]))
def test_names_may_be_as_long_as_names_can_be(
    tmp_path_factory: pytest.TempPathFactory, length: int, ending: str
) -> None:
    file = tmp_path_factory.mktemp("names") / ("n" * max(1, length - len(ending)) + ending)
    check_writable(file)
    write(file, b"x")
    assert os.listdir(file.parent) == [file.name]


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "file"
    check_writable(file)
    assert not (tmp_path / "a").exists()
    write(file, b"x")
    assert file.read_bytes() == b"x"


def test_what_dead_processes_left_for_a_file_is_removed_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    dead = subprocess.Popen(["true"])
    dead.wait()
    with temporary_beside(file) as temporary:
        mine = temporary.name
    with temporary_beside(tmp_path / "other.txt") as temporary:
        others = temporary.name
    left = [name.replace(f"-{os.getpid()}-", f"-{dead.pid}-") for name in (mine, others)]
    for name in left:
        (tmp_path / name).touch()
    (tmp_path / mine.replace(f"-{os.getpid()}-", f"-{os.getppid()}-")).touch()  # its process lives
    (tmp_path / mine).touch()  # of an earlier process with our number: nobody holds it
    (tmp_path / "kept.txt").touch()
    with ExitStack() as both:
        at_work = both.enter_context(temporary_beside(file))
        write(file, b"x")
        there = set(os.listdir(tmp_path))
        assert at_work.exists()
    assert there == {
        "out.txt",
        "kept.txt",
        at_work.name,
        left[1],
        mine.replace(f"-{os.getpid()}-", f"-{os.getppid()}-"),
    }


def test_left_folders_are_removed_too_and_a_new_one_is_gone_unless_renamed(tmp_path: Path) -> None:
    with temporary_beside(tmp_path / "model", folder=True) as building:
        (building / "weights").touch()
        left = building.name
    assert os.listdir(tmp_path) == []
    (tmp_path / left).mkdir()
    (tmp_path / left / "weights").touch()
    with temporary_beside(tmp_path / "model", folder=True) as building:
        building.rename(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


def test_places_that_cannot_be_written_are_refused_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for path, told in [
        (tmp_path, "found a folder"),
        (tmp_path / "file" / "x", f"expected a folder to write in, found a file at {tmp_path / 'file'}"),
        (tmp_path / "file" / "x" / "y", f"expected a folder to write in, found a file at {tmp_path / 'file'}"),
        (tmp_path / ("n" * 256), "names of at most 255 bytes, found one of 256|File name too long"),
        (tmp_path / "new" / ("ü" * 200), "names of at most 255 bytes, found one of 400"),
        (tmp_path / "loop", "could not be written"),
        (Path("/proc/none"), "could not be written|that may not"),
        (Path("/dev/fd/987"), "could not be written"),
    ]:
        with pytest.raises(OptionError, match=told) as error:
            check_writable(path)
        assert str(path) in str(error.value)
        with pytest.raises(LongstrideError):
            write(path, b"x")
    with pytest.raises(OptionError, match="expected every file to write once, found it twice"):
        check_writable(tmp_path / "a", None, tmp_path / "." / "a")
    check_writable("/dev/null", "/dev/null", "/dev/stderr", None)
    assert {*os.listdir(tmp_path)} - {"new"} == {"file", "loop"}


def test_a_read_only_folder_is_refused_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise OSError(30, "Read-only file system", str(tmp_path))

    monkeypatch.setattr(files.tempfile, "TemporaryFile", refuse)
    with pytest.raises(OptionError, match=r"out: could not be written \(Read-only file system\)\.$"):
        check_writable(tmp_path / "out")
    monkeypatch.setattr(files.os, "open", refuse)
    with pytest.raises(WorkError, match=r"out: could not be written \(Read-only file system\)\.$"):
        write(tmp_path / "out", b"x")


def test_folders_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_folder_writable(tmp_path)
    check_folder_writable(tmp_path / "new" / "folder")
    for path in (tmp_path / "file", tmp_path / "file" / "x", Path("/proc/none"), Path("-"), tmp_path / ("n" * 300)):
        with pytest.raises(OptionError, match=str(path)):
            check_folder_writable(path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OptionError, match=r"loop: could not be written .Too many levels of symbolic links"):
        check_folder_writable(tmp_path / "loop")
    (tmp_path / "loop").unlink()
    with pytest.raises(OptionError, match="expected a folder whose path is UTF-8"):
        check_folder_writable(tmp_path / "\udcff" / "folder")
    assert os.listdir(tmp_path) == ["file"]


def test_links_are_followed_from_where_folders_lead(tmp_path: Path) -> None:
    """Up from a link to a folder is not up from where the link stands: another's file lies there."""
    (tmp_path / "far" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(Path("far") / "folder")
    (tmp_path / "far" / "folder" / "out").symlink_to(Path("..") / "kept")
    (tmp_path / "kept").write_text("another's")
    for path in ("link/out", "link/../kept"):
        with output_file(tmp_path / path) as file:
            file.write(path.encode())
        assert (tmp_path / "far" / "kept").read_text() == path
        assert (tmp_path / "kept").read_text() == "another's"
    assert (tmp_path / "far" / "folder" / "out").is_symlink()
    for path in ("link/..", "nothing/.."):
        with pytest.raises(OptionError, match="found a folder"):
            check_writable(tmp_path / path)


def test_the_regular_file_behind_a_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    assert regular_target(tmp_path / "link") == tmp_path / "target"
    assert regular_target("/dev/null") is None
    assert regular_target("/dev/stdout") is None
