"""Parts of sentences, drawn at random and inflected: numbers, times, prices, things with their adjectives."""

from __future__ import annotations

import random

from longstride.tasks.grammar import spoken
from longstride.tasks.grammar.lexicon import ADJECTIVES, ARTICLES, THINGS, Noun
from longstride.tasks.grammar.spoken import Pair


def sentence(english: str, german: str, end: str = ".") -> Pair:
    """Begin with a capital and end with a full stop."""
    return english[0].upper() + english[1:] + end, german[0].upper() + german[1:] + end


def some(rng: random.Random, least: int, most: int) -> Pair:
    """A number that can stand before a plural; small ones are as likely as large ones."""
    while True:
        value = _rounded(rng, rng.randint(least, most if rng.random() < 0.5 else min(most, max(least * 10, 20))))
        if value >= least and spoken.countable(value):
            return spoken.number(value)


def any_number(rng: random.Random) -> int:
    """A number below a million; few digits are as likely as many."""
    return _rounded(rng, rng.randrange(10 ** rng.randint(1, 6)))


def _rounded(rng: random.Random, value: int) -> int:
    """Every third number is a round one, as people's numbers are."""
    digits = len(str(value))
    if digits == 1 or rng.random() < 0.67:
        return value
    unit: int = 10 ** rng.randint(1, digits - 1)
    return value // unit * unit


def time(rng: random.Random, first: int = 1, last: int = 12) -> Pair:
    """A time, mostly at a multiple of five minutes."""
    minute = rng.randrange(0, 60, 5) if rng.random() < 0.7 else rng.randrange(60)
    return spoken.clock(rng.randint(first, last), minute)


def price(rng: random.Random, most: int = 2000) -> Pair:
    """A price of up to `most` euros, with or without cents."""
    euros = rng.randint(1, 99) if rng.random() < 0.6 else rng.randint(100, most)
    if euros > 1 and not spoken.countable(euros):
        euros += 1
    return spoken.price(euros, rng.choice((0, 0, 50, 20, 95, rng.randint(2, 99))))


def date(rng: random.Random) -> Pair:
    """A day of a month that has it."""
    month = rng.randint(1, 12)
    return spoken.day_and_month(rng.randint(1, spoken.MONTH_LENGTHS[month - 1]), month)


def year(rng: random.Random, first: int) -> Pair:
    """A year from `first` on."""
    return spoken.year(rng.randint(first, 2029))


def described(rng: random.Random, nouns: list[Noun], adjectives: list[Pair] = ADJECTIVES) -> tuple[Pair, Pair]:
    """A noun with "the", with or without an adjective: (English, German nominative), (English, German accusative)."""
    noun = rng.choice(nouns)
    nominative, accusative = ARTICLES[noun.gender]
    if rng.random() < 0.4:
        english = f"the {noun.english}"
        return (english, f"{nominative} {noun.german}"), (english, f"{accusative} {noun.german}")
    adjective, stem = rng.choice(adjectives)
    english = f"the {adjective} {noun.english}"
    weak = stem + ("en" if noun.gender == "m" else "e")
    return (english, f"{nominative} {stem}e {noun.german}"), (english, f"{accusative} {weak} {noun.german}")


def several(rng: random.Random, most: int = 200) -> Pair:
    """Things counted, as nominative or accusative: ("three red books", "drei rote Bücher")."""
    noun, (english, german) = rng.choice(THINGS), some(rng, 2, most)
    if rng.random() < 0.4:
        return f"{english} {noun.english_plural}", f"{german} {noun.german_plural}"
    adjective, stem = rng.choice(ADJECTIVES)
    return f"{english} {adjective} {noun.english_plural}", f"{german} {stem}e {noun.german_plural}"


def one(rng: random.Random) -> Pair:
    """One thing with an adjective, as accusative: ("a red book", "ein rotes Buch")."""
    noun, (adjective, stem) = rng.choice(THINGS), rng.choice(ADJECTIVES)
    article, ending = {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es")}[noun.gender]
    english = "an" if adjective[0] in "aeiou" else "a"
    return f"{english} {adjective} {noun.english}", f"{article} {stem}{ending} {noun.german}"
