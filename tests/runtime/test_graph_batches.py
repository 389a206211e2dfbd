"""In int8 a sentence's output, and its score to the last bit, do not depend on the sentences beside it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits, Source
from longstride.nn import programs
from longstride.systems.autoregressive.decoder import Beam, Greedy
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs


def refuse(message: str) -> None:
    raise AssertionError(message)


@BOTH
@settings(max_examples=8)
@given(seed=st.integers(0, 999))
def test_greedy_and_beam_search(graphs: Graphs, seed: int) -> None:
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    source, limits = random_source(4, 20, seed=seed), Limits(max_length=20)
    runner = graphs("int8", 1, tell=refuse)
    for decoder in (Greedy(model, runner), Beam([model], runner)):
        together = decoder.decode(source, limits)
        for row in range(source.rows):
            sentence = source.ids[row, : int(source.lengths[row])].tolist()  # in a rectangle of its own
            assert decoder.decode(Source.of([sentence]), limits).hypotheses[0] == together.hypotheses[row]


@BOTH
@pytest.mark.parametrize("threads", [1, 2])
def test_the_encoder_does_not_mind_padding(graphs: Graphs, threads: int) -> None:
    """Whatever the width of the rectangle, for lengths on both sides of the borders."""
    options = {"vocabulary": 97, "width": 64, "feed_forward": 256, "heads": 4, "longest": 128}
    model = tiny_model(1, torch.float32, sharpness=1.0, **options)
    runner = graphs("int8", threads, tell=refuse)
    encode_source = programs.encode_source(model)
    for length in (1, 2, 7, 15, 16, 17, 26, 35, 39):
        ids = torch.randint(5, 97, (1, length), generator=torch.Generator().manual_seed(length))
        alone = runner.call(encode_source, ids, torch.tensor([length]))
        for width in (length + 1, length + 3, 48):
            wide = torch.nn.functional.pad(ids, (0, width - length)).expand(2, -1)
            beside = runner.call(encode_source, wide, torch.tensor([length, width]))
            assert torch.equal(beside.keys[:, :1, :, :length], alone.keys), (length, width)
            assert torch.equal(beside.values[:, :1, :, :length], alone.values), (length, width)


@BOTH
def test_threads_take_turns_with_a_graph(graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of several threads: none reads what another has laid down."""
    model = tiny_model(3, torch.float32)
    runner, encode = graphs("fp32", 1), programs.encode_source(model)
    sources = [random_source(2, 7, seed=seed) for seed in range(4)]
    alone = [runner.call(encode, source.ids, source.lengths).keys for source in sources]
    (graph,) = runner.graphs.values()
    assert graph is not None
    run = graph._placement.run
    monkeypatch.setattr(graph._placement, "run", lambda: (sleep(0.05), run()))
    with ThreadPoolExecutor(len(sources)) as threads:
        together = list(threads.map(lambda source: runner.call(encode, source.ids, source.lengths).keys, sources))
    assert all(map(torch.equal, together, alone))
