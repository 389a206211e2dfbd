"""Messages beside the results: the decoder that ran, hints, progress; --quiet prints none of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from longstride.cli import console, doctor
from longstride.registry import DECODERS
from longstride.runtime.choosing import make_runner
from tests.cli.conftest import Run, write_pairs
from tests.family import write_family
from tests.folders import edit_config
from tests.runtime.graphs import WHY_NOT_NATIVE

PAGE = "<html><body><h1>A <b>b</b> c</h1>\r\n<p>A B.</p>\n<code>a b</code></body></html>\n"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("family") / "model", default="greedy")


@pytest.mark.parametrize(
    ("decoder", "more", "said"),
    [
        (None, [], "decoder: greedy"),
        (None, ["--show-trace"], "decoder: greedy"),
        ("draft-verify", [], "decoder: draft-verify"),
        ("beam", [], "decoder: beam"),
        ("beam", ["--runtime", "native"], "decoder: beam"),
    ],
)
def test_the_decoder_that_ran_is_said(run: Run, family: Path, decoder: str | None, more: list[str], said: str) -> None:
    named = [] if decoder is None else ["--decoder", decoder]
    ran = run("translate", "-m", family, "--device", "cpu", *named, *more, stdin=b"a b c\n")
    assert ran.code == 0
    [line] = [line for line in ran.err.splitlines() if line.startswith("Carried out by ")]
    assert f"; {said}." in line


@pytest.mark.skipif(bool(WHY_NOT_NATIVE), reason=WHY_NOT_NATIVE or "none")
def test_all_decoders_that_ran_are_said(run: Run, family: Path) -> None:
    lines = b"a b c\n" * 20  # more than a session of them
    long = ["--set", "min_length=8", "--set", "max_length=9"]
    ran = run("translate", "-m", family, "--device", "cpu", "--batch", "1", *long, stdin=lines)
    assert "; decoders: greedy and draft-verify.\n" in ran.err
    single = run("translate", "-m", family, "--device", "cpu", "--show-trace", *long, stdin=b"a b c\n")
    assert "--decoder draft-verify drafts, and its output is the same." in single.err
    drafted = run("translate", "-m", family, "--device", "cpu", "--show-trace", *long, "--decoder", "draft-verify")
    assert "and its output is the same" not in drafted.err


def commands_of(family: Path, folder: Path) -> dict[str, list[Any]]:
    """Commands that say how they were carried out, or how far they are."""
    source, reference = write_pairs(folder, 3)
    (folder / "pairs.json").write_text(
        json.dumps([{"source": "a", "reference": "a", "errors": [{"type": "word", "contrastive": "b"}]}])
    )
    pair, on = ["-s", source, "-r", reference], ["-m", family, "--device", "cpu", "--set", "max_length=4"]
    return {
        "translate": ["translate", *on, "-i", source],
        "translate, runtime": ["translate", *on, "-i", source, "--runtime", "onnx"],
        "translate --format html": ["translate", *on, "-i", source, "--format", "html"],
        "evaluate": ["evaluate", *on, *pair],
        "exactness": ["exactness", *on, *pair],
        "contrastive": ["contrastive", folder / "pairs.json", *on[:4]],
        "bench": ["bench", *on, *pair, "-o", folder / "records.jsonl", "--decoders", "greedy", "--passes", "1"],
        "bulk": ["bulk", *on, source, folder / "out"],
        "doctor": ["doctor", "-m", family, "--runtime", "eager"],
    }


@pytest.mark.parametrize("name", [
    "translate", "translate, runtime", "translate --format html", "evaluate", "exactness", "contrastive", "bench",
    "bulk", "doctor",
])  # fmt: skip
def test_quiet_says_nothing_but_results(run: Run, family: Path, tmp_path: Path, name: str) -> None:
    command = commands_of(family, tmp_path)[name]
    told = run(*command)
    assert told.code == 0, told.err
    assert ("Carried out by " in told.err) == (name != "doctor")
    quiet = run(*command, "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert not console.quiet, "forgotten with its command"


def test_quiet_leaves_warnings_and_errors(run: Run, family: Path) -> None:
    ran = run("--quiet", "translate", "-m", family, "--device", "cpu", stdin=b"a " * 400 + b"\n")
    assert ran.err.startswith("warning: line 1 has ")
    assert "no decoder 'beem'" in run("translate", "-m", family, "--decoder", "beem", "--quiet", stdin=b"a\n").error


def test_several_outputs_in_plain_text_say_how_to_get_them(run: Run, family: Path) -> None:
    how = ["translate", "-m", family, "--device", "cpu", "--decoder", "beam", "--set", "n_best=3"]
    ran = run(*how, stdin=b"a b c\nd\n")
    assert ran.err.count("--json prints all n_best.") == 1
    as_json = run(*how, "--json", stdin=b"a b c\nd\n")
    assert "n_best" not in as_json.err
    found = [json.loads(line) for line in as_json.out.splitlines()]
    assert [len(one["n_best"]) for one in found] == [3, 3]
    assert [one["n_best"][0]["text"] for one in found] == ran.out.splitlines()
    assert "n_best" not in run(*how[:-2], stdin=b"a b c\n").err


def test_a_page_keeps_its_tags(run: Run, family: Path, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(PAGE.encode())
    how = ["translate", "-m", family, "--device", "cpu", "--format", "html", "--set", "max_length=4"]
    filed = run(*how, "-i", tmp_path / "page.html", "-o", tmp_path / "out.html")
    assert (filed.code, filed.out) == (0, "")
    assert "; decoder" in filed.err
    found = (tmp_path / "out.html").read_bytes().decode()
    assert found.startswith("<html><body><h1>")
    assert found.count("<b>") == found.count("</b>") == 1
    assert "</h1>\r\n<p>" in found
    assert found.endswith("</p>\n<code>a b</code></body></html>\n")
    assert run(*how, stdin=PAGE.encode()).out == found
    line = run("translate", "-m", family, "--device", "cpu", "--set", "max_length=4", "--whole", stdin=b"A B.\n").out
    assert f"<p>{line.strip()}</p>" in found, "limits are those of --set"
    large = "<p>A B.</p>\n" * 400  # is read by a process of its own
    assert run(*how, stdin=large.encode()).out == f"<p>{line.strip()}</p>\n" * 400


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--json"], "--format html expects no --json"),
        (["--show-trace"], "--format html expects no --show-trace"),
        (["--whole"], "--format html expects no --whole or --sentences"),
        (["--drafts", "x"], "--format html expects no --drafts"),
        (["--decoder", "beem"], "no decoder 'beem'"),
        (["--set", "widht=3"], "no option 'widht'"),
    ],
)
def test_what_a_page_has_no_use_for_is_refused(run: Run, family: Path, more: list[str], told: str) -> None:
    assert told in run("translate", "-m", family, "--format", "html", *more, stdin=PAGE.encode()).error
    assert "--format expects text or html, found 'pdf'." in run("translate", "-m", family, "--format", "pdf").error
    assert (
        "standard input: expected UTF-8, found the byte 0xff at place 1."
        in run("translate", "-m", family, "--format", "html", stdin=b"a\xff").error
    )


def test_a_page_needs_no_package_of_the_servers(family: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('fastapi', 'starlette', 'uvicorn', 'prometheus_client')));"
        "from longstride.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "translate", "-m", str(family), "--device", "cpu", "--format", "html"]
    ran = subprocess.run(command, input=PAGE, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout[:10]) == (0, "<html><bod"), ran.stderr


def test_markup_that_is_read_as_text_is_warned_of_once(run: Run, family: Path) -> None:
    how = ["translate", "-m", family, "--device", "cpu"]
    ran = run(*how, stdin=b"a < b\na <b>b</b>\n<p>c</p>\n")
    assert [line for line in ran.err.splitlines() if "markup" in line] == [
        "warning: line 2 has markup (<b>), which is read as text; --format html keeps tags."
    ]
    assert "markup" not in run(*how, stdin=b"a < b > c\n1 <3 a\n<- a ->\n").err


def test_decoders_are_a_line_each_and_one_in_full(run: Run, family: Path) -> None:
    ran = run("decoders", "-m", family)
    assert ran.code == 0
    size, *lines, last = ran.out.splitlines()
    assert "MB of weights" in size
    names = [line.partition(":")[0] for line in lines]
    assert names[0] == "greedy (default)"
    assert {"beam", "draft-verify", "copy-verify"} <= set(names)
    assert "longstride decoders NAME" in last
    for name in ("beam", "copy-verify", "greedy"):
        full = run("decoders", name, "-m", family).out
        assert full.startswith(f"{name}{' (default)' if name == 'greedy' else ''}: {DECODERS[name].summary}"), full
        assert "max_length" in full
        assert ("n_best" in full) == (name == "beam")
    assert "no decoder 'beem' (did you mean beam?); it has greedy" in run("decoders", "beem", "-m", family).error


def test_the_folders_own_defaults_are_shown(run: Run, tmp_path: Path) -> None:
    folder = write_family(tmp_path / "model")
    edit_config(folder, "decoders", "beam", "defaults", value={"width": 7})
    assert " 7 " in run("decoders", "beam", "-m", folder).out


def test_how_far_doctor_is_is_for_those_who_look_on(run: Run, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LINES", ("a b c", "b a"))
    assert run("doctor", "-m", family, "--runtime", "eager").err == ""
    monkeypatch.setattr(console, "err", Console(stderr=True, force_terminal=True))
    assert "trying runtimes" in run("doctor", "-m", family, "--runtime", "eager").err
    assert run("doctor", "-m", family, "--runtime", "eager", "--quiet").err == ""


def test_a_runtime_that_was_named_is_said_once(run: Run, family: Path) -> None:
    name = make_runner("cpu", "auto", "auto").name
    ran = run("translate", "-m", family, "--device", "cpu", "--runtime", name, stdin=b"a\n")
    assert ran.err.count("Carried out by ") == (name != "eager")
