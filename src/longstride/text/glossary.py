"""Glossaries: terms of the source, and what each has to be called in the output.

A term is found where it stands as whole words. One that is written in small letters is found in any case, another as
it is written; where several begin at a place, the longest counts, and none within it. A term without a translation is
to be kept as it is; `{url}` and `{email}` stand for all web and mail addresses. In an output a term is found as it was
written, or with a capital where it was written small. Knows no tokenizer and no model.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from longstride.contract import InputError, OptionError
from longstride.contract.options import shown
from longstride.text.corpus import read_lines

KINDS = {
    "{url}": re.compile(r"(?:https?://|www\.)[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]"),
    "{email}": re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
}
"""Names of what is always kept as it is; what a long word begins with is looked at once, not from every letter on."""
LONGEST = 1000
"""Characters of a term."""
MOST_WORDS = 12
"""Words of a line in a file of terms alone: a file of longer ones is another text."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts that put no spaces between words, and Korean, which writes what belongs to a word right behind it."""
_FIRST = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")
_IN_WORD = re.compile(rf"[^\W{_UNSPACED}]")
_OF_NO_WORD = re.compile(rf"[{_UNSPACED}\ufe00-\ufe0f]")
"""Signs on others that make no word of them: in scripts without spaces, and what says how an emoji is drawn"""


def joins(left: str, right: str) -> bool:
    """Whether two neighbouring characters belong to one word; no character is nobody's neighbour."""
    return bool(left and right and _in_word(left[-1]) and _in_word(right[0]))


def _in_word(sign: str) -> bool:
    """A letter or digit, or what stands on one: accents, the vowels of Indian scripts."""
    if _IN_WORD.match(sign):
        return True
    return unicodedata.category(sign) in ("Mn", "Mc") and not _OF_NO_WORD.match(sign)


@dataclass(frozen=True)
class RequiredTerms:
    """What the output of one line has to hold."""

    line: str
    targets: tuple[str, ...]
    """in the order of the source, each as often as its term stands there"""
    switched: str
    """the line with all of them in the places of their terms"""

    def at_first(self, target: str) -> str:
        """A target as an output begins with it: with a capital where the source has one."""
        return target[:1].upper() + target[1:] if self.line.lstrip()[:1].isupper() and target.islower() else target

    def missing(self, output: str) -> list[str]:
        """Those that an output does not have as often as it should, each once."""
        wanted = Counter(self.targets)
        return [target for target, times in wanted.items() if occurrences(target, output) < times]


def occurrences(target: str, text: str) -> int:
    """How often a text has a term as whole words."""
    forms = {target, target[:1].upper() + target[1:]} if target == target.lower() else {target}
    found = 0
    for form in forms:
        at = text.find(form)
        while at >= 0:
            end = at + len(form)
            found += not (joins(text[max(at - 1, 0) : at], form) or joins(form, text[end : end + 1]))
            at = text.find(form, end)
    return found


class Glossary:
    """Terms, and an index of how they begin."""

    def __init__(self, entries: Iterable[tuple[str, str | None]]) -> None:
        """Pairs of a term and its translation, or None for one that is kept."""
        self.entries: MutableMapping[str, str] = {}
        self._kinds: list[re.Pattern[str]] = []
        self._layers = [self]
        for given, target in entries:
            self._add(given, target)

    def _add(self, given: str, target: str | None) -> None:
        source = " ".join(given.split())
        meant = source if target is None else " ".join(target.split())
        for one in (source, meant):
            if not one or len(one) > LONGEST:
                raise OptionError(f"A glossary expects terms of 1 to {LONGEST} characters, found {shown(one)}.")
        if source in KINDS:
            if meant != source:
                raise OptionError(f"A glossary expects no translation of {source}, found {shown(meant)}.")
            if KINDS[source] not in self._kinds:
                self._kinds.append(KINDS[source])
        elif self.entries.setdefault(source, meant) != meant:
            other = self.entries[source]
            raise OptionError(
                f"A glossary expects one translation of {shown(source)}, found {shown(other)} and {shown(meant)}."
            )

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Glossary:
        """A file of lines as :meth:`parse` reads them."""
        return Glossary.parse(read_lines(path), str(path))

    @staticmethod
    def parse(lines: Iterable[str], name: str) -> Glossary:
        """Lines of a term, a tab and its translation, or of a term alone; # begins a remark. `name` is in errors."""
        made, read, paired = Glossary([]), list[str](), False
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            source, *rest = (part.strip() for part in line.split("\t"))
            where = f"{name}, line {number}"
            if len(rest) > 1 or not source or rest == [""] or "\0" in line:
                raise InputError(
                    f"{where}: expected a term, a tab and its translation, or a term alone, found {shown(line)}."
                )
            try:
                made._add(source, rest[0] if rest else None)
            except OptionError as error:
                raise InputError(f"{where}: {error}") from None
            read.append(line)
            paired = paired or bool(rest)
        if not made:
            raise InputError(f"{name}: expected a glossary, found no term in it.")
        if not paired and (found := _other_kind(read)):
            raise InputError(f"{name}: expected lines of a term, a tab and its translation, found {found}.")
        return made

    @staticmethod
    def of(given: Given) -> Glossary:
        """A glossary as a caller has it: a file, pairs, or terms to keep."""
        if isinstance(given, Glossary):
            return given
        if isinstance(given, str | os.PathLike):
            return Glossary.read(given)
        if not isinstance(given, Iterable):
            raise OptionError(f"A glossary expects a file, pairs of texts or terms, found {shown(given)}.")
        pairs = list(given.items()) if isinstance(given, Mapping) else [_pair(one) for one in given]
        for source, target in pairs:
            if not isinstance(source, str) or not isinstance(target, str | None):
                raise OptionError(f"A glossary expects texts, found {shown((source, target))}.")
        return Glossary(pairs)

    def joined(self, other: Glossary | None) -> Glossary:
        """With what another says beside it, which counts where both know a term."""
        if other is None:
            return self
        made = Glossary([])  # which looks terms up in both: a request's must not cost what the model's has of them
        made.entries = ChainMap(*(one.entries for one in (other, self)))
        made._kinds = list(dict.fromkeys([*self._kinds, *other._kinds]))
        made._layers = [*self._layers, *other._layers]
        return made

    @cached_property
    def sha256(self) -> str:
        """Of all that it says."""
        said = [dict(self.entries), sorted(kind.pattern for kind in self._kinds)]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.entries) + len(self._kinds)

    @cached_property
    def lengths(self) -> dict[str, tuple[int, ...]]:
        """First word, in small letters -> how long the terms are that begin with it, the longest first."""
        found: dict[str, set[int]] = defaultdict(set)
        for term in self.entries:
            if first := _FIRST.match(term):
                found[first[0].lower()].add(len(term))
        return {word: tuple(sorted(lengths, reverse=True)) for word, lengths in found.items()}

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {term: number for number, term in enumerate(self.entries)}

    def terms(self, line: str) -> RequiredTerms | None:
        """What a line asks for; None: nothing."""
        kept: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for match in chain.from_iterable(kind.finditer(line) for kind in self._kinds):
            kept[match.start()].append((match.end(), match[0]))
        words = {word.start(): word[0] for word in _FIRST.finditer(line)}
        chosen: list[tuple[int, int, str]] = []
        behind = 0
        for start in sorted({*kept, *words}):
            if start < behind:
                continue
            found = kept.get(start, [])
            if start in words and (term := self._at(line, start, words[start])) is not None:
                found = [*found, term]
            if found:
                behind, target = max(found, key=lambda one: one[0])
                chosen.append((start, behind, target))
        if not chosen:
            return None
        switched, before = [], 0
        for start, end, target in chosen:
            switched += [line[before:start], target]
            before = end
        return RequiredTerms(line, tuple(target for _, _, target in chosen), "".join([*switched, line[before:]]))

    def _at(self, line: str, start: int, word: str) -> tuple[int, str] | None:
        """Where the longest term ends that begins here, and what it is to be called."""
        first, before = word.lower(), line[max(start - 1, 0) : start]
        lengths = [layer.lengths[first] for layer in self._layers if first in layer.lengths]
        for length in lengths[0] if len(lengths) == 1 else sorted({*chain(*lengths)}, reverse=True):
            here, end = line[start : start + length], start + length
            if (term := self._same(here)) and not joins(before, here) and not joins(here, line[end : end + 1]):
                target = self.entries[term]
                return end, here if target == term else target
        return None

    def _same(self, here: str) -> str | None:
        """The term that is written so, or that is in small letters and is this in any case: the first of the two."""
        small = here.lower()
        found = [term for term in dict.fromkeys((here, small)) if term in self.entries and len(term) == len(here)]
        return min(found, key=self._rank) if len(found) > 1 else next(iter(found), None)

    def _rank(self, term: str) -> tuple[int, int]:
        number = next(number for number, layer in enumerate(self._layers) if term in layer.entries)
        return number, self._layers[number]._ranks[term]


Given = Glossary | str | os.PathLike[str] | Mapping[str, str | None] | Sequence[str | tuple[str, str]]
"""What a glossary may be given as."""


_OTHERS = {
    re.compile(r"\s*<(\?xml|!|tmx|html)", re.IGNORECASE): "XML; translate --drafts reads translation memories (TMX)",
    re.compile(r'\s*[\[{]\s*(["\[{]|$)'): "JSON",
    re.compile(r"PK\x03\x04"): "a zip archive (docx, xlsx, ods)",
    re.compile(r"%PDF|\{\\rtf"): "a document",
}
"""Beginnings of files that are not glossaries."""


def _other_kind(lines: Sequence[str]) -> str:
    """Return the kind of a file without tabs whose lines are not terms, or an empty text."""
    if found := next((found for start, found in _OTHERS.items() if start.match(lines[0])), ""):
        return found
    if len(lines) > 1 and all("," in line or ";" in line for line in lines):
        return "commas or semicolons in the place of tabs"
    return next((f"no tab and a line of {n} words" for line in lines if (n := len(line.split())) > MOST_WORDS), "")


def _pair(one: str | Sequence[str]) -> tuple[str, str | None]:
    if isinstance(one, str):
        return one, None
    if not isinstance(one, Sequence) or len(one) != 2:
        raise OptionError(f"A glossary expects a term, or a term and its translation, found {shown(one)}.")
    return one[0], one[1]
