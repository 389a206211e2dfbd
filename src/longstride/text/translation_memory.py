"""Translation memories: pairs of a source and its translation, asked for the pair whose source is nearest a line.

How near two texts are is 1 less the edit distance of their words over the longer one's number of words, the fuzzy match
of translators' tools. Words are compared in lower case, and signs are words. Read are TMX, both ways round, and text
with a tab between source and translation. Knows no tokenizer and no model.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

from longstride.contract import InputError
from longstride.text.corpus import open_binary, read_lines
from longstride.text.sentences import split

LEAST = 0.6
"""The nearest source must be so near: of what is further away too little is the same for its translation to help."""
MOST = 64
"""Of the pairs that share a line's rarest words, so many are compared with it, those that share most of them."""
COMPRESSED = (".gz", ".xz")

_WORD = re.compile(r"\w+|[^\w\s]")
_NOT_TEXT = ("bpt", "ept", "it", "ph", "ut", "sub")
"""Elements of a TMX segment that hold another program's marks."""

Pair = tuple[str, str]


class TranslationMemory:
    """Pairs, and an index of their sources' words."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        """Of a source that comes again the last translation counts."""
        self._pairs = list(dict(pairs).items())
        self._words = [words(source) for source, _ in self._pairs]
        self._known: dict[str, list[int]] = defaultdict(list)
        self._same = {tuple(found): number for number, found in enumerate(self._words)}
        for number, found in enumerate(self._words):
            for word in set(found):
                self._known[word].append(number)

    def __len__(self) -> int:
        return len(self._pairs)

    def nearest(self, line: str, least: float = LEAST) -> str | None:
        """The translation of the nearest source, if it is near enough; of equally near ones the first."""
        wanted = words(line)
        if not wanted:
            return None
        same = self._same.get(tuple(wanted))
        if same is not None:
            return self._pairs[same][1]
        best, found = least, None
        for number in self._candidates(wanted, least):
            near = nearness(wanted, self._words[number])
            if near > best or (near == best and (found is None or number < found)):
                best, found = near, number
        return None if found is None else self._pairs[found][1]

    def draft(self, line: str) -> str | None:
        """What the translation of a line may be like: the nearest source's or, where none is near enough, those of its
        sentences, as many as have one."""
        if (found := self.nearest(line)) is not None:
            return found
        sentences = [piece.text for piece in split(line)]
        near = [self.nearest(one) for one in sentences] if len(sentences) > 1 else []
        return " ".join(one for one in near if one is not None) or None

    def _candidates(self, wanted: list[str], least: float) -> list[int]:
        """Pairs that may be near: one that lacks more of a line's words than the rest of them is too far away, so that
        it has one of any so many, and of the rarest ones too."""
        rest = len(wanted) - math.ceil(least * len(wanted) - 1e-9) + 1
        rarest = sorted(wanted, key=lambda word: len(self._known.get(word, ())))[:rest]
        shared = Counter(number for word in dict.fromkeys(rarest) for number in self._known.get(word, ()))
        return [number for number, _ in shared.most_common(MOST)]


def words(text: str) -> list[str]:
    """What is compared."""
    return _WORD.findall(text.lower())


def nearness(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """1 for equal texts, 0 for those of which nothing is the same."""
    return 1 - edit_distance(one, other) / max(len(one), len(other), 1)


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """How many elements must be put in, taken out or replaced (Levenshtein), by a column of the table at a time.

    A column's steps up and down are the bits of two numbers (Myers 1999, as Hyyrö 2003 has it).
    """
    if not one:
        return len(other)
    places: dict[Hashable, int] = {}
    for place, element in enumerate(one):
        places[element] = places.get(element, 0) | 1 << place
    every, last, distance = (1 << len(one)) - 1, 1 << len(one) - 1, len(one)
    up, down = every, 0
    for element in other:
        equal = places.get(element, 0)
        vertical = equal | down
        across = (((equal & up) + up) ^ up) | equal
        more, less = down | ~(across | up) & every, up & across
        distance += bool(more & last) - bool(less & last)
        more, less = more << 1 | 1, less << 1
        up, down = (less | ~(vertical | more)) & every, more & vertical & every
    return distance


# --- files -----------------------------------------------------------------------------------------------------------


def kind(path: Path) -> str:
    """``.tmx`` or ``.tsv`` of a translation memory, compressed or not; empty for other files."""
    ending = Path(path.stem if path.suffix in COMPRESSED else path.name).suffix.lower()
    return ending if ending in (".tmx", ".tsv") else ""


def read_memory(path: Path) -> TranslationMemory:
    """A memory from its file."""
    memory = TranslationMemory(_read_tmx(path) if kind(path) == ".tmx" else _read_table(path))
    if not len(memory):
        raise InputError(f"{path}: expected a translation memory, found no pair of texts in it.")
    return memory


def _read_table(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        source, *rest = line.split("\t")
        if not rest:
            raise InputError(f"{path}, line {number}: expected a source, a tab and its translation, found no tab.")
        if source.strip() and rest[0].strip():
            yield source, rest[0]


def _read_tmx(path: Path) -> list[Pair]:
    """The first two languages of every unit, both ways round: what a line is like tells which way."""
    units = _Units(path)
    with open_binary(path) as file:
        try:
            units.parser.ParseFile(file)
        except expat.ExpatError as error:
            raise InputError(
                f"{path}, line {error.lineno}: expected a translation memory (TMX), found XML that cannot be read "
                f"({expat.ErrorString(error.code)})."
            ) from error
        except (LookupError, ValueError) as error:  # what Python says of encodings that the parser does not know
            raise InputError(f"{path}: expected a translation memory (TMX), could not read it ({error}).") from error
    return units.pairs


class _Units:
    """What the parser finds."""

    def __init__(self, path: Path) -> None:
        self.pairs: list[Pair] = []
        self._path = path
        self._root = ""
        self._texts: list[str] = []
        self._segment: list[str] | None = None
        self._marks = 0
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._characters
        # Texts of a memory need none, and a few of them can stand for gigabytes.
        parser.EntityDeclHandler = self._refuse_entity

    def _refuse_entity(self, name: str, *_: Any) -> None:
        raise InputError(
            f"{self._path}, line {self.parser.CurrentLineNumber}: expected a translation memory (TMX) without entities "
            f"of its own, found one ({name[:40]!r})."
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._root:
            self._root = name
            if name != "tmx":
                raise InputError(f"{self._path}: expected a translation memory (<tmx>), found <{name[:40]}>.")
        if name == "tu":
            self._texts = []
        elif name == "seg":
            self._segment, self._marks = [], 0
        elif name in _NOT_TEXT:
            self._marks += 1

    def _end(self, name: str) -> None:
        if name == "seg" and self._segment is not None:
            self._texts.append(" ".join("".join(self._segment).split()))
            self._segment = None
        elif name in _NOT_TEXT:
            self._marks -= 1
        elif name == "tu" and len(self._texts) > 1 and all(self._texts[:2]):
            one, other = self._texts[:2]
            self.pairs += [(one, other), (other, one)]

    def _characters(self, text: str) -> None:
        if self._segment is not None and not self._marks:
            self._segment.append(text)
