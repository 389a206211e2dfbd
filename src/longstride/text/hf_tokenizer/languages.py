"""Language codes of multilingual tokenizers: which tokens they are, and which codes come near one that is none."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from longstride.contract import OptionError

M2M100 = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu "
        "hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt "
        "ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
"""Languages of M2M100's vocabularies in the order of their ids, which follow those of vocab.json."""
PATTERNS = {
    "nllb": re.compile(r"([a-z]{3}_[A-Z][a-z]{3})"),
    "mbart": re.compile(r"([a-z]{2}_[A-Z]{2})"),
    "mbart50": re.compile(r"([a-z]{2}_[A-Z]{2})"),
    "m2m100": re.compile(r"__([a-z]{2,3})__"),
    "marian": re.compile(r">>(.+)<<"),
}
"""How a language token is spelt; the group is its code."""
DEFAULT_SOURCE = {"nllb": "eng_Latn", "mbart": "en_XX", "mbart50": "en_XX", "m2m100": "en"}
"""What Hugging Face takes for the source's language where nobody says."""


def spelt(family: str, tokens: Mapping[str, int]) -> dict[str, int]:
    """Code -> id of those tokens that are a family's language tokens, in the order of their ids."""
    pattern = PATTERNS.get(family)
    if pattern is None:
        return {}
    found = ((pattern.fullmatch(token), id) for token, id in sorted(tokens.items(), key=lambda each: each[1]))
    return {match[1]: id for match, id in found if match}


def check_language(code: str, languages: Mapping[str, int], what: str, name: str) -> None:
    """Refuse a code that the model does not have; `what` is the option it was given as."""
    if not languages:
        raise OptionError(f"{what} expects a model with language tokens, found none in {name}.")
    if code not in languages:
        raise OptionError(
            f"{what} expects one of the {len(languages)} languages of {name}, found {code!r}; "
            f"the nearest are {', '.join(_nearest(code, languages))}."
        )


def _nearest(code: str, languages: Mapping[str, int], count: int = 5) -> list[str]:
    alike = {known.lower(): known for known in languages}
    begins = [known for lower, known in alike.items() if lower.startswith(code.lower()[:2])]
    close = [alike[lower] for lower in difflib.get_close_matches(code.lower(), alike, count, 0.3)]
    return list(dict.fromkeys([*(known for known in close if known in begins), *begins, *close, *languages]))[:count]
