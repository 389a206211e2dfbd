"""Pairs that teach a model to copy: what means the same in any language stands on both sides, as it is.

Addresses, numbers, codes, tags, placeholders, emoji, names that nobody bears and words of other scripts, all made up by
a random generator. Three ways to put one into a pair of sentences:

- in the place of a number or a name that both sides write alike, once each;
- before, behind or around both sentences;
- alone, or a few of them side by side: a line that is no sentence at all.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence

Pair = tuple[str, str]

SCRIPTS = {
    "Greek": (0x3B1, 0x3C9),
    "Cyrillic": (0x430, 0x44F),
    "Hebrew": (0x5D0, 0x5EA),
    "Arabic": (0x627, 0x64A),
    "Devanagari": (0x905, 0x939),
    "Thai": (0xE01, 0xE2E),
    "Hiragana": (0x3042, 0x3093),
    "Katakana": (0x30A2, 0x30F3),
    "Han": (0x4E00, 0x9FA5),
    "Hangul": (0xAC00, 0xD7A3),
}
"""First and last letter of what words are drawn from."""
EMOJI = ((0x1F300, 0x1F64F), (0x1F680, 0x1F6C5), (0x1F90D, 0x1F9FF), (0x2600, 0x26FF))
PLAIN = ("bcdfghjklmnprstvwz", "aeiou")
ACCENTED = ("bcdfghjklmnprstvwzčłñšž", "aeiouyáéóü")
"""consonants and vowels, of addresses and of names"""
ENDINGS = ("com", "org", "net", "de", "eu", "io", "co.uk", "fr", "info")
TAGS = ("b", "i", "em", "strong", "p", "span", "code", "u", "h1", "li", "td")
PLACE = re.compile(r"\b(?:\d[\d.,:]*\d|\d|[A-Z][a-z]{3,})\b")
"""A number or a name, as far as letters tell."""


def _word(draw: random.Random, least: int = 2, most: int = 4, letters: tuple[str, str] = PLAIN) -> str:
    return "".join(draw.choice(letters[0]) + draw.choice(letters[1]) for _ in range(draw.randint(least, most)))


def name(draw: random.Random) -> str:
    """Of a person or a place: nobody's."""
    letters = draw.choice((PLAIN, PLAIN, ACCENTED))
    ends = draw.choice(("", "", "n", "s", "r", "ck", "berg", "son", "ski"))
    return " ".join((_word(draw, 1, 4, letters) + ends).capitalize() for _ in range(draw.choice((1, 1, 1, 2))))


def foreign(draw: random.Random) -> str:
    """A word or two of another script."""
    first, last = SCRIPTS[draw.choice(list(SCRIPTS))]
    return " ".join(
        "".join(chr(draw.randint(first, last)) for _ in range(draw.randint(1, 5)))
        for _ in range(draw.choice((1, 1, 2)))
    )


def emoji(draw: random.Random) -> str:
    """One, or several."""
    return "".join(chr(draw.randint(*draw.choice(EMOJI))) for _ in range(draw.choice((1, 1, 1, 2, 3))))


def address(draw: random.Random) -> str:
    """Of a page, a mailbox, an account, a file."""
    host = f"{_word(draw)}.{draw.choice(ENDINGS)}"
    page = "/".join(_word(draw, 1, 3) for _ in range(draw.randint(0, 3)))
    return draw.choice(
        (
            f"https://{host}/{page}",
            f"http://www.{host}/{page}.html",
            f"www.{host}",
            f"https://{host}/{page}?id={draw.randint(1, 99999)}&lang={_word(draw, 1, 1)}",
            f"{_word(draw)}.{_word(draw)}@{host}",
            f"@{_word(draw)}_{draw.randint(1, 99)}",
            f"#{_word(draw)}{_word(draw).capitalize()}",
            f"/usr/{page}/{_word(draw)}.py",
            f"C:\\{_word(draw)}\\{_word(draw)}.txt",
        )
    )


def number(draw: random.Random) -> str:
    """A whole number of any length, and what is written alike in both languages."""
    whole = str(draw.randint(0, 10 ** draw.randint(1, 9)))
    return draw.choice(
        (whole, whole, f"{draw.randint(0, 23):02}:{draw.randint(0, 59):02}", f"{whole}-{draw.randint(1, 99)}")
    )


def code(draw: random.Random) -> str:
    """A version, a number of a file, a key: letters and digits."""
    letters = "".join(draw.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(draw.randint(1, 4)))
    return draw.choice(
        (
            f"{letters}-{draw.randint(1, 9999)}",
            f"v{draw.randint(0, 20)}.{draw.randint(0, 20)}.{draw.randint(0, 20)}",
            f"{letters}{draw.randint(10, 999)}/{draw.randint(2000, 2040)}",
            f"{draw.getrandbits(32):08x}",
            f"{{{_word(draw)}}}",
            f"%{draw.choice('sd')}",
            f"${{{_word(draw)}}}",
            f"`{_word(draw)}_{_word(draw)}()`",
            f"{_word(draw)}={draw.randint(0, 99)}",
        )
    )


KINDS: Sequence[Callable[[random.Random], str]] = (name, name, foreign, foreign, emoji, address, address, number, code)


def shared_places(pair: Pair) -> list[str]:
    """What both sides have once, and alike."""
    found = set(PLACE.findall(pair[0])) & set(PLACE.findall(pair[1]))
    return sorted(one for one in found if all(len(re.findall(rf"\b{re.escape(one)}\b", side)) == 1 for side in pair))


def substituted(pair: Pair, draw: random.Random) -> Pair | None:
    """With something else in the place of a number or name of both; None where there is none."""
    places = shared_places(pair)
    if not places:
        return None
    old = draw.choice(places)
    kinds = (number, number, code) if old[0].isdigit() else (name, name, foreign, address, code)
    new = draw.choice(kinds)(draw)
    source, target = (re.sub(rf"\b{re.escape(old)}\b", lambda _: new, side) for side in pair)
    return source, target


def attached(pair: Pair, draw: random.Random) -> Pair:
    """With something before, behind or around both."""
    new = draw.choice((emoji, emoji, address, foreign, code, number))(draw)
    tag = draw.choice(TAGS)
    form = draw.choice(
        ("{} " + new, "{} " + new, new + " {}", "{} (" + new + ")", new + ": {}", f"<{tag}>{{}}</{tag}>")
    )
    source, target = (form.replace("{}", side, 1) if form.startswith("{}") else _framed(form, side) for side in pair)
    return source, target


def _framed(form: str, side: str) -> str:
    """What is copied may hold braces of its own: the sentence's place is the last."""
    before, _, after = form.rpartition("{}")
    return before + side + after


def alone(draw: random.Random) -> Pair:
    """No sentence at all."""
    line = draw.choice((" ", " ", ", ", " - ")).join(draw.choice(KINDS)(draw) for _ in range(draw.choice((1, 1, 2, 3))))
    return line, line


def copies(pairs: Sequence[Pair], count: int, seed: int = 1) -> Iterator[Pair]:
    """So many pairs: three fifths with something substituted, three tenths attached, a tenth alone."""
    draw = random.Random(seed)
    made = 0
    while made < count:
        way = draw.random()
        pair: Pair | None
        if way < 0.1:
            pair = alone(draw)
        elif way < 0.4:
            pair = attached(draw.choice(pairs), draw)
        else:
            pair = substituted(draw.choice(pairs), draw)
        if pair is not None:
            yield pair
            made += 1
