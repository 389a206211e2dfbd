"""Numbers on the command line: every option that is one has bounds, and what lies outside them is a misuse."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from longstride import cli
from longstride.cli.options import whole_number
from longstride.contract import OptionError
from longstride.runtime.graph_runner import available_cores, check_threads
from tests.cli.conftest import Run


def numbers() -> Iterator[tuple[str, set[str | None]]]:
    """Every option of a command that is a number, and what its declaration sets."""
    for path in sorted(Path(cli.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated"):
                continue
            assert isinstance(node.slice, ast.Tuple)
            kind, declared = node.slice.elts
            if isinstance(declared, ast.Call) and re.search(r"\b(int|float)\b", ast.unparse(kind)):
                callback = {"float"} if "float" in ast.unparse(kind) else set()
                yield f"{path.name}:{node.lineno}", {keyword.arg for keyword in declared.keywords} | callback


def test_every_number_has_bounds() -> None:
    found = dict(numbers())
    assert len(found) >= 9
    assert [place for place, declared in found.items() if not declared >= {"min", "max"}] == []
    assert [place for place, declared in found.items() if "float" in declared and "callback" not in declared] == []


HUGE = ["nan", "inf", "-inf", "1e300", "-1", "99999999999999999999", "9" * 5000, "x", "", "1_0_x", "²"]


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("option", ["--batch", "--threads"])
def test_translate_refuses_numbers_out_of_range(run: Run, model: Path, option: str, value: str) -> None:
    assert option.strip("-") in run("translate", "-m", model, option, value, stdin=b"a b\n").error


@pytest.mark.parametrize("value", HUGE)
def test_memory_is_a_finite_number(run: Run, tmp_path: Path, model: Path, value: str) -> None:
    (tmp_path / "text").write_text("a b\n")
    text = ["-s", tmp_path / "text", "-t", tmp_path / "text"]
    assert "--memory" in run("lattice", "build", *text, "-m", model, "-o", tmp_path / "out", "--memory", value).error


@pytest.mark.parametrize(
    ("command", "option"), [(["bench", "-o", "x"], "--sample"), (["lattice", "recall"], "--candidates")]
)
@pytest.mark.parametrize("value", [*HUGE, "0", "a=0", "a=²", f"a={'9' * 5000}", "1,0", ","])
def test_numbers_inside_of_text_are_bounded_too(
    run: Run, model: Path, tmp_path: Path, command: list[str], option: str, value: str
) -> None:
    (tmp_path / "text").write_text("a b\n")
    text = ["-m", model, "-s", tmp_path / "text", "-r", tmp_path / "text"]
    assert f"{option} expects" in run(*command, *text, option, value).error


def test_more_threads_than_could_be_of_use_are_refused(run: Run, model: Path) -> None:
    before = torch.get_num_threads()
    said = run("translate", "-m", model, "--threads", "100000", stdin=b"a b\n").error
    assert f"on this machine of {available_cores()} cores, found 100000." in said
    assert torch.get_num_threads() == before
    for wrong in (0, -1, 10**9, 2.5, float("nan"), "many"):
        with pytest.raises(OptionError, match=r"threads expects a whole number from 1 to \d+ on this machine"):
            check_threads(wrong)  # type: ignore[arg-type]
    check_threads(None)
    check_threads(available_cores())


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({}, None),
    ],
)
def test_a_container_has_as_many_cores_as_it_is_granted(
    files: dict[str, str], cores: int | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert available_cores(tmp_path) == (cores or available_cores(tmp_path / "none"))


@pytest.mark.parametrize(
    ("decoder", "setting", "message"),
    [
        ("greedy", "max_ratio=nan", "greedy: max_ratio expects a number from 0 to 1000, found nan."),
        ("greedy", "max_ratio=inf", "greedy: max_ratio expects a number from 0 to 1000, found inf."),
        ("greedy", "max_ratio=1e300", "greedy: max_ratio expects a number from 0 to 1000, found 1e+300."),
        ("greedy", "banned=-1", "banned expects a list of whole numbers from 0 to 2147483647, found (-1,)."),
        ("greedy", "banned=99999999", "found 99999999."),
        ("greedy", "max_extra=99999999999999999999", "found 99999999999999999999."),
        ("beam", "strength=nan", "beam: strength expects a number from -10 to 10, found nan."),
        ("beam", "strength=-1e308", "beam: strength expects a number from -10 to 10, found -1e+308."),
        ("beam", "width=100000", "beam: width expects a whole number from 1 to 1000, found 100000."),
        ("copy-verify", "k=1000000", "copy-verify: k expects a whole number from 1 to 1024, found 1000000."),
        ("copy-verify", "accept=top:1,gap:nan", "accept: gap expects a number of 0 or more, found nan."),
        ("copy-verify", "accept=distance:inf", "accept: expected exact, top:B, top:B,gap:T or distance:E"),
    ],
)
def test_options_out_of_range_are_a_misuse(run: Run, model: Path, decoder: str, setting: str, message: str) -> None:
    said = run("translate", "-m", model, "--decoder", decoder, "--set", setting, stdin=b"a b\n").error
    assert message in said


def test_whole_numbers_in_text() -> None:
    assert [whole_number(text, 50) for text in ("1", " 50 ", "51", "0", "", "x", "²", "9" * 5000)] == [
        *(1, 50),
        *[None] * 6,
    ]
