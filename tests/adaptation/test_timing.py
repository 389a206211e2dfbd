"""The number of updates is estimated from steady ones: compiling, slow phases and noise do not decide it."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.adaptation import timing, training
from longstride.adaptation.timing import PATIENCE, EveryKind, Steady, trial
from longstride.cli.main import main
from longstride.contract import Batch, Objective, Prepared
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus, Side
from longstride.training import loop
from longstride.training.options import TrainingOptions
from longstride.training.pace import Estimate, Pace
from longstride.training.update import compiled
from tests.adaptation.tiny import SETTINGS, lines_file
from tests.folders import write_folder


@cache
def batches(seed: int, pairs: int = 200, tokens: int = 600) -> TokenBatches:
    """Return batches of sentences of 1 to 150 tokens, most of them short."""
    draw = np.random.default_rng(seed)
    rows = [[7] * int(length) for length in np.minimum(150, 1 + draw.lognormal(2.5, 1.0, pairs))]
    return TokenBatches(BinarizedCorpus(Side.of(rows), Side.of(rows[::-1])), BatchOptions(tokens=tokens, seed=seed))


class Machine:
    """Stands for the clock, and for who makes updates: one costs `each`, its kind's kernels more where there are none.

    Noise is on everything, and for a while everything is `slow` times as slow.
    """

    def __init__(self, seed: int, each: float, compiles: float, slow: float = 1.0) -> None:
        self._draw, self._each, self.compiles, self._slow = random.Random(seed), each, compiles, slow
        self._met: set[Any] = set()
        self._from = self._draw.uniform(0, 40 * each)
        self.now, self.made = 0.0, 0

    def apply(self, group: Any, rate: float) -> None:
        """Time goes by."""
        assert rate == 0, "the weights stay"
        (prepared,) = group.batches
        kind = (
            prepared.source_mask is None,
            *(-(-prepared.tensors[side].shape[1] // 64) for side in ("source", "target")),
        )
        self.now += self.compiles if kind not in self._met else 0
        self._met.add(kind)
        self.made += 1
        self.pass_time()

    def pass_time(self) -> None:
        """Let the time of an update pass."""
        busy = self._from <= self.now < self._from + 20 * self._each
        self.now += self._each * self._draw.uniform(0.8, 1.25) * (self._slow if busy else 1)


def tried(machine: Machine, data: TokenBatches, seconds: float, monkeypatch: pytest.MonkeyPatch) -> timing.Trial:
    """A trial on that machine, where layers are compiled."""
    with monkeypatch.context() as patched:
        patched.setattr(timing, "Updater", lambda *arguments: machine)
        patched.setattr(timing, "compiled", lambda *arguments: None)
        options, device = TrainingOptions(steps=1, compile="layers"), torch.device("cpu")
        found = trial(torch.nn.Linear(1, 1), Plain(None), data, 30, options, device, seconds, lambda: machine.now)
    assert found is not None
    return found


class Plain(Objective):
    """Nothing to prepare."""

    def loss(self, model: Any, prepared: Prepared) -> Any:
        """Never asked for."""
        raise NotImplementedError


@given(st.integers(0, 10**6), st.floats(0.1, 0.4), st.floats(1, 30), st.floats(1, 4))
def test_empty_kernel_caches_do_not_change_the_number_of_updates(
    seed: int, each: float, compiles: float, slow: float
) -> None:
    """Within 20 %, though the first machine compiles and is slow for a while; and what compiling took is told."""
    data, seconds, made = batches(seed % 3), 180.0, []
    cold, warm = Machine(seed, each, compiles, slow), Machine(seed + 1, each, 0.0)
    for machine in (cold, warm):
        found = tried(machine, data, seconds, pytest.MonkeyPatch())
        assert 1 / 1.5 <= found.steady.each / each <= 1.5 * slow
        assert found.compiling >= machine.compiles
        timed = machine.made - EveryKind(data, 30).kinds
        assert (timed - 1) * each * 0.8 <= PATIENCE * seconds, "no longer than it takes"
        pace = Pace(seconds, [Estimate(0, 0.0, round(seconds / found.steady.each))], lambda estimates: None)
        step, begun = 0, machine.now
        while step < pace.updates(step):
            machine.pass_time()
            step += 1
            pace.look(step, machine.now - begun)
        made.append(step)
    assert 1 / 1.2 <= made[0] / made[1] <= 1.2


@given(st.integers(0, 10**6), st.floats(0.01, 60.0), st.floats(10, 600))
def test_timing_ends_whatever_the_clock_says(seed: int, longest: float, seconds: float) -> None:
    draw, steady, taken = random.Random(seed), Steady(seconds), 0.0
    while not steady.done:
        assert taken < PATIENCE * seconds, "patience is over before"
        steady.add(reading := draw.uniform(0, longest))
        taken += reading
    least, most = steady.span
    assert least <= steady.each <= most


@given(st.floats(0.5, 2.0), st.integers(2, 16))
def test_updates_have_the_threads_that_they_are_fastest_with(gain: float, most: int) -> None:
    """One, where several wait for cores that others use; afterwards there are as many as before."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patched:
        now = [most]
        patched.setattr(torch, "get_num_threads", lambda: now[0])
        patched.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))
        assert timing._fastest(lambda count: 1.0 if now[0] == 1 else 1.0 / gain) == (most if gain >= 1 else 1)
        assert now == [most]
    assert torch.get_num_threads() == before


@given(st.integers(0, 10**6))
def test_every_kind_comes_first_and_nothing_is_left_out(seed: int) -> None:
    data = batches(seed)
    every = EveryKind(data, 30)
    found = list(every.epoch(0))
    first, rest = found[: every.kinds], found[every.kinds :]

    def of(batch: Batch) -> tuple[Any, ...]:
        return every._kind(batch)

    assert Counter(map(of, first)) == Counter(dict.fromkeys(set(map(of, rest)), 1))
    assert len(rest) == data.batches_in(0) == every.batches_in(0) - every.kinds
    assert all(torch.equal(one.index, other.index) for one, other in zip(rest, data.epoch(0), strict=True))


@pytest.fixture
def adapt(tmp_path: Path) -> Callable[..., int]:
    """Adapt a tiny model by minutes, into the folder that is named."""
    model, source = write_folder(tmp_path / "model"), lines_file(tmp_path)

    def call(name: str, *options: str) -> int:
        return main(["adapt", str(model), "-s", str(source), "-o", str(tmp_path / name), *SETTINGS[2:], *options])

    return call


def test_what_was_compiled_for_the_trial_is_trained_with(
    adapt: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not one graph more."""
    graphs: list[str] = []
    said: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append("graph")
        return graph.forward

    def tell(*arguments: Any, real: Any = trial, **named: Any) -> Any:
        found = real(*arguments, **named)
        said.append(len(graphs))
        return found

    torch.compiler.reset()
    for module in (timing, loop):
        monkeypatch.setattr(module, "compiled", partial(compiled, backend=backend))
    monkeypatch.setattr(training, "trial", tell)
    assert adapt("out", "--minutes", "0.02", "--set", "compile=layers", "--until", "train") == 0
    assert "Compiling (once per machine) took" in capsys.readouterr().err
    assert said[0] > 0
    assert len(graphs) == said[0]


def test_a_run_by_minutes_is_the_same_again_by_what_it_kept(adapt: Callable[..., int], tmp_path: Path) -> None:
    """Its estimates are in updates.json; with them, another run makes the same updates at the same rates."""
    timed = ["--minutes", "0.03", "--set", "lines=12"]  # the same lines, however fast they are decoded
    assert adapt("one", *timed, "--until", "train") == 0
    assert adapt("two", *timed, "--until", "decode") == 0
    kept = tmp_path / "one.work" / "updates.json"
    figures = json.loads(kept.read_text())
    trained = json.loads((tmp_path / "one.work" / "train.json").read_text())
    assert figures["updates"] == trained["updates"] == figures["estimates"][-1][0]
    shutil.copy(kept, tmp_path / "two.work" / "updates.json")
    assert adapt("two", *timed, "--until", "train") == 0
    one, two = (tmp_path / name / "drafted" / "drafter.safetensors" for name in ("one.work", "two.work"))
    assert one.read_bytes() == two.read_bytes()
    assert kept.read_bytes() == (tmp_path / "two.work" / "updates.json").read_bytes()
