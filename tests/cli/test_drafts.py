"""`translate --drafts`: greedy's output in fewer iterations, by earlier outputs and translation memories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longstride.cli.resuming import Partial
from tests.cli.conftest import Run

LINES = b"a b c\n\nt s r q p\nb b b b b b b\n"
HERE = ["--device", "cpu", "--batch", "2"]


@pytest.fixture
def earlier(run: Run, model: Path) -> str:
    """Greedy's output."""
    return run("translate", "-m", model, "--decoder", "greedy", stdin=LINES).out


def iterations(trace: Path) -> list[int]:
    return [json.loads(line).get("trace", {}).get("iterations", 0) for line in trace.read_text().splitlines()]


@pytest.mark.parametrize("given", ["equal", "other", "empty"])
@pytest.mark.parametrize("piped", [False, True])
def test_earlier_outputs(run: Run, model: Path, tmp_path: Path, earlier: str, given: str, piped: bool):
    drafts = {"equal": earlier, "other": "z y\n" * 4, "empty": "\n" * 4}[given]
    (tmp_path / "drafts").write_text(drafts)
    (tmp_path / "lines").write_bytes(LINES)
    how = [
        "--drafts",
        tmp_path / "drafts",
        "--trace",
        tmp_path / "trace",
        *([] if piped else ["-i", tmp_path / "lines"]),
    ]
    ran = run("translate", "-m", model, *HERE, *how, stdin=LINES if piped else b"")
    assert (ran.code, ran.out) == (0, earlier)
    if given == "equal":
        assert max(iterations(tmp_path / "trace")) <= 3


@pytest.mark.parametrize("name", ["m.tmx", "m.tsv"])
def test_translation_memories(run: Run, model: Path, tmp_path: Path, earlier: str, name: str):
    pairs = [pair for pair in zip(LINES.decode().split("\n"), earlier.split("\n"), strict=True) if all(pair)]
    assert pairs
    units = "".join(f"<tu><tuv><seg>{one}</seg></tuv><tuv><seg>{other}</seg></tuv></tu>" for one, other in pairs)
    content = f"<tmx><body>{units}</body></tmx>" if name == "m.tmx" else "".join(f"{a}\t{b}\n" for a, b in pairs)
    (tmp_path / name).write_text(content)
    ran = run("translate", "-m", model, *HERE, "--drafts", tmp_path / name, "--trace", tmp_path / "t", stdin=LINES)
    assert (ran.code, ran.out) == (0, earlier)
    assert min(iterations(tmp_path / "t")[0], iterations(tmp_path / "t")[2]) <= 3


def test_a_run_interrupted_behind_its_last_line_comes_to_its_end(
    run: Run, model: Path, tmp_path: Path, earlier: str, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "drafts").write_text(earlier)
    how = ["-o", tmp_path / "out", "--drafts", tmp_path / "drafts", "--resume", *HERE]

    def stop(self: Partial) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Partial, "finish", stop)
        assert run("translate", "-m", model, *how, stdin=LINES).code == 130
    ran = run("translate", "-m", model, *how, stdin=LINES)
    assert ran.code == 0, ran.err
    assert (tmp_path / "out").read_text() == earlier


def test_an_interrupted_run_goes_on_with_the_drafts_of_its_lines(run: Run, model: Path, tmp_path: Path, earlier: str):
    (tmp_path / "drafts").write_text(earlier)
    (tmp_path / "lines").write_bytes(LINES)
    how = ["-i", tmp_path / "lines", "-o", tmp_path / "out", "--drafts", tmp_path / "drafts", "--resume"]
    assert run("translate", "-m", model, *HERE, *how).code == 0
    assert (tmp_path / "out").read_text() == earlier


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("few", "a\nb\n", "expected a draft for each of the 4 lines of {lines}, found 2."),
        ("many", "a\n" * 5, "expected a draft for each of the 4 lines of {lines}, found 5."),
        ("none", "", "expected a draft for each of the 4 lines of {lines}, found 0."),
        ("m.tmx", "", "line 1: expected a translation memory (TMX), found XML that cannot be read"),
        ("m.tmx", '<!DOCTYPE tmx [<!ENTITY a "a">]><tmx>&a;</tmx>', "without entities of its own, found one ('a')."),
        ("m.tsv", "\n", "expected a translation memory, found no pair of texts in it."),
        ("missing", None, "expected a text file, found none."),
    ],
)
def test_files_that_are_refused(run: Run, model: Path, tmp_path: Path, name: str, content: str | None, told: str):
    if content is not None:
        (tmp_path / name).write_text(content)
    lines = tmp_path / "lines"
    lines.write_bytes(LINES)
    ran = run("translate", "-m", model, "-i", lines, "-o", tmp_path / "out", "--drafts", tmp_path / name)
    assert told.format(lines=lines) in ran.error
    assert not (tmp_path / "out").exists()


def test_too_few_drafts_for_a_pipe(run: Run, model: Path, tmp_path: Path):
    (tmp_path / "drafts").write_text("a\n")
    ran = run("translate", "-m", model, "--drafts", tmp_path / "drafts", stdin=LINES)
    assert "drafts: expected a draft for each line of standard input, found too few of them." in ran.error


def test_what_does_not_go_together(run: Run, model: Path, tmp_path: Path):
    (tmp_path / "drafts").write_text("a\n")
    beam = run("translate", "-m", model, "--decoder", "beam", "--drafts", tmp_path / "drafts", stdin=b"a\n")
    assert "drafts expects the decoder text-verify, or none named, found beam." in beam.error
    twice = run("translate", "-m", model, "--drafts", "-", stdin=b"a\n")
    assert "--drafts expects a file where --input is standard input, found '-'." in twice.error
