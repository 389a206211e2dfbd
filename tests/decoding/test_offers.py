"""What a model offers at every place of an output, from one pass: what asking about each place gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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


FAMILIES: list[dict[str, object]] = [{}, {"positions": "relative"}, {"local_attention": 2}]


@pytest.mark.parametrize("family", FAMILIES)
@given(
    target=st.lists(st.integers(4, 10), max_size=6),
    asked=st.lists(
        st.tuples(st.integers(0, 6), st.lists(st.integers(4, 10), min_size=1, max_size=4)), min_size=1, max_size=5
    ),
)
def test_what_goes_on_at_a_place_is_as_likely_as_the_same_row_by_itself(
    family: dict[str, object], target: list[int], asked: list[tuple[int, list[int]]]
) -> None:
    told = likelihood(tiny_model(**family), EagerRunner("cpu", "fp64"))
    read = random_source(1, 9, seed=1).ids[0].tolist()
    places = [min(at, len(target)) for at, _ in asked]
    written = Source.of([[*target[:at], *ids] for at, (_, ids) in zip(places, asked, strict=True)])
    source = Source.of([read])
    shares = told.log_probabilities(
        Batch(source.ids, written.ids, source.lengths, written.lengths, torch.arange(len(asked)))
    )
    wanted = [float(row[at:].sum()) for at, row in zip(places, shares, strict=True)]
    assert told.continued(read, target, places, [ids for _, ids in asked]) == pytest.approx(wanted, rel=1e-9)
