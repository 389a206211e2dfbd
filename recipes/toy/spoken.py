"""Numbers, clock times, dates, years and prices as they are spoken in English and German. Draws nothing at random.

Every function gives a pair (English, German). British usage throughout: "three hundred and forty-two".
"""

from __future__ import annotations

Pair = tuple[str, str]

_ENGLISH_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GERMAN_SMALL = [
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun",
    "zehn", "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
]  # fmt: skip
_GERMAN_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_ENGLISH_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth",
}  # fmt: skip
_GERMAN_ORDINALS = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
_MONTHS = [
    ("January", "Januar"), ("February", "Februar"), ("March", "März"), ("April", "April"), ("May", "Mai"),
    ("June", "Juni"), ("July", "Juli"), ("August", "August"), ("September", "September"), ("October", "Oktober"),
    ("November", "November"), ("December", "Dezember"),
]  # fmt: skip
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def number(value: int) -> Pair:
    """A whole number from 0 to 999,999 standing alone: ("twenty-one", "einundzwanzig")."""
    return _english(value), _german(value)


def countable(value: int) -> bool:
    """Whether a number can stand before a German plural unchanged: 1, 101, 201 ... cannot."""
    return value % 100 != 1


def ordinal(value: int) -> Pair:
    """From 1 to 31, the German one as after "der": ("third", "dritte"); after "am" it takes an n."""
    head, hyphen, last = _english(value).rpartition("-")
    english = head + hyphen + _ENGLISH_ORDINALS.get(last, last + "th")
    return english, _GERMAN_ORDINALS.get(value) or _german(value) + ("te" if value < 20 else "ste")


def clock(hour: int, minute: int) -> Pair:
    """A time on the twelve-hour clock, as after "at" and "um": ("half past seven", "halb acht")."""
    (english, german), (next_english, next_german) = number(hour), number(hour % 12 + 1)
    if minute == 0:
        return f"{english} o'clock", f"{_before_noun(hour)} Uhr"
    if minute == 30:
        return f"half past {english}", f"halb {next_german}"
    if minute == 25:
        return f"twenty-five past {english}", f"fünf vor halb {next_german}"
    if minute == 35:
        return f"twenty-five to {next_english}", f"fünf nach halb {next_german}"
    if minute % 5 == 0:
        e, g = ("a quarter", "Viertel") if minute in (15, 45) else number(min(minute, 60 - minute))
        if minute < 30:
            return f"{e} past {english}", f"{g} nach {german}"
        return f"{e} to {next_english}", f"{g} vor {next_german}"
    oh = "oh " if minute < 10 else ""
    return f"{english} {oh}{_english(minute)}", f"{_before_noun(hour)} Uhr {_german(minute)}"


def day_and_month(day: int, month: int) -> Pair:
    """As after "on" and "am": ("the third of March", "dritten März")."""
    english, german = ordinal(day)
    return f"the {english} of {_MONTHS[month - 1][0]}", f"{german}n {_MONTHS[month - 1][1]}"


def year(value: int) -> Pair:
    """From 1100 to 2099: ("nineteen eighty-four", "neunzehnhundertvierundachtzig")."""
    if value >= 2000:
        return _english(value), _german(value)
    century, rest = divmod(value, 100)
    german = _german(century) + "hundert" + (_german(rest) if rest else "")
    if rest == 0:
        return f"{_english(century)} hundred", german
    return f"{_english(century)} {'oh ' if rest < 10 else ''}{_english(rest)}", german


def price(euros: int, cents: int) -> Pair:
    """As after "costs" and "kostet"; euros must be countable or 1, cents countable, 0 standing for none."""
    english, german = (
        ("one euro", "einen Euro") if euros == 1 else (f"{_english(euros)} euros", f"{_german(euros)} Euro")
    )
    if cents == 0:
        return english, german
    return f"{english} and {_english(cents)} cents", f"{german} und {_german(cents)} Cent"


def _english(value: int) -> str:
    if value < 20:
        return _ENGLISH_SMALL[value]
    if value < 100:
        tens, ones = divmod(value, 10)
        return _ENGLISH_TENS[tens - 2] + (f"-{_ENGLISH_SMALL[ones]}" if ones else "")
    if value < 1000:
        hundreds, rest = divmod(value, 100)
        return f"{_ENGLISH_SMALL[hundreds]} hundred" + (f" and {_english(rest)}" if rest else "")
    thousands, rest = divmod(value, 1000)
    tail = "" if rest == 0 else f" and {_english(rest)}" if rest < 100 else f" {_english(rest)}"
    return f"{_english(thousands)} thousand{tail}"


def _german(value: int) -> str:
    if value < 20:
        return _GERMAN_SMALL[value]
    if value < 100:
        tens, ones = divmod(value, 10)
        return (f"{_before_noun(ones)}und" if ones else "") + _GERMAN_TENS[tens - 2]
    if value < 1000:
        hundreds, rest = divmod(value, 100)
        return f"{_before_noun(hundreds)}hundert" + (_german(rest) if rest else "")
    thousands, rest = divmod(value, 1000)
    return f"{_before_noun(thousands)}tausend" + (_german(rest) if rest else "")


def _before_noun(value: int) -> str:
    """A final "eins" loses its s when something follows it: ein Uhr, einhundert, einhunderteintausend."""
    german = _german(value)
    return german[:-1] if value % 100 == 1 else german
