"""Terms in the outputs of a real model: each stands where it belongs, by every decoder that can; what was drafted
changes nothing; outputs that have their terms are those without a glossary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import longstride
from longstride.contract import OptionError
from longstride.terminology import TermPlacer
from longstride.text.glossary import Glossary
from longstride.translator import Translator

LINES = [
    "The Council has decided to support the proposal.",
    "Write to us (support@example.com) if you have questions.",
    "Mr President, climate change is the greatest challenge of our time.",
    "The committee and the Council agreed on the budget.",
    "Good morning.",
]
GLOSSARY = {"Council": "Kammer", "{email}": None, "climate change": "Klimakrise", "committee": "Gremium"}


@pytest.fixture(scope="module")
def translator() -> Translator:
    return longstride.load()


@pytest.fixture(scope="module")
def greedy(translator: Translator) -> list[str]:
    return [one.text for one in translator.translate(LINES, "greedy", glossary=GLOSSARY)]


def test_terms_stand_where_they_belong(translator: Translator, greedy: list[str]) -> None:
    free = translator.translate(LINES, "greedy")
    assert greedy[0].split()[1] == "Kammer"
    assert "(support@example.com)" in greedy[1]
    assert greedy[2].index("Klimakrise") < greedy[2].index("Herausforderung")
    assert greedy[3].index("Gremium") < greedy[3].index(" und ") < greedy[3].index("Kammer")
    assert greedy[4] == free[4].text


def test_drafts_and_batches_change_nothing(translator: Translator, greedy: list[str]) -> None:
    for decoder, batch, lines in (("draft-verify", 2, 5), ("copy-verify", 32, 2)):
        found = translator.translate(LINES[:lines], decoder, glossary=GLOSSARY, batch=batch)
        assert [one.text for one in found] == greedy[:lines]
    assert translator.translate(LINES[0], "greedy", glossary=GLOSSARY) == greedy[0]


@pytest.mark.parametrize(
    "options",
    [{"decoder": "beam", "width": 2, "n_best": 2}, {"decoder": "blockwise"}, {"decoder": "sample", "seed": 3}],
)
def test_others_hold_their_terms_too(translator: Translator, options: dict[str, Any]) -> None:
    glossary = Glossary.of(GLOSSARY)
    for one, line in zip(translator.translate(LINES[:2], glossary=glossary, **options), LINES[:2], strict=True):
        wanted = glossary.terms(line)
        for text in translator.text([hypothesis.tokens for hypothesis in one.n_best]) if wanted else ():
            assert wanted is not None
            assert wanted.missing(text) == []


def test_a_text_of_several_lines_and_a_trace(translator: Translator, greedy: list[str]) -> None:
    [found] = translator.translate(["\n".join(LINES[:2])], "greedy", glossary=GLOSSARY, trace=True)
    assert found.text == "\n".join(greedy[:2])
    assert found.trace is not None
    assert found.trace.replay() == list(found.tokens)


def test_there_may_be_no_room(translator: Translator) -> None:
    """Limits come first: what would not fit is left out."""
    found = translator.translate(LINES[0], "greedy", glossary=GLOSSARY, max_length=1)
    assert len(translator.target_tokenizer.encode(found)) <= 1


def test_outputs_that_have_their_terms_are_the_models_own(translator: Translator) -> None:
    kept = {"Council": "Rat", "proposal": "Vorschlag"}
    free, held = (translator.translate(LINES[:1], "greedy", glossary=given)[0] for given in (None, kept))
    assert (held.tokens, held.score) == (free.tokens, free.score)


def test_what_cannot_be_written_is_refused(translator: Translator) -> None:
    with pytest.raises(
        OptionError, match=r"^A glossary expects a decoder that writes from left to right, .* interleaved"
    ):
        translator.translate(LINES, "interleaved", glossary=GLOSSARY)
    with pytest.raises(OptionError, match=r"^A glossary expects terms that the model's vocabulary can spell, found"):
        translator.translate(LINES, glossary={"cat": "a\u2581b"})


def test_the_likeliest_place_is_found_without_asking_about_all(translator: Translator) -> None:
    """As by asking about every place: what a first token says bounds what a term may be."""
    placer, likelihood = translator.placer, translator.likelihood("greedy")
    assert likelihood is not None
    asked = list[int]()

    def counted(*given: torch.Tensor) -> torch.Tensor:
        asked.append(len(given[2]))
        return likelihood.score(*given)

    quick = replace(likelihood, score=counted)
    slow = replace(likelihood, score=counted, offer=None)
    rows = []
    for known in (quick, slow):
        made = TermPlacer(placer._encode, translator.target_tokenizer, known)
        found = []
        for line, free in zip(LINES, translator.translate(LINES, "greedy"), strict=True):
            if (terms := Glossary.of(GLOSSARY).terms(line)) is not None:
                found += [made.next_place(terms, list(free.tokens[:most]), 0, 100) for most in (99, 5)]
        rows.append((found, sum(asked)))
        asked.clear()
    assert rows[0][0] == rows[1][0]
    assert rows[0][1] < rows[1][1]
