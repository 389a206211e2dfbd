"""Reading JSON that somebody else may have written: bounded in size and depth, every name once. Knows no meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LARGEST = 1 << 24
"""Bytes of a file that is read whole."""
DEEPEST = 64
"""Objects and lists within one another; whoever walks them by recursion stays far from Python's limit."""
LONGEST_NAME = 256
"""Characters; names of options may be dotted paths, which are walked by recursion too."""


def read_json(file: Path) -> Any:
    """What a file holds; anything but reasonable JSON raises ValueError, a file that cannot be read OSError."""
    with open(file, "rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} bytes")
    return parse_json(content)


def parse_json(content: bytes) -> Any:
    """The same of bytes in memory."""
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("objects or lists too deep within one another") from None
    _check_depth(value)
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
