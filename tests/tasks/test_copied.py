"""What the copying of is measured stands in the sentences that are translated for it."""

from __future__ import annotations

import random
import runpy
from itertools import islice
from pathlib import Path

import pytest

MADE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "copied.py"))
CORPORA = [
    [("Tom paid 300 euros.", "Tom zahlte 300 Euro."), ("It rains.", "Es regnet.")],
    [("Mrs Lulling left.", "Frau Lulling ging.")],
]


@pytest.mark.parametrize("kind", [*MADE["INVENTED"], "emoji", "tags"])
def test_what_is_wanted_stands_in_the_source(kind: str) -> None:
    given = list(islice(MADE["sentences"](CORPORA, kind, random.Random(1)), 50))
    lines = {source for corpus in CORPORA for source, _ in corpus}
    for source, wanted in given:
        assert all(one in source for one in wanted)
        assert source not in lines
    begun = {"numbers": {"Tom paid "}, "names": {"Mrs "}}.get(kind, set())  # what stands before a number, and a name
    assert all(source.startswith(tuple(begun)) for source, _ in given if begun)
