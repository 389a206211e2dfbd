"""What must hold after every command line, whatever it said."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.drawing import Case

CODES = (0, 1, 2, 130)
PYTHON = re.compile(
    r'Traceback \(most recent call last\)|internal error|^\s*File ".*", line \d+|\.py:\d+: \w*Warning'
    r"|^Exception (ignored|in thread)|Fatal Python error",
    re.MULTILINE | re.IGNORECASE,
)
TEMPORARY = re.compile(r"^\.(?!hidden$|$).*-")
"""What `written_whole` and model folders call what they have not finished."""

TEMPORARIES = "../tmp"
"""$TMPDIR, seen from where a case is run."""

Snapshot = dict[str, tuple[str, tuple[int, ...]]]
"""Path -> (kind of file, what changes when it is written to)."""


@dataclass(frozen=True)
class Finding:
    """Something that must not be."""

    kind: str
    """an exception's type, or what did not hold"""
    told: str
    """in a line"""
    place: str
    """file:line, or the command: findings of one kind and place are one"""
    traceback: str = ""


def snapshot(root: Path) -> Snapshot:
    """Every path below a folder, links not followed."""
    return dict(_below(os.fspath(root)))


def _below(folder: str) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        try:
            found = os.lstat(path)
        except OSError:
            continue
        kind = _kind(found.st_mode)
        yield path, (kind, (found.st_size, found.st_mtime_ns, found.st_ino) if kind == "file" else (found.st_ino,))
        if kind == "folder":
            yield from _below(path)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe"}
    return kinds.get(stat.S_IFMT(mode), "device")


def check(case: Case, code: int, out: str, err: str, before: Snapshot, after: Snapshot) -> list[Finding]:
    """All that does not hold."""
    command = command_of(case.argv)
    found = [*_streams(case, code, out, err), *_files(case, code, before, after), *_temporaries(code)]
    if code == 0:
        found += _results(case, command, out, before, after)
    return [Finding(kind, told, command) for kind, told in found]


def command_of(argv: list[str]) -> str:
    """The words that call the command."""
    return " ".join(argv[: 2 if argv[:1] == ["lattice"] else 1])


Told = tuple[str, str]


def _streams(case: Case, code: int, out: str, err: str) -> Iterator[Told]:
    if code not in CODES:
        yield "exit code", f"exit code {code}"
    if (shown := PYTHON.search(err)) and "--debug" not in case.argv:
        yield "Python shows", next(line for line in err[shown.start() :].splitlines() if line.strip())[:300]
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    asked_for_help = not case.argv or "--help" in case.argv or "Usage:" in err
    full = case.disk is not None and len(err) > case.disk - 1000  # stderr is on the same disk
    if code in (1, 2) and not asked_for_help and case.stdout == "file" and case.interrupt is None and not full:
        last = (err.rstrip("\n").splitlines() or [""])[-1]
        if len(errors) != 1:
            yield "not one error", f"exit {code} with {len(errors)} errors told; the last line is {last[:200]!r}"
        elif last != errors[0]:
            yield "error of several lines", f"{errors[0][:200]!r} ... {last[:200]!r}"
        elif not re.search(r"[.?…`]$", last):
            yield "error is no sentence", last[-200:]
    elif code == 0 and errors:
        yield "error with exit 0", errors[0][:200]


def _files(case: Case, code: int, before: Snapshot, after: Snapshot) -> Iterator[Told]:
    for path, (kind, _) in before.items():
        if kind in ("link", "device", "pipe") and after.get(path, ("nothing",))[0] != kind:
            yield f"{kind} destroyed", f"{path!r} was a {kind} and is {after.get(path, ('nothing',))[0]} (exit {code})"
    if code in (0, 2):
        for path in after:
            if path not in before and TEMPORARY.match(os.path.basename(path)):
                yield "temporary left", f"{path!r} (exit {code})"
    if code == 2:
        new = [path for path in after if path not in before]
        if "--resume" in case.argv:  # what a next run would go on with
            new = [path for path in new if ".partial" not in path]
        gone = [path for path in before if path not in after]
        changed = [path for path in after if path in before and after[path] != before[path]]
        for what, paths in (("new", new), ("gone", gone), ("changed", changed)):
            if paths:
                yield f"exit 2 with files {what}", ", ".join(map(repr, paths[:5]))


def _temporaries(code: int) -> Iterator[Told]:
    left = sorted(os.listdir(TEMPORARIES)) if os.path.isdir(TEMPORARIES) else []
    if left and code != 130:
        yield "temporary left", f"{left[0]!r} in the folder for temporaries (exit {code})"


def _results(case: Case, command: str, out: str, before: Snapshot, after: Snapshot) -> Iterator[Told]:
    if case.interrupt is not None or case.stdout != "file" or "--help" in case.argv:
        return
    if case.no_number:
        yield "no number taken for one", ", ".join(case.no_number)
    yield from _strict_json(out, "standard output")
    for path, (kind, _) in after.items():
        if kind == "file" and path not in before and path.endswith((".json", ".jsonl")):
            yield from _strict_json(_text(path), path)
    if command == "translate":
        yield from _as_many_lines(case, out)


def _as_many_lines(case: Case, out: str) -> Iterator[Told]:
    """Lines in and lines out, where both are in plain sight."""
    source, target = (_option(case.argv, *names) for names in (("-i", "--input"), ("-o", "--output")))
    if source == "several" or target == "several" or (source or "").startswith("dev") or (source or "").startswith("/"):
        return
    trace = _option(case.argv, "--trace") or ""
    if trace in ("several", "-") or "fd/1" in (os.readlink(trace) if os.path.islink(trace) else trace):
        return  # both go to standard output
    given = case.stdin if source in (None, "-") else _bytes(source)
    if given is None or (target not in (None, "-") and not Path(target or "").is_file()):
        return
    written = out if target in (None, "-") else _text(target or "")
    wanted, found = given.count(b"\n") + (given[-1:] not in (b"\n", b"")), written.count("\n")
    if wanted != found:
        yield "lines lost", f"{wanted} lines in, {found} lines out"
    if "--json" in case.argv:
        for line in written.splitlines() if "\u2028" not in written else written.split("\n")[:-1]:
            try:
                json.loads(line)
            except ValueError:
                yield "not JSON", line[:200]
                return


def _option(argv: list[str], *names: str) -> str | None:
    """The value of an option; the word `several` where it is not plain what it is."""
    found = [argv[place + 1] for place, word in enumerate(argv[:-1]) if word in names]
    found += [word.partition("=")[2] for word in argv if word.startswith(tuple(f"{name}=" for name in names))]
    short = tuple(name for name in names if not name.startswith("--"))
    found += [word[2:] for word in argv if word.startswith(short) and len(word) > 2 and word[2] != "="]
    return "several" if len(found) > 1 else found[0] if found else None


def _strict_json(text: str, name: str) -> Iterator[Told]:
    """JSON has no NaN and no Infinity."""
    for line in text.split("\n"):
        if line.startswith(("{", "[")) and re.search(r"\b(NaN|-?Infinity)\b", re.sub(r'"(\\.|[^"\\])*"', '""', line)):
            yield "NaN in JSON", f"{name}: {line[:200]}"
            return


def _bytes(path: str) -> bytes | None:
    try:
        content = Path(path).read_bytes()
        if path.endswith(".gz"):
            return gzip.decompress(content)
        return lzma.decompress(content) if path.endswith(".xz") else content
    except Exception:
        return None


def _text(path: str) -> str:
    found: Any = _bytes(path)
    return "" if found is None else found.decode("utf-8", "replace")
