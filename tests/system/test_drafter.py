"""The whole road to a drafter: a verifier that is trained, a drafter on its encoder, fewer iterations, one output."""

from __future__ import annotations

import longstride
from longstride.recipe import Outcome
from longstride.tasks.toys import generate
from tests.system.conftest import Train


def test_a_drafter_saves_iterations_and_changes_nothing(reverser: Outcome, train: Train) -> None:
    assert reverser.model is not None
    drafted = train(
        "drafter",
        "drafter",
        base=str(reverser.model),
        data__tokenizer=str(reverser.model / "tokenizer.model"),
        training__steps=200,
    )
    assert drafted.model is not None
    lines = [source for source, _ in generate("reverse", 50, seed=2, split="valid")]
    translator = longstride.load(drafted.model, device="cpu", precision="fp64")
    found = translator.translate(lines, trace=True)
    alone = longstride.load(reverser.model, device="cpu", precision="fp64").translate(lines)
    assert [line.text for line in found] == [line.text for line in alone]
    traces = [line.trace for line in found if line.trace is not None]
    committed, iterations = (sum(getattr(trace, name) for trace in traces) for name in ("committed", "iterations"))
    assert committed > 1.5 * iterations
