"""What a model offers at every place of an output, from one pass: what asking about each place gives."""

from __future__ import annotations

import torch

from longstride.contract import Batch, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.objective import likelihood
from tests.models import random_source, tiny_model


def test_offers_are_what_asking_about_each_place_gives_and_targets_may_share_a_source() -> None:
    told = likelihood(tiny_model(), EagerRunner("cpu", "fp64"))
    source = random_source(1, 9, seed=1)
    read, target, ids = source.ids[0].tolist(), [5, 7, 6, 9], [8, 5, 6]
    found = told.offers(read, target, ids)
    assert found is not None
    assert found.shape == (5, 3)
    rows = [[*target[:at], id] for at in range(5) for id in ids]
    for sources in (1, len(rows)):
        read_by, written = Source.of([read] * sources), Source.of(rows)
        batch = Batch(read_by.ids, written.ids, read_by.lengths, written.lengths, torch.arange(len(rows)))
        last = told.log_probabilities(batch).gather(1, written.lengths[:, None] - 1)
        torch.testing.assert_close(last.view(5, 3), found)
