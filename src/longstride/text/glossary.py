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
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
        self.entries: dict[str, str] = {}
        self._kinds: list[re.Pattern[str]] = []
        for given, target in entries:
            source = " ".join(given.split())
            meant = source if target is None else " ".join(target.split())
            for one in (source, meant):
                if not one or len(one) > LONGEST:
                    raise OptionError(f"A glossary expects terms of 1 to {LONGEST} characters, found {shown(one)}.")
            if source in KINDS:
                if meant != source:
                    raise OptionError(f"A glossary expects no translation of {source}, found {shown(meant)}.")
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
        entries: dict[str, tuple[str, str | None]] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            source, *rest = (part.strip() for part in line.split("\t"))
            where = f"{name}, line {number}"
            if len(rest) > 1 or not source or rest == [""]:
                raise InputError(
                    f"{where}: expected a term, a tab and its translation, or a term alone, found {shown(line)}."
                )
            entry = (source, rest[0] if rest else None)
            try:
                Glossary([entries.get(source, entry), entry])
            except OptionError as error:
                raise InputError(f"{where}: {error}") from None
            entries[source] = entry
        if not entries:
            raise InputError(f"{name}: expected a glossary, found no term in it.")
        return Glossary(entries.values())

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
        made = Glossary([])
        made.entries, made._kinds = {**self.entries, **other.entries}, [*self._kinds, *other._kinds]
        return made

    @cached_property
    def sha256(self) -> str:
        """Of all that it says."""
        said = [self.entries, sorted(kind.pattern for kind in self._kinds)]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.entries) + len(self._kinds)

    @cached_property
    def _beginning(self) -> dict[str, list[str]]:
        """First word, in small letters -> terms that begin with it, the longest first."""
        found: dict[str, list[str]] = defaultdict(list)
        for term in sorted(self.entries, key=len, reverse=True):
            if first := _FIRST.match(term):
                found[first[0].lower()].append(term)
        return found

    def terms(self, line: str) -> RequiredTerms | None:
        """What a line asks for; None: nothing."""
        every = [(match.start(), match.end(), match[0]) for kind in self._kinds for match in kind.finditer(line)]
        for word in _FIRST.finditer(line):
            every += [(word.start(), *found) for found in [self._at(line, word.start(), word[0])] if found]
        chosen: list[tuple[int, int, str]] = []
        for one in sorted(every, key=lambda found: (found[0], -found[1])):
            if not chosen or one[0] >= chosen[-1][1]:
                chosen.append(one)
        if not chosen:
            return None
        switched, before = [], 0
        for start, end, target in chosen:
            switched += [line[before:start], target]
            before = end
        return RequiredTerms(line, tuple(target for _, _, target in chosen), "".join([*switched, line[before:]]))

    def _at(self, line: str, start: int, word: str) -> tuple[int, str] | None:
        """Where the longest term ends that begins here, and what it is to be called."""
        for term in self._beginning.get(word.lower(), ()):
            end = start + len(term)
            here = line[start:end]
            same = here == term or (term == term.lower() and here.lower() == term)
            if same and not joins(line[max(start - 1, 0) : start], here) and not joins(here, line[end : end + 1]):
                target = self.entries[term]
                return end, here if target == term else target
        return None


Given = Glossary | str | os.PathLike[str] | Mapping[str, str | None] | Sequence[str | tuple[str, str]]
"""What a glossary may be given as."""


def _pair(one: str | Sequence[str]) -> tuple[str, str | None]:
    if isinstance(one, str):
        return one, None
    if not isinstance(one, Sequence) or len(one) != 2:
        raise OptionError(f"A glossary expects a term, or a term and its translation, found {shown(one)}.")
    return one[0], one[1]
