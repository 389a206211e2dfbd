"""For the site alone: links from docs/ to other files of the repository become those files' names.

On GitHub and in a checkout they lead somewhere; the site holds nothing but docs/.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs calls this with every page."""
    here = (ROOT / "docs" / page.file.src_uri).parent

    def told(match: re.Match[str]) -> str:
        goal = Path(os.path.normpath(here / match[2]))
        if goal.is_relative_to(ROOT / "docs"):
            return match[0]
        if not goal.exists():
            raise FileNotFoundError(f"{page.file.src_uri}: expected a file of the repository, found {match[2]}.")
        name = goal.relative_to(ROOT).as_posix()
        words = match[1].strip("`")
        return f"`{name}`" if words in (name, goal.name, goal.stem) else f"{match[1]} (`{name}`)"

    return _LINK.sub(told, markdown)
