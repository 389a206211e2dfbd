"""Edges are scored a portion of sentences and of logits at a time; here tensor code plays our own kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import EOS
from longstride.ops.kernels import kernels_of
from longstride.systems.lattice import kernels, scoring
from tests.lattice.kernel_checks import attended_to_two, slots_of
from tests.lattice.models import tiny_scorer
from tests.lattice.test_counts import VOCABULARY
from tests.models import random_source
from tests.nn.running_kernels import table_for


class Played:
    """The kernels in plain tensor code, which note how they are called."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.sentences: list[int] = []

    def begun(self, words: Tensor, tokens: Tensor, scale: float, places: tuple[Tensor, int]) -> Tensor:
        self.sentences.append(len(words))
        ids, column = slots_of(words)
        return places[0][places[1] + column] + scale * tokens[ids]

    def room_for_shares(self, words: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns, k = words.shape
        return torch.zeros(rows, k + 1, dtype=torch.float64), torch.zeros(
            rows, columns - 1, k, k + 1, dtype=torch.float64
        )

    def shares(self, logits: Tensor, begun: int, words: Tensor, first: Tensor, edges: Tensor) -> None:
        self.logits.append(logits)
        _, columns, k = words.shape
        following = F.pad(words, (0, 1), value=EOS)
        for place, scores in enumerate(logits.log_softmax(-1), start=begun):
            row, slot = divmod(place, columns + (columns - 1) * k)
            if slot == 0:
                first[row] = scores[following[row, 0]]
            elif slot >= columns:
                column, word = divmod(slot - columns, k)
                edges[row, column, word] = scores[following[row, column + 1]]


@pytest.mark.parametrize("slots_at_once", [1, 4, 1000])
@pytest.mark.parametrize("sentences_at_once", [1, 2, 100])
def test_portions_score_as_all_at_once(monkeypatch, slots_at_once, sentences_at_once):
    model = tiny_scorer(1, vocabulary=VOCABULARY)
    played, (rows, columns, k) = Played(), (5, 4, 3)
    slots = columns + (columns - 1) * k
    widest = max(model.options.feed_forward, 3 * model.options.width)
    monkeypatch.setattr(scoring, "MAX_LOGITS", slots_at_once * VOCABULARY)
    monkeypatch.setattr(scoring, "MAX_NUMBERS", sentences_at_once * slots * widest)
    monkeypatch.setattr(kernels, "attended_to_two", attended_to_two)
    for name in ("begun", "room_for_shares", "shares"):
        monkeypatch.setattr(kernels, name, getattr(played, name))
    source = random_source(rows, 6, seed=4)
    words = torch.randint(5, VOCABULARY, (rows, columns, k), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        encoded = scoring.encode(model, source.ids, source.lengths, True)
        expected = scoring.score_edges(model, encoded, words)
        with kernels_of(table_for(torch.device("cpu"), ["edges"])):
            found = scoring.score_edges(model, encoded, words)
    torch.testing.assert_close(found.first, expected.first)
    torch.testing.assert_close(found.edges, expected.edges)
    assert max(played.sentences) <= sentences_at_once
    assert max(len(logits) for logits in played.logits) <= slots_at_once
    # All of them in the same memory, of the same size whatever there is to score.
    (place,) = {logits.untyped_storage().data_ptr() for logits in played.logits}
    assert place
    assert {logits.untyped_storage().nbytes() for logits in played.logits} == {slots_at_once * VOCABULARY * 8}
