"""The half-hour driver: updates fit into the time left, parcels come out as they went in, commands can be read."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.cli.lineup import read_entries
from longstride.cli.train import read_recipe
from longstride.contract.options import assignments
from longstride.objectives import OBJECTIVES
from longstride.registry import DECODERS
from longstride.text.files import file_sha256
from longstride.translator import split_options
from tests.folders import write_folder
from tests.house.conftest import HERE
from tests.house.test_driver import read

SECONDS = st.floats(-100, 4000)
UPDATE = st.floats(0.005, 1.0)


@pytest.fixture(scope="module")
def half_hour(drive: ModuleType) -> Iterator[SimpleNamespace]:
    """The driver and its parts as modules; conftest forgets what is under `driver`."""
    names = ("budget", "within", "parcels", "half_hour_stages", "half_hour_clocks")
    found = {name: importlib.import_module(f"driver.{name}") for name in names}
    yield SimpleNamespace(main=importlib.import_module("half_hour"), **found)
    del sys.modules["half_hour"]


@pytest.fixture
def plan(half_hour: Any, tmp_path: Path) -> Any:
    for split in ("train", "valid", "test"):
        for side in ("en", "de"):
            (tmp_path / f"{split}.{side}").write_text("a b\n")
    asked = half_hour.main.parser().parse_args(["--work", str(tmp_path / "work"), "--data", str(tmp_path)])
    return half_hour.main.planned(asked, until=1e9)


class TestBudget:
    @given(seconds=SECONDS, others=st.floats(0, 1000), part=st.floats(0.05, 1), update=UPDATE)
    def test_what_is_planned_fits(
        self, half_hour: Any, seconds: float, others: float, part: float, update: float
    ) -> None:
        cost = half_hour.budget.Cost(update)
        count = half_hour.budget.updates(seconds, cost, others, part)
        assert count == 0 or cost.least <= count <= cost.most
        assert count == 0 or others + cost.end + count * update <= seconds
        assert count == 0 or cost.start + cost.end + count * update <= seconds

    @given(seconds=SECONDS, more=st.floats(0, 1000), others=st.floats(0, 1000), update=UPDATE)
    def test_more_time_never_means_less_training(
        self, half_hour: Any, seconds: float, more: float, others: float, update: float
    ) -> None:
        cost, updates = half_hour.budget.Cost(update), half_hour.budget.updates
        assert updates(seconds + more, cost, others) >= updates(seconds, cost, others)
        assert updates(seconds, cost, others + more) <= updates(seconds, cost, others)

    @given(seconds=SECONDS, waited=st.floats(0, 1), part=st.floats(0.05, 0.95))
    def test_two_that_are_planned_one_after_the_other_fit_together(
        self, half_hour: Any, seconds: float, waited: float, part: float
    ) -> None:
        """Heads begin beside a verifier; when it is done, the drafter is given what is then left."""
        budget, verifier, heads, drafter = half_hour.budget, 105.0, 0.08, 0.04
        first = budget.updates(seconds, budget.Cost(heads), verifier, part)
        # The GPU is never idle: until the verifier is done, heads have had what it has not.
        gone = verifier + waited * first * heads
        reached = int(waited * first)
        rest = budget.left(first, reached, heads)
        second = budget.updates(seconds - gone, budget.Cost(drafter), rest)
        assert verifier + first * heads + second * drafter <= max(seconds, verifier)

    def test_as_measured(self, half_hour: Any) -> None:
        """Nine and a half minutes for all three; when the drafter begins, six are left and half of the heads."""
        stages, budget = half_hour.half_hour_stages, half_hour.budget
        heads = budget.updates(570, budget.Cost(0.08), 105, stages.HEADS_PART)
        drafter = budget.updates(370, budget.Cost(0.04), 120)
        assert 2000 < heads < 3200
        assert 4000 < drafter < 6000


class TestWithin:
    def test_the_number_is_decided_once(self, half_hour: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        module, became = half_hour.within, list[list[str]]()
        monkeypatch.setattr(module.os, "execv", lambda _, command: became.append(command))
        monkeypatch.setattr(module.time, "time", lambda: 0.0)

        def begin(until: float, *more: str) -> list[str]:
            module.main([str(tmp_path), "heads", "--until", str(until), "--update", "0.1", *more, "--", "train", "x"])
            return became[-1][3:]

        first = begin(1000)
        assert first[:2] == ["train", "x"]
        count = json.loads((tmp_path / "updates" / "heads.json").read_text())["updates"]
        assert f"training.steps={count}" in first
        assert f"training.checkpoint_every={count // 20}" in first
        assert begin(500) != first, "nothing was trained yet"
        before = begin(1000)
        (tmp_path / "heads" / "checkpoints" / "step-00000010").mkdir(parents=True)
        assert begin(500) == before == first, "a schedule that was begun stays"

    def test_others_are_counted_by_what_they_have_left(self, half_hour: Any, tmp_path: Path) -> None:
        module = half_hour.within
        assert module.needed(tmp_path, "verifier:0.1:1000") == 100
        assert module.needed(tmp_path, "heads:0.1") == 0, "nobody has decided"
        (tmp_path / "verifier").mkdir()
        (tmp_path / "verifier" / "metrics.jsonl").write_text('{"step": 50}\n{"step": 400}\n{"step": 45')
        assert module.needed(tmp_path, "verifier:0.1:1000") == pytest.approx(60)
        write_folder(tmp_path / "verifier" / "model")
        assert module.needed(tmp_path, "verifier:0.1:1000") == 0

    def test_too_little_time_is_told_as_an_interruption(self, half_hour: Any, tmp_path: Path) -> None:
        script = (str(HERE / "driver" / "within.py"), str(tmp_path), "heads", "--until", "0", "--update", "0.1", "--")
        ended = subprocess.run([sys.executable, *script, "train"], capture_output=True, check=False)
        assert ended.returncode == 130
        assert list(tmp_path.iterdir()) == []


class TestParcels:
    @pytest.mark.parametrize("most", [700, 10_000, 1_000_000])
    def test_what_is_packed_comes_out_again(self, half_hour: Any, tmp_path: Path, most: int) -> None:
        module, work, out = half_hour.parcels, tmp_path / "work", tmp_path / "out"
        write_folder(work / "verifier" / "model")
        write_folder(work / "drafter" / "model")
        (work / "drafter" / "model" / "own.bin").write_bytes(bytes(range(256)) * 9)
        (work / "drafter" / "metrics.jsonl").write_text("{}\n")
        for name, like in (("verifier", ()), ("drafter", ("verifier",))):
            made = module.pack(work, name, module.model_files(work, name), like, most)
            assert all(path.stat().st_size <= most for path in made)
            assert made == sorted(made)
            whole = tmp_path / f"{name}.tar"
            whole.write_bytes(b"".join(path.read_bytes() for path in made))
            with tarfile.open(whole) as tar:
                tar.extractall(out, filter="data")
        for path in (one for one in work.rglob("*") if one.is_file() and "parcels" not in one.parts):
            assert (out / path.relative_to(work)).read_bytes() == path.read_bytes()
        assert (tmp_path / "drafter.tar").stat().st_size < (tmp_path / "verifier.tar").stat().st_size

    def test_the_list_names_what_is_whole(self, half_hour: Any, tmp_path: Path) -> None:
        file = tmp_path / "records.jsonl"
        for text in ("a" * 30_000, "b"):
            file.write_text(text)
            half_hour.parcels.pack(tmp_path, "written", [file], most=12_000)
            half_hour.parcels.pack(tmp_path, "other", [file])
            folder = tmp_path / "parcels"
            told = [line.split() for line in (folder / "ready.txt").read_text().splitlines()]
            assert {name for name, *_ in told} == {path.name for path in folder.iterdir()} - {"ready.txt"}
            for name, size, digest in told:
                assert (folder / name).stat().st_size == int(size)
                assert file_sha256(folder / name) == digest


def commands(half_hour: Any, plan: Any) -> list[tuple[str, list[str]]]:
    """Every command of longstride, however it is begun."""
    stages = half_hour.half_hour_stages
    found = []
    making = stages.making(plan)
    for name in stages.MODELS:
        write_folder(plan.task.work / name / "model")
    assert stages.making(plan) == [], "models that are there are not made again"
    for stage in (*making, *half_hour.half_hour_clocks.clocks(plan), *stages.gathering(plan)):
        for job in stage.jobs:
            parts = list(job.command)
            if parts[:2] == ["-m", "longstride"]:
                found.append((job.name, parts[2:]))
            else:
                assert Path(parts[0]).is_file()
                found += [(job.name, parts[parts.index("--") + 1 :])] if "--" in parts else []
    return found


@pytest.mark.parametrize("dry", [False, True])
def test_every_command_can_be_read(half_hour: Any, plan: Any, dry: bool) -> None:
    found = commands(half_hour, replace(plan, dry=dry))
    assert len(found) == 4 + 2 + 2 + 3 + 4 + 3 + 1
    for name, arguments in found:
        told = read(arguments)
        if told.get("decoders"):
            for entry in read_entries(told["decoders"], models=arguments[0] == "bench"):
                split_options(DECODERS[entry.decoder].options, entry.options, entry.decoder)
        if "experiment" in told:
            assert told["experiment"].startswith("en-de half an hour")
        if arguments[0] == "train":
            recipe = read_recipe(told["recipe"], dict(assignments(told["set"])))
            assert (recipe.name, recipe.store) == (f"en-de-half-hour-{name.removeprefix('half-hour-')}", "fp16")
            assert recipe.objective["kind"] in OBJECTIVES
            assert recipe.data.batches.tokens == (
                512 if dry else 65536 if name.endswith(("teacher", "verifier")) else 32768
            )
            assert told["record"] == plan.task.records


def test_everything_needed_is_made(half_hour: Any, plan: Any) -> None:
    stages = half_hour.half_hour_stages
    every = [*stages.making(plan), *stages.gathering(plan)]
    made = {path for stage in every for job in stage.jobs for path in job.makes} | {plan.task.records}
    for stage in every:
        for job in stage.jobs:
            assert set(job.needs) <= made, f"{stage.name}/{job.name}"
            assert (job.gigabytes > 0) == (job.share > 0)


def test_only_what_is_there_is_timed(half_hour: Any, plan: Any) -> None:
    stages, clocks = half_hour.half_hour_stages, half_hour.half_hour_clocks.clocks
    assert clocks(plan) == []
    write_folder(plan.task.work / "verifier" / "model")
    names = [stage.name for stage in clocks(plan) if stage.jobs]
    assert names == ["scores", "profiles"], "a verifier alone has nobody to race with"
    write_folder(plan.task.work / stages.DRAFTER / "model")
    assert [stage.name for stage in clocks(plan)][:2] == ["race", "batches"]
    told = [part for stage in clocks(plan) for job in stage.jobs for part in job.command]
    assert any(stages.DRAFTER in part for part in told)
    assert not any(stages.HEADS in part for part in told)
    (plan.task.work / "verifier" / "model" / "config.json").unlink()
    assert clocks(plan) == [], "there is nothing to compare with"


def test_the_command_line_shows_and_refuses(half_hour: Any, tmp_path: Path, capsys: Any) -> None:
    assert half_hour.main.main(["--work", str(tmp_path / "work"), "--commands"]) == 0
    assert "within.py" in capsys.readouterr().out
    assert not (tmp_path / "work").exists()
    with pytest.raises(SystemExit):
        half_hour.main.main(["--minutes", "5", "--clocks", "6"])
