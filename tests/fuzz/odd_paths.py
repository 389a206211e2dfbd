"""Paths of every kind, all inside the folder of a case: devices are private nodes, never the machine's own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

NODES = {"null": os.makedev(1, 3), "full": os.makedev(1, 7)}


def device(name: str, folder: Path = Path("dev")) -> str:
    """A device file of one's own (a link into nowhere, where making one is not allowed)."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, NODES[name])
    except PermissionError:
        path.symlink_to("nowhere")
    return str(path)


def pipe(content: bytes | None) -> str:
    """A named pipe: one that a process writes `content` into, or one that holds what is written to it."""
    path = _folder("dev") / f"pipe{len(os.listdir('dev'))}"
    os.mkfifo(path)
    if content is None:
        os.open(path, os.O_RDWR | os.O_NONBLOCK)  # stays open: neither end ever waits
    elif os.fork() == 0:
        try:
            with path.open("wb") as file:
                file.write(content)
        finally:
            os._exit(0)
    return str(path)


def _folder(name: str) -> Path:
    path = Path(name)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _file(name: str, content: bytes = b"a b c\n") -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return name


def _link(name: str, target: str) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return name


def _locked(name: str, inside: str, mode: int) -> str:
    folder = _folder(name)
    _file(f"{name}/there")
    folder.chmod(mode)
    return f"{name}/{inside}" if inside else name


def _mode(name: str, mode: int) -> str:
    Path(_file(name)).chmod(mode)
    return name


Maker = Callable[[Random], str]

ANYWHERE: tuple[Maker, ...] = (
    lambda rng: "",
    lambda rng: "-",
    lambda rng: ".",
    lambda rng: "missing",
    lambda rng: "no/such/folder/file",
    lambda rng: _file("out/there.txt", b"earlier\n") + "/below",
    lambda rng: str(_folder("out/folder")),
    lambda rng: str(_folder("out/folder")) + "/",
    lambda rng: _file("out/earlier.txt", b"earlier\n"),
    lambda rng: _file("out/empty", b""),
    lambda rng: device("null"),
    lambda rng: _link("out/null", "../" + device("null")),
    lambda rng: "/dev/fd/1",
    lambda rng: "/proc/self/fd/1",
    lambda rng: _link("out/stdout", "/proc/self/fd/1"),
    lambda rng: _link("out/loop", "loop"),
    lambda rng: _link("out/dangling", "nowhere/at/all"),
    lambda rng: _link("out/link", os.path.relpath(_file("out/target.txt", b"earlier\n"), "out")),
    lambda rng: "out/" + "n" * 250,
    lambda rng: "out/" + "n" * 300,
    lambda rng: "out/" + "d/" * 2500 + "x",
    lambda rng: "out/é日🙂 x",
    lambda rng: "out/a\nb",
    lambda rng: "out/\udcff",
    lambda rng: "out/[red]",
    lambda rng: "in/../out/x",
    lambda rng: _locked("locked", "new", 0o555),
    lambda rng: _locked("locked", "there", 0o555),
    lambda rng: _locked("shut", "there", 0o000),
    lambda rng: _locked("shut", "", 0o000),
    lambda rng: _mode("out/readonly", 0o444),
    lambda rng: _mode("out/unreadable", 0o000),
)

TO_READ: tuple[Maker, ...] = (
    lambda rng: pipe(b"a b c\n"),
    lambda rng: pipe(b""),
    lambda rng: _file("in/odd.txt", rng.randbytes(200)),
    lambda rng: _file("in/odd.json", b'{"a": [1, 2'),
    lambda rng: _file("in/odd.gz", b"no gzip"),
)

TO_WRITE: tuple[Maker, ...] = (
    lambda rng: device("full"),
    lambda rng: _link("out/full", "../" + device("full")),
    lambda rng: pipe(None),
    lambda rng: _link("out/pipe", "../" + pipe(None)),
    lambda rng: _link("out/new", "made"),
    lambda rng: "out/" + "n" * 246 + ".gz",
    lambda rng: "out/x.gz",
    lambda rng: "out/x.xz",
    lambda rng: "out/.hidden",
)


def odd(rng: Random, written: bool) -> str:
    """Any path there is reason to try to read or to write, made as far as it has to be there."""
    made = rng.choice((*ANYWHERE, *(TO_WRITE * 2 if written else TO_READ)))
    try:
        return made(rng)
    except (FileExistsError, PermissionError):  # drawn a second time
        return "missing"
