"""Terms in the outputs of a real model: each stands where it belongs, by every decoder that can; what was drafted
changes nothing; outputs that have their terms are those without a glossary."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partialmethod
from typing import Any

import pytest
import torch

import longstride
from longstride import terminology
from longstride.contract import Batch, OptionError, Prefixes, Source
from longstride.terminology import PLACES, Place, Placing, TermPlacer, Work
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
    with pytest.warns(
        UserWarning, match=r"^line 1 lacks terms of the glossary, for which no place was found: 'Kammer'.$"
    ):
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


class AllPlaces(TermPlacer):
    """Asks about every place, each as a row of its own."""

    def _best(
        self, source: list[int], tokens: list[int], every: Sequence[Sequence[Place]], work: Work
    ) -> list[tuple[Place, float]]:
        found = []
        for places in every:
            read, rows = Source.of([source]), Source.of([[*tokens[: place.at], *place.ids] for place in places])
            batch = Batch(read.ids, rows.ids, read.lengths, rows.lengths, torch.arange(len(places)))
            shares = self._likelihood.log_probabilities(batch)
            scores = [float(row[place.at :].sum()) for row, place in zip(shares, places, strict=True)]
            best = scores.index(max(scores))
            work.asked += len(places)
            found.append((places[best], scores[best]))
        return found


def test_the_likeliest_place_is_found_without_asking_about_all(translator: Translator) -> None:
    """As by asking about every place: what a first token says bounds what a term may be."""
    likelihood = translator.likelihood("greedy")
    assert likelihood is not None
    rows = []
    for kind in (TermPlacer, AllPlaces):
        made = kind(translator.placer._encode, translator.target_tokenizer, likelihood)
        found, work = [], Work()
        for line, free in zip(LINES, translator.translate(LINES, "greedy"), strict=True):
            if (terms := Glossary.of(GLOSSARY).terms(line)) is not None:
                found += [made.next_place(terms, list(free.tokens[:most]), 0, 100, work) for most in (99, 5)]
        rows.append((found, work.asked))
    assert rows[0][0] == rows[1][0]
    assert rows[0][1] < rows[1][1]


def placed(translator: Translator, line: str, glossary: dict[str, str]) -> tuple[str, Placing]:
    """An output that holds terms, and how it came about."""
    [ids] = translator.encode([line])
    decoder, limits = translator.decoder("greedy")
    placing = translator.placing(Glossary.of(glossary), {0: line}, [ids], limits)[0]
    [free] = decoder.decode(Source.of([ids]), limits).tokens
    while (prefix := placing(free)) is not None:
        source = replace(Source.of([ids]), prefixes=Prefixes.of([prefix], translator.placer.never_next))
        [free] = decoder.decode(source, limits).tokens
    return translator.text([free])[0], placing


def test_the_work_of_a_line_goes_up_with_its_terms_and_not_with_their_square(translator: Translator) -> None:
    """30 terms in a line of 30 words once took minutes and stopped a server."""
    asked = {}
    for number in (6, 18):
        line = " ".join(f"t{place}" for place in range(number))
        [ids] = translator.encode([line])
        decoder, limits = translator.decoder("greedy")
        glossary = Glossary.of({f"t{place}": f"x{place}" for place in range(number)})
        placing, rounds = translator.placing(glossary, {0: line}, [ids], limits)[0], 0
        [free] = decoder.decode(Source.of([ids]), limits).tokens
        prefix, tokens = list[int](), free
        while (found := placing(tokens)) is not None:  # as if the model wrote behind a prefix what it wrote before
            prefix, tokens, rounds = (
                found,
                [*found, *free[len(prefix) :]][: limits.longest_output(len(ids))],
                rounds + 1,
            )
        assert rounds <= number
        assert placing.work.calls <= 8 * (rounds + 1)
        asked[number] = placing.work.asked
    assert 0 < asked[18] <= min(PLACES, 9 * asked[6])


def test_what_is_beyond_the_bounds_is_told(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminology, "TERMS", 1)
    told = list[str]()
    glossary = {"committee": "Gremium", "Council": "Kammer", "budget": "Etat"}
    [found] = translator.translate([LINES[3]], "greedy", glossary=glossary, warn=told.append, first_line=7)
    assert "Gremium" in found.text
    assert "Kammer" not in found.text
    assert told == ["line 7 lacks terms of the glossary, for which no place was found: 'Kammer', 'Etat'."]


def test_where_no_more_places_may_be_asked_about_first_tokens_decide(
    translator: Translator, greedy: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in (0, 3):
        monkeypatch.setattr(Work, "__init__", partialmethod(Work.__init__, most))
        text, placing = placed(translator, LINES[3], GLOSSARY)  # type: ignore[arg-type]
        assert placing.work.asked <= most
        assert placing.missing == []
        assert "Gremium" in text
        assert "Kammer" in text


def test_a_search_stops_where_its_turn_is_refused(translator: Translator) -> None:
    class StoppedError(Exception):
        pass

    calls = 0

    def turn() -> AbstractContextManager[None]:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise StoppedError
        return nullcontext()

    line = " ".join(f"t{place}" for place in range(30))
    [ids] = translator.encode([line])
    decoder, limits = translator.decoder("greedy")
    glossary = Glossary.of({f"t{place}": f"x{place}" for place in range(30)})
    placing = translator.placing(glossary, {0: line}, [ids], limits)[0]
    with pytest.raises(StoppedError):
        placing(decoder.decode(Source.of([ids]), limits).tokens[0], turn)
    assert placing.work.calls == 3
