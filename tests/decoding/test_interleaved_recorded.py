"""Interleaved search from recordings, held to eager steps: tables that never move and are used again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import DEFAULT_IDS, Limits, Runner
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.interleaved.greedy import Rows
from longstride.systems.interleaved.options import InterleavingOptions
from tests.decoding.interleaved import EVERY, tiny_interleaved
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source
from tests.runtime.test_cuda_graph import same, taped

EAGER = EagerRunner(precision="fp64")


def decoder(runner: Runner, seed: int, variant: dict[str, object], **options: object) -> Interleaved:
    model = runner.place(tiny_interleaved(seed, variant, sharpness=1.5))
    return Interleaved(model.model, model.interleaving, runner, InterleavedOptions(**options))  # type: ignore[arg-type]


@settings(max_examples=14)
@given(
    seed=st.integers(0, 10_000),
    variant=st.sampled_from(EVERY),
    width=st.sampled_from([1, 3]),
    end=st.sampled_from(["any-direction", "paper"]),
    dedup=st.sampled_from([0, 2]),
    batches=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    capacity=st.integers(1, 5),
    limits=LIMITS,
)
def test_repeated_recordings_decode_as_eager_steps_do(seed, variant, width, end, dedup, batches, capacity, limits):
    runner, recorder = taped()
    how = {"width": width, "n_best": min(width, 2), "end": end, "dedup": dedup}
    ours, theirs = decoder(runner, seed, variant, **how), decoder(EAGER, seed, variant, **how)
    for number, rows in enumerate(batches):
        source = random_source(rows, 6, seed=seed + number)
        same(
            ours.decode(source, limits, capacity=capacity, trace=True),
            theirs.decode(source, limits, capacity=capacity, trace=True),
        )
    assert recorder.replayed


@pytest.mark.parametrize("width", [1, 3])
def test_a_sentence_at_a_time_is_recorded_once(width):
    runner, recorder = taped()
    search = decoder(runner, 1, {"h": 2, "c": 2}, width=width)
    for seed in range(4):
        search.decode(random_source(1, 14, seed=seed))
    assert recorder.recorded == 2  # entering, and a step
    assert runner.statistics.graphs == 2
    assert runner.statistics.table_bytes > 0


@pytest.mark.parametrize("room", [10, 3000])
def test_the_host_sees_rows_whether_few_or_many_words_travel(room):
    with torch.inference_mode():
        rows = Rows(5, room, InterleavingOptions(8, 2, 1), DEFAULT_IDS, torch.device("cpu"))
        assert rows.look().done == [True] * 5
        rows.open(torch.tensor([1, 3]))
        rows.words[3, :3] = torch.tensor([7, 8, 9])
        rows.length[3], rows.filled[3], rows.log_probability[3] = 3, 4, -1.5
        seen = rows.look()
        assert seen.done == [True, False, True, False, True]
        assert seen.of(3) == ([7, 8, 9], 4, -1.5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("variant", [{"h": 2, "c": 1}, {"h": 2, "c": 2}, {"h": 4, "c": 1}, {"h": 2, "c": 2, "link": 3}])
def test_graphs_on_a_gpu_decode_as_eager_steps_do(variant, width, precision):
    def fail(message: str) -> None:
        raise AssertionError(message)

    runner = CudaGraphRunner("cuda", precision, tell=fail)
    limits = Limits(max_length=30)
    ours = decoder(runner, 3, variant, width=width)
    theirs = decoder(EagerRunner("cuda", precision), 3, variant, width=width)
    for seed in range(3):
        source = random_source(5, 9, seed=seed)
        found = ours.decode(source, limits, capacity=4)
        assert found.tokens == theirs.decode(source, limits, capacity=4).tokens
