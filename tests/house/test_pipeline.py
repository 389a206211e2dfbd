"""Pipelines: what is cut goes on, what has changed is made anew; every command of the committed ones can be read."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.bench.record_files import read_records
from longstride.bench.records import Training
from longstride.cli.lineup import read_entries
from longstride.cli.main import load
from longstride.cli.train import read_recipe
from longstride.contract import InputError
from longstride.contract.options import assignments, parse
from longstride.objectives import OBJECTIVES
from longstride.recipe import check
from longstride.registry import DECODERS, split_options
from longstride.systems.lattice.build import BuildOptions
from tests.folders import write_folder

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
FILES = (
    "en-de/all",
    "en-de/half-hour",
    "summaries/all",
    "bundled/en-de/family",
    "bundled/en-de/longer",
    "super-resolution/all",
    "toy/pipeline",
)


def module(name: str, folder: Path = RECIPES) -> Any:
    """A script of the recipes."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


pipeline: ModuleType = module("pipeline")
Pipeline, Stage = pipeline.Pipeline, pipeline.Stage


@pytest.fixture(autouse=True, scope="module")
def look_often() -> Iterator[None]:
    """Stages here take milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "POLL", 0.002)
        yield


class Graph:
    """Stages that put together what others have made and a text of their own, and write down when they do so."""

    def __init__(self, folder: Path, needs: list[list[int]], beside: list[bool]) -> None:
        self.folder, self.needs, self.beside = folder, needs, beside
        self.salts = ["a"] * len(needs)
        folder.mkdir()
        for one in range(len(needs)):
            (folder / f"text-{one}").write_text(f"text {one}\n")

    @property
    def stages(self) -> list[Any]:
        folder = self.folder
        found = []
        for one, needs in enumerate(self.needs):
            inputs = [str(folder / f"text-{one}"), *(str(folder / f"made-{need}") for need in needs)]
            script = (
                f"echo in-{one} >> {folder}/trail; cat {' '.join(inputs)} > {folder}/part-{one}; "
                f"echo {self.salts[one]} >> {folder}/part-{one}; mv {folder}/part-{one} {folder}/made-{one}; "
                f"echo out-{one} >> {folder}/trail"
            )
            command = shlex.join(["sh", "-c", script])
            outputs = (str(folder / f"made-{one}"),)
            found.append(Stage(f"s{one}", (command,), tuple(inputs), outputs, beside=self.beside[one]))
        return found

    def runner(self, tell: Any = lambda text: None) -> Any:
        return pipeline.Runner(Pipeline(self.folder / "work", tuple(self.stages)), tell)

    def run(self, stop_at: int | None = None, jobs: int = 1) -> int:
        """Run all, or be interrupted when the stage of that number begins."""

        def tell(text: str) -> None:
            if text.startswith(f"s{stop_at}: begun"):
                runner.stop()

        runner = self.runner(tell)
        return int(runner.run(self.stages, jobs=jobs))

    def trail(self) -> list[str]:
        """What happened since the last look."""
        file = self.folder / "trail"
        text = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return text

    def made(self) -> list[str]:
        return [(self.folder / f"made-{one}").read_text() for one in range(len(self.needs))]

    def after(self, first: int) -> set[int]:
        """A stage and all that follow from it."""
        found = {first}
        for one, needs in enumerate(self.needs):
            if found & set(needs):
                found.add(one)
        return found


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[bool], int]:
    """What each stage needs of those before it, whether it may run beside others, and one of them."""
    count = draw(st.integers(1, 5))
    needs = [draw(st.lists(st.integers(0, one - 1), max_size=2, unique=True)) if one else [] for one in range(count)]
    return needs, draw(st.lists(st.booleans(), min_size=count, max_size=count)), draw(st.integers(0, count - 1))


@contextmanager
def somewhere() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(one): (one.stat().st_mtime_ns, one.read_bytes()) for one in folder.rglob("*") if one.is_file()}


@given(graphs(), st.sampled_from((1, 3)))
@settings(max_examples=12)
def test_interrupted_at_any_stage_and_run_again_equals_one_run(graph: Any, jobs: int) -> None:
    needs, beside, stop_at = graph
    with somewhere() as folder:
        whole, cut = Graph(folder / "whole", needs, beside), Graph(folder / "cut", needs, beside)
        assert whole.run(jobs=jobs) == 0
        assert cut.run(stop_at, jobs) == pipeline.INTERRUPTED
        finished = {one for one in cut.trail() if one.startswith("out")}
        assert cut.run(jobs=jobs) == 0
        again = {one for one in cut.trail() if one.startswith("out")}
        assert cut.made() == whole.made()
        assert len(finished & again) <= jobs, "what had ended is not made again, but for what was stopped at its end"
        assert cut.run(jobs=jobs) == 0
        assert cut.trail() == []


@given(graphs(), st.sampled_from(("command", "input", "output")))
@settings(max_examples=12)
def test_what_has_changed_is_made_anew_and_all_that_follows_from_it(graph: Any, what: str) -> None:
    needs, beside, changed = graph
    with somewhere() as folder:
        made = Graph(folder / "made", needs, beside)
        assert made.run() == 0
        made.trail()
        before = made.made()
        if what == "command":
            made.salts[changed] = "b"
        elif what == "input":
            (made.folder / f"text-{changed}").write_text("another text\n")
        else:
            (made.folder / f"made-{changed}").unlink()
        seen = snapshot(folder)
        plan = made.runner().plan(made.stages)
        pipeline.show(made.runner(), made.stages, commands=True)
        assert snapshot(folder) == seen, "a dry run writes nothing"
        assert made.run() == 0
        again = {int(one.removeprefix("out-")) for one in made.trail() if one.startswith("out")}
        # The same output made again changes nothing for those after it.
        assert again == (made.after(changed) if what != "output" else {changed})
        assert {int(name[1:]) for name in plan} == made.after(changed)
        assert (made.made() == before) == (what == "output")
        aside = {int(one.name.split("-")[1].split(".")[0]) for one in made.folder.glob("made-*.old")}
        assert aside == (again if what != "output" else set()), "what was made of something else is kept"


@given(graphs())
@settings(max_examples=12)
def test_stages_wait_for_what_they_need_and_run_alone_unless_they_may_not(graph: Any) -> None:
    needs, beside, _ = graph
    with somewhere() as folder:
        made = Graph(folder / "made", needs, beside)
        assert made.run(jobs=3) == 0
        trail = made.trail()
        for one, others in enumerate(needs):
            assert all(trail.index(f"out-{other}") < trail.index(f"in-{one}") for other in others)
            if not beside[one]:
                assert trail.index(f"out-{one}") == trail.index(f"in-{one}") + 1
                assert all(trail.index(f"out-{other}") < trail.index(f"in-{one}") for other in range(one))


def run(tmp_path: Path, text: str, *arguments: str) -> int:
    """A pipeline file, in this process."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"vars: {{work: {tmp_path / 'work'}}}\n{text}")
    return int(pipeline.main([str(file), *arguments]))


CHAIN = """
stages:
  a: {command: "sh -c 'echo {x} > {work}/a'", outputs: ["{work}/a"], with: {x: 1}, minutes: 1}
  b: {command: "cp {work}/a {work}/b", outputs: ["{work}/b"], minutes: 5}
  c: {command: "cp {work}/b {work}/c-{one}", outputs: ["{work}/c-{one}"], foreach: {one: [x, y]}}
"""


def test_stages_are_chosen_by_name(tmp_path: Path, capsys: Any) -> None:
    work = tmp_path / "work"
    assert run(tmp_path, CHAIN, "--only", "c/x") == 1
    assert f"c/x: not begun, needs {work}/b, which b makes" in capsys.readouterr().out
    assert run(tmp_path, CHAIN, "--only", "a,b") == 0
    assert not (work / "c-x").exists()
    assert run(tmp_path, CHAIN, "--from", "c", "--only", "*/y") == 0
    assert {one.name for one in work.glob("c-*")} == {"c-y"}
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, CHAIN, "--only", "d")
    assert "expected one of the stages a, b, c, found no such stage" in capsys.readouterr().err


def test_what_does_not_fit_into_the_time_is_not_begun(tmp_path: Path, capsys: Any) -> None:
    assert run(tmp_path, CHAIN, "--minutes", "3") == 0
    assert "b: not begun, 5 minutes are more than are left\n3 stages left" in capsys.readouterr().out
    assert run(tmp_path, CHAIN) == 0
    assert run(tmp_path, CHAIN, "--minutes", "0") == 0, "what is done takes no time"
    assert run(tmp_path, CHAIN, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 of 4 stages to do")


def test_what_is_there_may_be_taken_as_done(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a").write_text("brought along")
    assert run(tmp_path, CHAIN, "--touch") == 0
    assert run(tmp_path, CHAIN) == 0
    assert (tmp_path / "work" / "c-x").read_text() == "brought along"


def test_a_stage_that_fails_stops_those_that_need_it_alone(tmp_path: Path, capsys: Any) -> None:
    text = """
stages:
  bad: {command: ["sh -c 'echo so it goes; exit 3'"], outputs: ["{work}/bad"]}
  next: {command: "cp {work}/bad {work}/next", outputs: ["{work}/next"]}
  other: {command: "sh -c 'echo > {work}/other'", outputs: ["{work}/other"]}
  liar: {command: ["true", "true"], outputs: ["{work}/liar"]}
"""
    assert run(tmp_path, text) == 1
    told = capsys.readouterr().out
    told = re.sub(r"after [\d.]+ minutes", "after some minutes", told)
    assert "bad: failed after some minutes with exit code 3" in told
    assert "\nso it goes\n" in told
    assert f"next: not begun, needs {tmp_path / 'work'}/bad, which bad makes" in told
    assert f"liar: failed after some minutes with no {tmp_path / 'work'}/liar" in told
    assert told.splitlines()[-1] == "failed: bad, next, liar"
    assert (tmp_path / "work" / "other").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stages: {a: {comand: x}}", "stages.a: expected one of use, with, .*, found 'comand'"),
        ("stages: {a: {command: '{what}'}}", r"expected a value for \{what\}, found none"),
        ("stages: {a: {command: '{x}', with: {x: '{x}'}}}", "expected values that end"),
        ("stages: {a: {use: b}}", "expected a template to use \\(there is none\\), found 'b'"),
        (
            "stages: {a: {command: c, outputs: [x]}, b: {command: c, outputs: [./x]}}",
            "expected one stage that makes x, found a and b",
        ),
        ("stages: {a: {outputs: [x]}}", "stages.a: expected a command, found none"),
        ("stages: [", "expected a pipeline in YAML, found none"),
        ("stage: {}", "expected one of about, jobs, .*, found 'stage'"),
        ("stages: {a: {command: no-such-program x}}", "no-such-program: expected a program"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, capsys: Any, text: str, told: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, text)
    assert re.search(told, " ".join(capsys.readouterr().err.split()))


def test_variables_are_checked(tmp_path: Path) -> None:
    for arguments in (["--set", "wrk=x"], ["--set", "work"]):
        with pytest.raises(SystemExit, match="2"):
            run(tmp_path, CHAIN, *arguments)
    file = tmp_path / "none.yaml"
    file.write_text("stages: {}")
    with pytest.raises(InputError, match="expected `work`"):
        pipeline.read_pipeline(file, {})


def wait_for(path: Path) -> None:
    for _ in range(2000):
        if path.exists():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} never came")


@pytest.mark.parametrize(
    ("how", "behind"),
    [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGKILL, False)],
)
def test_a_runner_that_is_killed_goes_on_when_it_is_run_again(
    tmp_path: Path, capsys: Any, how: signal.Signals, behind: bool
) -> None:
    """Asked, it passes the request on; killed outright, nobody else begins until its commands have ended.

    `behind`: begun by a script with `&`, which has what it begins ignore Ctrl-C.
    """
    script = (
        "trap 'echo > {work}/heard; exit 130' INT; echo > {work}/begun; until test -e {work}/go; do sleep 0.05; done"
    )
    text = f"""
stages:
  a: {{command: "sh -c 'echo > {{work}}/a'", outputs: ["{{work}}/a"]}}
  b: {{command: ["sh -c \\"{script}\\"", "cp {{work}}/a {{work}}/b"], outputs: ["{{work}}/b"]}}
"""
    work = tmp_path / "work"
    (tmp_path / "pipeline.yaml").write_text(f"vars: {{work: {work}}}\n{text}")
    command = [sys.executable, str(RECIPES / "pipeline.py"), str(tmp_path / "pipeline.yaml")]
    if behind:
        command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_for(work / "begun")
        if behind:
            process.send_signal(signal.SIGINT)  # is not for it
        process.send_signal(how)
    if how == signal.SIGKILL:
        with pytest.raises(SystemExit, match="2"):
            run(tmp_path, text)
        assert "found another run at it" in capsys.readouterr().err
    else:
        assert process.returncode == pipeline.INTERRUPTED
        assert (work / "heard").exists()
    assert not (work / "b").exists()
    (work / "go").touch()
    with (work / "stages" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the last command ends
    assert run(tmp_path, text) == 0
    assert (work / "b").exists()
    assert "a: begun" not in capsys.readouterr().out


def test_what_still_runs_when_the_time_is_over_can_be_interrupted(tmp_path: Path) -> None:
    stages = (
        Stage("long", ("sleep 600",), beside=True),
        Stage("late", ("true",), minutes=5, beside=True),
    )
    runner = pipeline.Runner(Pipeline(tmp_path, stages), lambda text: runner.stop() if "not begun" in text else None)
    begun = time.monotonic()
    assert runner.run(stages, minutes=1, jobs=2) == pipeline.INTERRUPTED
    assert time.monotonic() - begun < 300


# The pipelines of the repository.


@cache
def committed(name: str) -> Any:
    return pipeline.read_pipeline(RECIPES / f"{name}.yaml", {})


cached_load = cache(load)


def read(words: list[str]) -> dict[str, Any]:
    """What the command line makes of a command, without running it."""
    command, *rest = words
    found = cached_load(command)
    if hasattr(found, "commands"):
        found, rest = found.commands[rest[0]], rest[1:]
    return dict(found.make_context(command, rest).params)


def commands(name: str) -> Iterator[tuple[Any, list[str]]]:
    for stage in committed(name).stages:
        for command in stage.commands:
            yield stage, shlex.split(command)


@pytest.mark.parametrize("name", FILES)
def test_every_command_can_be_read(name: str) -> None:
    for stage, (program, *words) in commands(name):
        if program == "python":
            assert words[0] == "-c" or (ROOT / words[0]).is_file(), stage.name
            continue
        assert program == "longstride"
        told = read(words)
        if told.get("decoders"):
            for entry in read_entries(told["decoders"], models=words[0] == "bench"):
                assert entry.decoder in DECODERS, stage.name
                split_options(DECODERS[entry.decoder].options, entry.options, entry.decoder)
        if words[:2] == ["lattice", "build"]:
            parse(BuildOptions, dict(assignments(told["set"])), stage.name)


@pytest.mark.parametrize("name", FILES)
def test_every_recipe_is_there_and_has_the_options_that_are_set(name: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a b\n")
    files = {f"{split}_{side}": str(text) for split in ("train", "valid") for side in ("source", "target")}
    names = set()
    for stage, (program, *words) in commands(name):
        if program != "longstride" or words[0] != "train":
            continue
        told = read(words)
        recipe = read_recipe(ROOT / told["recipe"], dict(assignments(told["set"])))
        names.add(recipe.name)
        training = recipe.training
        if training.average == "last" and training.steps:
            apart = (training.average_count - 1) * training.checkpoint_every
            assert apart <= training.average_span * training.steps, f"{stage.name}: averages too much of its run"
        kind = OBJECTIVES[recipe.objective["kind"]]
        parse(kind.options, {key: value for key, value in recipe.objective.items() if key != "kind"}, stage.name)
        if not kind.needs_base:
            shallow = {**recipe.model, "encoder_layers": 1, "decoder_layers": 1}  # quickly built
            check(replace(recipe, data=replace(recipe.data, **files), model=shallow, warm_start=""))
    assert len(names) == sum("train" in words[:2] for _, words in commands(name)), "every model has a name of its own"


@pytest.mark.parametrize("name", FILES)
def test_everything_that_a_stage_reads_is_made_before(name: str) -> None:
    found = committed(name)
    for stage, (_, *words) in commands(name):
        own = (*stage.inputs, *stage.outputs, stage.folder, str(found.work / "records.jsonl"), str(found.work))
        for word in words if words[0] != "-c" else ():
            path = word.partition("=")[2] or word
            if path.startswith(f"{found.work}/"):
                assert any(one == path or one.startswith(f"{path}/") for one in own), f"{stage.name}: {path}"
        assert stage.minutes > 0 or stage.name == "text"


def test_the_half_hour_is_trained_as_it_was_measured() -> None:
    measured = {
        one.name: one.steps
        for one in read_records([ROOT / "benchmarks/results/en-de-half-hour.jsonl"])
        if isinstance(one, Training)
    }
    asked = {}
    for _, (program, *words) in commands("en-de/half-hour"):
        if program == "longstride" and words[0] == "train":
            told = read(words)
            recipe = read_recipe(ROOT / told["recipe"], dict(assignments(told["set"])))
            asked[recipe.name] = recipe.training.steps
    assert asked == measured
    assert sum(stage.minutes for stage in committed("en-de/half-hour").stages) < 30 + 5.4, "heads run beside others"


def test_toys_go_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    few = (
        "--set training.steps=4 --set training.checkpoint_every=2 --set training.schedule.warmup=1 --set data.pairs=60"
    )
    changes = (
        "--set",
        f"work={tmp_path}",
        "--set",
        f"extra={few} --set validation.sentences=2",
        "--set",
        "sentences=3",
    )
    arguments = [str(RECIPES / "toy/pipeline.yaml"), *changes, "--only", "text,reverse,drafts/blockwise,report"]
    assert pipeline.main(arguments) == 0, capsys.readouterr().out
    assert "toy-reverse" in (tmp_path / "report" / "results" / "training.md").read_text()
    assert [one.name for one in read_records([tmp_path / "records.jsonl"])] == ["toy-reverse", "toy-blockwise"]
    capsys.readouterr()
    assert pipeline.main([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 of 4 stages to do")


def test_collected_models_are_told_in_the_manifest(tmp_path: Path) -> None:
    work, store = tmp_path / "work", tmp_path / "store"
    write_folder(work / "teacher" / "model")
    write_folder(work / "teacher.old" / "model")
    (work / "teacher" / "recipe.yaml").write_text("name: tiny\n")
    (work / "unfinished").mkdir()
    (work / "distilled" / "valid").mkdir(parents=True)
    for name in ("valid.src", "valid.tgt", "manifest.json"):
        (work / "distilled" / "valid" / name).write_text(name)
    store.mkdir()
    (store / "MANIFEST.json").write_text('{"older": {"about": "kept"}}')
    collect = module("collect", RECIPES / "en-de").collect
    assert collect(work, store) == ["teacher"]
    manifest = json.loads((store / "MANIFEST.json").read_text())
    assert set(manifest) == {"older", "teacher", "distilled"}
    assert set(manifest["teacher"]) == {"about", "recipe", "commit", "model_sha256", "files", "scores", "records"}
    assert set(manifest["distilled"]["valid"]) == {"valid.src", "valid.tgt"}
    assert (store / "teacher" / "recipe.yaml").is_file()
    assert collect(work, store) == [], "nothing new"
