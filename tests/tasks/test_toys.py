"""Generated tasks: deterministic, distinct, splits that never meet; and German numbers that can be read back."""

from __future__ import annotations

import hashlib
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import OptionError
from longstride.tasks.toys import SYMBOLS, generate, split_of
from tests.spoken_task import numbers, spoken

TASKS = {"copy": partial(generate, "copy"), "reverse": partial(generate, "reverse"), "numbers": numbers}


@pytest.mark.parametrize("task", TASKS)
def test_the_same_seed_gives_the_same_pairs(task) -> None:
    first = list(TASKS[task](200, seed=3))
    assert first == list(TASKS[task](200, seed=3))
    assert first != list(TASKS[task](200, seed=4))
    assert first[:50] == list(TASKS[task](50, seed=3))
    assert len({source for source, _ in first}) == 200


def test_a_version_draws_what_the_one_before_it_drew() -> None:
    """Models and records name these tasks; another drawing would be another task."""
    drawn = "\n".join("|".join(pair) for pair in numbers(2000, seed=1, split="train"))
    assert (
        hashlib.sha256(drawn.encode()).hexdigest() == "f2c06d4dd887513f225f3193dadf4a4e1b163d65baa768bdcc8a9dd562a1a9eb"
    )


@pytest.mark.parametrize("task", TASKS)
def test_splits_never_meet(task) -> None:
    drawn = {
        split: {source for source, _ in TASKS[task](300, seed, split)}
        for seed, split in ((1, "train"), (2, "valid"), (3, "test"))
    }
    assert not drawn["train"] & drawn["valid"]
    assert not drawn["train"] & drawn["test"]
    assert not drawn["valid"] & drawn["test"]
    assert all(split_of(source) == split for split, sources in drawn.items() for source in sources)


def test_copy_and_reverse_do_what_they_say() -> None:
    for source, target in generate("copy", 100):
        assert target == source
    for source, target in generate("reverse", 100):
        symbols = source.split(" ")
        assert 3 <= len(symbols) <= 8
        assert set(symbols) <= set(SYMBOLS)
        assert target.split(" ") == symbols[::-1]


def test_one_english_sentence_has_one_german_one() -> None:
    german: dict[str, str] = {}
    for seed in range(20):
        for source, target in numbers(500, seed):
            assert german.setdefault(source, target) == target
            assert source == source.strip()
            assert "  " not in source + target
            assert len(source.split()) <= 24


def test_unknown_tasks_splits_and_too_many_pairs_are_refused() -> None:
    with pytest.raises(OptionError, match="task expects one of copy, reverse, found"):
        generate("sort", 1)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="split expects"):
        generate("copy", 1, split="dev")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="count expects 0 or more"):
        generate("copy", -1)


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (101, "one hundred and one", "einhunderteins"),
        (342, "three hundred and forty-two", "dreihundertzweiundvierzig"),
        (1000, "one thousand", "eintausend"),
        (1005, "one thousand and five", "eintausendfünf"),
        (12_700, "twelve thousand seven hundred", "zwölftausendsiebenhundert"),
        (21_021, "twenty-one thousand and twenty-one", "einundzwanzigtausendeinundzwanzig"),
        (101_001, "one hundred and one thousand and one", "einhunderteintausendeins"),
        (
            999_999,
            "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
            "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        ),
    ],
)
def test_numbers_are_spoken_right(value: int, english: str, german: str) -> None:
    assert spoken.number(value) == (english, german)


def read_german(text: str) -> int:
    """The number a German word names, by taking it apart from the left: an independent inverse."""
    small = {spoken.number(value)[1]: value for value in range(20)} | {"ein": 1}
    tens = {spoken.number(value)[1]: value for value in range(20, 100, 10)}
    if "tausend" in text:
        head, tail = text.split("tausend", 1)
        return read_german(head) * 1000 + (read_german(tail) if tail else 0)
    if "hundert" in text:
        head, tail = text.split("hundert", 1)
        return read_german(head) * 100 + (read_german(tail) if tail else 0)
    for name, value in tens.items():
        if text.endswith(name):
            ones = text[: -len(name)].removesuffix("und")
            return value + (small[ones] if ones else 0)
    return small[text]


@given(value=st.integers(0, 999_999))
def test_a_german_number_can_be_read_back(value: int) -> None:
    assert read_german(spoken.number(value)[1]) == value


@given(left=st.integers(0, 999_999), right=st.integers(0, 999_999))
def test_different_numbers_are_spoken_differently(left: int, right: int) -> None:
    assert (spoken.number(left)[0] == spoken.number(right)[0]) == (left == right)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (7, 0, "seven o'clock", "sieben Uhr"),
        (1, 0, "one o'clock", "ein Uhr"),
        (7, 30, "half past seven", "halb acht"),
        (12, 30, "half past twelve", "halb eins"),
        (1, 15, "a quarter past one", "Viertel nach eins"),
        (12, 45, "a quarter to one", "Viertel vor eins"),
        (3, 25, "twenty-five past three", "fünf vor halb vier"),
        (3, 35, "twenty-five to four", "fünf nach halb vier"),
        (9, 10, "ten past nine", "zehn nach neun"),
        (9, 55, "five to ten", "fünf vor zehn"),
        (1, 23, "one twenty-three", "ein Uhr dreiundzwanzig"),
        (8, 1, "eight oh one", "acht Uhr eins"),
    ],
)
def test_times_are_spoken_right(hour: int, minute: int, english: str, german: str) -> None:
    assert spoken.clock(hour, minute) == (english, german)


def test_every_time_has_its_own_words() -> None:
    times = [spoken.clock(hour, minute) for hour in range(1, 13) for minute in range(60)]
    assert len({english for english, _ in times}) == len({german for _, german in times}) == 720


def test_dates_years_and_prices_are_spoken_right() -> None:
    assert spoken.day_and_month(3, 3) == ("the third of March", "dritten März")
    assert spoken.day_and_month(21, 7) == ("the twenty-first of July", "einundzwanzigsten Juli")
    assert [spoken.ordinal(day) for day in (1, 2, 7, 8, 12, 19, 20, 30, 31)] == [
        ("first", "erste"),
        ("second", "zweite"),
        ("seventh", "siebte"),
        ("eighth", "achte"),
        ("twelfth", "zwölfte"),
        ("nineteenth", "neunzehnte"),
        ("twentieth", "zwanzigste"),
        ("thirtieth", "dreißigste"),
        ("thirty-first", "einunddreißigste"),
    ]
    assert spoken.year(1984) == ("nineteen eighty-four", "neunzehnhundertvierundachtzig")
    assert spoken.year(1905) == ("nineteen oh five", "neunzehnhundertfünf")
    assert spoken.year(1200) == ("twelve hundred", "zwölfhundert")
    assert spoken.year(2012) == ("two thousand and twelve", "zweitausendzwölf")
    assert spoken.price(1, 0) == ("one euro", "einen Euro")
    assert spoken.price(3, 50) == ("three euros and fifty cents", "drei Euro und fünfzig Cent")


def test_no_one_stands_before_a_german_plural() -> None:
    plurals = ("Minuten", "Stunden", "Tagen", "Jahre", "Euro", "Cent", "Einwohner", "Seiten", "Bücher", "Kilometer")
    for _, german in numbers(3000, seed=11):
        words = german.rstrip(".?").split()
        for word, following in pairwise(words):
            assert not (word.lower().endswith("eins") and following in plurals), german
