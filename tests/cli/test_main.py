"""The command as a whole: help, version, exit codes, `python -m`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import longstride
from longstride.bench import record_files as records
from longstride.cli.main import COMMANDS, COMPLETE, TASKS, load
from longstride.contract import WorkError
from tests.cli.conftest import Run


def test_version(run: Run) -> None:
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"longstride {longstride.__version__}\n")


def test_help_names_every_command(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert [name for name in COMMANDS if name not in ran.out] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_of_a_command_what_it_says_itself(command: str) -> None:
    """The list of commands is shown without importing any, so it holds their sentences once more."""
    assert load(command).help.split("\n\n")[0].replace("\n", " ") == COMMANDS[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_explains_itself(run: Run, command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    options = [line for line in ran.out.splitlines() if line.strip().startswith("-")]
    assert options


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("translate",), "An option of the decoder"),
        (("evaluate",), "An option of the decoder"),
        (("adapt",), "An option of adaptation"),
        (("train",), "A field of the recipe"),
        (("lattice", "build"), "An option of the tables"),
        (("serve",), "A limit of the server"),
    ],
)
def test_help_says_whose_options_are_set(run: Run, command: tuple[str, ...], told: str) -> None:
    assert told in " ".join(run(*command, "--help").out.split())


@pytest.mark.parametrize("command", [("shortlist",), ("lattice", "add")])
def test_the_bundled_model_is_not_offered_where_it_is_refused(run: Run, command: tuple[str, ...]) -> None:
    told = " ".join(run(*command, "--help").out.split())
    assert "Model folder, or a run's folder. [required]" in told
    assert "bundled" not in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("transalte",), "No such command 'transalte'. Did you mean 'translate'"),
        (("bench",), "Missing option '-s' / '--source'. See `longstride bench --help`."),
        (("lattice", "build", "--tabel", "x"), "No such option: --tabel"),
        (
            ("translate", "README.md"),
            "Got unexpected extra argument(s) (README.md): a file to read is named by -i FILE. See",
        ),
        (
            ("translate", "Good morning (all)."),
            "Got unexpected extra argument(s) (Good morning (all).): text comes on stdin: "
            "`echo 'Good morning (all).' | longstride translate`; a file to read is named by -i FILE. See",
        ),
        (
            ("translate", "Good", "a" * 100),
            f"Got unexpected extra argument(s) (Good {'a' * 100}): text comes on stdin: `echo 'Good morning.' | longst",
        ),
        (("decoders", "-m", "owner/name"), "owner/name: expected a model folder, found nothing; models are never down"),
        (("bench", "-s", "x", "-r", "y", "-o", "z", "--passes", "none"), "Invalid value for '--passes'"),
    ],
)
def test_a_misused_command_line_is_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("one\n")
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {told}")
    assert ran.err.count("\n") == 1


def test_nothing_asked_for_is_answered_by_three_commands_to_try(run: Run) -> None:
    ran = run()
    assert (ran.code, ran.err) == (0, "")
    tried = [line.split("longstride ")[1].split() for line in ran.out.splitlines() if line.startswith("  ")]
    assert [command for command, *_ in tried] == ["demo", "translate", "adapt"]


def test_a_group_of_commands_is_answered_by_help(run: Run) -> None:
    ran = run("lattice")
    assert ran.code == 2
    assert ran.err.count("Usage:") == 1


@pytest.mark.parametrize("group", ["lattice", "pictures"])
def test_help_of_a_group_says_the_whole_sentence_of_each_command(run: Run, group: str) -> None:
    told = " ".join(run(group, "--help").out.split())
    assert "..." not in told.replace("[ARGS]...", "")
    for name, command in load(group).commands.items():
        sentence = " ".join(command.help.split("\n\n")[0].split())
        assert f"{name} {sentence}" in told


def test_help_is_by_task(run: Run) -> None:
    told = run("--help").out
    places = [told.index(f"\n{task}:\n") for task in TASKS]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("longstride transl", ["translate"]),
        ("longstride translate --runt", ["--runtime"]),
        ("longstride translate --decoder copy", ["copy-verify"]),
        ("longstride translate --runtime nat", ["native"]),
        ("longstride translate --precision b", ["bf16"]),
        ("longstride lattice b", ["build"]),
    ],
)
def test_a_shell_completes(run: Run, monkeypatch: pytest.MonkeyPatch, line: str, found: list[str]) -> None:
    monkeypatch.setenv(COMPLETE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    ran = run()
    assert (ran.code, ran.out.split(), ran.err) == (0, found, "")


def test_completion_is_shown_to_be_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    ran = run("--show-completion")
    assert ran.code == 0
    assert COMPLETE in ran.out


def test_an_interrupted_command_gives_the_code_of_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(records, "read_records", interrupt)
    ran = run("report", "records.jsonl")
    assert (ran.code, ran.out, ran.err) == (130, "", "Interrupted.\n")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ZeroDivisionError("one of ours"),
            "internal error: ZeroDivisionError: one of ours; --debug shows the traceback;",
        ),
        (EOFError(), "internal error: EOFError: ; --debug shows"),
        (MemoryError(), "there is not enough memory for this (out of memory); a smaller batch"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes."),
            "there is not enough memory",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried 9 GiB."),
            "there is not enough memory for this (CUDA out of",
        ),
        (RecursionError("maximum depth"), "this is nested too deeply"),
        (PermissionError(13, "Permission denied", "here [1]"), "here [1]: Permission denied."),
        (OSError(28, "No space left on device"), "No space left on device."),
        (OSError(21, "Is a directory", "temporary", None, "there"), "there: Is a directory."),
        (OSError("of no number"), "of no number."),
    ],
)
def test_whatever_fails_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(records, "read_records", fail)
    ran = run("report", "records.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {told}")
    assert ran.err.count("\n") == 1
    ran = run("report", "records.jsonl", "--debug")
    assert ran.code == 1
    assert "Traceback" in ran.err


def test_work_that_fails_is_not_misuse(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise WorkError("update 7: expected finite gradients, found [none].")

    monkeypatch.setattr(records, "read_records", fail)
    ran = run("report", "records.jsonl")
    assert (ran.code, ran.err) == (1, "error: update 7: expected finite gradients, found [none].\n")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "longstride", "decoders", "-m", "nowhere"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: nowhere: expected a model folder, found nothing; models are never down")
    assert done.stdout == ""


def test_a_user_without_a_home_translates(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose id a container made up: no file says where its home is."""

    def unknown(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("LONGSTRIDE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    ran = run("translate", "-m", model, stdin=b"a b\n")
    assert ran.code == 0, ran.err
