"""Teacher, distilled corpus, student: the second road, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import longstride
from longstride.cli.main import main
from longstride.recipe import Outcome
from longstride.tasks.toys import generate
from longstride.text.corpus import write_lines
from tests.system.conftest import Train


def test_a_student_learns_the_task_from_its_teacher_alone(reverser: Outcome, train: Train, tmp_path: Path) -> None:
    lines = {
        "train": [source for source, _ in generate("reverse", 8000, seed=2, split="train")],
        "valid": [source for source, _ in generate("reverse", 50, seed=2, split="valid")],
    }
    for name, sources in lines.items():
        write_lines(tmp_path / f"{name}.txt", sources)
        command = ["distill", "-m", str(reverser.model), "-i", str(tmp_path / f"{name}.txt")]
        options = [
            "-o",
            str(tmp_path / name),
            "--option",
            f"name={name}",
            "--option",
            "shard_lines=3000",
            "--decoder",
            "beam",
            "--set",
            "width=2",
        ]
        assert main([*command, *options, "--device", "cpu"]) == 0
    manifest = json.loads((tmp_path / "train" / "manifest.json").read_text())
    assert manifest["kept"] + manifest["dropped"] == 8000
    assert manifest["dropped"] < 80

    files = {
        f"data__{split}_{side}": str(tmp_path / split / f"{split}.{ending}")
        for split in lines
        for side, ending in (("source", "src"), ("target", "tgt"))
    }
    # Another seed, so that nothing but the distilled text connects the two.
    student = train("reverse", "student", training__seed=7, data__task="files", **files)
    assert student.model is not None
    pairs = list(generate("reverse", 200, seed=3, split="test"))
    outputs = longstride.load(student.model, device="cpu").translate([source for source, _ in pairs], batch=100)
    assert sum(one.text == target for one, (_, target) in zip(outputs, pairs, strict=True)) >= 0.97 * len(pairs)
