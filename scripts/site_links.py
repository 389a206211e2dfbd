"""For the site alone: links from docs/ to other files of the repository become those files' names.

On GitHub and in a checkout they lead somewhere; the site holds nothing but docs/. And pages that are read from the disk
ask no other server: what makes the search work there is docs/site.js instead of a script that would be downloaded.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
_SHIM = "https://unpkg.com/iframe-worker/shim"
_ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>")


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
        words = match[1].strip("`").rstrip("/")
        return f"`{name}`" if words in (name, goal.name, goal.stem) else f"{match[1]} (`{name}`)"

    return _LINK.sub(told, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """mkdocs calls this with every page as it will be written."""
    return _on_its_own(output, get_relative_url("site.js", page.url))


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """And this with what is no page: the one for addresses that lead nowhere, the map of the site."""
    return _on_its_own(output_content, "/site.js") if template_name.endswith(".html") else output_content


def _on_its_own(html: str, worker: str) -> str:
    html = html.replace(_SHIM, worker)
    if found := _ELSEWHERE.search(html):
        raise ValueError(f"the site: expected pages that ask no other server, found {found[0]}.")
    return html
