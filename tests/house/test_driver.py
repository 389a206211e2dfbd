"""The English-German driver: every command it would run can be read by the command line, and jobs run when they may."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from longstride.cli.lineup import read_entries
from longstride.cli.main import load
from longstride.cli.train import read_recipe
from longstride.contract.options import assignments
from longstride.objectives import OBJECTIVES
from longstride.recipe import check
from longstride.registry import DECODERS
from longstride.translator import split_options
from tests.folders import write_folder
from tests.house.conftest import Runs


@pytest.fixture
def task(drive: ModuleType, tmp_path: Path) -> Any:
    for split in ("train", "valid", "test"):
        for side in ("en", "de"):
            (tmp_path / f"{split}.{side}").write_text("a b\n")
    return drive.Task(tmp_path / "work", data=tmp_path)


def commands(drive: ModuleType, task: Any) -> list[tuple[str, list[str]]]:
    """Every command of longstride, however it is begun."""
    found = []
    for stage in drive.stages(task):
        for job in stage.jobs:
            parts = list(job.command)
            if parts[:2] == ["-m", "longstride"]:
                found.append((f"{stage.name}/{job.name}", parts[2:]))
            else:
                assert Path(parts[0]).is_file()
                if "--" in parts:
                    found.append((f"{stage.name}/{job.name}", parts[parts.index("--") + 1 :]))
    return found


def read(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of a command, without running it."""
    command, *rest = arguments
    found = load(command)
    if hasattr(found, "commands"):
        found, rest = found.commands[rest[0]], rest[1:]
    return dict(found.make_context(command, rest).params)


def test_every_command_can_be_read(drive: ModuleType, task: Any) -> None:
    found = commands(drive, task)
    assert len(found) > 150
    for name, arguments in found:
        told = read(arguments)
        if told.get("decoders"):
            for entry in read_entries(told["decoders"], models=arguments[0] == "bench"):
                assert entry.decoder in DECODERS, name
                split_options(DECODERS[entry.decoder].options, entry.options, entry.decoder)


def test_every_recipe_is_there_and_has_the_options_that_are_set(drive: ModuleType, task: Any) -> None:
    for name, arguments in commands(drive, task):
        if arguments[0] != "train":
            continue
        told = read(arguments)
        recipe = read_recipe(told["recipe"], dict(assignments(told["set"])))
        assert recipe.name.startswith("en-de-"), name
        data = replace(
            recipe.data, train_source=str(task.text("train", "en")), train_target=str(task.text("train", "de"))
        )
        data = replace(data, valid_source=data.train_source, valid_target=data.train_target)
        if not OBJECTIVES[recipe.objective["kind"]].needs_base:
            shallow = {**recipe.model, "encoder_layers": 1, "decoder_layers": 1}  # quickly built
            check(replace(recipe, data=data, model=shallow, warm_start=""))


def test_names_are_unique_and_everything_needed_is_made(drive: ModuleType, task: Any) -> None:
    stages = drive.stages(task)
    assert len({stage.name for stage in stages}) == len(stages)
    made = {path for stage in stages for job in stage.jobs for path in job.makes} | {task.records}
    for stage in stages:
        assert len({job.name for job in stage.jobs}) == len(stage.jobs), stage.name
        for job in stage.jobs:
            assert set(job.needs) <= made, f"{stage.name}/{job.name}: {set(job.needs) - made}"
    outputs = [set(job.makes) for stage in stages for job in stage.jobs if job.checkpoints]
    assert sum(map(len, outputs)) == len(set().union(*outputs)), "no two trainings write into one folder"


def test_every_job_on_the_gpu_says_what_memory_it_takes(drive: ModuleType, task: Any) -> None:
    for stage in drive.stages(task):
        for job in stage.jobs:
            assert (job.gigabytes > 0) == (job.share > 0), f"{stage.name}/{job.name}"
            assert job.gigabytes < sys.modules["driver.room"].Limits().memory / 2, "two of any fit"
    jobs = {job.name: job for stage in drive.stages(task) for job in stage.jobs}
    assert jobs["drafter-shared-k30-2-short"].gigabytes > jobs["drafter-shared-2-short"].gigabytes > 15
    assert jobs["interleaved-small-c8"].gigabytes == jobs["interleaved-small"].gigabytes == 12.3


def test_stages_say_what_they_come_after(drive: ModuleType, task: Any) -> None:
    by_name = {stage.name: stage for stage in drive.stages(task)}
    assert by_name["verifier"].needs(list(by_name.values())) == ["teacher", "prepare-distilled"]
    assert "interleaved-base" in by_name["evaluate-interleaved"].needs(list(by_name.values()))
    expected = ("teacher", "distil", "verifier", "students", "heads", "drafter", "drafter-blocks", "exactness", "bench")
    for name in expected:
        assert name in by_name


def test_stages_families_and_jobs_can_be_chosen(drive: ModuleType, task: Any) -> None:
    stages = drive.stages(task)
    assert [one.name for one in drive.chosen(stages, ["teacher", "blockwise"])] == [
        "teacher",
        "heads",
        "heads-fine-tuned",
    ]
    (one,) = drive.chosen(stages, ["nat/*-6"])
    assert ([job.name for job in one.jobs], one.partial) == (["nat-small-6"], True)
    order = drive.chosen(stages, ["nat/*-6", "lattice-base", "nat"])
    assert [(one.name, len(one.jobs)) for one in order] == [("nat", 1), ("lattice-base", 1), ("nat", 5)], "as asked"
    for name in ("nothing", "nat/nothing"):
        with pytest.raises(ValueError, match="there is no stage"):
            drive.chosen(stages, [name])


def test_what_the_page_chooses_is_there(drive: ModuleType, task: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in page.splitlines() if "--only " in line and line.startswith("$") and "bundled" not in line]
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line, comments=True)
        names = words[words.index("--only") + 1].replace(" ", "").split(",")
        assert drive.chosen(drive.stages(task), names), line


def test_the_race_of_all_decoders_may_be_shortened(drive: ModuleType, tmp_path: Path) -> None:
    def command(**more: Any) -> list[str]:
        made = drive.Task(tmp_path, **more)
        (stage,) = drive.chosen(drive.stages(made), ["bench-together"])
        return list(stage.jobs[0].command)

    whole, short = command(runtime="cuda-graph"), command(runtime="cuda-graph", sentences=500, passes=2)
    assert "--sample" not in whole
    assert whole[-2:] == ["--passes", "3"]
    assert short[-4:] == ["--sample", "500", "--passes", "2"]
    assert command()[-4:] == ["--sample", "200", "--passes", "1"], "what is not captured is slow"
    decoders = read_entries(short[short.index("--decoders") + 1], models=True)
    assert len(decoders) == sum(map(len, sys.modules["driver.measuring"].TOGETHER.values()))


def test_what_is_given_counts_as_done(drive: ModuleType, tmp_path: Path) -> None:
    given = tmp_path / "given"
    write_folder(given / "teacher")
    (given / "distilled" / "valid").mkdir(parents=True)
    (given / "distilled" / "valid" / "manifest.json").write_text("{}")
    task = drive.Task(tmp_path / "work", given=(given,))
    done = {
        stage.name
        for stage in drive.stages(task)
        if all(sys.modules["driver.schedule"].done(task.work, stage, job) for job in stage.jobs)
    }
    assert done == {"teacher", "distil-valid"}
    assert task.model("teacher") == given / "teacher"
    assert task.model("verifier") == tmp_path / "work" / "verifier"


def test_the_command_line_lists_and_shows(drive: ModuleType, tmp_path: Path, capsys: Any) -> None:
    assert drive.main(["--work", str(tmp_path), "--only", "teacher,verifier", "--list"]) == 0
    assert "verifier: to do, 1 jobs, estimated" in capsys.readouterr().out
    assert drive.main(["--work", str(tmp_path), "--only", "verifier", "--commands"]) == 0
    assert "python -m longstride train" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        drive.main(["--only", "nothing"])


def test_jobs_wait_for_what_they_need(runs: Runs) -> None:
    made = runs.work / "made.txt"
    runs.add("second", f"open({str(runs.work / 'copy.txt')!r}, 'w').write(open({str(made)!r}).read())", needs=(made,))
    runs.add("first", f"open({str(made)!r}, 'w').write('here')", makes=(made,))
    runs.add("never", "", needs=(runs.work / "nothing.txt",))
    assert runs.run() == 0
    assert (runs.work / "copy.txt").read_text() == "here"
    assert runs.done() == {"first", "second"}
    assert any(f"stage-never/never: not begun, waits for {runs.work / 'nothing.txt'}" in line for line in runs.told)
    book = [json.loads(line) for line in (runs.work / "minutes.jsonl").read_text().splitlines()]
    assert [(line["job"], line["code"]) for line in book] == [("first", 0), ("second", 0)]
    runs.told.clear()
    assert runs.run() == 0
    assert not any("begun, estimated" in line for line in runs.told), "what is done is not run again"


def test_files_that_others_bring_can_be_waited_for(runs: Runs) -> None:
    brought = runs.work / "brought.txt"
    runs.add("waiting", "", needs=(brought,))
    assert runs.run() == 0
    assert runs.done() == set()
    bringer = threading.Timer(0.5, brought.touch)
    bringer.start()
    assert runs.run(patience=1.0) == 0
    bringer.join()
    assert runs.done() == {"waiting"}
    runs.add("never", "", needs=(runs.work / "nothing.txt",))
    assert runs.run(patience=0.005) == 0


def test_a_failed_job_is_tried_again_and_holds_nobody_up(runs: Runs) -> None:
    flag = str(runs.work / "flag")
    runs.add(
        "flaky", f"import os, sys; there = os.path.exists({flag!r}); open({flag!r}, 'w'); sys.exit(0 if there else 3)"
    )
    runs.add("broken", "import sys; sys.exit(2)")
    runs.add("fine", "")
    assert runs.run(retries=1) == 1
    assert runs.done() == {"flaky", "fine"}
    assert any("stage-broken/broken: failed with exit code 2" in line for line in runs.told)


def test_a_failed_job_waits_until_another_has_ended(runs: Runs) -> None:
    """What it failed for, want of memory say, would be there again."""
    book = runs.work / "book"
    runs.add("long", f"import time; time.sleep(1.2); open({str(book)!r}, 'a').write('long ')")
    runs.add("failing", f"import sys; open({str(book)!r}, 'a').write('failing '); sys.exit(1)")
    assert runs.run(retries=2) == 1
    assert book.read_text().split() == ["failing", "long", "failing", "failing"], "with nothing beside it, at once"


def test_no_more_runs_at_once_than_the_gpu_has_room_for(runs: Runs) -> None:
    book = str(runs.work / "book")
    code = f"import time; open({book!r}, 'a').write('+'); time.sleep(0.3); open({book!r}, 'a').write('-')"
    for name in ("a", "b"):
        runs.add(name, code, share=1.0)
    assert runs.run() == 0
    assert Path(book).read_text() == "+-+-"
    Path(book).unlink()
    for name in ("c", "d"):
        runs.add(name, code, share=0.6)
    assert runs.run() == 0
    assert Path(book).read_text()[:2] == "++"


def test_what_others_wait_for_is_begun_first(runs: Runs) -> None:
    book = str(runs.work / "book")
    code = "import time; open({book!r}, 'a').write({name!r}); time.sleep(0.2)"
    for name in ("score", "again"):
        runs.add(name, code.format(book=book, name=name[0]), share=1.0)
    runs.add("training", code.format(book=book, name="t"), share=1.0, checkpoints=True)
    assert runs.run() == 0
    assert Path(book).read_text() == "tsa"


def test_what_gathers_comes_last(runs: Runs) -> None:
    book = str(runs.work / "book")
    runs.add("report", f"open({book!r}, 'a').write('last')", last=True)
    runs.add("work", f"import time; time.sleep(0.3); open({book!r}, 'a').write('first ')")
    for _ in range(2):
        assert runs.run() == 0
    assert Path(book).read_text() == "first lastlast", "and every time"


@pytest.mark.parametrize("deaf", [False, True])
def test_stopped_trainings_leave_a_checkpoint(runs: Runs, deaf: bool) -> None:
    """Also where the driver was put in the background, which a shell makes deaf to interrupts."""
    kept = str(runs.work / "kept")
    code = f"""
import sys, time
try:
    open({kept!r} + ".begun", "w").close()
    time.sleep(60)
except KeyboardInterrupt:
    open({kept!r}, "w").close()
    sys.exit(130)
"""
    runs.add("training", code, checkpoints=True)
    runs.add("later", "", needs=(Path(kept),))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if deaf else signal.default_int_handler)
    try:
        assert runs.run(stop_after=0.04) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert Path(kept).exists()
    assert runs.done() == set()
    assert any("run again to go on" in line for line in runs.told)


def test_who_was_told_to_end_says_so(runs: Runs) -> None:
    """A driver of several schedules must not begin the next one then."""
    runs.add("work", "import os, signal; os.kill(os.getppid(), signal.SIGINT)")
    schedule = runs.schedule()
    assert not schedule.told_to_end
    schedule.run()
    assert schedule.told_to_end
    assert any("stopping: interrupted" in line for line in runs.told)


def test_collected_models_are_told_in_the_manifest(drive: ModuleType, tmp_path: Path) -> None:
    work, store = tmp_path / "work", tmp_path / "store"
    write_folder(work / "teacher" / "model")
    (work / "teacher" / "recipe.yaml").write_text("name: tiny\n")
    (work / "unfinished").mkdir()
    (work / "distilled" / "valid").mkdir(parents=True)
    for name in ("valid.src", "valid.tgt", "manifest.json"):
        (work / "distilled" / "valid" / name).write_text(name)
    store.mkdir()
    (store / "MANIFEST.json").write_text('{"older": {"about": "kept"}}')
    module = sys.modules["driver.collect"]
    assert module.collect(work, store) == ["teacher"]
    manifest = json.loads((store / "MANIFEST.json").read_text())
    assert set(manifest) == {"older", "teacher", "distilled"}
    assert set(manifest["teacher"]) == {"about", "recipe", "commit", "model_sha256", "files", "scores", "records"}
    assert set(manifest["distilled"]["valid"]) == {"valid.src", "valid.tgt"}
    assert (store / "teacher" / "recipe.yaml").is_file()
    assert module.collect(work, store) == [], "nothing new"


def test_what_reads_a_clock_runs_alone_whatever_may_be_given_out(drive: ModuleType, tmp_path: Path) -> None:
    jobs, schedule = sys.modules["driver.jobs"], sys.modules["driver.schedule"]
    trail = tmp_path / "trail"
    script = (
        f"import time; trail = open({str(trail)!r}, 'a', buffering=1); "
        "trail.write('in\\n'); time.sleep(0.3); trail.write('out\\n')"
    )
    shares = (("a", 0.2), ("clock", sys.modules["driver.commands"].TIMING), ("b", 0.2))
    stage = jobs.Stage("s", "f", tuple(jobs.Job(name, ("-c", script), 0.1, share) for name, share in shares))
    assert schedule.Schedule([stage], tmp_path, schedule.Limits(share=9.0), lambda text: None).run() == 0
    assert trail.read_text().split() == ["in", "out"] * 3
