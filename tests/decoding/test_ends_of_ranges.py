"""Both ends of every range that a decoder declares give an output with a finite score, or a sentence that says why."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest

from longstride import load
from longstride.contract import Limits, OptionError
from longstride.registry import DECODERS
from longstride.translator import Translator
from tests.family import write_family

NAMES = ["greedy", "sample", "beam", "blockwise", "draft-verify", "draft", "copy-verify", "interleaved", "lattice"]
SHORT = {"max_length": 4}
LARGE = {"beam": ("width",), "interleaved": ("width",)}
"""What takes seconds at its upper end."""


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return load(write_family(tmp_path_factory.mktemp("ends") / "family"), device="cpu")


def ends(cls: type) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(cls):
        bounds = field.metadata.get("range")
        if bounds is not None and field.name != "banned":
            yield field.name, bounds.low
            yield field.name, bounds.high


@pytest.mark.parametrize("name", NAMES)
def test_both_ends_work_or_are_refused_in_words(family: Translator, name: str) -> None:
    kind = DECODERS[name].options
    tried = [*ends(kind), *ends(Limits), ("banned", tuple(range(5, family.target_tokenizer.size)))]
    if "accept" in {field.name for field in dataclasses.fields(kind)}:
        tried += [("accept", text) for text in ("top:1000000", "distance:1000000", "top:9,gap:inf", "top:1,gap:0")]
    for option, value in tried:
        if value == 1000 and option in LARGE.get(name, ()):
            value = 100
        try:
            found = family.translate(["a b c d", "b"], name, **{**SHORT, option: value})
        except OptionError as error:
            assert option in str(error)  # noqa: PT017 (most ends are not refused)
        else:
            assert all(one.score is not None and math.isfinite(one.score) for one in found), (option, value)


def test_more_candidates_than_there_are_words_are_all_of_them(family: Translator) -> None:
    size = family.target_tokenizer.size
    every, more = (family.translate(["a b c d", "b"], "lattice", candidates=k) for k in (size, 4096))
    assert [(one.text, one.score) for one in every] == [(one.text, one.score) for one in more]


@pytest.mark.parametrize("banned", [-1, 99999999, 10**20, "nan"])
@pytest.mark.parametrize("name", NAMES)
def test_only_ids_of_the_vocabulary_can_be_banned(family: Translator, name: str, banned: Any) -> None:
    with pytest.raises(OptionError, match="banned expects"):
        family.translate("a b", name, banned=[banned])


@pytest.mark.parametrize("batch", [0, -1, 2.5, math.nan, "many", True])
def test_a_batch_is_a_number_of_sentences(family: Translator, batch: Any) -> None:
    with pytest.raises(OptionError, match="batch expects a whole number of 1 or more"):
        family.translate(["a b"], batch=batch)


def test_a_batch_larger_than_the_text_is_all_of_it(family: Translator) -> None:
    lines = ["a b c", "d", "b b"]
    assert family.translate(lines, batch=10**18) == family.translate(lines, batch=3)
