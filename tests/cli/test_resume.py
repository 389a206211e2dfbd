"""translate --resume and streaming: killed at any moment and gone on with is one run; other jobs' files are refused."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.cli import translate as translating
from longstride.cli.resuming import Partial
from longstride.cli.streams import Lines
from longstride.contract import InputError, LongstrideError
from longstride.text.corpus import Portion
from tests.cli.conftest import Run

SOURCES = [f"line {number}" for number in range(7)]
PORTION = 3


def job(out: Path, sources: list[str] = SOURCES, made_by: str = "a model") -> None:
    """What translate does, with a translator that writes capital letters and a trace that counts."""
    (out.parent / "in").write_text("".join(line + "\n" for line in sources))
    lines = Lines(out.parent / "in", PORTION)
    kept = Partial([out, out.with_name("trace")], {"model": made_by})
    kept.check_input(lines.skip(kept.lines))
    try:
        if not kept.done:
            kept.open()
            for portion in lines.portions(full=True):
                numbers = range(kept.lines, kept.lines + len(portion))
                kept.add(
                    portion,
                    "".join(line.upper() + "\n" for line in portion).encode(),
                    "".join(f"{number}\n" for number in numbers).encode(),
                )
        kept.finish()
    finally:
        kept.close()


def killed(work: Callable[[], None], moment: int) -> bool:
    """Do it in another process, which is killed before so many calls of the system; says whether that happened."""
    child = os.fork()
    if child == 0:
        left = moment

        def count(event: str, arguments: object) -> None:
            nonlocal left
            if event in ("open", "os.rename", "os.remove", "os.truncate", "os.chmod", "fcntl.flock", "os.listdir"):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(count)
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@settings(max_examples=25)
@given(
    moments=st.lists(st.integers(0, 60), max_size=4),
    torn=st.binary(max_size=5),
    ending=st.sampled_from(["", ".gz"]),
    size=st.integers(0, 7),
)
def test_killed_at_any_moment_and_gone_on_with_is_one_run(
    tmp_path_factory: pytest.TempPathFactory, moments: list[int], torn: bytes, ending: str, size: int
) -> None:
    folder = tmp_path_factory.mktemp("resume")
    out = folder / f"out{ending}"
    sources = SOURCES[:size]
    for moment in moments:
        died = killed(lambda: job(out, sources), moment)
        part = folder / f"out{ending}.partial"
        if died and part.exists():  # what a write that was cut short leaves
            with part.open("ab") as file:
                file.write(torn)
    job(out, sources)
    raw = gzip.decompress(out.read_bytes()) if ending else out.read_bytes()
    assert raw.decode() == "".join(line.upper() + "\n" for line in sources)
    assert (folder / "trace").read_text() == "".join(f"{number}\n" for number in range(size))
    assert sorted(os.listdir(folder)) == sorted(["in", out.name, "trace"])


def interrupted(folder: Path) -> Path:
    """A job that was killed after its first portion."""
    moment = 0
    while not (
        (folder / "out.partial.json").exists() and json.loads((folder / "out.partial.json").read_text())["lines"]
    ):
        assert killed(lambda: job(folder / "out"), moment)
        moment += 1
    return folder / "out"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"made_by": "another"}, "--resume expects the same model as before, 'a model', found 'another'"),
        ({"sources": ["other", *SOURCES[1:]]}, "expects an input that begins with the same 3 lines as before"),
        ({"sources": SOURCES[:2]}, "expected the 3 lines of last time, found 2"),
    ],
)
def test_another_job_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    out = interrupted(tmp_path)
    (tmp_path / "in").unlink()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(LongstrideError, match=told):
        job(out, **changes)  # type: ignore[arg-type]
    (tmp_path / "in").unlink()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    job(out)
    assert out.read_text() == "".join(line.upper() + "\n" for line in SOURCES)


def test_a_damaged_or_foreign_partial_file_is_refused(tmp_path: Path) -> None:
    out = interrupted(tmp_path)
    (tmp_path / "out.partial").write_bytes(b"x")
    with pytest.raises(InputError, match=r"expected at least \d+ bytes, found 1"):
        job(out)
    (tmp_path / "out.partial.json").write_text("[]")
    with pytest.raises(InputError, match="expected what --resume keeps of an earlier run"):
        job(out)
    (tmp_path / "out.partial.json").unlink()
    with pytest.raises(InputError, match=r"expected out\.partial\.json beside it, found none"):
        job(out)


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    first = Partial([tmp_path / "out"], {})
    first.open()
    second = Partial([tmp_path / "out"], {})
    with pytest.raises(LongstrideError, match="found another process doing so"):
        second.open()
    first.close()
    second.close()


def test_the_command_goes_on_after_an_interruption(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translating, "TABLES", 2)
    lines = b"".join(
        b" ".join(b"abcdefg"[: 1 + n % 7 : 1][i : i + 1] for i in range(1 + n % 7)) + b"\n" for n in range(9)
    )
    (tmp_path / "in").write_bytes(lines)
    command = ["translate", "-m", model, "-i", tmp_path / "in", "--batch", "2", "--trace", tmp_path / "trace", "--json"]
    command += ["--runtime", "eager"]
    assert run(*command, "-o", tmp_path / "whole").code == 0
    traced = (tmp_path / "trace").read_bytes()
    add = Partial.add

    def stop(self: Partial, *arguments: object) -> None:
        add(self, *arguments)  # type: ignore[arg-type]
        if self.lines == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Partial, "add", stop)
        stopped = run(*command, "-o", tmp_path / "out", "--resume")
    assert stopped.code == 130
    assert stopped.err.splitlines()[-1] == "Interrupted: kept 4 lines; the same command continues."
    assert (tmp_path / "out.partial").read_bytes().count(b"\n") == 4
    assert not (tmp_path / "out").exists()
    assert (
        "--resume expects the same batch as before, 2, found 3"
        in run(*command, "-o", tmp_path / "out", "--resume", "--batch", "3").error
    )
    ran = run(*command, "-o", tmp_path / "out", "--resume")
    assert (ran.code, ran.err) == (0, "Going on after line 4.\n")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (tmp_path / "trace").read_bytes() == traced
    assert sorted(os.listdir(tmp_path)) == ["in", "out", "trace", "whole"]


@pytest.mark.parametrize("live", [False, True])
@given(lengths=st.lists(st.integers(0, 9), max_size=12), characters=st.integers(1, 20), least=st.integers(1, 3))
def test_portions_end_when_there_is_work_enough(
    tmp_path_factory: pytest.TempPathFactory, live: bool, lengths: list[int], characters: int, least: int
) -> None:
    """The same ones from a file and from a pipe, so that going on is never having stopped."""
    path = tmp_path_factory.mktemp("portions") / "in"
    path.write_text("".join("x" * length + "\n" for length in lengths))
    if live:
        pipe = path.with_name("pipe")
        os.mkfifo(pipe)
        threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()), daemon=True).start()
        path = pipe
    lines = Lines(path, 5)
    lines.portion = Portion(characters, least)
    found = [[len(line) for line in portion] for portion in lines.portions(full=True)]
    assert [length for portion in found for length in portion] == lengths
    for portion in found[:-1]:
        assert len(portion) == 5 or (len(portion) >= least and sum(portion) >= characters)
        assert len(portion) == least or sum(portion[:-1]) < characters or len(portion) <= least


@pytest.mark.parametrize("option", ["glossary", "whole"])
def test_an_option_that_is_left_out_when_going_on_is_refused(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    (tmp_path / "lines").write_text("a b\nb c\n")
    command = ["translate", "-m", model, "-i", tmp_path / "lines", "-o", tmp_path / "out", "--resume"]
    told = [f"--{option}", *([] if option == "whole" else [tmp_path / "lines"])]

    def stop(self: Partial) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Partial, "finish", stop)
        assert run(*command, *told).code == 130
    assert f"--resume expects the same {option} as before" in run(*command).error
    assert run(*command, *told).code == 0


@pytest.mark.parametrize("arguments", [["--resume"], ["--resume", "-o", "-"], ["--resume", "-o", "/dev/null"]])
def test_resuming_expects_a_file(run: Run, model: Path, arguments: list[str]) -> None:
    assert "--resume expects" in run("translate", "-m", model, *arguments, stdin=b"a\n").error


class Pipe:
    """A standard input that is fed while it is read."""

    def __init__(self) -> None:
        read, self._write = os.pipe()
        self.buffer = os.fdopen(read, "rb")
        self.fileno = self.buffer.fileno
        self.closed = False

    def feed(self, content: bytes) -> None:
        os.write(self._write, content)

    def end(self) -> None:
        os.close(self._write)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe()
    monkeypatch.setattr(sys, "stdin", made)
    yield made
    made.buffer.close()


def test_a_pipe_is_answered_as_its_lines_come(pipe: Pipe) -> None:
    portions = Lines(None, 100).portions()
    for content, expected in [(b"one\n", ["one"]), (b"tw", None), (b"o\n", ["two"]), (b"\n", [""])]:
        pipe.feed(content)
        if expected is not None:
            assert next(portions) == expected
    pipe.feed(b"no end")
    pipe.end()
    assert list(portions) == [["no end"]]


@settings(max_examples=30)
@given(content=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=6), most=st.integers(1, 5))
def test_a_pipe_gives_the_lines_that_a_file_gives(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cuts: list[int], most: int
) -> None:
    file = tmp_path_factory.mktemp("lines") / "file"
    file.write_bytes(content)
    fifo = file.with_name("fifo")
    os.mkfifo(fifo)

    def feed() -> None:
        with fifo.open("wb", buffering=0) as writing:
            places = [0, *sorted(cuts), len(content)]
            for start, end in pairwise(places):
                if content[start:end]:
                    writing.write(content[start:end])

    feeder = threading.Thread(target=feed)
    feeder.start()
    found: list[list[list[str]] | str] = []
    for path in (fifo, file):
        try:
            found.append(list(Lines(path, most).portions()))
        except InputError as error:
            found.append(str(error).removeprefix(str(path)))
    feeder.join()
    piped, filed = ([line for portion in one for line in portion] if isinstance(one, list) else one for one in found)
    assert piped == filed
    assert all(len(portion) <= most for portion in found[0] if isinstance(portion, list))


def test_an_error_in_a_pipe_comes_after_the_lines_before_it(pipe: Pipe) -> None:
    portions = Lines(None, 2).portions(full=True)
    pipe.feed(b"a\nb\nc\n\xff\n")
    assert next(portions) == ["a", "b"]
    assert next(portions) == ["c"]
    with pytest.raises(InputError, match=r"standard input, line 4: expected UTF-8"):
        next(portions)
    pipe.end()
