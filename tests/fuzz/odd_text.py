"""Text files and standard input: what the tiny model reads, and bytes that nobody expects."""

from __future__ import annotations

import gzip
import lzma
from random import Random

from longstride.tasks.toys import SYMBOLS

LINES = (
    *("", " ", "\t", "a", "a b c", "a  b", " a", "zzz", "ä ö ü", "日本 語", "🙂 a", "e\u0301", "\u202e a", "a\u2028b"),
    *(
        "a\x85b",
        "a\x0bb",
        "a\x0cb",
        "a\rb",
        "a\x00b",
        "\x1b[31ma",
        "<s>",
        "</s> <unk> <pad> <mask>",
        "a\ufeffb",
        "\ufffd",
    ),
    *("a " * 200, "ab" * 3000, "\u0301" * 50, "[red]a[/red]", "{}", "%s", "NaN", "1 2 3"),
)


def lines(rng: Random, number: int | None = None) -> list[str]:
    """Words of one letter, as the tiny model was made for."""
    wanted = number if number is not None else rng.choice((1, 2, 3, 3, 5, 8))
    return [" ".join(rng.choice(SYMBOLS) for _ in range(rng.randint(1, 8))) for _ in range(wanted)]


def usual(rng: Random, number: int | None = None) -> bytes:
    """A text that nothing is wrong with."""
    return "".join(line + "\n" for line in lines(rng, number)).encode()


def odd(rng: Random, number: int | None = None) -> bytes:
    """A text with something in it, or wrong with it."""
    found = lines(rng, number)
    for _ in range(rng.randint(1, 3)):
        found[rng.randrange(len(found))] = rng.choice(LINES)
    plain = "".join(line + "\n" for line in found).encode()
    place = rng.randrange(len(plain))
    return rng.choice(
        (
            plain,
            plain,
            plain.removesuffix(b"\n"),
            plain.replace(b"\n", b"\r\n"),
            b"",
            b"\n",
            b"\n" * 5,
            b"\xef\xbb\xbf" + plain,
            plain[:place] + bytes([rng.randrange(128, 256)]) + plain[place:],
            plain[:place] + b"\xed\xa0\x80" + plain[place:],
            plain[:place] + b"\x00" + plain[place:],
            "".join(found).encode("utf-16"),
            rng.randbytes(rng.choice((1, 50, 3000))),
            b"a " * 20_000 + b"\n",
        )
    )


def packed(rng: Random, content: bytes, ending: str, whole: bool) -> bytes:
    """A compressed file, perhaps a damaged one."""
    made = gzip.compress(content, mtime=0) if ending == ".gz" else lzma.compress(content)
    if whole:
        return made
    place = rng.randrange(len(made))
    return rng.choice((made[:place], made[:place] + b"\xff" + made[place + 1 :], made + b"junk", content, b""))
