"""The name that was meant, where one was written that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def meant(name: str, names: Iterable[str]) -> str:
    """`` (did you mean greedy?)``, to be put behind an unknown name in an error; nothing where none is near."""
    by_spelling = {one.lower().replace("_", "-"): one for one in names}
    written = name.lower().replace("_", "-")[:100]
    begun = [one for one in by_spelling if len(written) > 2 and one.startswith(written)]
    found = get_close_matches(written, by_spelling, n=1) or begun
    return f" (did you mean {by_spelling[found[0]]}?)" if found else ""
