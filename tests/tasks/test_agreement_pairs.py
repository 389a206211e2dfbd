"""Agreement pairs: one verb is put into the other number, where subject and verb can be told without a parser."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

MADE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "agreement_pairs.py"))


def wrong(translation: str) -> list[tuple[str, int]]:
    return [(str(one["contrastive"]), int(one["distance"])) for one in MADE["errors"](translation)]


def test_the_verb_at_the_end_of_a_clause_gets_the_other_number() -> None:
    assert wrong("Ich glaube, dass wir hier sind.") == [("Ich glaube, dass wir hier ist.", 1)]
    assert wrong("Er fragt, ob die neuen Regeln schon in Kraft sind, und geht.") == [
        ("Er fragt, ob die neuen Regeln schon in Kraft ist, und geht.", 3)
    ]


def test_every_clause_makes_a_pair_of_its_own() -> None:
    text = "Wir sagen, dass die Zeit knapp ist, weil viele Menschen warten müssen."
    assert wrong(text) == [
        ("Wir sagen, dass die Zeit knapp sind, weil viele Menschen warten müssen.", 1),
        ("Wir sagen, dass die Zeit knapp ist, weil viele Menschen warten muss.", 1),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Die Zeit ist knapp.",  # no clause of the kind
        "Er sagt, dass der Bericht fehlt.",  # a verb whose other number is not known
        "Er sagt, dass der Bericht gut ist und wir ihn lesen können.",  # two clauses joined
        "Er sagt, dass der Mitglieder Rechte geachtet werden.",  # a singular article, a plural verb: no subject
        "Er sagt, dass wir, wie immer, warten müssen.",  # something in between
    ],
)
def test_what_may_be_read_wrongly_is_left_out(text: str) -> None:
    assert not wrong(text)


def test_each_verb_and_its_other_number_belong_together() -> None:
    assert all(MADE["OTHER"][MADE["OTHER"][verb]] == verb for verb in MADE["OTHER"])
