"""What commands write, wherever it goes: devices, pipes, full disks, closed streams, `-`, files named wrongly."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from longstride.bench.record_files import read_records
from longstride.cli.main import main
from longstride.cli.streams import input_file
from tests.cli.conftest import Run, write_pairs

LINES = b"a b c\n\nt s r\n"

BENCH = ("--batch-sizes", "2", "--passes", "1", "--decoders", "greedy", "--no-baselines")


def command(name: str, model: Path, folder: Path) -> list[object]:
    """A command that writes, but for the option that says where."""
    source, reference = write_pairs(folder, 4)
    pairs = folder / "pairs.json"
    if name == "contrastive":
        errors = [{"contrastive": "a b", "type": "order"}]
        pairs.write_text(json.dumps([{"source": "b a", "reference": "b a", "errors": errors}]))
    given: dict[str, list[object]] = {
        "translate": ["-i", source],
        "evaluate": ["-s", source, "-r", reference],
        "exactness": ["-s", source, "-r", reference, "--decoder", "copy-verify"],
        "bench": ["-s", source, "-r", reference, *BENCH],
        "contrastive": [pairs],
        "profile": ["-s", source, "--decoders", "greedy", "--sentences", "2"],
        "distill": ["-i", source, "--decoder", "greedy"],
        "export": ["--to", "hf", "--no-check"],
        "lattice": ["build", "-s", source, "-t", reference],
    }
    return [name, *given[name], "-m", model]


FILES = [
    ("translate", "-o"),
    ("translate", "--trace"),
    ("evaluate", "-o"),
    ("evaluate", "--record"),
    ("exactness", "--record"),
    ("bench", "-o"),
    ("profile", "--record"),
    ("lattice", "--save-alignments"),
]
FOLDERS = ["distill", "export", "lattice"]


@pytest.mark.parametrize(("name", "option"), FILES)
@pytest.mark.parametrize("place", ["folder", "file/x", "long", "/proc/none"])
def test_files_that_cannot_be_written_are_refused_before_the_work(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, option: str, place: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    path = "n" * 256 if place == "long" else place
    more = ["-o", tmp_path / "tables"] if name == "lattice" else []
    error = run(*command(name, model, tmp_path), option, path, *more).error
    assert path in error
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "ref", "src"]


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("place", ["file", "file/x", "n" * 256, "/proc/none", "-"])
def test_folders_that_cannot_be_written_are_refused_before_the_work(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert place in run(*command(name, model, tmp_path), "-o", place).error
    assert sorted(os.listdir(tmp_path)) == ["file", "ref", "src"]


@pytest.mark.parametrize(("name", "option"), [pair for pair in FILES if pair[0] != "lattice"])
def test_missing_folders_are_made_by_all_commands_and_links_stay(
    run: Run, model: Path, tmp_path: Path, name: str, option: str
) -> None:
    target, link = tmp_path / "new" / "folder" / "file", tmp_path / "link"
    link.symlink_to(target)
    more = ["-o", tmp_path / "out"] if option == "--trace" else []
    ran = run(*command(name, model, tmp_path), option, link, *more)
    assert ran.code == 0, ran
    assert link.is_symlink()
    assert target.read_text()
    assert os.listdir(target.parent) == ["file"]


@pytest.mark.parametrize(("name", "option"), [pair for pair in FILES if pair[0] != "lattice"])
def test_a_device_is_written_to_and_stays(run: Run, model: Path, tmp_path: Path, name: str, option: str) -> None:
    (tmp_path / "null").symlink_to("/dev/null")  # the link, not the device, would be lost should this fail
    ran = run(*command(name, model, tmp_path), option, tmp_path / "null")
    assert ran.code == 0, ran
    assert (tmp_path / "null").is_symlink()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["bench", "evaluate", "profile"])
def test_records_go_to_no_named_pipe(run: Run, model: Path, tmp_path: Path, name: str) -> None:
    """Whoever opens one that nobody reads waits forever, when all the work is done."""
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # so that this waits for nobody should it fail
    (tmp_path / "link").symlink_to("pipe")
    option = "-o" if name == "bench" else "--record"
    for path in (tmp_path / "pipe", tmp_path / "link"):
        ran = run(*command(name, model, tmp_path), option, path)
        assert (ran.code, ran.out) == (2, "")
        assert f"{path}: expected a file to append records to, found a pipe or the like." in ran.error
    os.close(reading)


@pytest.mark.parametrize("name", ["bench", "evaluate", "profile"])
def test_figures_that_cannot_be_written_are_told_and_kept(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    option = "-o" if name == "bench" else "--record"
    ran = run(*command(name, model, tmp_path), option, "/dev/full")
    assert ran.code == 1
    assert "greedy" in ran.out
    last = ran.err.rstrip("\n").split("\n")[-1]
    found = re.fullmatch(
        r"error: /dev/full: could not be written \(No space left on device\); the records are kept in (.*)\.", last
    )
    assert found is not None, last
    assert len(read_records([found[1]])) == 1


def test_records_with_no_room_anywhere_are_told(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    ran = run(*command("evaluate", model, tmp_path), "--record", "/dev/full")
    assert ran.code == 1
    assert "could not be kept in" in ran.err
    assert json.loads(ran.out)["scores"]


@pytest.mark.parametrize("option", ["-o", "--trace"])
def test_a_full_disk_is_one_sentence(run: Run, model: Path, option: str) -> None:
    ran = run("translate", "-m", model, option, "/dev/full", stdin=LINES)
    assert ran.code == 1
    assert ran.err == "error: /dev/full: could not be written (No space left on device).\n"


def full(*text: str) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fails", ["write", "flush"])
def test_a_full_standard_output_is_one_sentence(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    output = io.StringIO()
    setattr(output, fails, full)
    monkeypatch.setattr(sys, "stdout", output)
    ran = run("translate", "-m", model, stdin=LINES)
    assert ran.code == 1
    assert ran.err == "error: standard output: could not be written (No space left on device).\n"


@pytest.mark.parametrize("name", ["bench", "contrastive", "evaluate", "exactness", "profile"])
def test_records_are_kept_though_nobody_reads_what_is_told(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    output = io.StringIO()
    output.write = full  # type: ignore[method-assign, assignment]
    monkeypatch.setattr(sys, "stdout", output)
    option = "-o" if name == "bench" else "--record"
    assert run(*command(name, model, tmp_path), option, tmp_path / "records").code == 1
    assert len(read_records([tmp_path / "records"])) == 1


@pytest.mark.parametrize("name", ["translate", "evaluate", "bench", "profile"])
def test_a_closed_standard_output_is_one_sentence(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    more = ["-o", tmp_path / "records"] if name == "bench" else []
    ran = run(*command(name, model, tmp_path), *more)
    assert ran.code == 1
    assert ran.err == "error: standard output: expected somewhere to write results, found it closed.\n"


def test_what_goes_to_a_file_needs_no_standard_output(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(*command("translate", model, tmp_path), "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_text()


def test_a_closed_standard_input_is_one_sentence(model: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    setattr_of = monkeypatch.setattr

    def closed(place: object, name: str, value: object) -> None:
        setattr_of(place, name, None if name == "stdin" else value)

    monkeypatch.setattr(monkeypatch, "setattr", closed)
    for arguments in (["translate"], ["translate", "-i", "-"], ["profile", "-s", "-"], ["lattice", "inspect"]):
        error = run(*arguments, "-m", model).error
        assert error == "error: standard input: expected text, found it closed."


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_compressed_outputs_are_compressed(run: Run, model: Path, tmp_path: Path, ending: str) -> None:
    plain = run("translate", "-m", model, stdin=LINES)
    for name in ("out", "trace"):
        option = "-o" if name == "out" else "--trace"
        assert run("translate", "-m", model, option, tmp_path / f"{name}.{ending}", stdin=LINES).code == 0
    unpack = {"gz": gzip, "xz": lzma}[ending].decompress
    assert unpack((tmp_path / f"out.{ending}").read_bytes()).decode() == plain.out
    assert unpack((tmp_path / f"trace.{ending}").read_bytes()).count(b"\n") == 3


def test_a_dash_is_standard_input_and_output(run: Run, model: Path, tmp_path: Path) -> None:
    source, reference = write_pairs(tmp_path, 4)
    text = source.read_bytes()
    plain = run("translate", "-m", model, stdin=text)
    assert run("translate", "-m", model, "-i", "-", "-o", "-", stdin=text) == plain
    scored = json.loads(run("evaluate", "-m", model, "-s", source, "-r", reference).out)
    piped = json.loads(run("evaluate", "-m", model, "-s", "-", "-r", reference, stdin=text).out)
    assert piped["scores"] == scored["scores"]
    again = run("evaluate", "-m", model, "-s", "-", "-r", "-", stdin=text)
    assert again.error == ("error: - expects to be named once, since standard input is read once, found it again.")
    for arguments in (
        ["bench", "-s", "-", "-r", reference, *BENCH, "-o", tmp_path / "records"],
        ["profile", "-s", "-", "--decoders", "greedy", "--sentences", "2"],
        ["distill", "-i", "-", "-o", tmp_path / "distilled", "--decoder", "greedy"],
    ):
        assert run(*arguments, "-m", model, stdin=text).code == 0
    assert not list(tmp_path.glob("-*"))


def test_a_trace_goes_to_standard_output_beside_an_output_file(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["translate", "-m", str(model), "-i", str(write_pairs(tmp_path, 4)[0]), "-o", "out", "--trace", "-"])
    assert [json.loads(line)["line"] for line in capfd.readouterr().out.splitlines()] == [1, 2, 3, 4]
    assert sorted(os.listdir(tmp_path)) == ["out", "ref", "src"]


def test_alignments_go_to_standard_output(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main([*map(str, command("lattice", model, tmp_path)), "-o", "tables", "--save-alignments", "-"])
    assert len(capfd.readouterr().out.splitlines()) == 4
    assert sorted(os.listdir(tmp_path)) == ["ref", "src", "tables"]


def test_nothing_but_empty_lines_is_nothing_to_compare(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    both = ["-s", tmp_path / "empty", "-r", tmp_path / "empty"]
    refused = run("exactness", "-m", model, *both, "--decoder", "copy-verify").error
    assert "empty: expected at least one sentence to translate, found none" in refused


def test_two_outputs_in_one_file_are_refused(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "found it twice" in run("translate", "-m", model, "-o", out, "--trace", out, stdin=LINES).error
    source, reference = write_pairs(tmp_path, 4)
    refused = run("evaluate", "-m", model, "-s", source, "-r", reference, "-o", out, "--record", out)
    assert "found it twice" in refused.error


def test_json_has_the_n_best_that_are_asked_for(run: Run, model: Path) -> None:
    beam = ["--decoder", "beam", "--set", "width=3"]
    ran = run("translate", "-m", model, "--json", *beam, "--set", "n_best=2", stdin=LINES)
    first, empty, _ = map(json.loads, ran.out.splitlines())
    assert [sorted(one) for one in first["n_best"]] == [["score", "text", "tokens"]] * 2
    assert first["n_best"][0] == {key: first[key] for key in ("text", "score", "tokens")}
    assert first["n_best"][0]["score"] >= first["n_best"][1]["score"]
    assert empty["n_best"] == []
    assert "n_best" not in json.loads(run("translate", "-m", model, "--json", *beam, stdin=b"a\n").out)


def test_a_byte_order_mark_is_no_text(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbf" + LINES)
    plain = run("translate", "-m", model, "--json", stdin=LINES).out
    assert run("translate", "-m", model, "--json", stdin=b"\xef\xbb\xbf" + LINES).out == plain
    assert run("translate", "-m", model, "--json", "-i", tmp_path / "in").out == plain


def test_outputs_of_three_words_are_worth_something(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("a b c\nb c\n")
    outputs = run("translate", "-m", model, "-i", tmp_path / "src", "--set", "max_length=3").out
    (tmp_path / "ref").write_text(outputs)
    command = ["evaluate", "-m", model, "-s", tmp_path / "src", "-r", tmp_path / "ref", "--set", "max_length=3"]
    bleu = json.loads(run(*command).out)["scores"][0]
    assert bleu["value"] == pytest.approx(100)
    assert "|eff:yes|" in bleu["signature"]


def test_the_bundled_model_is_known_by_name_everywhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("Good morning.\nI like books.\n")
    (tmp_path / "ref").write_text("Guten Morgen.\nIch mag Bücher.\n")
    both = ["-s", tmp_path / "src", "-t", tmp_path / "ref"]
    refused = run("lattice", "build", "-m", "bundled", *both, "--drop-in").error
    assert "Expected a model folder of your own to put tables into, found the bundled one" in refused
    assert "of your own" in run("lattice", "add", "bundled", "-m", "bundled").error
    assert run("lattice", "build", "-m", "bundled", *both, "-o", tmp_path / "tables").code == 0
    looked = run("lattice", "inspect", stdin=b"Good morning.\n")
    assert looked.code == 0
    assert "best" in looked.out


def test_translations_go_to_standard_output_while_a_bar_is_shown(model: Path, tmp_path: Path) -> None:
    """Rich takes what is printed meanwhile for itself, unless it is told not to."""
    (tmp_path / "text").write_text("a b\nc\n")
    ran = subprocess.run(
        [sys.executable, "-m", "longstride", "translate", "-m", model, "-i", tmp_path / "text"],
        env={**os.environ, "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.count("\n") == 2
    assert "translating" in ran.stderr


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    ("name", "option", "lost"),
    [
        ("translate", "--trace", "-i"),
        ("translate", "--trace", "--drafts"),
        ("translate", "--trace", "--glossary"),
        ("evaluate", "--output", "-s"),
        ("evaluate", "--output", "-r"),
        ("evaluate", "--output", "--against"),
    ],
)
def test_what_is_read_is_not_written_over(
    run: Run, model: Path, tmp_path: Path, name: str, option: str, lost: str, linked: bool
) -> None:
    given = command(name, model, tmp_path)
    if lost not in given:
        (tmp_path / "more").write_bytes(Path(str(given[2])).read_bytes())
        given += [lost, tmp_path / "more"]
    file = Path(str(given[given.index(lost) + 1]))
    before, written = file.read_bytes(), file
    if linked:
        written = tmp_path / "link"
        written.symlink_to(file)
    told = run(*given, option, written).error
    assert told == f"error: {option} expects another file than those that are read, found {written}, one of them."
    assert file.read_bytes() == before


class Terminal(io.RawIOBase):
    """What is typed; after an end (Ctrl-D) a terminal can be read on, and waits."""

    def __init__(self, *typed: bytes) -> None:
        self._typed = [*typed, b""]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        assert self._typed, "waited for a second Ctrl-D"
        said = self._typed.pop(0)
        buffer[: len(said)] = said
        return len(said)


@pytest.mark.parametrize("typed", [(), (b"a b\n", b"c\n"), (b"a b\n", b"c")])
def test_one_end_of_what_is_typed_is_enough(monkeypatch: pytest.MonkeyPatch, typed: tuple[bytes, ...]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Terminal(*typed))))
    assert input_file(Path("-")).read_bytes() == b"".join(typed)
