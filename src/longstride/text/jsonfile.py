"""Reading JSON that somebody else may have written: bounded in size and depth, every name once, text that is text.

Knows no meaning.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

LARGEST = 1 << 24
"""Bytes of a file that is read whole."""
DEEPEST = 64
"""Objects and lists within one another; whoever walks them by recursion stays far from Python's limit."""
LONGEST_NAME = 256
"""Characters; names of options may be dotted paths, which are walked by recursion too."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(file: Path) -> Any:
    """What a file holds; anything but reasonable JSON raises ValueError, a file that cannot be read OSError."""
    with open(file, "rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} bytes")
    return parse_json(content)


def parse_json(content: bytes | str) -> Any:
    """The same of what is in memory."""
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("objects or lists too deep within one another") from None
    _check_depth(value)
    if _SURROGATE.search(text):  # half a character, unless the other half stands beside it
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair in a string") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)[:80]!r} twice in one object")
    if longest := next((name for name in found if len(name) > LONGEST_NAME), None):
        raise ValueError(f"a name of {len(longest):,} characters")
    return found


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        if depth > DEEPEST:
            raise ValueError(f"objects or lists more than {DEEPEST} deep within one another")
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        depth += 1
