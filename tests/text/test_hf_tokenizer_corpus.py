"""The same on real text: 20,000 lines of a corpus through every family's tokenizer, trained on another part of it."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from longstride.text.corpus import read_lines
from longstride.text.hf_tokenizer import read_hf_tokenizers
from tests.text.hf_folders import FAMILIES
from tests.text.test_hf_tokenizer import theirs_decode, theirs_of

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not os.environ.get("LONGSTRIDE_DATA"), reason="needs LONGSTRIDE_DATA"),
]
TRAINING, COMPARED = 5_000, 20_000


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_theirs_on_a_corpus(family: str, language: str, tmp_path: Path) -> None:
    file = Path(os.environ["LONGSTRIDE_DATA"]) / "europarl_en_de" / f"train.{language}.xz"
    lines = list(islice(read_lines(file), TRAINING + COMPARED))
    folder = FAMILIES[family](tmp_path / "folder", lines=lines[:TRAINING], size=4_000)
    theirs, ours, compared = theirs_of(folder), read_hf_tokenizers(folder), lines[TRAINING:]
    ids = theirs(compared)["input_ids"]
    assert ours.source.encode_many(compared) == ids
    texts = ours.target.decode_many(ids)
    assert texts == [theirs_decode(theirs, row, ours.target) for row in ids]
    print(f"{family} {language}: {len(compared)} lines, {sum(map(len, ids))} ids, all equal both ways")
