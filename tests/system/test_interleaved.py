"""The whole road for several directions and words per step: a toy is learnt, and fewer model calls say the same."""

from __future__ import annotations

import longstride
from longstride.tasks.toys import generate
from tests.system.conftest import Train


def test_a_toy_is_learnt_from_all_ends(train: Train) -> None:
    """Two of them, two words a step; other numbers are met in tests/decoding."""
    h, c = 2, 2
    changes = {"model__interleaving__h": h, "model__interleaving__c": c, "training__steps": 800}
    outcome = train("interleaved", "run", **changes, training__validate_every=800, data__valid_pairs=300)
    assert outcome.result.scores["exact"] >= 0.95
    assert outcome.model is not None
    pairs = list(generate("reverse", 60, seed=3, split="test"))
    translator = longstride.load(outcome.model, device="cpu")
    for width in (1, 3):
        found = translator.translate([source for source, _ in pairs], width=width, trace=True, batch=60)
        assert sum(one.text == target for one, (_, target) in zip(found, pairs, strict=True)) >= 0.9 * len(pairs)
        for one in found:
            assert one.trace is not None
            assert one.trace.replay() == list(one.tokens)
            fewest = len(one.tokens) // (h * c) + 1
            assert one.trace.iterations == fewest or (width > 1 and one.trace.iterations > fewest)
