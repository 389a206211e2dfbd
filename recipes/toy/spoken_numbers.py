"""Draws English sentences with numbers, times, dates and prices, and their German translations (spoken_numbers.toml).

    python recipes/toy/spoken_numbers.py data/numbers

writes train.en, train.de, valid.en, valid.de, test.en and test.de, of which no sentence is in two.
"""

from __future__ import annotations

import argparse
import random
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import spoken
from spoken import Pair

from longstride.tasks.toys import Split, distinct
from longstride.text.corpus import write_lines

_ARTICLES = {"m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das")}
"""by gender: nominative, accusative"""
_WITH_ONE = {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es")}
"""by gender: the indefinite article in the accusative, and what an adjective after it ends in"""
_ACTIONS = ("buy", "need", "sell", "order", "repair", "look_for", "bring")
_DAYTIMES = (
    ("in the morning", "morgens", 5, 10),
    ("in the afternoon", "nachmittags", 1, 4),
    ("in the evening", "abends", 6, 10),
)


class _Subject(str):
    """Who does something; its attributes are the verbs as they agree with it."""


@cache
def _read() -> dict[str, Any]:
    found = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    found["pairs"] = {name: _pairs(text) for name, text in found["pairs"].items()}
    found["nouns"] = {
        name: [line.split(", ") for line in text.strip().splitlines()] for name, text in found["nouns"].items()
    }
    found["subjects"] = [
        (person, _subject(pair, person, found["verbs"]))
        for person, pair in zip(found["subjects"]["order"].split(), _pairs(found["subjects"]["names"]), strict=True)
    ]
    found["weights"] = list(accumulate(template["weight"] for template in found["template"]))
    return found


def _pairs(text: str) -> list[Pair]:
    return [(english, german) for english, german in (one.split(" = ") for one in text.split(", "))]


def _subject(names: Pair, person: str, verbs: dict[str, str]) -> Pair:
    subjects = _Subject(names[0]), _Subject(names[1])
    for verb, forms in verbs.items():
        english, english_third, german, german_third = forms.split(", ")
        vars(subjects[0])[verb] = english_third if person == "it" else english
        vars(subjects[1])[verb] = {"i": german, "it": german_third, "we": german + "n"}[person]
    return subjects


def generate(count: int, seed: int = 1, split: Split | None = None) -> Iterator[Pair]:
    """`count` sentences with their translations, no sentence twice, the same for the same arguments."""
    return distinct(draw, "numbers", count, seed, split)


def draw(rng: random.Random) -> Pair:
    """One English sentence and its German translation."""
    words = _read()
    template = rng.choices(words["template"], cum_weights=words["weights"])[0]
    drawn = _drawn(rng, template, [])
    if "either" in template:
        first, second = template["either"]
        chance = template.get("chance")
        template = rng.choice((first, second)) if chance is None else first if rng.random() < chance else second
        drawn = _drawn(rng, template, drawn)
    english = template["english"].format(*(pair[0] for pair in drawn))
    german = template["german"].format(*(pair[1] for pair in drawn))
    if english[-1] not in ".?":
        return english, german
    return english[0].upper() + english[1:], german[0].upper() + german[1:]


def _drawn(rng: random.Random, template: dict[str, Any], drawn: list[Pair]) -> list[Pair]:
    """What was drawn before, and what this template draws; ``@2`` hands a draw what was drawn as {2}."""
    drawn = list(drawn)
    for wanted in template["draw"].split(", ") if "draw" in template else ():
        name, *texts = wanted.split()
        arguments: list[Any] = [
            drawn[int(one[1:])] if one[0] == "@" else int(one) if one.isdigit() else one for one in texts
        ]
        drawn.append(_DRAWS[name](rng, *arguments) if name in _DRAWS else _word(rng, name, *arguments))
    return drawn


def _word(rng: random.Random, kind: str, first: int = 0, last: int | None = None) -> Pair:
    return rng.choice(_read()["pairs"][kind][first:last])  # type: ignore[no-any-return]


def _any(rng: random.Random) -> Pair:
    """A number below a million; few digits are as likely as many."""
    return spoken.number(_rounded(rng, rng.randrange(10 ** rng.randint(1, 6))))


def _some(rng: random.Random, least: int, most: int) -> Pair:
    """A number that can stand before a plural; small ones are as likely as large ones."""
    while True:
        value = _rounded(rng, rng.randint(least, most if rng.random() < 0.5 else min(most, max(least * 10, 20))))
        if value >= least and spoken.countable(value):
            return spoken.number(value)


def _rounded(rng: random.Random, value: int) -> int:
    """Every third number is a round one, as people's numbers are."""
    digits = len(str(value))
    if digits == 1 or rng.random() < 0.67:
        return value
    unit: int = 10 ** rng.randint(1, digits - 1)
    return value // unit * unit


def _sum(rng: random.Random) -> Pair:
    left, right = rng.randrange(1000), rng.randrange(1000)
    larger, smaller = max(left, right), min(left, right)
    sign, values = rng.choice((("plus", (left, right, left + right)), ("minus", (larger, smaller, larger - smaller))))
    (e1, g1), (e2, g2), (e3, g3) = map(spoken.number, values)
    return f"{e1} {sign} {e2} is {e3}", f"{g1} {sign} {g2} ist {g3}"


def _digits(rng: random.Random) -> Pair:
    digits = [spoken.number(rng.randrange(10)) for _ in range(rng.randint(5, 8))]
    return " ".join(english for english, _ in digits), " ".join(german for _, german in digits)


def _owner(rng: random.Random) -> Pair:
    name = _word(rng, "name")[0]
    return rng.choice((("my", "meine"), ("our", "unsere"), (f"{name}'s", f"{name}s")))


def _time(rng: random.Random, first: int = 1, last: int = 12) -> Pair:
    """Mostly at a multiple of five minutes."""
    minute = rng.randrange(0, 60, 5) if rng.random() < 0.7 else rng.randrange(60)
    return spoken.clock(rng.randint(first, last), minute)


def _daytime(rng: random.Random) -> Pair:
    english, german, first, last = rng.choice(_DAYTIMES)
    time = _time(rng, first, last)
    return f"{time[0]} {english}", f"{time[1]} {german}"


def _hours(rng: random.Random, most: int) -> Pair:
    hours = rng.randint(1, most)
    english, german = spoken.number(hours)
    return ("one hour", "eine Stunde") if hours == 1 else (f"{english} hours", f"{german} Stunden")


def _date(rng: random.Random, case: str = "dative") -> Pair:
    month = rng.randint(1, 12)
    day = rng.randint(1, spoken.MONTH_LENGTHS[month - 1])
    english, german = spoken.day_and_month(day, month)
    return english, german if case == "dative" else german.replace("n ", " ", 1)


def _days(rng: random.Random) -> Pair:
    """From one day of a month to another."""
    month = rng.randint(1, 12)
    first, last = sorted(rng.sample(range(1, spoken.MONTH_LENGTHS[month - 1] + 1), 2))
    (e1, g1), (e2, g2) = spoken.ordinal(first), spoken.day_and_month(last, month)
    return f"from the {e1} to {e2}", f"vom {g1}n bis zum {g2}"


def _weekdays(rng: random.Random) -> Pair:
    days = _read()["pairs"]["day"]
    (e1, g1), (e2, g2) = (days[place] for place in sorted(rng.sample(range(7), 2)))
    return f"from {e1} to {e2}", f"von {g1} bis {g2}"


def _price(rng: random.Random, most: int) -> Pair:
    """Of up to so many euros, with or without cents."""
    euros = rng.randint(1, 99) if rng.random() < 0.6 else rng.randint(100, most)
    if euros > 1 and not spoken.countable(euros):
        euros += 1
    return spoken.price(euros, rng.choice((0, 0, 50, 20, 95, rng.randint(2, 99))))


def _noun(rng: random.Random, kind: str) -> Pair:
    """With an article in German alone: ("shop", "das Geschäft")"""
    english, _, german, _, gender = rng.choice(_read()["nouns"][kind])
    return english, f"{_ARTICLES[gender][0]} {german}"


def _described(rng: random.Random, kind: str, case: int) -> Pair:
    """A noun with "the", with or without an adjective, in the German nominative (0) or accusative (1)."""
    english, _, german, _, gender = rng.choice(_read()["nouns"][kind])
    article = _ARTICLES[gender][case]
    if rng.random() < 0.4:
        return f"the {english}", f"{article} {german}"
    adjective, stem = _word(rng, "building_adjective" if kind == "buildings" else "adjective")
    return f"the {adjective} {english}", f"{article} {stem}{'en' if case and gender == 'm' else 'e'} {german}"


def _several(rng: random.Random) -> Pair:
    """Things counted, as nominative or accusative: ("three red books", "drei rote Bücher")."""
    (_, noun, _, german_noun, _), (english, german) = rng.choice(_read()["nouns"]["things"]), _some(rng, 2, 200)
    if rng.random() < 0.4:
        return f"{english} {noun}", f"{german} {german_noun}"
    adjective, stem = _word(rng, "adjective")
    return f"{english} {adjective} {noun}", f"{german} {stem}e {german_noun}"


def _one(rng: random.Random) -> Pair:
    """One thing with an adjective, as accusative: ("a red book", "ein rotes Buch")."""
    (noun, _, german, _, gender), (adjective, stem) = rng.choice(_read()["nouns"]["things"]), _word(rng, "adjective")
    article, ending = _WITH_ONE[gender]
    return f"{'an' if adjective[0] in 'aeiou' else 'a'} {adjective} {noun}", f"{article} {stem}{ending} {german}"


def _who(rng: random.Random, *persons: str) -> Pair:
    every: list[tuple[str, Pair]] = _read()["subjects"]
    return rng.choice([who for person, who in every if not persons or person in persons])


def _action(rng: random.Random, who: Pair) -> Pair:
    """What somebody does, the verb agreeing."""
    verb = rng.choice(_ACTIONS)
    return getattr(who[0], verb), getattr(who[1], verb)


def _staying(rng: random.Random, who: Pair) -> Pair:
    """("living", "wohnt"), the German verb agreeing with who it is."""
    english, verb = rng.choice((("living", "live"), ("working", "work")))
    return english, getattr(who[1], verb)


_DRAWS: dict[str, Callable[..., Pair]] = {
    "number": lambda rng, least, most: spoken.number(rng.randint(least, most)),
    "ordinal": lambda rng, most: spoken.ordinal(rng.randint(1, most)),
    "year": lambda rng, first: spoken.year(rng.randint(first, 2029)),
    **{
        function.__name__[1:]: function
        for function in (
            _any, _some, _sum, _digits, _owner, _time, _daytime, _hours, _date, _days, _weekdays, _price, _noun,
            _described, _several, _one, _who, _action, _staying,
        )
    },
}  # fmt: skip
"""What templates draw; any other name is a list of pairs to choose from."""


def main() -> None:
    """Write the text files of all splits."""
    parser = argparse.ArgumentParser(description="Write spoken numbers, English and German, as text files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=120_000, help="for training (default: 120000)")
    parser.add_argument("--held-out", type=int, default=500, help="for validation, and for testing (default: 500)")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", asked.pairs), ("valid", asked.held_out), ("test", asked.held_out)):
        pairs = list(generate(count, split=split))
        for side, language in enumerate(("en", "de")):
            write_lines(asked.folder / f"{split}.{language}", (pair[side] for pair in pairs))


if __name__ == "__main__":
    main()
